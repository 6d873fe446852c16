"""Anonymization plan: the action for every column and meta field of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABEL_COLUMNS, REQUIRED
from kilowait.traces.anonymize.column_rules import COLUMN_RULES, META_RULES, Action
from kilowait.traces.anonymize.generalize import RoundingStep
from kilowait.units import parse_duration

__all__ = ["RANDOM_SHIFT", "AnonymizationPlan", "make_plan", "parse_names", "parse_shift"]

RANDOM_SHIFT: Literal["random"] = "random"
Shift = float | Literal["random"] | None
"""Shift in seconds, or "random": derived from the key; None: no shift."""


@dataclass(frozen=True)
class AnonymizationPlan:
    """Actions for the columns and meta fields of a log."""

    actions: Mapping[str, Action]
    """Action per column, in the order of the table."""
    meta: Mapping[str, Literal["keep", "drop"]]
    """Action per meta field."""
    steps: Mapping[str, RoundingStep] = field(default_factory=dict)
    shift: Shift = None
    dated: bool = True
    """Whether the times of the log are dates; relative times need no shift."""
    absent: tuple[str, ...] = ()
    """Given names that are not in this log."""

    def published(self) -> tuple[str, ...]:
        """Names of the published columns."""
        return tuple(name for name, action in self.actions.items() if action != "drop")

    def words(self) -> dict[str, str]:
        """Description of the action per column, safe for publication: without key and shift."""
        descriptions = {"keep": "kept", "drop": "dropped", "hash": "hashed with a secret key", "renumber": "renumbered"}
        actions_text = {}
        for name, action in self.actions.items():
            words = descriptions[action]
            step = self.steps.get("submit_s" if COLUMN_RULES[name].clock else name)
            if step is not None and action == "keep":
                words = f"rounded to {step.words}"
            if COLUMN_RULES[name].clock and action == "keep" and self.shift is not None and self.dated:
                words += ", dates moved"
            actions_text[name] = words
        return actions_text


def make_plan(
    jobs: JobTable,
    *,
    hashed: Iterable[str] = (),
    keep: Iterable[str] = (),
    drop: Iterable[str] = (),
    coarsen: Mapping[str, RoundingStep] | None = None,
    shift: Shift = None,
) -> AnonymizationPlan:
    """The plan for a log: the default rules with the given exceptions.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], user=[3], name=[7])
    >>> make_plan(jobs).words()["user"], make_plan(jobs).words()["name"]
    ('hashed with a secret key', 'dropped')
    """
    requested: dict[str, Action] = {}
    given_actions: tuple[tuple[Action, Iterable[str]], ...] = (("hash", hashed), ("keep", keep), ("drop", drop))
    for action, names in given_actions:
        for name in names:
            _check(name, action)
            if requested.setdefault(name, action) != action:
                raise InputError(f"{name} is to be both {_PAST[requested[name]]} and {_PAST[action]}; choose one")
    steps = dict(coarsen or {})
    for name in steps:
        if requested.get(name) == "drop":
            raise InputError(f"{name} is to be both dropped and coarsened; choose one")
    actions = {name: requested.get(name, COLUMN_RULES[name].action) for name in jobs.columns}
    if actions.get("after_id") == "drop" and "think_s" in actions:
        actions["think_s"] = "drop"  # the time after an end that is not published
    meta = {name: requested.get(name, META_RULES.get(name, "drop")) for name in jobs.meta if name not in COLUMN_RULES}
    named_columns = [*requested, *steps]
    return AnonymizationPlan(
        actions,
        {name: "keep" if action == "keep" else "drop" for name, action in meta.items()},
        {name: step for name, step in steps.items() if name in jobs},
        shift,
        dated="unix_start_s" in jobs.meta,
        absent=tuple(name for name in named_columns if name not in jobs and name not in jobs.meta),
    )


_PAST = {"hash": "hashed", "keep": "kept", "drop": "dropped"}


def _check(name: str, action: Action) -> None:
    if name not in COLUMN_RULES and name not in META_RULES:
        raise UnknownNameError("column or field of a log", name, {*COLUMN_RULES, *META_RULES})
    if action == "hash" and name not in LABEL_COLUMNS:
        raise InputError(f"{name} cannot be hashed, only names can: {', '.join(LABEL_COLUMNS)}; drop or coarsen it")
    if action == "drop" and name in REQUIRED:
        raise InputError(f"{name} cannot be dropped, because it is a required column; coarsen it instead")
    if action == "keep" and name in COLUMN_RULES and COLUMN_RULES[name].action == "renumber":
        raise InputError(
            f"{name} cannot be kept: job numbers can be looked up in the site's own records; they are renumbered"
        )
    if action == "keep" and name in ("ledger", "anonymized"):
        raise InputError(f"{name} cannot be kept: it describes the original file, which is not published")


def parse_names(text: str | None) -> tuple[str, ...]:
    """Parse comma-separated names.

    >>> parse_names("queue, qos"), parse_names(None)
    (('queue', 'qos'), ())
    """
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def parse_shift(text: str | None) -> Shift:
    """Parse a time span (``7d``, ``-2w``), or ``random``.

    >>> parse_shift("7d"), parse_shift("random"), parse_shift(None)
    (604800.0, 'random', None)
    """
    if text is None or text.strip() == RANDOM_SHIFT:
        return None if text is None else RANDOM_SHIFT
    return parse_duration(text)
