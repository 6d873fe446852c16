"""Who pays for the schedule: how evenly users and sizes are served, and who is left waiting."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.evaluation.breakdown import by_class
from kilowait.evaluation.job_measures import (
    Floats,
    Ints,
    StartedJobs,
    counted_rows,
    started,
    waits,
)
from kilowait.evaluation.metrics import Metrics
from kilowait.jobs import ExecutionLog

__all__ = ["fairness"]

_ENOUGH_JOBS = 10
"""A mean over fewer jobs says more about the jobs than about how their user is treated."""
_SHORTEST_S = 3600.0
"""A job of a minute does not starve after ten: below an hour all estimates count as an hour."""


def fairness(
    log: ExecutionLog,
    *,
    counted: npt.ArrayLike | None = None,
    bound_s: float = 10.0,
    wait_bound_s: float = 86400.0,
    starving: float = 10.0,
) -> Metrics:
    """How evenly a run treats its users and its sizes of job, and how many jobs it leaves waiting.

    Evenness is Jain's index of the classes' mean bounded slowdowns, (sum x)² / (n · sum x²): 1 where all n
    fare alike, 1/n where one bears everything. Means are over counted jobs that started; NaN without any.

    - `users`: users with such a job; jobs whose user is unknown are left out here;
    - `jain_user_bsld`: the index over them, `p95_user_bsld` the 95th percentile of their means;
    - `worst_user_bsld`: the largest mean of a user with 10 started jobs or more; of any, if none has so many;
    - `jain_size_bsld`, `worst_size_bsld`: the same over the size classes of `by_class`;
    - `share_wait_over_bound`: the part of the counted jobs that waited longer than `wait_bound_s`;
    - `starved_jobs`, `starved_share`: those that waited longer than `starving` times their own estimate, or
      times 1 h where the estimate is shorter.

    For the last two all waits of a job that was preempted count. One that queued and was never started, or was
    preempted and never went on, has waited for ever, and one that was withdrawn has waited until then. A rejected job
    never queued.

    Args:
        log: what happened.
        counted: mask over the rows of `log.jobs_table`, true for the jobs that are judged; None: all.
        bound_s: bound of the bounded slowdown, seconds.
        wait_bound_s: the wait that should not be exceeded, seconds.
        starving: the wait that means starving, in multiples of the estimate.

    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[20, 20], nodes=[4, 2], user=[0, 1])
    >>> log = ExecutionLog(
    ...     jobs,
    ...     np.array([0, 1]),
    ...     np.array([0.0, 40.0]),
    ...     np.array([20.0, 60.0]),
    ...     np.zeros(2, np.int16),
    ...     np.zeros(2, np.int16),
    ...     np.ones(2, np.int8),
    ...     jobs["submit_s"],
    ...     np.ones(2, np.int8),
    ...     np.array([0.0]),
    ...     np.array([4]),
    ... )
    >>> found = fairness(log, wait_bound_s=30.0)  # users have slowdowns of 1 and 3: 4² / (2 · 10)
    >>> found["users"], found["jain_user_bsld"], found["share_wait_over_bound"], found["starved_jobs"]
    (2, 0.8, 0.5, 0)
    """
    _check(wait_bound_s, starving)
    mask = counted_rows(log, counted)
    users, jobs_of_user = _user_means(log, started(log, bound_s, mask))
    sizes = np.array(
        [row.mean_bsld for row in by_class(log, "size", bound_s=bound_s, counted=mask) if row.started]
    )
    judged = users[jobs_of_user >= _ENOUGH_JOBS]
    held = waits(log)
    waited = np.bincount(held.row, held.to_s - held.from_s, len(mask))[mask]  # inf for ever, 0 never queued
    over = int(np.count_nonzero(waited > wait_bound_s))
    max_wait_for_hold_s = starving * np.maximum(log.jobs_table["estimate_s"][mask], _SHORTEST_S)
    starved = int(np.count_nonzero(waited > max_wait_for_hold_s))
    jobs = len(waited)
    return {
        "users": len(users),
        "jain_user_bsld": _jain(users),
        "worst_user_bsld": _largest(judged if len(judged) else users),
        "p95_user_bsld": float(np.percentile(users, 95.0)) if len(users) else math.nan,
        "jain_size_bsld": _jain(sizes),
        "worst_size_bsld": _largest(sizes),
        "share_wait_over_bound": over / jobs if jobs else math.nan,
        "starved_jobs": starved,
        "starved_share": starved / jobs if jobs else math.nan,
    }


def _user_means(log: ExecutionLog, ran: StartedJobs) -> tuple[Floats, Ints]:
    """Each known user's mean bounded slowdown, and over how many jobs."""
    user = log.jobs_table.column("user")[ran.row]
    known = user >= 0
    _, code = np.unique(user[known], return_inverse=True)
    jobs = np.bincount(code)
    return np.bincount(code, weights=ran.bsld[known]) / jobs, jobs


def _jain(values: Floats) -> float:
    """Jain's index: 1 where all are equal, 1/n where one has all; NaN without values."""
    if len(values) == 0:
        return math.nan
    return float(values.sum() ** 2 / (len(values) * np.dot(values, values)))


def _largest(values: Floats) -> float:
    return float(values.max()) if len(values) else math.nan


def _check(wait_bound_s: float, starving: float) -> None:
    if not (math.isfinite(wait_bound_s) and wait_bound_s >= 0):
        raise InputError(
            f"wait_bound_s is {wait_bound_s}; the wait that is too long must be finite, 0 or more"
        )
    if not (math.isfinite(starving) and starving > 0):
        raise InputError(f"starving is {starving}; give a finite number of estimates above 0")
