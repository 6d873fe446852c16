"""Generalization (coarsening): columns rounded to a step, so that fewer jobs are unique.

Properties of the log are preserved: submissions keep their order, a job that ended within its limit still does,
positive values stay positive, and no job becomes larger than the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, MAX_TIME_S, ColumnArray
from kilowait.traces.anonymize.column_rules import COLUMN_RULES, Rounding
from kilowait.units import parse_duration

__all__ = ["POWERS_OF_TWO", "RoundingStep", "coarsen", "parse_coarsening", "parse_step", "rounded"]

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
    if name == "nodes":
        size = jobs.meta.get("max_procs", jobs.meta.get("max_nodes"))
        return MAX_TIME_S if size is None else float(size)
    return COLUMNS[name].maximum
