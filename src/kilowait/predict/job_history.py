"""Start and end times of all jobs (the history), and past events of similar jobs at each submission.

Predictors may use only past events. An event of a job is its submission, start or end; jobs are similar if they have
the same key, for example the same user. For every job the events of similar jobs are sorted by time and the job's
submission is located among them: only earlier events are used. Sums are sums of integers: the rounding of floats would
depend on later jobs, and so would a job's features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNKNOWN_REQUEST_S = 3600.0
"""Assumed run time of a user's first job without a request, seconds."""


@dataclass(frozen=True, eq=False)
class JobHistory:
    """Start and end times of the jobs of a table, in its order, seconds in log time; inf: never."""

    name: str
    """log, or how it was simulated."""
    start_s: Floats
    end_s: Floats

    def __getitem__(self, rows: slice) -> JobHistory:
        """The times of some of the jobs."""
        return JobHistory(self.name, self.start_s[rows], self.end_s[rows])


def from_log(jobs: JobTable) -> JobHistory:
    """Start and end times from the log: each job starts after its recorded wait.

    >>> jobs = JobTable(job_id=[1], submit_s=[5], runtime_s=[60], nodes=[1], wait_s=[10])
    >>> from_log(jobs).end_s.tolist()
    [75.0]
    """
    wait_s = jobs.column("wait_s")
    unknown = int(np.isnan(wait_s).sum())
    if unknown:
        raise InputError(
            f"the log has no wait time for {unknown:,} of {len(jobs):,} jobs, so their end times are unknown; "
            "use the history of a simulation instead"
        )
    start_s = jobs["submit_s"] + wait_s
    return JobHistory("log", start_s, start_s + jobs["runtime_s"])


def from_run(log: ExecutionLog) -> JobHistory:
    """Start and end times from a simulation.

    Jobs that never started neither start nor end.
    """
    records = log.jobs()
    start_s, end_s = (np.where(np.isnan(records[name]), np.inf, records[name]) for name in ("start_s", "end_s"))
    backfill = f", backfill {log.run['backfill']}" if "backfill" in log.run else ""  # GPU clusters have none
    return JobHistory(f"simulated: {log.run['policy']}{backfill}", start_s, end_s)


def request_s(jobs: JobTable) -> Floats:
    """Walltime requests of the users, seconds, at least 1; NaN where the log has none.

    It is ``limit_s`` where the table has that, else ``estimate_s``, unless every estimate equals the run time: logs
    without requests are read so, and using those estimates would leak the run time.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[60, 9], nodes=[1, 1])
    >>> request_s(jobs).tolist(), request_s(jobs.with_columns(estimate_s=[60, 10])).tolist()
    ([nan, nan], [60.0, 10.0])
    """
    if "limit_s" in jobs:
        requested = jobs["limit_s"]
    elif len(jobs) > 1 and (jobs["estimate_s"] == jobs["runtime_s"]).all():
        requested = np.full(len(jobs), np.nan)
    else:
        requested = jobs["estimate_s"]
    return np.asarray(np.maximum(requested, 1.0), np.float64)  # keeps NaN


# -- past events ----------------------------------------------------------------------------------


ROUNDING = 1e-4
"""Values are rounded to this before they are summed."""


def group_keys(*columns: npt.ArrayLike) -> Ints:
    """Integer key of each combination of values; equal combinations have equal keys.

    >>> group_keys([1, 1, 2], [5, 6, 5]).tolist()
    [0, 1, 2]
    """
    key = np.zeros(len(np.asarray(columns[0])), np.int64)
    for column in columns:
        _, code = np.unique(np.asarray(column), return_inverse=True)
        _, key = np.unique(key * (int(code.max(initial=0)) + 1) + code, return_inverse=True)
    return key.astype(np.int64)


class PastEvents:
    """Events of jobs with the same key that came before each job's submission.

    An event at the exact time of a submission counts as past if its job precedes the other in the table.

    Args:
        key: group key of each job, the jobs in order of submission.
        at_s: time of each job's event, seconds; inf: never.
        submit_s: submission times, seconds.

    >>> ended = PastEvents(group_keys([7, 7, 7]), np.array([10.0, 99.0, 30.0]), np.array([0.0, 5.0, 20.0]))
    >>> ended.count.tolist(), ended.latest(np.array([1.0, 2.0, 3.0])).tolist()
    ([0, 0, 1], [nan, nan, 1.0])
    """

    def __init__(self, key: Ints, at_s: Floats, submit_s: Floats) -> None:
        jobs = len(key)
        rows = np.arange(jobs)
        # Events and submissions in one order; at equal times by row, and a job's own submission before its events.
        event = np.repeat([True, False], jobs)
        order = np.lexsort((event, np.tile(rows, 2), np.concatenate([at_s, submit_s]), np.tile(key, 2)))
        is_event = event[order]
        events_before = np.empty(jobs, np.int64)
        events_before[order[~is_event] - jobs] = np.cumsum(is_event)[~is_event]
        self._order = order[is_event]
        self._end = events_before
        self._first = np.searchsorted(key[self._order], key, "left")

    @property
    def count(self) -> Ints:
        """Number of past events."""
        return self._end - self._first

    def latest(self, values: Floats, back: int = 1) -> Floats:
        """The value of the job whose event was the latest, or the `back`-th latest; NaN if there are fewer."""
        position = self._end - back
        found = values[self._order[np.maximum(position, 0)]]
        return np.where(position >= self._first, found, np.nan)

    def latest_values(self, values: Floats, count: int) -> Floats:
        """(count, n) the latest values, newest first."""
        return np.stack([self.latest(values, back) for back in range(1, count + 1)])

    def sum(self, values: Floats, last: int | None = None) -> Floats:
        """Sum of the values, of the `last` latest events or of all."""
        begin = self._first if last is None else np.maximum(self._first, self._end - last)
        units = np.rint(np.where(np.isfinite(values), values, 0.0) / ROUNDING).astype(np.int64)
        total = np.concatenate([[0], np.cumsum(units[self._order])])
        return np.asarray((total[self._end] - total[begin]) * ROUNDING, np.float64)

    def mean(self, values: Floats, last: int) -> Floats:
        """Mean of the `last` latest values; NaN if there are none."""
        counts = np.minimum(self.count, last)
        mean: Floats = np.where(counts > 0, self.sum(values, last) / np.maximum(counts, 1), np.nan)
        return mean


def row_median(rows: Floats) -> Floats:
    """Median of each column over the rows that are known; NaN where none is.

    >>> row_median(np.array([[1.0, np.nan], [5.0, np.nan], [np.nan, np.nan]])).tolist()
    [3.0, nan]
    """
    known = np.isfinite(rows).sum(axis=0)
    ordered = np.sort(rows, axis=0)  # NaN last
    low, high = np.maximum(known - 1, 0) // 2, np.minimum(known // 2, len(rows) - 1)
    column = np.arange(rows.shape[1])
    return np.where(known > 0, (ordered[low, column] + ordered[high, column]) / 2, np.nan)
