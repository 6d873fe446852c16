"""The law of features: what a job is told at its submission does not depend on anything that happens later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kilowait.jobs import JobTable
from kilowait.predict.features import Features
from kilowait.predict.known_times import KnownTimes

Make = Callable[[JobTable, KnownTimes], Features]


def random_log(seed: int, jobs: int = 120, users: int = 4) -> tuple[JobTable, KnownTimes]:
    """A log with many ties in time, users that come back, and jobs that end late or never."""
    random = np.random.default_rng(seed)
    submit_s = np.sort(random.integers(0, 60, jobs) * 100.0)
    runtime_s = random.choice([0.0, 1.0, 10.0, 100.0, 333.0, 2500.0], jobs)
    wait_s = random.choice([0.0, 0.0, 50.0, 900.0], jobs)
    table = JobTable(
        job_id=np.arange(jobs),
        submit_s=submit_s,
        runtime_s=runtime_s,
        estimate_s=random.choice([0.0, 300.0, 3600.0, 7200.0], jobs),
        nodes=random.integers(1, 9, jobs),
        user=random.integers(-1, users, jobs),
        account=random.integers(0, 2, jobs),
        name=random.integers(0, 3, jobs),
        queue=random.integers(0, 2, jobs),
        status=random.choice([0, 1, 5], jobs),
        memory_mb=random.integers(0, 9, jobs) * 100.0,
    )
    never = random.random(jobs) < 0.05
    start_s = np.where(never, np.inf, submit_s + wait_s)
    return table, KnownTimes("random", start_s, start_s + runtime_s)


def broken(make: Make, jobs: JobTable, times: KnownTimes, last: int, seed: int) -> list[str]:
    """Features of jobs up to row `last` that change when the log is cut there, or when the future is another."""
    whole = make(jobs, times)
    found = set()
    now_s = jobs["submit_s"][last]
    cut = make(jobs[: last + 1], times[: last + 1])
    later_jobs, later_world = another_future(jobs, times, last, now_s, seed)
    for other in (cut, make(later_jobs, later_world)):
        assert other.names == whole.names
        same = np.array_equal(other.anchor[: last + 1], whole.anchor[: last + 1])
        found |= set() if same else {"anchor"}
        for at, name in enumerate(whole.names):
            if not np.array_equal(other.values[: last + 1, at], whole.values[: last + 1, at], equal_nan=True):
                found.add(name)
    return sorted(found)


def another_future(
    jobs: JobTable, times: KnownTimes, last: int, now_s: float, seed: int
) -> tuple[JobTable, KnownTimes]:
    """The same until the submission of row `last`: what ends, starts or comes after it is drawn anew."""
    random = np.random.default_rng(seed)
    count = len(jobs)
    row = np.arange(count)
    after = row > last
    # At the very time of the submission only what belongs to earlier rows has happened.
    unstarted = (times.start_s > now_s) | ((times.start_s == now_s) & (row >= last))
    unended = (times.end_s > now_s) | ((times.end_s == now_s) & (row >= last))
    start_s = np.where(
        unstarted, np.maximum(now_s, jobs["submit_s"]) + random.integers(0, 9, count) * 77.0, times.start_s
    )
    end_s = np.where(unended, np.maximum(start_s, now_s) + random.integers(0, 9, count) * 55.0, times.end_s)
    moved = np.where(unstarted, 1e-3, 0.0)  # of earlier rows strictly later than now
    start_s, end_s = start_s + moved, np.where(unended, end_s + 2e-3, end_s)
    changed = jobs.with_columns(
        runtime_s=np.where(unended, random.integers(1, 9999, count), jobs["runtime_s"]),
        status=np.where(unended, 0, jobs["status"]),
        nodes=np.where(after, 7, jobs["nodes"]),
        user=np.where(after, 0, jobs["user"]),
        estimate_s=np.where(after, 300.0, jobs["estimate_s"]),
    )
    return changed, replace(times, start_s=start_s, end_s=end_s)
