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
from tests.evaluation.gpu.example_logs import SEEDS, moved, random_run


def columns(over):
    return list(
        zip(
            over.time_s.tolist(),
            over.waiting_jobs.tolist(),
            over.waiting_nodes.tolist(),
            over.busy_nodes.tolist(),
            over.capacity_nodes.tolist(),
            strict=True,
        )
    )


def test_known_steps():
    over = timeline(example_log((0, 0, 100, 8), (10, 100, 50, 4), (20, 100, 5, 2)))
    assert columns(over) == [
        (0, 0, 0, 8, 8),
        (10, 1, 4, 8, 8),
        (20, 2, 6, 8, 8),
        (100, 0, 0, 6, 8),
        (105, 0, 0, 4, 8),
        (150, 0, 0, 0, 8),
    ]


def test_outage_inside_and_outside():
    over = timeline(example_log((0, 0, 100, 2), capacity=((-5, 9), (0, 8), (20, 4), (60, 8), (500, 1))))
    assert columns(over) == [(0, 0, 0, 2, 8), (20, 0, 0, 2, 4), (60, 0, 0, 2, 8), (100, 0, 0, 0, 8)]


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


def test_what_lasts_no_time_is_not_seen():
    over = timeline(example_log((0, 0, 100, 4), (50, 50, 0, 4)))
    assert columns(over) == [(0, 0, 0, 4, 8), (100, 0, 0, 0, 8)]


def test_empty():
    over = timeline(example_log())
    assert len(over) == 0
    with pytest.raises(InputError, match=r"0 instant\(s\)"):
        over.sampled(3)


def test_one_instant():
    over = timeline(example_log((5, 5, 0, 1)))
    assert columns(over) == [(5, 0, 0, 0, 8)]
    with pytest.raises(InputError, match=r"1 instant\(s\)"):
        over.sampled(1)


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
    st.tuples(
        st.integers(0, 50),
        st.one_of(st.none(), st.integers(0, 30)),
        st.integers(0, 40),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=12,
)


@given(jobs=jobs, bins=st.integers(1, 7))
def test_agrees_with_metrics_and_with_looking(jobs, bins):
    rows = [(s, NEVER if wait is None else s + wait, run, nodes) for s, wait, run, nodes in jobs]
    log = example_log(*rows, capacity=((0, 8), (20, 6), (30, 8)))
    over = timeline(log)
    for now, waiting, asked, busy, capacity in columns(over):
        here = [n for s, start, _, n in rows if s <= now and (math.isnan(start) or now < start)]
        assert (waiting, asked) == (len(here), sum(here))
        assert busy == sum(n for _, start, run, n in rows if start <= now < start + run)
        assert capacity == (6 if 20 <= now < 30 else 8)
    if len(over) < 2:
        return
    span = (over.time_s[0], over.time_s[-1])
    found = metrics(log, horizon=span)
    sampled = over.sampled(bins)
    assert sampled.waiting_jobs.mean() == pytest.approx(found["mean_backlog_jobs"])
    assert sampled.waiting_nodes.mean() == pytest.approx(found["mean_backlog_nodes"])
    used = sampled.busy_nodes.mean() / sampled.capacity_nodes.mean()
    assert used == pytest.approx(found["utilization"])


def test_a_preempted_job_waits_again():
    """The job runs to 10 s, waits for another 30 s, and runs again."""
    over = timeline(example_log((0, 0, 10, 4), (5, 40, 5, 2), segments=[(0, 40.0, 60.0)]))
    assert columns(over) == [
        (0, 0, 0, 4, 8),
        (5, 1, 2, 4, 8),
        (10, 2, 6, 0, 8),
        (40, 0, 0, 6, 8),
        (45, 0, 0, 4, 8),
        (60, 0, 0, 0, 8),
    ]


def test_a_preempted_job_that_never_goes_on():
    log = example_log((0, 0, 10, 4), (0, 0, 30, 1), outcome={0: Outcome.UNSTARTED})
    assert columns(timeline(log)) == [(0, 0, 0, 5, 8), (10, 1, 4, 1, 8), (30, 1, 4, 0, 8)]


def test_node_level_jobs_wait_between_segments_and_share_nodes():
    log, _, _ = moved()
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
    """And nodes in use are never more than there are, however many jobs share them."""
    log, cluster, _ = random_run(seed)
    over = timeline(log)
    assert over.busy_nodes.max() <= cluster.nodes
    assert over.waiting_jobs.min() == 0
    cut = over.sampled(1)
    found = metrics(log, horizon=(float(cut.edge_s[0]), float(cut.edge_s[1])))
    assert cut.waiting_jobs[0] == pytest.approx(found["mean_backlog_jobs"], rel=1e-9)
    assert cut.waiting_nodes[0] == pytest.approx(found["mean_backlog_nodes"], rel=1e-9)
    waited = np.nansum(log.jobs()["wait_s"])
    if (log.job_outcome != Outcome.UNSTARTED).all() and (log.job_outcome != Outcome.CANCELLED).all():
        assert cut.waiting_jobs[0] * (cut.edge_s[1] - cut.edge_s[0]) == pytest.approx(waited, rel=1e-9)
