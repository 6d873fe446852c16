"""The plan: what is going to happen to every column and field of a log, before it happens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import LABELLED, REQUIRED
from kilowait.traces.anonymize.column_rules import META_RULES, RULES, Action
from kilowait.traces.anonymize.generalize import RoundingStep
from kilowait.units import parse_span

__all__ = ["RANDOM", "AnonymizationPlan", "Shift", "make_plan", "parse_names", "parse_shift"]

RANDOM: Literal["random"] = "random"
Shift = float | Literal["random"] | None
"""Seconds, or "random": derived from the key; None: times stay."""


@dataclass(frozen=True)
class AnonymizationPlan:
    """What happens to the columns and fields a log has."""

    actions: Mapping[str, Action]
    """By column, in the order of the table."""
    meta: Mapping[str, Literal["keep", "drop"]]
    """By field of the table's meta."""
    steps: Mapping[str, RoundingStep] = field(default_factory=dict)
    shift: Shift = None
    dated: bool = True
    """Whether the log's clock has dates; one without has none to hide, and is not shifted."""
    absent: tuple[str, ...] = ()
    """What was asked for and is not in this log."""

    def published(self) -> tuple[str, ...]:
        """Names of the columns that go out."""
        return tuple(name for name, action in self.actions.items() if action != "drop")

    def words(self) -> dict[str, str]:
        """What happens to each column, in words that may be published: neither key nor shift are in them."""
        said = {
            "keep": "kept",
            "drop": "dropped",
            "hash": "hashed with a secret key",
            "renumber": "renumbered",
        }
        found = {}
        for name, action in self.actions.items():
            words = said[action]
            step = self.steps.get("submit_s" if RULES[name].clock else name)
            if step is not None and action == "keep":
                words = f"rounded to {step.words}"
            if RULES[name].clock and action == "keep" and self.shift is not None and self.dated:
                words += ", dates moved"
            found[name] = words
        return found


def make_plan(
    jobs: JobTable,
    *,
    hashed: Iterable[str] = (),
    keep: Iterable[str] = (),
    drop: Iterable[str] = (),
    coarsen: Mapping[str, RoundingStep] | None = None,
    shift: Shift = None,
) -> AnonymizationPlan:
    """The plan for a log: the usual rules, but for what is named.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], user=[3], name=[7])
    >>> make_plan(jobs).words()["user"], make_plan(jobs).words()["name"]
    ('hashed with a secret key', 'dropped')
    """
    asked: dict[str, Action] = {}
    wishes: tuple[tuple[Action, Iterable[str]], ...] = (("hash", hashed), ("keep", keep), ("drop", drop))
    for action, names in wishes:
        for name in names:
            _check(name, action)
            if asked.setdefault(name, action) != action:
                raise InputError(
                    f"{name} is asked to be both {_PAST[asked[name]]} and {_PAST[action]}; choose one"
                )
    steps = dict(coarsen or {})
    for name in steps:
        if asked.get(name) == "drop":
            raise InputError(f"{name} is asked to be both dropped and coarsened; choose one")
    actions = {name: asked.get(name, RULES[name].action) for name in jobs.columns}
    if actions.get("after_id") == "drop" and "think_s" in actions:
        actions["think_s"] = "drop"  # the seconds after an end that is not told
    meta = {name: asked.get(name, META_RULES.get(name, "drop")) for name in jobs.meta if name not in RULES}
    wanted = [*asked, *steps]
    return AnonymizationPlan(
        actions,
        {name: "keep" if action == "keep" else "drop" for name, action in meta.items()},
        {name: step for name, step in steps.items() if name in jobs},
        shift,
        dated="unix_start_s" in jobs.meta,
        absent=tuple(name for name in wanted if name not in jobs and name not in jobs.meta),
    )


_PAST = {"hash": "hashed", "keep": "kept", "drop": "dropped"}


def _check(name: str, action: Action) -> None:
    if name not in RULES and name not in META_RULES:
        raise UnknownNameError("column or field of a log", name, {*RULES, *META_RULES})
    if action == "hash" and name not in LABELLED:
        raise InputError(
            f"{name} cannot be hashed, only names can: {', '.join(LABELLED)}; drop or coarsen it"
        )
    if action == "drop" and name in REQUIRED:
        raise InputError(f"{name} cannot be dropped, for no log is without it; coarsen it instead")
    if action == "keep" and name in RULES and RULES[name].action == "renumber":
        raise InputError(
            f"{name} cannot be kept: numbers of jobs lead to the site's own records; they are renumbered"
        )
    if action == "keep" and name in ("ledger", "anonymized"):
        raise InputError(f"{name} cannot be kept: it speaks of the file that is not published")


def parse_names(text: str | None) -> tuple[str, ...]:
    """Names with commas between.

    >>> parse_names("queue, qos"), parse_names(None)
    (('queue', 'qos'), ())
    """
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def parse_shift(text: str | None) -> Shift:
    """A span (``7d``, ``-2w``), or ``random``.

    >>> parse_shift("7d"), parse_shift("random"), parse_shift(None)
    (604800.0, 'random', None)
    """
    if text is None or text.strip() == RANDOM:
        return None if text is None else RANDOM
    return parse_span(text)
