"""Finish-time fairness (Themis): did a job fare worse than with its own share of the machine?

With an *isolated* n-th of the cluster a job has an n-th of the GPUs of every type it may use, all the time. As in
Gavel's isolated policy, with G GPUs it could hold type k for N_k / (n G) of the time; these parts are scaled down to 1
in all where they are more, and its speed is the mean of its speeds weighted by them. Its work takes run / that speed
then, and rho is the time it really took over this: above 1 it would have been better off alone.

n is the mean number of jobs with GPUs, itself included, that waited or ran while it did. Its run is the work it did and
kept, so that lost work counts against the schedule.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.evaluation.gpu.allocations import (
    NodeAllocations,
    ended,
    left_s,
    places_of,
)
from kilowait.evaluation.gpu.timeline import steps
from kilowait.evaluation.job_measures import (
    Floats,
    Ints,
    Mask,
    counted_rows,
)
from kilowait.jobs import ExecutionLog

__all__ = ["fairness_of", "finish_time_rho", "rho_of"]

UNFAIR = 1.05
"""Rho above which a job counts as treated unfairly (Shockwave)."""


def finish_time_rho(
    log: ExecutionLog, cluster: Cluster, speeds: Speeds | None = None, *, counted: npt.ArrayLike | None = None
) -> Floats:
    """Rho of every row of the job table; NaN for jobs without GPUs or work, or that never ended or do not count.

    >>> from kilowait.evaluation.gpu.example_run import two_jobs
    >>> finish_time_rho(
    ...     *two_jobs()
    ... ).tolist()  # n is 2, then 1.5: two GPUs half the time, or 2 / 1.5 of half a one
    [0.5, 2.0]
    """
    return rho_of(log, places_of(log, cluster, speeds), counted_rows(log, counted))


def rho_of(log: ExecutionLog, places: NodeAllocations, counted: Mask) -> Floats:
    """The same, of places known already."""
    rho = np.full(len(log.jobs_table), math.nan)
    run = np.bincount(log.job, places.pieces.work_s - places.pieces.lost_s, len(rho))
    wanted, took = places.job_gpus, log.jobs()["turnaround_s"]
    rows = ended(log)
    rows = rows[counted[rows] & (wanted[rows] > 0) & (run[rows] > 0) & (took[rows] > 0)]
    if len(rows) == 0:
        return rho
    n = _mean_jobs(log, wanted > 0, rows)
    part = places.type_gpus / (n * wanted[rows])[:, None] * (places.speed[rows] > 0)
    speed = (part * places.speed[rows]).sum(1) / np.maximum(part.sum(1), 1.0)
    rho[rows] = took[rows] * speed / run[rows]
    return rho


def _mean_jobs(log: ExecutionLog, asks: Mask, rows: Ints) -> Floats:
    """Jobs that ask for GPUs, waiting or running, on average while each of `rows` did."""
    joined, left, end = log.eligible_s, left_s(log), log.jobs()["end_s"]
    there = asks & ~np.isnan(left)
    gone = there & np.isfinite(left)
    time = np.concatenate((joined[there], left[gone]))
    change = np.repeat(np.array([1, -1]), [np.count_nonzero(there), np.count_nonzero(gone)])
    active = steps(time, change, 0, (float(joined[rows].min()), float(end[rows].max())))
    return active.mean(joined[rows], end[rows])


def fairness_of(rho: Floats) -> dict[str, float]:
    """Mean and largest rho, the share of jobs with rho above 1.05, and Jain's index of them; NaN where there are none.

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
