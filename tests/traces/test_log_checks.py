"""Findings about a log as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kilowait.cluster.cluster import peak_use
from kilowait.jobs import JobTable
from kilowait.traces.log_checks import findings

DAY = 86400.0


def daily(days: int, per_day: int = 20, **columns: Any) -> JobTable:
    """Short jobs at equal distances."""
    count = days * per_day
    base: dict[str, Any] = {"runtime_s": np.full(count, 60.0), "nodes": np.ones(count, np.int64)}
    return JobTable(job_id=range(count), submit_s=np.arange(count) * DAY / per_day, **(base | columns))


def test_a_sound_log_has_no_findings() -> None:
    assert findings(daily(5), 4) == []
    assert findings(daily(5), None) == []


def test_recorded_use_above_the_machine() -> None:
    jobs = JobTable(job_id=[1, 2], submit_s=[0, 90], runtime_s=[100, 10], nodes=[3, 2], wait_s=[0, 0])
    assert peak_use(jobs) == 5
    assert findings(jobs, 5) == []
    assert [text.split(" nodes, above")[0] for text in findings(jobs, 4)] == ["recorded use peaks at 5"]


def test_a_job_starts_on_what_another_frees_at_the_same_time() -> None:
    jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[100, 10], nodes=[3, 2], wait_s=[0, 100])
    assert peak_use(jobs) == 3


@pytest.mark.parametrize("wait_s", [None, [np.nan, np.nan]])
def test_without_waits_the_use_is_unknown(wait_s: Any) -> None:
    assert peak_use(JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[3, 2], wait_s=wait_s)) is None


def test_jobs_count_in_cores_where_the_log_does() -> None:
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[2], cores=[88], wait_s=[0], meta={"unit": "core"})
    assert peak_use(jobs) == 88


def test_overload() -> None:
    jobs = daily(3, runtime_s=np.full(60, DAY / 10), nodes=np.full(60, 2))
    assert [text.split(":")[0] for text in findings(jobs, 2)] == ["offered load 2.03"]
    assert findings(jobs, 5) == []


def test_absurd_estimates() -> None:
    estimate_s = np.full(100, 3600.0)
    estimate_s[[3, 4]] = 1000 * DAY
    assert findings(daily(5, estimate_s=estimate_s), 9)[0].startswith(
        "2 jobs have estimates above a year, up to 1,000 d"
    )


def test_clock_jumps() -> None:
    jobs = daily(20)
    submit_s = jobs["submit_s"].copy()
    submit_s[200:] -= 2 * 3600.0 + DAY / 20  # the clock is set back by two hours
    assert findings(jobs.with_columns(submit_s=submit_s), 9) == [
        "the clock jumps back 1 times in the order of job numbers, by up to 2.0 h: submission times there are doubtful"
    ]
    shuffled = np.random.default_rng(1).permutation(400)  # numbers that are not in the order of submission
    assert findings(jobs.with_columns(job_id=shuffled), 9) == []


def test_missing_days() -> None:
    jobs = daily(20)
    submit_s = np.where(np.arange(400) >= 200, jobs["submit_s"] + 3 * DAY, jobs["submit_s"])
    (text,) = findings(jobs.with_columns(submit_s=submit_s), 9)
    assert text.startswith("1 gaps of three days or more without a submission, the longest of 3.0 days from day 10 ")
    assert findings(daily(20, per_day=1), 9) == []  # one job a day is no sign of missing data
