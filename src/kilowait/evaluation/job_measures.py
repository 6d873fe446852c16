"""Wait, turnaround, run time and bounded slowdown of each job, waiting intervals, capacity over time, and the horizon.

The *wait* of a job is the time from joining the queue to its first start, plus, after each preemption, the time until
it resumes. Its *turnaround* is the time from joining to its last end, its *run* the time it ran (all
segments). Its *slowdown* is turnaround / run, its *bounded slowdown* max(1, turnaround / max(run, bound)).

A mask can select the *evaluated* jobs of a log: a window of a trace is simulated with earlier jobs before it, which
load the machine but are not evaluated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome
from kilowait.series import Floats, Ints

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StartedJobColumns:
    """The evaluated jobs that started, as columns of equal length, in the job table's order."""

    row: Ints
    """Row of the job table."""
    wait_s: Floats
    turnaround_s: Floats
    run_s: Floats
    bsld: Floats

    def slowdown(self) -> Floats:
        """Slowdown of the jobs that ran for more than 0 s; it is undefined for the others, which are left out."""
        ran = self.run_s > 0
        return self.turnaround_s[ran] / self.run_s[ran]


def evaluated_mask(log: ExecutionLog, counted: npt.ArrayLike | None) -> Mask:
    """Validate the mask over the rows of the job table; None selects every row."""
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


def checked_bound(bound_s: float) -> float:
    """Return the bound of the bounded slowdown in seconds, or raise an InputError."""
    if not (math.isfinite(bound_s) and bound_s > 0):
        raise InputError(f"bound_s is {bound_s}; the bound of the slowdown must be a finite number above 0")
    return float(bound_s)


def started_jobs(log: ExecutionLog, bound_s: float, counted: npt.ArrayLike | None = None) -> StartedJobColumns:
    """Wait, turnaround, run (seconds) and bounded slowdown of the jobs that started.

    `counted` is a mask over the rows of `log.jobs_table` that selects jobs; None selects all.
    """
    bound_s = checked_bound(bound_s)
    records = log.jobs()
    has_run = ~np.isnan(records["start_s"])
    row = np.flatnonzero(has_run & evaluated_mask(log, counted))
    if np.count_nonzero(has_run) == len(log):
        run = records["run_s"][row]
    else:  # some jobs ran in several segments, with gaps between
        run = np.bincount(log.job, weights=log.end_s - log.start_s, minlength=len(log.jobs_table))[row]
    turnaround = records["turnaround_s"][row]
    bsld = np.maximum(1.0, turnaround / np.maximum(run, bound_s))
    return StartedJobColumns(row, records["wait_s"][row], turnaround, run, bsld)


def left_queue_s(log: ExecutionLog) -> Floats:
    """Time at which each job of the table left the queue: its first start, or its cancellation.

    inf for a job that waits to the end of the log, NaN for one that never joined the queue.
    """
    left = log.jobs()["start_s"].copy()
    has_joined = ~np.isnan(log.eligible_s)
    waits = np.isnan(left) & has_joined & (log.job_outcome != Outcome.REJECTED)
    left[waits] = np.inf
    cancelled = waits & (log.job_outcome == Outcome.CANCELLED)
    left[cancelled] = np.maximum(log.jobs_table.column("cancel_s")[cancelled], log.eligible_s[cancelled])
    return left


@dataclass(frozen=True, slots=True)
class WaitIntervals:
    """The intervals in which jobs waited, as columns of equal length; a preempted job has several."""

    row: Ints
    """Row of the job table."""
    from_s: Floats
    to_s: Floats
    """inf if the job waits to the end of the log."""


def waits(log: ExecutionLog) -> WaitIntervals:
    """The waiting intervals of the jobs: before their first start, and between their segments.

    A preempted job that never resumes waits to the end of the log. The interval has length 0 if a segment directly
    follows the previous one, or a job starts on arrival.
    """
    left = left_queue_s(log)
    queued = np.flatnonzero(~np.isnan(left))
    order = np.argsort(log.job, kind="stable")  # the segments of a job are in the order of their starts
    job, start, end = log.job[order], log.start_s[order], log.end_s[order]
    resumes = np.flatnonzero(job[1:] == job[:-1])
    last = np.append(job[1:] != job[:-1], True)[: len(job)]
    never_resumed = np.flatnonzero(last & (log.job_outcome[job] == Outcome.UNSTARTED))
    return WaitIntervals(
        np.concatenate((queued, job[resumes], job[never_resumed])),
        np.concatenate((log.eligible_s[queued], end[resumes], end[never_resumed])),
        np.concatenate((left[queued], start[resumes + 1], np.full(len(never_resumed), np.inf))),
    )


def capacity_at(log: ExecutionLog, time_s: Floats) -> Ints:
    """Available nodes at these times; before the first step, the value of the first step."""
    if len(log.capacity_s) == 0:
        raise InputError("the log has no machine size (capacity_s is empty); give it at least one step")
    step = np.searchsorted(log.capacity_s, time_s, side="right") - 1
    return log.capacity[np.maximum(step, 0)]


def summary(values: Floats) -> tuple[float, float, float, float, float]:
    """Mean, median, 95th and 99th percentile (linear interpolation), maximum; NaN without values.

    >>> summary(np.array([1.0, 2.0, 6.0]))[:2]
    (3.0, 2.0)
    """
    if len(values) == 0:
        return math.nan, math.nan, math.nan, math.nan, math.nan
    median, p95, p99, largest = np.percentile(values, (50.0, 95.0, 99.0, 100.0)).tolist()
    return float(values.mean()), median, p95, p99, largest


def jain(values: Floats) -> float:
    """Jain's index of fairness: 1 if all values are equal, 1/n if one of n has everything; NaN without values.

    >>> jain(np.array([1.0, 3.0]))
    0.8
    """
    if len(values) == 0:
        return math.nan
    return float(values.sum() ** 2 / (len(values) * np.dot(values, values)))


def horizon_of(log: ExecutionLog, counted: Mask, horizon: tuple[float, float] | None) -> tuple[float, float]:
    """Start and end in seconds: the given horizon, validated; by default the makespan of the evaluated jobs."""
    if horizon is None:
        return makespan(log, counted)
    try:
        from_s, to_s = (float(edge) for edge in horizon)
    except (TypeError, ValueError):
        raise InputError(f"the horizon is {horizon!r}; give its start and end in seconds") from None
    if not (math.isfinite(from_s) and math.isfinite(to_s) and from_s < to_s):
        raise InputError(f"the horizon goes from {from_s} to {to_s} s; give two finite times, earlier first")
    return from_s, to_s


def makespan(log: ExecutionLog, counted: Mask) -> tuple[float, float]:
    """First submission and last end of the evaluated jobs; (NaN, NaN) if none of them started."""
    end_s = log.end_s[counted[log.job]]
    if len(end_s) == 0:
        return math.nan, math.nan
    return float(log.jobs_table["submit_s"][counted].min()), float(end_s.max())


def overlap_s(start_s: Floats, end_s: Floats, horizon: tuple[float, float]) -> Floats:
    """Length in seconds of each interval's overlap with the horizon.

    >>> overlap_s(np.array([0.0, 8.0]), np.array([4.0, 20.0]), (2.0, 10.0)).tolist()
    [2.0, 2.0]
    """
    inside: Floats = np.maximum(np.minimum(end_s, horizon[1]) - np.maximum(start_s, horizon[0]), 0.0)
    return inside
