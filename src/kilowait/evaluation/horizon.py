"""The evaluation horizon: the time span over which utilization and other machine metrics are computed."""

from __future__ import annotations

import math

import numpy as np

from kilowait.errors import InputError
from kilowait.evaluation.job_measures import Floats, Mask
from kilowait.jobs import ExecutionLog

__all__ = ["horizon_of", "overlap_s", "makespan"]


def horizon_of(log: ExecutionLog, counted: Mask, horizon: tuple[float, float] | None) -> tuple[float, float]:
    """Start and end in seconds: the given horizon, validated; by default the makespan of the evaluated jobs."""
    if horizon is None:
        return makespan(log, counted)
    try:
        from_s, to_s = (float(edge) for edge in horizon)
    except (TypeError, ValueError):
        raise InputError(f"the horizon is {horizon!r}; give its start and end in seconds") from None
    if not (math.isfinite(from_s) and math.isfinite(to_s) and from_s < to_s):
        raise InputError(f"the horizon goes from {from_s} to {to_s} s; give two finite times, earlier first")
    return from_s, to_s


def makespan(log: ExecutionLog, counted: Mask) -> tuple[float, float]:
    """First submission and last end of the evaluated jobs; (NaN, NaN) if none of them started."""
    end_s = log.end_s[counted[log.job]]
    if len(end_s) == 0:
        return math.nan, math.nan
    return float(log.jobs_table["submit_s"][counted].min()), float(end_s.max())


def overlap_s(start_s: Floats, end_s: Floats, horizon: tuple[float, float]) -> Floats:
    """Length in seconds of each interval's overlap with the horizon.

    >>> overlap_s(np.array([0.0, 8.0]), np.array([4.0, 20.0]), (2.0, 10.0)).tolist()
    [2.0, 2.0]
    """
    inside: Floats = np.maximum(np.minimum(end_s, horizon[1]) - np.maximum(start_s, horizon[0]), 0.0)
    return inside
