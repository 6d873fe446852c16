"""Objectives of an evolution strategy, by name: functions of a simulated run; smaller is better."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kilowait.errors import UnknownNameError
from kilowait.jobs import ExecutionLog

__all__ = ["OBJECTIVES", "Objective", "mean_bsld", "mean_wait_s", "objective_of"]

Objective = Callable[[ExecutionLog], float]
"""Objective value of a run; smaller is better."""


def mean_bsld(log: ExecutionLog) -> float:
    """Mean bounded slowdown: (wait + run) / run, run times below 10 s counting as 10 s, at least 1."""
    records = log.jobs()
    started = ~np.isnan(records["start_s"])
    turnaround_s, run_s = records["turnaround_s"][started], records["run_s"][started]
    return float(np.maximum(1.0, turnaround_s / np.maximum(run_s, 10.0)).mean()) if len(run_s) else 1.0


def mean_wait_s(log: ExecutionLog) -> float:
    """Mean wait, seconds."""
    wait_s = log.jobs()["wait_s"]
    return float(np.nanmean(wait_s)) if np.isfinite(wait_s).any() else 0.0


OBJECTIVES: dict[str, Objective] = {"mean_bsld": mean_bsld, "mean_wait_s": mean_wait_s}
"""Objectives by name."""


def objective_of(objective: str | Objective) -> tuple[Objective, str]:
    """The objective as a function, and its name for the provenance.

    >>> objective_of("mean_wait_s")[1]
    'mean_wait_s'
    """
    if not isinstance(objective, str):
        return objective, getattr(objective, "__name__", "own")
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective", objective, OBJECTIVES)
    return OBJECTIVES[objective], objective
