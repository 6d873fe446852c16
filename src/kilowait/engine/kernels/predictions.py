"""Apply run times predicted by a policy to waiting jobs."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import kernel

__all__ = ["apply_prediction", "apply_prediction_at_full_speed"]


@kernel
def apply_prediction(s: Any, job: int) -> float:
    """Clip predicted times to at least 1 s and the planned time to the limit; return the planned time."""
    seen = s.jobs[job]
    if not seen.estimate_s >= 1.0:  # not a number either
        seen.estimate_s = 1.0
    if not seen.planned_s >= 1.0:
        seen.planned_s = 1.0
    seen.planned_s = min(seen.planned_s, seen.limit_s)
    return seen.planned_s


@kernel
def apply_prediction_at_full_speed(s: Any, job: int) -> float:
    """`apply_prediction` in runs with power controls: stores the planned time at full speed."""
    planned = apply_prediction(s, job)
    s.planned_s[job] = planned
    return planned
