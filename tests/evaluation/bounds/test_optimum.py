from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kilowait as kw
from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.evaluation import metrics
from kilowait.evaluation.bounds import lower_bounds, optimum
from tests.evaluation.bounds.workloads import OBJECTIVES, schedules, table, workload

pytest.importorskip("ortools")


def brute_force_optimum(rows, nodes, bound_s=10):
    """The best of all list schedules; one of them is optimal."""
    best = dict.fromkeys(OBJECTIVES, math.inf)
    submit, run, _ = np.array(rows, float).T
    for order in itertools.permutations(range(len(rows))):
        placed: list[tuple[int, int, int]] = []
        start = np.zeros(len(rows))
        for number in order:
            start_time, length, size = rows[number]
            while not fits(start_time, length, size, placed, nodes):
                start_time += 1
            placed.append((start_time, start_time + length, size))
            start[number] = start_time
        wait = start - submit
        result = (
            wait.mean(),
            np.maximum(1, (wait + run) / np.maximum(run, bound_s)).mean(),
            (start + run).max() - submit.min(),
        )
        best = {name: min(best[name], value) for name, value in zip(OBJECTIVES, result, strict=True)}
    return best


def fits(start_time, length, size, placed, nodes):
    """Whether nodes are free during the run, also for jobs of 0 s within it."""
    if length == 0:
        return sum(nodes_used for begin, end, nodes_used in placed if begin < start_time < end) + size <= nodes
    for t in range(start_time, start_time + length):
        if sum(nodes_used for begin, end, nodes_used in placed if begin <= t < end) + size > nodes:
            return False
    for begin, end, nodes_used in placed:
        if begin == end and start_time < begin < start_time + length:
            nodes_across = sum(other for b, e, other in placed if b < begin < e)
            if nodes_across + nodes_used + size > nodes:
                return False
    return True


def test_waiting_for_a_wide_job():
    """Only a clairvoyant schedule leaves the node idle; here this is optimal."""
    best = optimum(table((0, 100, 1), (1, 10, 4)), 4)
    assert (best.value, best.proven, best.tolerance) == (5.5, True, 0.0)
    assert best.start_s.tolist() == [11, 1]


def test_objectives_differ():
    jobs = table((0, 100, 1), (1, 10, 4))
    assert optimum(jobs, 4, objective="makespan_s").value == 110
    slowdown = optimum(jobs, 4, objective="mean_bsld")
    assert slowdown.value == pytest.approx((1.11 + 1) / 2)
    assert slowdown.tolerance == 0


def test_policies_reach_the_optimum_in_an_easy_case():
    jobs = table((0, 30, 4), (0, 10, 4), (0, 20, 4))
    result = metrics(kw.simulate(jobs, kw.Cluster.from_nodes(4), policy="sjf", backfill="none"))
    bounds = lower_bounds(jobs, 4)
    for name in OBJECTIVES:
        best = optimum(jobs, 4, objective=name)
        assert best.proven
        assert best.value == pytest.approx(result[name])
        assert best.value == pytest.approx(getattr(bounds, name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(45))
def test_bounds_optimum_and_policies_are_ordered(seed):
    """Bound <= optimum <= every policy, on workloads of up to 12 jobs."""
    jobs, nodes = workload(seed, 12)
    bounds = lower_bounds(jobs, nodes)
    result = dict(schedules(jobs, nodes))
    assert len(result) == 30
    for name in OBJECTIVES:
        best = optimum(jobs, nodes, objective=name)
        assert best.proven
        assert getattr(bounds, name) <= best.value + 1e-9
        for configuration, values in result.items():
            assert best.value - best.tolerance <= values[name] + 1e-9, (configuration, name)


jobs_of = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 15), st.integers(1, 4)), min_size=1, max_size=5)


@settings(max_examples=40)
@given(jobs_of)
def test_optimum_equals_brute_force(rows):
    expected = brute_force_optimum(rows, 4)
    jobs = table(*rows)
    bounds = lower_bounds(jobs, 4)
    for name in OBJECTIVES:
        best = optimum(jobs, 4, objective=name)
        assert best.proven
        assert best.value == pytest.approx(expected[name], abs=best.tolerance + 1e-9)
        assert getattr(bounds, name) <= best.value + 1e-9


