from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kilowait as kw
from kilowait.errors import InputError
from kilowait.evaluation import metrics
from kilowait.evaluation.bounds import Bounds, lower_bounds
from kilowait.jobs import JobTable
from kilowait.rng import stream
from tests.evaluation.bounds.workloads import OBJECTIVES, schedules, table, workload


def test_one_job_does_not_wait():
    assert lower_bounds(table((50, 100, 3)), 4) == Bounds(0.0, 1.0, 100.0)


@pytest.mark.parametrize("order", [(30, 20, 10), (10, 20, 30), (20, 10, 30)])
def test_jobs_that_need_all_nodes(order):
    """On one machine shortest first is optimal, and the bound is exact: waits 0, 10, 30."""
    result = lower_bounds(table(*((0, run, 8) for run in order)), 8)
    assert result.mean_wait_s == pytest.approx(40 / 3)
    assert result.mean_bsld == pytest.approx((1 + 30 / 20 + 60 / 30) / 3)
    assert result.makespan_s == 60


def test_short_job_arrives_while_a_long_one_runs():
    """Fluid schedule: 0-10 s the long job (area 100), 10-20 the short job, 20-110 the long job."""
    result = lower_bounds(table((0, 100, 4), (10, 10, 4)), 4)
    mean_busy = (10 * 5 + 90 * 65) / 100
    assert result.mean_wait_s == pytest.approx((mean_busy - 50 + 0) / 2)
    assert result.makespan_s == 110


def test_half_the_machine():
    # Areas 40 and 80 on 4 nodes, fluid: 0-10 s and 10-30 s; means 5 and 20, minus half the run times 10 and 20.
    assert lower_bounds(table((0, 20, 2), (0, 40, 2)), 4).mean_wait_s == 0
    # Four jobs of 2 nodes and 20 s: two wait 20 s. Fluid means 5, 15, 25, 35, minus 10 each.
    assert lower_bounds(table(*[(0, 20, 2)] * 4), 4).mean_wait_s == pytest.approx(10)


def test_idle_periods_do_not_lower_the_bound():
    """A small job a day later would contribute a negative sum; it is left out."""
    busy = [(0, 20, 4), (0, 20, 4)]
    result = lower_bounds(table(*busy, (86400, 3600, 1)), 4)
    assert result.mean_wait_s == pytest.approx(20 / 3)
    assert result.mean_bsld == pytest.approx((1 + 2 + 1) / 3)


def test_short_jobs_count_as_the_bound():
    """Two jobs of 4 s: the second has a turnaround of 8 s, a slowdown of 1 with a bound of 10 s, of 1.6 with 5 s."""
    jobs = table((0, 4, 1), (0, 4, 1))
    assert lower_bounds(jobs, 1).mean_bsld == 1
    assert lower_bounds(jobs, 1, bound_s=4).mean_bsld == pytest.approx(1.5)
    many = table(*[(0, 4, 1)] * 20)
    exact = np.maximum(1, np.arange(4, 84, 4) / 10).mean()
    assert 0.9 * exact < lower_bounds(many, 1).mean_bsld <= exact


def test_jobs_of_zero_run_time():
    assert lower_bounds(table((0, 0, 4), (5, 0, 4)), 4) == Bounds(0.0, 1.0, 5.0)
    mixed = lower_bounds(table((0, 30, 4), (0, 30, 4), (0, 0, 4)), 4)
    assert mixed.mean_wait_s == pytest.approx(10)


def test_makespan():
    assert lower_bounds(table((0, 10, 1), (100, 50, 1)), 4).makespan_s == 150
    assert lower_bounds(table((0, 10, 1), (100, 50, 4), (100, 50, 3)), 4).makespan_s == 200
    assert lower_bounds(table(*[(20, 40, 1)] * 9), 4).makespan_s == 90
    assert lower_bounds(table((0, 40, 5), (0, 40, 6), (0, 10, 5)), 9).makespan_s == 90


def test_half_machine_jobs_run_in_parallel():
    assert lower_bounds(table((0, 40, 2), (0, 40, 2)), 4).makespan_s == 40


