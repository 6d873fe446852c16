"""When each job started and ended: a predictor may know of a job only what had happened by then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable

__all__ = ["UNKNOWN_REQUEST_S", "KnownTimes", "from_log", "request_s", "from_run"]

Floats = npt.NDArray[np.float64]

UNKNOWN_REQUEST_S = 3600.0
"""What a first job is taken to run where nothing was asked for, seconds."""


@dataclass(frozen=True, eq=False)
class KnownTimes:
    """Starts and ends of the jobs of a table, in its order, seconds on the log's clock; inf: never."""

    name: str
    """recorded, or how it was simulated."""
    start_s: Floats
    end_s: Floats

    def __getitem__(self, rows: slice) -> KnownTimes:
        """The world of some of the jobs."""
        return KnownTimes(self.name, self.start_s[rows], self.end_s[rows])


def from_log(jobs: JobTable) -> KnownTimes:
    """The world as the log says it was: jobs start after the wait it recorded.

    >>> jobs = JobTable(job_id=[1], submit_s=[5], runtime_s=[60], nodes=[1], wait_s=[10])
    >>> from_log(jobs).end_s.tolist()
    [75.0]
    """
    wait_s = jobs.column("wait_s")
    unknown = int(np.isnan(wait_s).sum())
    if unknown:
        raise InputError(
            f"the log does not say how long {unknown:,} of {len(jobs):,} jobs waited, so not when they ended; "
            "take the world of a simulation instead"
        )
    start_s = jobs["submit_s"] + wait_s
    return KnownTimes("recorded", start_s, start_s + jobs["runtime_s"])


def from_run(log: ExecutionLog) -> KnownTimes:
    """The world as a simulation had it.

    Jobs that never started neither start nor end.
    """
    records = log.jobs()
    start_s, end_s = (
        np.where(np.isnan(records[name]), np.inf, records[name]) for name in ("start_s", "end_s")
    )
    backfill = f", backfill {log.run['backfill']}" if "backfill" in log.run else ""  # placed nodes know none
    return KnownTimes(f"simulated: {log.run['policy']}{backfill}", start_s, end_s)


def request_s(jobs: JobTable) -> Floats:
    """What users asked for, seconds, at least 1; NaN where the log does not say.

    It is ``limit_s`` where the table has that, else ``estimate_s``, unless every estimate is the run time itself: so
    logs without requests are read, and nothing may be learned from it.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[60, 9], nodes=[1, 1])
    >>> request_s(jobs).tolist(), request_s(jobs.with_columns(estimate_s=[60, 10])).tolist()
    ([nan, nan], [60.0, 10.0])
    """
    if "limit_s" in jobs:
        asked = jobs["limit_s"]
    elif len(jobs) > 1 and (jobs["estimate_s"] == jobs["runtime_s"]).all():
        asked = np.full(len(jobs), np.nan)
    else:
        asked = jobs["estimate_s"]
    return np.asarray(np.maximum(asked, 1.0), np.float64)  # keeps NaN
