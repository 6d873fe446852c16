"""Large logs: a part of the schedule is drawn, and the size of the page is bounded."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.evaluation.comparison.result import Comparison, PolicyConfig
from kilowait.evaluation.comparison.windows import single_window
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.report import gantt_chart
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.gantt import USER_NAME_CHARACTERS, drawn_jobs, drawn_log, user_names
from kilowait.report.page import page
from kilowait.synth import gpu_workload

NODES = 1024


def replayed(count: int, users: int = 50, names: int = 8) -> ExecutionLog:
    """A schedule of many jobs, built without a simulation: every job starts after a random wait."""
    rng = np.random.default_rng(2)
    submit = np.cumsum(rng.integers(0, 60, count)).astype(np.float64)
    wait = rng.exponential(600, count).round() * (np.arange(count) % 1000 > 600)
    run = rng.integers(1, 3000, count).astype(np.float64)
    order = np.argsort(submit + wait, kind="stable")
    jobs = JobTable(
        job_id=np.arange(1, count + 1),
        submit_s=submit,
        runtime_s=run,
        estimate_s=run * 2,
        nodes=2 ** rng.integers(0, 4, count),
        user=rng.integers(0, users, count),
        labels={"user": tuple(f"{number:0{names}x}" for number in range(users))},
    )
    start = submit + wait
    small = np.zeros(count, np.int16)
    completed = np.ones(count, np.int8)
    return ExecutionLog(
        jobs,
        order,
        start[order],
        (start + run)[order],
        small,
        small,
        completed,
        submit,
        completed,
        np.array([0.0]),
        np.array([NODES]),
        run={"policy": "fcfs"},
    )


def comparison_of(log: ExecutionLog) -> Comparison:
    cluster = {"name": "synthetic", "group": [{"name": "nodes", "nodes": NODES}]}
    windows = single_window(log.jobs_table)
    return Comparison("log.swf", NODES, windows, (PolicyConfig("fcfs", "none"),), lambda _p, _w: log, cluster=cluster)


def test_all_jobs_of_a_small_log_are_drawn() -> None:
    log = replayed(100)
    assert drawn_jobs(log, 100) is None
    assert drawn_log(log, 100) is log


def test_the_drawn_part_has_the_longest_waits() -> None:
    log = replayed(400)
    rows = drawn_jobs(log, 50)
    assert rows is not None
    records = log.jobs()
    by_start = np.argsort(records["start_s"], kind="stable")
    sums = [records["wait_s"][by_start[first : first + 50]].sum() for first in range(400 - 49)]
    best = int(np.argmax(sums))
    assert sorted(by_start[best : best + 50].tolist()) == rows.tolist()
    part = drawn_log(log, 50)
    assert part.jobs_table["job_id"].tolist() == log.jobs_table["job_id"][rows].tolist()
    for name in log.jobs().columns:
        assert np.array_equal(part.jobs()[name], records[name][rows], equal_nan=records[name].dtype.kind == "f")


def test_a_drawn_job_keeps_all_its_segments_and_pieces() -> None:
    cluster = kw.Cluster.preset("gpu-mixed")
    log = kw.simulate(gpu_workload(300, cluster, load=2.0, seed=1), cluster, "srtf")
    assert len(log) > 300, "no job was preempted"
    rows = drawn_jobs(log, 120)
    assert rows is not None
    part = drawn_log(log, 120)
    assert len(part) <= 120
    assert len(part) == np.isin(log.job, rows).sum()
    records = log.jobs()
    for name in ("start_s", "end_s", "wait_s", "run_s"):
        assert np.array_equal(part.jobs()[name], records[name][rows], equal_nan=True)
    assert part.pieces is not None and log.pieces is not None
    whole = np.isin(log.job[log.pieces.segment], rows)
    assert np.array_equal(part.pieces.node, log.pieces.node[whole])
    assert np.array_equal(part.start_s[part.pieces.segment], log.start_s[log.pieces.segment[whole]])
    assert len(part.pieces.work_s) == len(part)


def test_a_job_with_more_segments_than_the_maximum_is_drawn() -> None:
    assert drawn_jobs(replayed(3), 1) is not None
    assert len(drawn_log(replayed(3), 0)) == 1


def test_a_page_of_a_large_log_says_which_part_of_the_schedule_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gantt_chart, "GANTT_SEGMENTS", 500)
    data = ComparisonData(comparison_of(replayed(2000)), 0)
    schedules = gantt_chart.GanttSchedules(data)
    assert len(schedules.rows[0].segment) >= 500
    chart = schedules.chart("g")
    assert chart is not None and "Only 500 of 2,000 jobs are drawn" in chart.caption


@pytest.mark.parametrize("users", [30, 60_000])
def test_the_size_of_a_page_does_not_grow_with_the_log(monkeypatch: pytest.MonkeyPatch, users: int) -> None:
    monkeypatch.setattr(gantt_chart, "GANTT_SEGMENTS", 20_000)
    sizes = [len(page([comparison_of(replayed(count, users, names=40))])) for count in (60_000, 180_000)]
    assert sizes[1] < 1.1 * sizes[0]
    assert sizes[1] < 2_500_000


def test_segments_of_a_page_take_few_bytes() -> None:
    """A page may have 15 MB; with the maximum number of segments the Gantt chart must leave room for the rest."""
    count = 60_000
    data = ComparisonData(comparison_of(replayed(count)), 0)
    chart = gantt_chart.GanttSchedules(data).chart("g")
    assert chart is not None
    blocks = sum(len(packed) for _, packed in chart.columns.values())
    assert blocks / count * gantt_chart.GANTT_SEGMENTS < 13e6


def test_user_names_are_bounded() -> None:
    names = tuple(f"{number:064x}" for number in range(20_000))
    shown = user_names(names, [5, -1, *range(10, 20_000)])
    assert isinstance(shown, dict)
    assert sum(map(len, shown.values())) <= USER_NAME_CHARACTERS
    assert (shown[5], shown[10]) == (names[5], names[10])
    assert user_names(names[:100], [5]) == list(names[:100])
