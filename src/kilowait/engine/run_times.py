"""Run times of jobs: true, estimated, planned and limit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.jobs import JobTable

Floats = npt.NDArray[np.float64]
MIN_PLANNED_S = 1.0
"""Minimum planned time: a job planned with 0 s would reserve nothing."""


class RunTimes(NamedTuple):
    """Run times of each job, seconds."""

    run_s: Floats
    """True run time."""
    estimate_s: Floats
    """Used by priority policies."""
    planned_s: Floats
    """Used for reservations and backfilling."""
    limit_s: Floats
    """Walltime limit; infinite: none."""
    overrun_planned_s: Floats
    """Expected run time of a job that has exceeded planned_s; 0: unknown."""
    expected_inverse_runtime: Floats
    """Expected value of 10 s / run time, at most 1."""


def resolve_run_times(jobs: JobTable, at_limit: str = "extend", *, limited: bool = False) -> RunTimes:
    """Run times from the job table and `at_limit`; `limited`: without column `limit_s`, estimates are limits.

    >>> jobs = JobTable(
    ...     job_id=[1, 2],
    ...     submit_s=[0, 0],
    ...     runtime_s=[900, 900],
    ...     estimate_s=[600, 600],
    ...     limit_s=[800, float("nan")],
    ...     nodes=[1, 1],
    ... )
    >>> resolve_run_times(jobs, "kill").run_s.tolist()
    [800.0, 600.0]
    """
    estimate = np.maximum(jobs["estimate_s"], MIN_PLANNED_S)
    limit = estimate if limited else np.broadcast_to(np.inf, len(jobs))
    if "limit_s" in jobs:
        limit = _known(np.maximum(jobs["limit_s"], MIN_PLANNED_S), np.inf)
    planned = estimate
    if "planned_s" in jobs:
        planned = _known(np.maximum(jobs["planned_s"], MIN_PLANNED_S), estimate)
    if limited or "limit_s" in jobs:
        planned = np.minimum(planned, limit)
    run = jobs["runtime_s"]
    if at_limit == "kill":
        run = np.minimum(run, np.where(limit < np.inf, limit, estimate))
    overrun_planned = (
        _known(jobs["overrun_planned_s"], 0.0) if "overrun_planned_s" in jobs else np.broadcast_to(0.0, len(jobs))
    )
    expected_inverse_runtime = 10.0 / np.maximum(estimate, 10.0)
    if "expected_inverse_runtime" in jobs:
        expected_inverse_runtime = _known(jobs["expected_inverse_runtime"], expected_inverse_runtime)
    return RunTimes(run, estimate, planned, limit, overrun_planned, expected_inverse_runtime)


def _known(values: Floats, default: Floats | float) -> Floats:
    """The values, with NaN replaced by `default`."""
    return np.where(np.isnan(values), default, values)
