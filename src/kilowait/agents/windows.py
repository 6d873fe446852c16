"""Windows of consecutive jobs to learn from; each is simulated on an empty machine."""

from __future__ import annotations

import numpy as np

from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["drawn_windows", "spread_windows"]


def spread_windows(jobs: JobTable, windows: int, window_jobs: int) -> list[JobTable]:
    """`windows` windows at equal distances, the first at the beginning and the last at the end.

    They overlap where there are more of them than fit side by side.

    >>> jobs = JobTable(job_id=range(10), submit_s=range(10), runtime_s=[1] * 10, nodes=[1] * 10)
    >>> [window["job_id"].tolist() for window in spread_windows(jobs, 3, 4)]
    [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    """
    last = _last_start(jobs, windows, window_jobs)
    starts = np.linspace(0, last, windows).astype(np.int64).tolist()
    return [jobs[start : start + window_jobs] for start in starts]


def drawn_windows(
    jobs: JobTable, windows: int, window_jobs: int, random: np.random.Generator
) -> list[JobTable]:
    """`windows` windows that begin anywhere."""
    last = _last_start(jobs, windows, window_jobs)
    starts = random.integers(0, last + 1, windows).tolist()
    return [jobs[start : start + window_jobs] for start in starts]


def _last_start(jobs: JobTable, windows: int, window_jobs: int) -> int:
    if windows < 1 or window_jobs < 1:
        raise InputError(f"{windows} windows of {window_jobs} jobs; ask for at least one of at least one job")
    if window_jobs > len(jobs):
        raise InputError(
            f"a window of {window_jobs:,} jobs does not fit into a part of {len(jobs):,}; "
            "take shorter windows or a longer log"
        )
    return len(jobs) - window_jobs
