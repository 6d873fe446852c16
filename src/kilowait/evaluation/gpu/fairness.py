"""Finish-time fairness (Themis): completion time of a job relative to an exclusive 1/n share of the cluster.

With an *isolated* share a job has 1/n of the GPUs of every type it may use, all the time. As in
Gavel's isolated policy, with G GPUs it could use type k for N_k / (n G) of the time; these fractions are scaled down
to a sum of 1 if they exceed it, and its speed is the mean of its speeds weighted by them. Its isolated completion time
is run / that speed, and rho is its actual completion time divided by it: above 1 the job is slower than in isolation.

n is the mean number of GPU jobs, itself included, that waited or ran while it did. Its run is its work without
lost work, so that lost work counts against the schedule.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.evaluation.gpu.allocations import NodeAllocations, ended, left_s, node_allocations
from kilowait.evaluation.gpu.timeline import cumulative_steps
from kilowait.evaluation.job_measures import Floats, Ints, Mask, evaluated_mask
from kilowait.jobs import ExecutionLog

__all__ = ["fairness_of", "finish_time_rho", "rho_of"]

UNFAIR = 1.05
"""Rho above which a job counts as unfairly treated (Shockwave)."""


def finish_time_rho(
    log: ExecutionLog, cluster: Cluster, speeds: Speeds | None = None, *, counted: npt.ArrayLike | None = None
) -> Floats:
    """Rho of every row of the job table; NaN for jobs without GPUs or work, unfinished and not evaluated jobs.

    >>> from kilowait.evaluation.gpu.example_run import two_jobs
    >>> finish_time_rho(*two_jobs()).tolist()  # n is 2, then 1.5: two GPUs half the time, or 2 / 1.5 of half a one
    [0.5, 2.0]
    """
    return rho_of(log, node_allocations(log, cluster, speeds), evaluated_mask(log, counted))


def rho_of(log: ExecutionLog, allocations: NodeAllocations, counted: Mask) -> Floats:
    """Like `finish_time_rho`, for allocations that are already computed."""
    rho = np.full(len(log.jobs_table), math.nan)
    run = np.bincount(log.job, allocations.pieces.work_s - allocations.pieces.lost_s, len(rho))
    gpus, jct_s = allocations.job_gpus, log.jobs()["turnaround_s"]
    rows = ended(log)
    rows = rows[counted[rows] & (gpus[rows] > 0) & (run[rows] > 0) & (jct_s[rows] > 0)]
    if len(rows) == 0:
        return rho
    n = _mean_jobs(log, gpus > 0, rows)
    part = allocations.type_gpus / (n * gpus[rows])[:, None] * (allocations.speed[rows] > 0)
    speed = (part * allocations.speed[rows]).sum(1) / np.maximum(part.sum(1), 1.0)
    rho[rows] = jct_s[rows] * speed / run[rows]
    return rho


def _mean_jobs(log: ExecutionLog, has_gpus: Mask, rows: Ints) -> Floats:
    """Mean number of GPU jobs waiting or running during the time in the system of each job in `rows`."""
    joined, left, end = log.eligible_s, left_s(log), log.jobs()["end_s"]
    in_system = has_gpus & ~np.isnan(left)
    departed = in_system & np.isfinite(left)
    time = np.concatenate((joined[in_system], left[departed]))
    change = np.repeat(np.array([1, -1]), [np.count_nonzero(in_system), np.count_nonzero(departed)])
    active = cumulative_steps(time, change, 0, (float(joined[rows].min()), float(end[rows].max())))
    return active.mean(joined[rows], end[rows])


def fairness_of(rho: Floats) -> dict[str, float]:
    """Mean and largest rho, the share of jobs with rho above 1.05, and Jain's index of rho; NaN without values.

    >>> fairness_of(np.array([1.0, 3.0, np.nan]))
    {'mean_rho': 2.0, 'max_rho': 3.0, 'unfair_share': 0.5, 'jain_rho': 0.8}
    """
    rho = rho[~np.isnan(rho)]
    if len(rho) == 0:
        return dict.fromkeys(("mean_rho", "max_rho", "unfair_share", "jain_rho"), math.nan)
    return {
        "mean_rho": float(rho.mean()),
        "max_rho": float(rho.max()),
        "unfair_share": float(np.mean(rho > UNFAIR)),
        "jain_rho": float(rho.sum() ** 2 / (len(rho) * np.dot(rho, rho))),
    }
