"""Metrics of a subset of jobs; warm-up jobs are not counted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.evaluation import by_class, metrics
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.example_logs import NEVER, example_log


@pytest.fixture
def example():
    """Three jobs on 8 nodes: 100 s on 8 nodes without waiting, 50 s on 4 after 90 s, 5 s on 2 after 80 s."""
    return example_log((0, 0, 100, 8), (10, 100, 50, 4), (20, 100, 5, 2))


def test_counted_jobs(example):
    """The first job is a warm-up job."""
    result = metrics(example, counted=np.array([False, True, True]))
    assert (result["jobs"], result["started"], result["completed"]) == (2, 2, 2)
    assert result["mean_wait_s"] == 85
    assert result["max_turnaround_s"] == 140
    assert result["mean_slowdown"] == pytest.approx((140 / 50 + 85 / 5) / 2)
    assert result["mean_bsld"] == pytest.approx((140 / 50 + 85 / 10) / 2)
    assert result["busy_node_h"] == pytest.approx((200 + 10) / 3600)
    assert result["makespan_s"] == 140
    # Over the horizon, 10 to 150, the warm-up job counts: it runs to 100 and ends.
    assert (result["horizon_start_s"], result["horizon_end_s"]) == (10, 150)
    assert result["utilization"] == pytest.approx((90 * 8 + 200 + 10) / (8 * 140))
    assert result["throughput_per_h"] == pytest.approx(3 / 140 * 3600)
    assert result["mean_backlog_jobs"] == pytest.approx((90 + 80) / 140)


def test_uncounted_jobs_still_wait(example):
    result = metrics(example, counted=[True, False, False])
    assert result["max_wait_s"] == 0
    assert result["makespan_s"] == 100
    assert result["utilization"] == 1
    assert result["mean_backlog_jobs"] == pytest.approx((90 + 80) / 100)


def test_all_jobs_are_counted_by_default(example):
    assert metrics(example, counted=[True] * 3) == metrics(example)
    horizon = (50, 110)
    masked, whole = (metrics(example, horizon=horizon, counted=[False, True, False]), metrics(example, horizon=horizon))
    for name in ("utilization", "throughput_per_h", "mean_backlog_jobs", "mean_backlog_nodes"):
        assert masked[name] == whole[name]


def test_counted_outcomes():
    log = example_log((0, 0, 100, 8), (10, NEVER, 50, 4), (20, NEVER, 5, 99), outcome={2: Outcome.REJECTED})
    result = metrics(log, counted=[False, True, False])
    assert (result["jobs"], result["started"], result["unstarted"]) == (1, 0, 1)
    assert (result["completed"], result["rejected"]) == (0, 0)
    assert math.isnan(result["makespan_s"])
    assert math.isnan(result["utilization"])


def test_no_counted_jobs(example):
    result = metrics(example, counted=[False] * 3)
    assert (result["jobs"], result["started"], result["busy_node_h"]) == (0, 0, 0)
    assert math.isnan(result["mean_bsld"])
    assert math.isnan(result["makespan_s"])


def test_counted_job_of_several_segments():
    """The counted job has two segments, the others have one."""
    log = example_log((0, 0, 10, 4), (0, 10, 20, 4), (0, NEVER, 5, 1), segments=[(0, 40.0, 60.0)])
    assert metrics(log, counted=[True, False, False])["mean_slowdown"] == 2
    assert metrics(log, counted=[True, True, True])["mean_slowdown"] == pytest.approx((2 + 1.5) / 2)


@pytest.mark.parametrize(
    ("counted", "message"),
    [
        ([True, True], r"counted has the shape \(2,\); give one true or false for each of the 3 rows"),
        ([[True, True, True]], r"counted has the shape \(1, 3\)"),
        (True, r"counted has the shape \(\)"),
        ([0, 1, 1], "counted holds int64, not booleans"),
        ([1.0, math.nan, 0.0], "counted holds float64"),
        (["a", "b", "c"], "counted holds <U1"),
        ([None, True, False], "counted holds object"),
        ([[True], [True, False]], "counted is a ragged list"),
    ],
)
def test_bad_mask(example, counted, message):
    with pytest.raises(InputError, match=message):
        metrics(example, counted=counted)
    with pytest.raises(InputError, match=message):
        by_class(example, "size", counted=counted)
