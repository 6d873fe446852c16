"""First jobs of the windows of consecutive jobs used for training; each window runs on an empty machine."""

from __future__ import annotations

import numpy as np

from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["random_starts", "even_starts"]


def even_starts(jobs: JobTable, windows: int, window_jobs: int) -> list[int]:
    """First jobs of `windows` equally spaced windows, the first at the beginning and the last at the end.

    They overlap if there are more of them than fit side by side.

    >>> jobs = JobTable(job_id=range(10), submit_s=range(10), runtime_s=[1] * 10, nodes=[1] * 10)
    >>> even_starts(jobs, 3, 4)
    [0, 3, 6]
    """
    starts: list[int] = np.linspace(0, _last_start(jobs, windows, window_jobs), windows).astype(np.int64).tolist()
    return starts


def random_starts(jobs: JobTable, windows: int, window_jobs: int, random: np.random.Generator) -> list[int]:
    """First jobs of `windows` windows at random places."""
    starts: list[int] = random.integers(0, _last_start(jobs, windows, window_jobs) + 1, windows).tolist()
    return starts


def _last_start(jobs: JobTable, windows: int, window_jobs: int) -> int:
    if windows < 1 or window_jobs < 1:
        raise InputError(f"{windows} windows of {window_jobs} jobs; ask for at least one of at least one job")
    if window_jobs > len(jobs):
        raise InputError(
            f"a window of {window_jobs:,} jobs is longer than the {len(jobs):,} jobs available; "
            "take shorter windows or a longer log"
        )
    return len(jobs) - window_jobs
