"""Time-ordered parts of a log, and windows of consecutive jobs cut from them.

A window is simulated from an empty machine. The parts never overlap: what is learned on the first says nothing
of the last until it is tried there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["Split", "drawn_windows", "split", "spread_windows"]


@dataclass(frozen=True)
class Split:
    """A log in three parts, by time of submission."""

    train: JobTable
    """The oldest jobs: weights are searched for here."""
    validate: JobTable
    """The next: they pick among what the search found."""
    test: JobTable
    """The latest: for judging only."""


def split(jobs: JobTable, *, train: float = 0.6, validate: float = 0.2) -> Split:
    """The first `train` of the jobs, the next `validate`, and the rest.

    >>> jobs = JobTable(job_id=range(10), submit_s=range(10), runtime_s=[1] * 10, nodes=[1] * 10)
    >>> parts = split(jobs)
    >>> len(parts.train), len(parts.validate), parts.test["job_id"].tolist()
    (6, 2, [8, 9])
    """
    if not (train > 0 and validate > 0 and train + validate < 1):
        raise InputError(
            f"shares of {train} for training and {validate} for validation; both must be above 0 and leave "
            "something for the test"
        )
    ordered = jobs.sorted()
    first = int(len(jobs) * train)
    second = int(len(jobs) * (train + validate) + 1e-9)
    parts = Split(ordered[:first], ordered[first:second], ordered[second:])
    if not (len(parts.train) and len(parts.validate) and len(parts.test)):
        raise InputError(f"{len(jobs)} job(s) are too few to be split three ways; give at least 10")
    return parts


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
