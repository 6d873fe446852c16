"""Apply run times predicted by a policy to waiting jobs."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import kernel

__all__ = ["apply_prediction", "apply_prediction_at_full_speed"]


@kernel
def apply_prediction(s: Any, job: int) -> float:
    """Clip predicted times to at least 1 s and the planned time to the limit; return the planned time."""
    record = s.jobs[job]
    if not record.estimate_s >= 1.0:  # also true of NaN
        record.estimate_s = 1.0
    if not record.planned_s >= 1.0:
        record.planned_s = 1.0
    record.planned_s = min(record.planned_s, record.limit_s)
    return record.planned_s


@kernel
def apply_prediction_at_full_speed(s: Any, job: int) -> float:
    """`apply_prediction` in runs with power controls: stores the planned time at full speed."""
    planned = apply_prediction(s, job)
    s.planned_s[job] = planned
    return planned