def test_bounds_do_not_depend_on_the_time_origin():
    rows = [(0, 30, 4), (7, 10, 4), (9, 5, 2)]
    late = [(submit + 1_700_000_000, run, nodes) for submit, run, nodes in rows]
    assert lower_bounds(table(*rows), 4) == lower_bounds(table(*late), 4)


def test_order_of_rows_does_not_matter():
    jobs, nodes = workload(3, 12)
    a, b = lower_bounds(jobs, nodes), lower_bounds(jobs[::-1], nodes)
    assert [getattr(a, o) for o in OBJECTIVES] == pytest.approx([getattr(b, o) for o in OBJECTIVES])


def test_wait_is_counted_from_the_begin_time():
    jobs = table((0, 20, 4), (0, 20, 4), begin_s=[0, 100])
    assert lower_bounds(jobs, 4) == Bounds(0.0, 1.0, 120.0)


def test_dependent_jobs():
    """A chain of dependent jobs has no waits by definition; the bound must be 0."""
    jobs = table((0, 20, 4), (0, 20, 4), (0, 20, 4), after_id=[-1, 1, 2])
    log = kw.simulate(jobs, kw.Cluster.from_nodes(4), backfill="none")
    assert metrics(log)["mean_wait_s"] == 0
    assert lower_bounds(jobs, 4) == Bounds(0.0, 1.0, 60.0)
    unknown = table((0, 20, 4), (0, 20, 4), (0, 20, 4), after_id=[-1, 77, 78])
    assert lower_bounds(unknown, 4).mean_wait_s == pytest.approx(20)


@pytest.mark.parametrize("seed", range(40))
def test_no_policy_beats_the_bounds_with_dependencies_and_begin_times(seed):
    jobs, nodes = workload(seed, 40)
    rng = stream(seed, "chains")
    after = np.where(rng.random(len(jobs)) < 0.3, np.arange(len(jobs)) - 1, -1)
    begin = np.where(rng.random(len(jobs)) < 0.2, 1050, -np.inf)
    jobs = jobs.with_columns(after_id=after, think_s=rng.integers(0, 9, len(jobs)), begin_s=begin)
    bounds = lower_bounds(jobs, nodes)
    for configuration, result in schedules(jobs, nodes):
        for name in OBJECTIVES:
            assert getattr(bounds, name) <= result[name] * (1 + 1e-9) + 1e-9, (configuration, name)


one_job = st.tuples(st.integers(0, 50), st.integers(0, 40), st.integers(1, 4))


@given(st.lists(one_job, min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_bounds_hold_for_random_schedules(rows, random):
    """A random feasible schedule: jobs are added one by one in random order with random gaps."""
    nodes, used = 4, [0] * 2000
    jobs = table(*rows)
    start = [0.0] * len(rows)
    for number in random.sample(range(len(rows)), len(rows)):
        submit, run, size = rows[number]
        start_time = submit + random.choice((0, 0, 3))
        while any(used[t] + size > nodes for t in range(start_time, start_time + run)):
            start_time += 1
        for t in range(start_time, start_time + run):
            used[t] += size
        start[number] = start_time
    submit, run, _ = np.array(rows, float).T
    wait = np.array(start) - submit
    bounds = lower_bounds(jobs, nodes)
    assert bounds.mean_wait_s <= wait.mean() + 1e-9
    assert bounds.mean_bsld <= np.maximum(1, (wait + run) / np.maximum(run, 10)).mean() + 1e-9
    assert bounds.makespan_s <= (start + run).max() - submit.min() + 1e-9


@pytest.mark.parametrize(
    ("jobs", "nodes", "message"),
    [
        (table((0, 5, 5)), 4, "job 1 needs 5 nodes of a machine of 4"),
        (table((0, 5, 1)), 0, "the machine has 0 nodes"),
        (JobTable(job_id=[], submit_s=[], runtime_s=[], nodes=[]), 4, "there are no jobs"),
        (table((0, 5, 1), (0, 5, 1), cancel_s=[math.inf, 9]), 4, "some jobs have a cancel_s"),
    ],
)
def test_invalid_problems_are_refused(jobs, nodes, message):
    with pytest.raises(InputError, match=message):
        lower_bounds(jobs, nodes)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_bad_bound(bound):
    with pytest.raises(InputError, match="bound_s is"):
        lower_bounds(table((0, 5, 1)), 4, bound_s=bound)
