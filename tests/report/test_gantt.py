"""Rows of the Gantt chart: each job has exactly its nodes, and no two jobs overlap."""

from __future__ import annotations

import numpy as np
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

import kilowait as kw
from kilowait.cluster import Outage
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.report.gantt import assign_rows, outages


def log_of(start, end, nodes, *, capacity=0, group=None, groups=("nodes",)):
    count = len(start)
    order = np.argsort(start, kind="stable")
    jobs = JobTable(job_id=range(count), submit_s=[0] * count, runtime_s=[1] * count, nodes=nodes)
    start, end = np.array(start, np.float64)[order], np.array(end, np.float64)[order]
    group_index = np.zeros(count, np.int16) if group is None else np.array(group, np.int16)[order]
    level, ones = np.zeros(count, np.int16), np.ones(count, np.int8)
    capacity = np.array([capacity])
    return ExecutionLog(
        jobs, order, start, end, group_index, level, ones, jobs["submit_s"], ones, np.zeros(1), capacity, groups
    )


def check(log, rows):
    """Check the invariants of the rows with a slow reference implementation."""
    nodes = log.jobs_table["nodes"]
    total = np.bincount(rows.segment, weights=rows.count, minlength=len(log))
    assert total.tolist() == nodes[log.job].tolist(), "each segment has its nodes"
    assert (rows.count > 0).all()
    first_row = np.concatenate(([0], np.cumsum(rows.group_rows)))
    group = log.group[rows.segment]
    assert (rows.first >= first_row[group]).all()
    assert (rows.first + rows.count <= first_row[group + 1]).all()
    start, end = log.start_s[rows.segment], log.end_s[rows.segment]
    low, high = rows.first, rows.first + rows.count
    for index in range(len(rows.first)):
        other = slice(index + 1, None)
        in_time = (np.maximum(start[index], start[other]) < np.minimum(end[index], end[other])) & (
            end[index] > start[index]
        )
        in_rows = np.maximum(low[index], low[other]) < np.minimum(high[index], high[other])
        assert not (in_time & in_rows & (end[other] > start[other])).any(), "rectangles overlap"


jobs = st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(1, 9), st.integers(0, 1))


@hypothesis_given(st.lists(jobs, max_size=40))
def test_rows_of_random_segments(segments):
    start, run, nodes, group = ([row[column] for row in segments] for column in range(4))
    log = log_of(start, np.add(start, run), nodes, group=group, groups=("a", "b"))
    check(log, assign_rows(log, (3, 0)))


def test_simulated_log_fits_the_cluster():
    log = kw.simulate(kw.lublin(400, 32, load=0.95, seed=2), kw.Cluster.from_nodes(32), "sjf", "easy")
    rows = assign_rows(log)
    check(log, rows)
    assert rows.rows == 32
    assert not rows.shared
    assert len(rows.first) < 1.6 * len(log), "most jobs lie in one block"


def test_smallest_sufficient_block_is_used():
    # 0-3 busy, 4-6 free, 7-8 busy, 9-11 ... : after the first two end, blocks of 4 and 2 rows are free.
    log = log_of([0, 0, 0, 0, 5], [5, 9, 5, 9, 9], [4, 1, 2, 1, 2], capacity=8)
    rows = assign_rows(log)
    assert rows.first.tolist() == [0, 4, 5, 7, 5]


def test_oversubscribed_groups_get_more_rows():
    log = log_of([0, 0, 0], [5, 5, 5], [2, 2, 2], capacity=4)
    rows = assign_rows(log)
    check(log, rows)
    assert rows.rows == 6
    assert rows.shared


def test_log_without_segments():
    rows = assign_rows(log_of([], [], [], capacity=4))
    assert rows.rows == 4
    assert len(rows.first) == 0


def test_outages_match_the_cluster():
    jobs = JobTable(job_id=[1, 2], submit_s=[50, 60], runtime_s=[100, 200], nodes=[1, 1])
    capacity = kw.Cluster.from_nodes(8)
    group = capacity.groups[0].name
    outages_of_cluster = [
        Outage(group, 3, 100.0, 180.0),
        Outage(group, 2, 150.0, 200.0),
        Outage(group, 1, 900.0, 950.0),
    ]
    log = kw.simulate(jobs, capacity.with_outages(*outages_of_cluster), "fcfs", "easy")
    assert outages(log) == [(100.0, 150.0, 3), (150.0, 180.0, 5), (180.0, 200.0, 2)], "the last is too late"
    from_start = kw.simulate(jobs, capacity.with_outages(Outage(group, 2, 0.0, 70.0)), "fcfs", "easy")
    assert outages(from_start) == [(50.0, 70.0, 2)]
    assert outages(kw.simulate(jobs, capacity, "fcfs", "easy")) == []
