"""Anonymization plan: the default rule of each column and meta field, generalization, and the action for each.

Every column of `jobs.columns` has a rule; a column without one is an error, so that it is not published by accident.

Generalization (coarsening) rounds columns to a step, so that fewer jobs are unique. Properties of the log are
preserved: submissions keep their order, a job that ended within its limit still does, positive values stay positive,
and no job becomes larger than the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS, MAX_TIME_S, REQUIRED, ColumnArray
from kilowait.units import parse_duration

Action = Literal["keep", "drop", "hash", "renumber"]
Rounding = Literal["down", "near", "some", "up"]
"""Rounding mode: down, to the nearest, to the nearest but at least one step ("some"), up."""


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """Default action of a column, and how it can be coarsened."""

    action: Action
    rounding: Rounding | None = None
    """None: cannot be coarsened separately."""
    clock: bool = False
    """Whether the column is a time of the log: it is shifted with the dates and coarsened like `submit_s`."""


COLUMN_RULES: dict[str, ColumnRule] = {
    "job_id": ColumnRule("renumber"),
    "submit_s": ColumnRule("keep", "down", clock=True),
    "runtime_s": ColumnRule("keep", "some"),
    "estimate_s": ColumnRule("keep", "up"),
    "planned_s": ColumnRule("drop"),  # predictions are derived from users' histories
    "limit_s": ColumnRule("keep", "up"),
    "overrun_planned_s": ColumnRule("drop"),
    "expected_inverse_runtime": ColumnRule("drop"),
    "nodes": ColumnRule("keep", "some"),
    "cores": ColumnRule("keep", "some"),
    "memory_mb": ColumnRule("keep", "some"),
    "gpus": ColumnRule("keep", "some"),
    "cpu_milli": ColumnRule("keep", "some"),
    "gpu_milli": ColumnRule("keep", "some"),
    "gpu_types": ColumnRule("keep"),  # hardware types
    "runtime_gpu_type": ColumnRule("keep"),
    "model": ColumnRule("hash"),  # workload names may identify a project
    "gpus_may_span_nodes": ColumnRule("keep"),
    "priority": ColumnRule("keep", "near"),
    "checkpoint_s": ColumnRule("keep", "near"),
    "checkpoint_load_s": ColumnRule("keep", "near"),
    "user": ColumnRule("hash"),
    "account": ColumnRule("hash"),
    "queue": ColumnRule("keep"),  # usually public; the plan shows them
    "qos": ColumnRule("keep"),
    "name": ColumnRule("drop"),  # free text
    "log_id": ColumnRule("drop"),
    "node_list": ColumnRule("hash"),
    "status": ColumnRule("keep"),
    "wait_s": ColumnRule("keep", "near"),
    "after_id": ColumnRule("renumber"),
    "think_s": ColumnRule("keep", "near"),
    "begin_s": ColumnRule("keep", clock=True),
    "cancel_s": ColumnRule("keep", clock=True),
    "energy_j": ColumnRule("keep", "some"),
    "power_w": ColumnRule("keep", "some"),
    "predicted_power_w": ColumnRule("keep", "some"),
    "beta": ColumnRule("keep", "near"),
    "cpu_utilization": ColumnRule("keep", "near"),
    "gpu_utilization": ColumnRule("keep", "near"),
    "slack_s": ColumnRule("keep", "near"),
    "hold_until_s": ColumnRule("keep", clock=True),
}

META_RULES: dict[str, Literal["keep", "drop"]] = {
    "format": "keep",
    "max_procs": "keep",
    "max_nodes": "keep",
    "unit": "keep",
    "unix_start_s": "keep",
    "time_zone": "keep",
    "largest_machine": "keep",
    "rescaled_load": "keep",
    "source": "drop",
    "header": "drop",
    "ledger": "drop",
    "workload": "drop",
    "cluster": "drop",
    "machine": "drop",
    "cluster_queues": "drop",
    "model": "drop",
    "seed": "drop",
    "jobs_per_hour": "drop",
    "anonymized": "drop",  # of an earlier anonymization; replaced by the new one
}
"""Rules of the fields of `JobTable.meta`. Fields that are not listed are dropped."""

HEADER_KEYS = ("Computer", "Installation", "Acknowledge", "Information", "Conversion", "Copyright")
"""Keys kept of an SWF header if the header is kept: the others contain dates and sizes."""


POWERS_OF_TWO = "pow2"
"""Round to powers of two instead of multiples of a step; job sizes are usually powers of two."""
_USAGE = f"column=step with commas between, as in submit_s=60s,runtime_s=10s,memory_mb=1024,nodes={POWERS_OF_TWO}"


@dataclass(frozen=True)
class RoundingStep:
    """The step to whose multiples a column is rounded; `size` None: powers of two."""

    size: float | None
    text: str
    """The step as it was given, for messages."""

    @property
    def words(self) -> str:
        """Description for the plan."""
        return "powers of two" if self.size is None else f"multiples of {self.text}"


def parse_coarsening(text: str) -> dict[str, RoundingStep]:
    """Parse columns and their steps: time spans (``60s``, ``1h``) for columns of seconds, else numbers or ``pow2``.

    >>> parse_coarsening("submit_s=1h,nodes=pow2")["submit_s"].size
    3600.0
    """
    steps: dict[str, RoundingStep] = {}
    for part in text.split(","):
        name, equals, step = (piece.strip() for piece in part.partition("="))
        if not (name and equals and step):
            raise InputError(f"the coarsening has {part!r}; write {_USAGE}")
        if name in steps:
            raise InputError(f"the coarsening names {name!r} twice; give it one step")
        steps[name] = parse_step(name, step)
    return steps


def parse_step(name: str, text: str) -> RoundingStep:
    """Parse and validate the step of one column.

    >>> parse_step("nodes", "8").words, parse_step("nodes", "pow2").words
    ('multiples of 8', 'powers of two')
    """
    known = [column for column, rule in COLUMN_RULES.items() if rule.rounding is not None]
    if name not in known:
        raise UnknownNameError("column to coarsen", name, known)
    if text == POWERS_OF_TWO:
        if COLUMN_RULES[name].clock:
            raise InputError(f"{name} is a time, and powers of two are for sizes; give a time span: {name}=60s")
        return RoundingStep(None, text)
    try:
        size = parse_duration(text) if name.endswith("_s") else float(text)
    except ValueError:
        raise InputError(f"the step of {name} is {text!r}, which is not a number; write {_USAGE}") from None
    if not (math.isfinite(size) and size > 0):
        raise InputError(f"the step of {name} is {text}; it must be above 0")
    if issubclass(COLUMNS[name].dtype, np.integer) and size != int(size):
        raise InputError(f"the step of {name} is {text}, but {name} has whole numbers; give a whole step")
    return RoundingStep(size, text)


def rounded(values: ColumnArray, rounding: Rounding, step: RoundingStep, most: float = MAX_TIME_S) -> ColumnArray:
    """Values rounded to the step; NaN and infinity are unchanged, and no value is raised above `most`.

    >>> rounded(np.array([0.0, 3.0, 26.0, np.nan]), "some", RoundingStep(10.0, "10s")).tolist()
    [0.0, 10.0, 30.0, nan]
    >>> rounded(np.array([1, 3, 5, 100]), "some", RoundingStep(None, "pow2"), most=100).tolist()
    [1, 4, 4, 100]
    """
    result = np.array(values, np.float64)
    rows = np.isfinite(result) if step.size is not None and rounding in ("down", "near") else result > 0
    rows &= np.isfinite(result)
    selected = result[rows]
    if step.size is None:
        power = np.log2(selected)
        rounded_values = np.exp2(np.ceil(power) if rounding == "up" else np.floor(power + 0.5))
    elif rounding == "down":
        rounded_values = np.floor(selected / step.size) * step.size
    elif rounding == "up":
        rounded_values = np.ceil(selected / step.size) * step.size
    else:
        rounded_values = np.floor(selected / step.size + 0.5) * step.size
        if rounding == "some":
            rounded_values = np.maximum(rounded_values, step.size)
    # A value that already exceeds `most` may stay, but not grow.
    result[rows] = np.minimum(rounded_values, np.maximum(most, selected))
    return result.astype(values.dtype)


def coarsen(jobs: JobTable, steps: Mapping[str, RoundingStep]) -> JobTable:
    """The jobs with these columns rounded, and dependent columns adjusted to stay consistent.

    >>> jobs = JobTable(job_id=[1], submit_s=[99], runtime_s=[3598], estimate_s=[3599], nodes=[3])
    >>> result = coarsen(jobs, parse_coarsening("submit_s=60s,runtime_s=10s"))
    >>> result["submit_s"].tolist(), result["runtime_s"].tolist(), result["estimate_s"].tolist()
    ([60.0], [3600.0], [3600.0])
    """
    columns: dict[str, ColumnArray] = {}
    for name, step in steps.items():
        for column in [name] if not COLUMN_RULES[name].clock else [c for c in COLUMN_RULES if COLUMN_RULES[c].clock]:
            if column in jobs:
                rounding = COLUMN_RULES[name].rounding
                assert rounding is not None
                columns[column] = rounded(jobs[column], rounding, step, _most(jobs, column))
    if "gpus" in columns and "gpu_milli" in jobs:  # a fractional GPU is a fraction of exactly one GPU
        columns["gpus"] = np.where(jobs["gpu_milli"] < 1000, jobs["gpus"], columns["gpus"])
    if "runtime_s" in columns:
        within_limit = jobs["runtime_s"] <= jobs["estimate_s"]
        estimate = jobs["estimate_s"].copy()
        estimate[within_limit] = np.maximum(estimate, columns["runtime_s"])[within_limit]
        step_of_limit = steps.get("estimate_s")
        columns["estimate_s"] = estimate if step_of_limit is None else rounded(estimate, "up", step_of_limit)
    return jobs.with_columns(**columns)


def _most(jobs: JobTable, name: str) -> float:
    if name in ("nodes", "cores"):
        size = jobs.meta.get("max_nodes", jobs.meta.get("max_procs"))
        size = size if name == "nodes" else jobs.meta.get("max_procs")
        return MAX_TIME_S if size is None else float(size)
    return COLUMNS[name].maximum


# -- plan ------------------------------------------------------------------------------------------


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
