"""Rows for the Gantt chart: each job has exactly its nodes, and no two jobs share one at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import kilowait as kw
from kilowait.cluster import Outage
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.report.gantt import lanes, outages


def log_of(start, end, nodes, *, machine=0, group=None, groups=("nodes",)):
    count = len(start)
    order = np.argsort(start, kind="stable")
    jobs = JobTable(job_id=range(count), submit_s=[0] * count, runtime_s=[1] * count, nodes=nodes)
    start, end = np.array(start, np.float64)[order], np.array(end, np.float64)[order]
    given_group = np.zeros(count, np.int16) if group is None else np.array(group, np.int16)[order]
    level, ones = np.zeros(count, np.int16), np.ones(count, np.int8)
    capacity = np.array([machine])
    return ExecutionLog(
        jobs,
        order,
        start,
        end,
        given_group,
        level,
        ones,
        jobs["submit_s"],
        ones,
        np.zeros(1),
        capacity,
        groups,
    )


def check(log, given):
    """Every law of rows, the slow way."""
    nodes = log.jobs_table["nodes"]
    total = np.bincount(given.segment, weights=given.count, minlength=len(log))
    assert total.tolist() == nodes[log.job].tolist(), "each segment has its nodes"
    assert (given.count > 0).all()
    first_row = np.concatenate(([0], np.cumsum(given.group_rows)))
    group = log.group[given.segment]
    assert (given.first >= first_row[group]).all()
    assert (given.first + given.count <= first_row[group + 1]).all()
    start, end = log.start_s[given.segment], log.end_s[given.segment]
    low, high = given.first, given.first + given.count
    for one in range(len(given.first)):
        other = slice(one + 1, None)
        in_time = (np.maximum(start[one], start[other]) < np.minimum(end[one], end[other])) & (
            end[one] > start[one]
        )
        in_rows = np.maximum(low[one], low[other]) < np.minimum(high[one], high[other])
        assert not (in_time & in_rows & (end[other] > start[other])).any(), "rectangles overlap"


jobs = st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(1, 9), st.integers(0, 1))


@given(st.lists(jobs, max_size=40))
def test_any_segments_get_rows(found):
    start, run, nodes, group = ([row[column] for row in found] for column in range(4))
    log = log_of(start, np.add(start, run), nodes, group=group, groups=("a", "b"))
    check(log, lanes(log, (3, 0)))


def test_a_simulated_log_fits_the_machine():
    log = kw.simulate(kw.lublin(400, 32, load=0.95, seed=2), kw.Cluster.from_nodes(32), "sjf", "easy")
    given = lanes(log)
    check(log, given)
    assert given.rows == 32
    assert not given.shared
    assert len(given.first) < 1.6 * len(log), "most jobs lie in one block"


def test_the_smallest_block_that_holds_it_is_taken():
    # 0-3 busy, 4-6 free, 7-8 busy, 9-11 ... : after the first two end, blocks of 4 and 2 rows are free.
    log = log_of([0, 0, 0, 0, 5], [5, 9, 5, 9, 9], [4, 1, 2, 1, 2], machine=8)
    given = lanes(log)
    assert given.first.tolist() == [0, 4, 5, 7, 5]


def test_more_than_the_machine_is_stacked_and_said():
    log = log_of([0, 0, 0], [5, 5, 5], [2, 2, 2], machine=4)
    given = lanes(log)
    check(log, given)
    assert given.rows == 6
    assert given.shared


def test_a_log_without_segments():
    given = lanes(log_of([], [], [], machine=4))
    assert given.rows == 4
    assert len(given.first) == 0


def test_outages_are_those_of_the_machine():
    jobs = JobTable(job_id=[1, 2], submit_s=[50, 60], runtime_s=[100, 200], nodes=[1, 1])
    machine = kw.Cluster.from_nodes(8)
    group = machine.groups[0].name
    out = [Outage(group, 3, 100.0, 180.0), Outage(group, 2, 150.0, 200.0), Outage(group, 1, 900.0, 950.0)]
    log = kw.simulate(jobs, machine.with_outages(*out), "fcfs", "easy")
    assert outages(log) == [(100.0, 150.0, 3), (150.0, 180.0, 5), (180.0, 200.0, 2)], "the last is too late"
    always = kw.simulate(jobs, machine.with_outages(Outage(group, 2, 0.0, 70.0)), "fcfs", "easy")
    assert outages(always) == [(50.0, 70.0, 2)]
    assert outages(kw.simulate(jobs, machine, "fcfs", "easy")) == []
