"""New expected end of jobs that exceed their expected run time; docs/engine.md defines the rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.jit import kernel, maybe_inline

__all__ = ["DOUBLE", "QUANTILE", "STEPS", "renewed_end_s"]

DOUBLE, STEPS, QUANTILE = 0, 1, 2

STEPS_S = (
    60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18000.0, 36000.0, 72000.0, 180000.0, 360000.0,
)  # fmt: skip
"""Tsafrir, Etsion, Feitelson (TPDS 2007): increments of a prediction each time it is exceeded; the last one repeats."""


@kernel
def doubled(span: float, start_s: float, now: float) -> float:
    """The time span, doubled at least once and until its end is in the future."""
    span *= 2.0
    while start_s + span <= now:
        span *= 2.0
    return span


@kernel
def stepped(span: float, start_s: float, now: float) -> float:
    """The time span plus as many steps as needed for its end to be in the future."""
    step = 0
    while True:
        span += STEPS_S[step]
        if start_s + span > now:
            return span
        step = min(step + 1, len(STEPS_S) - 1)


@maybe_inline
def renewed_end_s(s: Any, job: int) -> float:
    """New expected end of a running job that has exceeded its expected end."""
    k = s.clock[0]
    now = k.now
    record = s.jobs[job]
    start_s = s.job_state[job].start_s
    limit = record.limit_s
    if start_s + limit <= now:
        return start_s + doubled(limit, start_s, now)
    if k.overrun == STEPS:
        span = stepped(record.planned_s, start_s, now)
    elif k.overrun == QUANTILE and start_s + record.overrun_planned_s > now:
        span = record.overrun_planned_s
    elif k.overrun == QUANTILE and limit < np.inf:
        span = limit
    elif k.overrun == QUANTILE:
        span = doubled(max(record.planned_s, record.overrun_planned_s), start_s, now)
    else:
        span = doubled(record.planned_s, start_s, now)
    return start_s + min(span, limit)
