"""Fairness of a run: Jain's index over users and job sizes, long waits and starvation."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.evaluation.breakdown import by_class
from kilowait.evaluation.job_measures import Floats, Ints, StartedJobColumns, evaluated_mask, started_jobs, waits
from kilowait.evaluation.metrics import Metrics
from kilowait.jobs import ExecutionLog

__all__ = ["fairness"]

_MIN_JOBS_PER_USER = 10
"""Users with fewer started jobs are left out of `worst_user_bsld`: their means are too noisy."""
_MIN_ESTIMATE_S = 3600.0
"""Shorter estimates count as one hour for starvation: a one-minute job does not starve after ten minutes."""


def fairness(
    log: ExecutionLog,
    *,
    counted: npt.ArrayLike | None = None,
    bound_s: float = 10.0,
    wait_bound_s: float = 86400.0,
    starving: float = 10.0,
) -> Metrics:
    """Fairness between users and between job sizes, and the number of long-waiting and starved jobs.

    Fairness is Jain's index of the classes' mean bounded slowdowns, (sum x)² / (n · sum x²): 1 if all n are
    equal, 1/n if one class has all the slowdown. Means are over evaluated jobs that started; NaN without any.

    - `users`: users with such a job; jobs of unknown users are left out here;
    - `jain_user_bsld`: Jain's index over them, `p95_user_bsld` the 95th percentile of their means;
    - `worst_user_bsld`: the largest mean of a user with at least 10 started jobs; of any user if none has as many;
    - `jain_size_bsld`, `worst_size_bsld`: the same over the size classes of `by_class`;
    - `share_wait_over_bound`: the share of evaluated jobs that waited longer than `wait_bound_s`;
    - `starved_jobs`, `starved_share`: jobs that waited longer than `starving` times their own estimate, or
      `starving` times 1 h if the estimate is shorter.

    The last two include all waits of a preempted job. A job that queued and never started, or was
    preempted and never resumed, has an infinite wait; a cancelled job waited until its cancellation. A rejected job
    never queued.

    Args:
        log: the execution log of the run.
        counted: mask over the rows of `log.jobs_table`, true for the evaluated jobs; None: all.
        bound_s: bound of the bounded slowdown, seconds.
        wait_bound_s: the longest acceptable wait, seconds.
        starving: the wait from which a job counts as starved, in multiples of the estimate.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[20, 10], nodes=[4, 2], user=[0, 1])
    >>> log = kw.simulate(jobs, kw.Cluster.from_nodes(4), policy="fcfs")
    >>> result = fairness(log, wait_bound_s=15.0)  # users have slowdowns of 1 and 3: 4² / (2 · 10)
    >>> result["users"], result["jain_user_bsld"], result["share_wait_over_bound"], result["starved_jobs"]
    (2, 0.8, 0.5, 0)
    """
    _check(wait_bound_s, starving)
    mask = evaluated_mask(log, counted)
    users, jobs_of_user = _user_means(log, started_jobs(log, bound_s, mask))
    sizes = np.array([row.mean_bsld for row in by_class(log, "size", bound_s=bound_s, counted=mask) if row.started])
    with_enough_jobs = users[jobs_of_user >= _MIN_JOBS_PER_USER]
    intervals = waits(log)
    waited = np.bincount(intervals.row, intervals.to_s - intervals.from_s, len(mask))[
        mask
    ]  # inf: still waiting at the end, 0: never queued
    over = int(np.count_nonzero(waited > wait_bound_s))
    starvation_wait_s = starving * np.maximum(log.jobs_table["estimate_s"][mask], _MIN_ESTIMATE_S)
    starved = int(np.count_nonzero(waited > starvation_wait_s))
    jobs = len(waited)
    return {
        "users": len(users),
        "jain_user_bsld": _jain(users),
        "worst_user_bsld": _largest(with_enough_jobs if len(with_enough_jobs) else users),
        "p95_user_bsld": float(np.percentile(users, 95.0)) if len(users) else math.nan,
        "jain_size_bsld": _jain(sizes),
        "worst_size_bsld": _largest(sizes),
        "share_wait_over_bound": over / jobs if jobs else math.nan,
        "starved_jobs": starved,
        "starved_share": starved / jobs if jobs else math.nan,
    }


def _user_means(log: ExecutionLog, ran: StartedJobColumns) -> tuple[Floats, Ints]:
    """Mean bounded slowdown of each known user, and the number of jobs it covers."""
    user = log.jobs_table.column("user")[ran.row]
    known = user >= 0
    _, code = np.unique(user[known], return_inverse=True)
    jobs = np.bincount(code)
    return np.bincount(code, weights=ran.bsld[known]) / jobs, jobs


def _jain(values: Floats) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything; NaN without values."""
    if len(values) == 0:
        return math.nan
    return float(values.sum() ** 2 / (len(values) * np.dot(values, values)))


def _largest(values: Floats) -> float:
    return float(values.max()) if len(values) else math.nan


def _check(wait_bound_s: float, starving: float) -> None:
    if not (math.isfinite(wait_bound_s) and wait_bound_s >= 0):
        raise InputError(f"wait_bound_s is {wait_bound_s}; the longest acceptable wait must be finite, 0 or more")
    if not (math.isfinite(starving) and starving > 0):
        raise InputError(f"starving is {starving}; give a finite multiple of the estimate, above 0")
