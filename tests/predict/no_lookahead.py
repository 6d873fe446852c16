"""Check for data leakage: the features of a job do not depend on events after its submission."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kilowait.jobs import JobTable
from kilowait.predict.features import Features
from kilowait.predict.job_history import JobHistory

Make = Callable[[JobTable, JobHistory], Features]


def random_log(seed: int, jobs: int = 120, users: int = 4) -> tuple[JobTable, JobHistory]:
    """A log with many equal times, recurring users, and jobs that end late or never."""
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, 60, jobs) * 100.0)
    runtime_s = rng.choice([0.0, 1.0, 10.0, 100.0, 333.0, 2500.0], jobs)
    wait_s = rng.choice([0.0, 0.0, 50.0, 900.0], jobs)
    table = JobTable(
        job_id=np.arange(jobs),
        submit_s=submit_s,
        runtime_s=runtime_s,
        estimate_s=rng.choice([0.0, 300.0, 3600.0, 7200.0], jobs),
        nodes=rng.integers(1, 9, jobs),
        user=rng.integers(-1, users, jobs),
        account=rng.integers(0, 2, jobs),
        name=rng.integers(0, 3, jobs),
        queue=rng.integers(0, 2, jobs),
        status=rng.choice([0, 1, 5], jobs),
        memory_mb=rng.integers(0, 9, jobs) * 100.0,
    )
    never = rng.random(jobs) < 0.05
    start_s = np.where(never, np.inf, submit_s + wait_s)
    return table, JobHistory("random", start_s, start_s + runtime_s)


def leaking_features(make: Make, jobs: JobTable, times: JobHistory, last: int, seed: int) -> list[str]:
    """Features of jobs up to row `last` that change if the log is cut there, or if later events change."""
    reference = make(jobs, times)
    leaking = set()
    now_s = jobs["submit_s"][last]
    truncated = make(jobs[: last + 1], times[: last + 1])
    later_jobs, later_times = with_changed_future(jobs, times, last, now_s, seed)
    for other in (truncated, make(later_jobs, later_times)):
        assert other.names == reference.names
        anchor_same = np.array_equal(other.anchor[: last + 1], reference.anchor[: last + 1])
        leaking |= set() if anchor_same else {"anchor"}
        for column, name in enumerate(reference.names):
            if not np.array_equal(
                other.values[: last + 1, column], reference.values[: last + 1, column], equal_nan=True
            ):
                leaking.add(name)
    return sorted(leaking)


def with_changed_future(
    jobs: JobTable, times: JobHistory, last: int, now_s: float, seed: int
) -> tuple[JobTable, JobHistory]:
    """The same log up to the submission of row `last`; later submissions, starts and ends are changed at random."""
    rng = np.random.default_rng(seed)
    count = len(jobs)
    row = np.arange(count)
    is_later = row > last
    # At the exact time of the submission, only events of earlier rows count as past.
    unstarted = (times.start_s > now_s) | ((times.start_s == now_s) & (row >= last))
    unended = (times.end_s > now_s) | ((times.end_s == now_s) & (row >= last))
    start_s = np.where(unstarted, np.maximum(now_s, jobs["submit_s"]) + rng.integers(0, 9, count) * 77.0, times.start_s)
    end_s = np.where(unended, np.maximum(start_s, now_s) + rng.integers(0, 9, count) * 55.0, times.end_s)
    shift_s = np.where(unstarted, 1e-3, 0.0)  # of earlier rows strictly later than now
    start_s, end_s = start_s + shift_s, np.where(unended, end_s + 2e-3, end_s)
    changed = jobs.with_columns(
        runtime_s=np.where(unended, rng.integers(1, 9999, count), jobs["runtime_s"]),
        status=np.where(unended, 0, jobs["status"]),
        nodes=np.where(is_later, 7, jobs["nodes"]),
        user=np.where(is_later, 0, jobs["user"]),
        estimate_s=np.where(is_later, 300.0, jobs["estimate_s"]),
    )
    return changed, replace(times, start_s=start_s, end_s=end_s)