def test_jobs_of_zero_run_time_need_nodes():
    """The machine is full from 0 to 100: the job of 0 s starts first, or waits until 100."""
    assert optimum(table((0, 100, 4), (0, 0, 1)), 4).value == 0
    submitted_later = optimum(table((0, 100, 4), (5, 0, 1)), 4)
    assert submitted_later.value == pytest.approx(5 / 2)
    assert submitted_later.start_s.tolist() == [5, 5]
    empty_first = optimum(table((0, 0, 4), (0, 0, 4), (0, 9, 4)), 4)
    assert (empty_first.value, empty_first.start_s.tolist()) == (0, [0, 0, 0])


def test_starts_use_log_time_and_are_reproducible():
    jobs, nodes = workload(6, 10)
    first, second = optimum(jobs, nodes), optimum(jobs, nodes)
    assert first.start_s.tolist() == second.start_s.tolist()
    assert (first.start_s >= jobs["submit_s"]).all()
    assert first.value == pytest.approx((first.start_s - jobs["submit_s"]).mean())


def test_begin_times_are_respected():
    jobs = table((0, 20, 4), (0, 30, 4), begin_s=[25, 0])
    best = optimum(jobs, 4)
    assert best.start_s.tolist() == [30, 0]
    assert best.value == 2.5


def test_rounded_weights_state_their_tolerance():
    """Run times without common factors: K/D cannot be whole for all."""
    runs = (86_399, 86_389, 86_381, 86_371, 86_369, 86_363)
    best = optimum(table(*((0, run, 4) for run in runs)), 4, objective="mean_bsld")
    assert best.proven
    assert 0 < best.tolerance < 0.01
    exact = np.mean([sum(sorted(runs)[: k + 1]) / run for k, run in enumerate(sorted(runs))])
    assert best.value == pytest.approx(exact, abs=best.tolerance)


def test_bound_of_the_slowdown():
    jobs = table((0, 4, 1), (0, 4, 1))
    assert optimum(jobs, 1, objective="mean_bsld").value == 1
    assert optimum(jobs, 1, objective="mean_bsld", bound_s=5).value == pytest.approx((1 + 8 / 5) / 2)


@pytest.mark.parametrize(
    ("jobs", "options", "message"),
    [
        (table(*[(0, 1, 1)] * 13), {}, "13 jobs are too many for an optimal schedule; give at most 12"),
        (table((0, 5, 5)), {}, "job 1 needs 5 nodes of a machine of 4"),
        (table((0, 5.5, 1)), {}, "a run time is 5.5 s; the search needs whole seconds"),
        (table((0, 5, 1), (0.25, 5, 1)), {}, "a submission, from the first one on, is 0.25 s"),
        (table((0, 5, 1)), {"bound_s": 0.5}, "a bound_s is 0.5 s"),
        (table((0, 5, 1)), {"bound_s": math.nan}, "bound_s is nan"),
        (table((0, 5, 1)), {"seconds": 0.0}, "seconds is 0.0"),
        (table((0, 1e12, 1)), {}, "the jobs span 1000000000000 s"),
        (table((0, 5, 1), (0, 5, 1), after_id=[-1, 1]), {}, "job 2 depends on the end of job 1"),
        (table((0, 5, 1), cancel_s=[9]), {}, "some jobs have a cancel_s"),
    ],
)
def test_unsupported_problems_are_refused(jobs, options, message):
    with pytest.raises(InputError, match=message):
        optimum(jobs, 4, **options)


def test_unknown_objective():
    with pytest.raises(UnknownNameError, match="did you mean 'mean_wait_s'"):
        optimum(table((0, 5, 1)), 4, objective="mean_wait")


def test_time_limit_without_a_schedule():
    with pytest.raises(InputError, match="found no schedule in 1e-09 s; allow it more seconds"):
        optimum(workload(14, 12)[0], 8, seconds=1e-9)


def test_missing_solver(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(MissingExtraError, match=r"\[opt\]"):
        optimum(table((0, 5, 1)), 4)
