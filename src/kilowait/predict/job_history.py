"""Start and end times of all jobs (the history), from a log or a simulation; predictors may use only past events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable

__all__ = ["UNKNOWN_REQUEST_S", "JobHistory", "from_log", "request_s", "from_run"]

Floats = npt.NDArray[np.float64]

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
