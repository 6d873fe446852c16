from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.errors import InputError
from kilowait.evaluation import metrics, timeline
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.example_logs import NEVER, example_log
from tests.evaluation.gpu.example_logs import SEEDS, preempted_run, random_run


def columns(result):
    return list(
        zip(
            result.time_s.tolist(),
            result.waiting_jobs.tolist(),
            result.waiting_nodes.tolist(),
            result.busy_nodes.tolist(),
            result.capacity_nodes.tolist(),
            strict=True,
        )
    )


def test_known_steps():
    result = timeline(example_log((0, 0, 100, 8), (10, 100, 50, 4), (20, 100, 5, 2)))
    assert columns(result) == [
        (0, 0, 0, 8, 8),
        (10, 1, 4, 8, 8),
        (20, 2, 6, 8, 8),
        (100, 0, 0, 6, 8),
        (105, 0, 0, 4, 8),
        (150, 0, 0, 0, 8),
    ]


def test_outage_inside_and_outside():
    result = timeline(example_log((0, 0, 100, 2), capacity=((-5, 9), (0, 8), (20, 4), (60, 8), (500, 1))))
    assert columns(result) == [(0, 0, 0, 2, 8), (20, 0, 0, 2, 4), (60, 0, 0, 2, 8), (100, 0, 0, 0, 8)]


def test_jobs_that_never_start():
    log = example_log(
        (0, 0, 100, 8),
        (10, NEVER, 50, 4),
        (20, NEVER, 5, 2),
        (30, NEVER, 5, 99),
        cancel_s=[math.inf, math.inf, 45, math.inf],
        outcome={2: Outcome.CANCELLED, 3: Outcome.REJECTED},
    )
    assert columns(timeline(log)) == [
        (0, 0, 0, 8, 8),
        (10, 1, 4, 8, 8),
        (20, 2, 6, 8, 8),
        (45, 1, 4, 8, 8),
        (100, 1, 4, 0, 8),
    ]


def test_zero_length_jobs_are_not_shown():
    result = timeline(example_log((0, 0, 100, 4), (50, 50, 0, 4)))
    assert columns(result) == [(0, 0, 0, 4, 8), (100, 0, 0, 0, 8)]


def test_empty():
    result = timeline(example_log())
    assert len(result) == 0
    with pytest.raises(InputError, match=r"0 instant\(s\)"):
        result.sampled(3)


def test_one_instant():
    result = timeline(example_log((5, 5, 0, 1)))
    assert columns(result) == [(5, 0, 0, 0, 8)]
    with pytest.raises(InputError, match=r"1 instant\(s\)"):
        result.sampled(1)


def test_sampled():
    bins = timeline(example_log((0, 0, 100, 8), (10, 100, 100, 4))).sampled(4)
    assert bins.edge_s.tolist() == [0, 50, 100, 150, 200]
    np.testing.assert_allclose(bins.busy_nodes, [8, 8, 4, 4])
    np.testing.assert_allclose(bins.waiting_jobs, [0.8, 1, 0, 0])
    np.testing.assert_allclose(bins.waiting_nodes, [3.2, 4, 0, 0])
    np.testing.assert_allclose(bins.capacity_nodes, 8)


def test_bad_bins():
    with pytest.raises(InputError, match="0 bins"):
        timeline(example_log((0, 0, 100, 8))).sampled(0)


jobs = st.lists(
    st.tuples(st.integers(0, 50), st.one_of(st.none(), st.integers(0, 30)), st.integers(0, 40), st.integers(1, 5)),
    min_size=1,
    max_size=12,
)


@given(jobs=jobs, bins=st.integers(1, 7))
def test_timeline_agrees_with_metrics_and_brute_force(jobs, bins):
    rows = [(s, NEVER if wait is None else s + wait, run, nodes) for s, wait, run, nodes in jobs]
    log = example_log(*rows, capacity=((0, 8), (20, 6), (30, 8)))
    result = timeline(log)
    for now, waiting, waiting_nodes, busy, capacity in columns(result):
        waiting_sizes = [n for s, start, _, n in rows if s <= now and (math.isnan(start) or now < start)]
        assert (waiting, waiting_nodes) == (len(waiting_sizes), sum(waiting_sizes))
        assert busy == sum(n for _, start, run, n in rows if start <= now < start + run)
        assert capacity == (6 if 20 <= now < 30 else 8)
    if len(result) < 2:
        return
    span = (result.time_s[0], result.time_s[-1])
    metric_values = metrics(log, horizon=span)
    sampled = result.sampled(bins)
    assert sampled.waiting_jobs.mean() == pytest.approx(metric_values["mean_backlog_jobs"])
    assert sampled.waiting_nodes.mean() == pytest.approx(metric_values["mean_backlog_nodes"])
    utilization = sampled.busy_nodes.mean() / sampled.capacity_nodes.mean()
    assert utilization == pytest.approx(metric_values["utilization"])


def test_preempted_job_waits_again():
    """The job runs until 10 s, waits another 30 s and resumes."""
    result = timeline(example_log((0, 0, 10, 4), (5, 40, 5, 2), segments=[(0, 40.0, 60.0)]))
    assert columns(result) == [
        (0, 0, 0, 4, 8),
        (5, 1, 2, 4, 8),
        (10, 2, 6, 0, 8),
        (40, 0, 0, 6, 8),
        (45, 0, 0, 4, 8),
        (60, 0, 0, 0, 8),
    ]


def test_preempted_job_that_never_resumes():
    log = example_log((0, 0, 10, 4), (0, 0, 30, 1), outcome={0: Outcome.UNSTARTED})
    assert columns(timeline(log)) == [(0, 0, 0, 5, 8), (10, 1, 4, 1, 8), (30, 1, 4, 0, 8)]


def test_node_level_jobs_wait_between_segments_and_share_nodes():
    log, _, _ = preempted_run()
    assert columns(timeline(log)) == [
        (0, 0, 0, 2, 2),
        (4, 0, 0, 1, 2),
        (10, 1, 1, 1, 2),
        (14, 0, 0, 2, 2),
        (18, 0, 0, 1, 2),
        (44, 0, 0, 0, 2),
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_backlog_of_node_level_runs_equals_that_of_the_metrics(seed):
    """Nodes in use never exceed the nodes of the cluster, although jobs share nodes."""
    log, cluster, _ = random_run(seed)
    result = timeline(log)
    assert result.busy_nodes.max() <= cluster.nodes
    assert result.waiting_jobs.min() == 0
    whole = result.sampled(1)
    metric_values = metrics(log, horizon=(float(whole.edge_s[0]), float(whole.edge_s[1])))
    assert whole.waiting_jobs[0] == pytest.approx(metric_values["mean_backlog_jobs"], rel=1e-9)
    assert whole.waiting_nodes[0] == pytest.approx(metric_values["mean_backlog_nodes"], rel=1e-9)
    waited_s = np.nansum(log.jobs()["wait_s"])
    if (log.job_outcome != Outcome.UNSTARTED).all() and (log.job_outcome != Outcome.CANCELLED).all():
        assert whole.waiting_jobs[0] * (whole.edge_s[1] - whole.edge_s[0]) == pytest.approx(waited_s, rel=1e-9)
