"""The quantities every judgement of a run is made of, job by job and step by step.

A job's *wait* runs from the time it joined the queue to its first start, and again whenever it was preempted until
it goes on; its *turnaround* from the time it joined to its last end, its *run* is the time it really ran (all its
segments). Its *slowdown* is turnaround / run, its *bounded slowdown* max(1, turnaround / max(run, bound)).

Not every job of a log need be judged: a window of a trace is simulated with earlier jobs before it, which fill
the machine but are not *counted*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome

__all__ = [
    "StartedJobs",
    "WaitIntervals",
    "capacity_at",
    "counted_rows",
    "left_queue_s",
    "started",
    "summary",
    "waits",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StartedJobs:
    """The counted jobs that started, as columns of equal length, in the job table's order."""

    row: Ints
    """Row of the job table."""
    wait_s: Floats
    turnaround_s: Floats
    run_s: Floats
    bsld: Floats

    def slowdown(self) -> Floats:
        """Of the jobs that ran for more than 0 s; the others have none and are left out."""
        ran = self.run_s > 0
        return self.turnaround_s[ran] / self.run_s[ran]


def counted_rows(log: ExecutionLog, counted: npt.ArrayLike | None) -> Mask:
    """The mask over the rows of the job table, checked; every row where it is None."""
    jobs = len(log.jobs_table)
    if counted is None:
        return np.ones(jobs, np.bool_)
    remedy = f"give one true or false for each of the {jobs} rows of jobs_table"
    try:
        mask = np.asarray(counted)
    except ValueError:
        raise InputError(f"counted is a ragged list; {remedy}") from None
    if mask.dtype != np.bool_:
        raise InputError(f"counted holds {mask.dtype}, not booleans; {remedy}")
    if mask.shape != (jobs,):
        raise InputError(f"counted has the shape {mask.shape}; {remedy}")
    return mask


def started(log: ExecutionLog, bound_s: float, counted: npt.ArrayLike | None = None) -> StartedJobs:
    """Wait, turnaround, run (seconds) and bounded slowdown of the jobs that started.

    `counted` is a mask over the rows of `log.jobs_table`: the others are left out. None takes them all.
    """
    if not (math.isfinite(bound_s) and bound_s > 0):
        raise InputError(f"bound_s is {bound_s}; the bound of the slowdown must be a finite number above 0")
    records = log.jobs()
    has_run = ~np.isnan(records["start_s"])
    row = np.flatnonzero(has_run & counted_rows(log, counted))
    if np.count_nonzero(has_run) == len(log):
        run = records["run_s"][row]
    else:  # some jobs ran in several segments, with breaks between
        run = np.bincount(log.job, weights=log.end_s - log.start_s, minlength=len(log.jobs_table))[row]
    turnaround = records["turnaround_s"][row]
    bsld = np.maximum(1.0, turnaround / np.maximum(run, bound_s))
    return StartedJobs(row, records["wait_s"][row], turnaround, run, bsld)


def left_queue_s(log: ExecutionLog) -> Floats:
    """When each job of the table left the queue: its first start, or its cancellation.

    inf for one that waits to the end, NaN for one that never joined the queue.
    """
    left = log.jobs()["start_s"].copy()
    joined = ~np.isnan(log.eligible_s)
    waits = np.isnan(left) & joined & (log.job_outcome != Outcome.REJECTED)
    left[waits] = np.inf
    cancelled = waits & (log.job_outcome == Outcome.CANCELLED)
    left[cancelled] = np.maximum(log.jobs_table.column("cancel_s")[cancelled], log.eligible_s[cancelled])
    return left


@dataclass(frozen=True, slots=True)
class WaitIntervals:
    """Every stretch in which a job waited, as columns of equal length; a job that was preempted has several."""

    row: Ints
    """Row of the job table."""
    from_s: Floats
    to_s: Floats
    """inf where it waits to the end."""


def waits(log: ExecutionLog) -> WaitIntervals:
    """When the jobs of the table waited: before they first started, and between their segments.

    One that has run, waits again and never goes on waits to the end. Where a segment follows the last at once, or a
    job starts as it comes, the stretch has no length.
    """
    left = left_queue_s(log)
    queued = np.flatnonzero(~np.isnan(left))
    order = np.argsort(log.job, kind="stable")  # a job's own segments stand in the order of their starts
    job, start, end = log.job[order], log.start_s[order], log.end_s[order]
    again = np.flatnonzero(job[1:] == job[:-1])
    last = np.append(job[1:] != job[:-1], True)[: len(job)]
    given_up = np.flatnonzero(last & (log.job_outcome[job] == Outcome.UNSTARTED))
    return WaitIntervals(
        np.concatenate((queued, job[again], job[given_up])),
        np.concatenate((log.eligible_s[queued], end[again], end[given_up])),
        np.concatenate((left[queued], start[again + 1], np.full(len(given_up), np.inf))),
    )


def capacity_at(log: ExecutionLog, time_s: Floats) -> Ints:
    """Nodes the machine had at these times; before the first step it has what that step says."""
    if len(log.capacity_s) == 0:
        raise InputError(
            "the log does not say how large its machine is (capacity_s is empty); give it one step"
        )
    step = np.searchsorted(log.capacity_s, time_s, side="right") - 1
    return log.capacity_nodes[np.maximum(step, 0)]


def summary(values: Floats) -> tuple[float, float, float, float, float]:
    """Mean, median, 95th and 99th percentile (linear between ranks), maximum; NaN where there are no values.

    >>> summary(np.array([1.0, 2.0, 6.0]))[:2]
    (3.0, 2.0)
    """
    if len(values) == 0:
        return math.nan, math.nan, math.nan, math.nan, math.nan
    median, p95, p99, most = np.percentile(values, (50.0, 95.0, 99.0, 100.0)).tolist()
    return float(values.mean()), median, p95, p99, most
