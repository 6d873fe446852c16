"""What a rule that predicts has written of a waiting job, as the planner takes it."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import kernel

__all__ = ["apply_prediction", "apply_prediction_at_full_speed"]


@kernel
def apply_prediction(s: Any, job: int) -> float:
    """Both times at least a second, and what is planned not beyond the limit; that comes back."""
    seen = s.jobs[job]
    if not seen.estimate_s >= 1.0:  # not a number either
        seen.estimate_s = 1.0
    if not seen.planned_s >= 1.0:
        seen.planned_s = 1.0
    seen.planned_s = min(seen.planned_s, seen.limit_s)
    return seen.planned_s


@kernel
def apply_prediction_at_full_speed(s: Any, job: int) -> float:
    """As `heed`, where a job is tried at levels: this is what it is planned with at rest."""
    planned = apply_prediction(s, job)
    s.planned_s[job] = planned
    return planned
