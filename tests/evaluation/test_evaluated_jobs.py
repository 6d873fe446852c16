"""Jobs that warm the machine up and are not counted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.evaluation import by_class, metrics
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.example_logs import NEVER, example_log


@pytest.fixture
def three():
    """Three jobs on 8 nodes: 100 s on 8 nodes at once, 50 s on 4 after 90 s, 5 s on 2 after 80 s."""
    return example_log((0, 0, 100, 8), (10, 100, 50, 4), (20, 100, 5, 2))


def test_counted_jobs(three):
    """The first job only warms the machine up."""
    found = metrics(three, counted=np.array([False, True, True]))
    assert (found["jobs"], found["started"], found["completed"]) == (2, 2, 2)
    assert found["mean_wait_s"] == 85
    assert found["max_turnaround_s"] == 140
    assert found["mean_slowdown"] == pytest.approx((140 / 50 + 85 / 5) / 2)
    assert found["mean_bsld"] == pytest.approx((140 / 50 + 85 / 10) / 2)
    assert found["busy_node_h"] == pytest.approx((200 + 10) / 3600)
    assert found["makespan_s"] == 140
    # Over the horizon, 10 to 150, the warm-up job counts: it runs to 100 and ends.
    assert (found["horizon_start_s"], found["horizon_end_s"]) == (10, 150)
    assert found["utilization"] == pytest.approx((90 * 8 + 200 + 10) / (8 * 140))
    assert found["throughput_per_h"] == pytest.approx(3 / 140 * 3600)
    assert found["mean_backlog_jobs"] == pytest.approx((90 + 80) / 140)


def test_jobs_that_are_not_counted_still_wait(three):
    found = metrics(three, counted=[True, False, False])
    assert found["max_wait_s"] == 0
    assert found["makespan_s"] == 100
    assert found["utilization"] == 1
    assert found["mean_backlog_jobs"] == pytest.approx((90 + 80) / 100)


def test_counting_all_is_the_default(three):
    assert metrics(three, counted=[True] * 3) == metrics(three)
    horizon = (50, 110)
    masked, whole = (
        metrics(three, horizon=horizon, counted=[False, True, False]),
        metrics(three, horizon=horizon),
    )
    for name in ("utilization", "throughput_per_h", "mean_backlog_jobs", "mean_backlog_nodes"):
        assert masked[name] == whole[name]


def test_counted_outcomes():
    log = example_log((0, 0, 100, 8), (10, NEVER, 50, 4), (20, NEVER, 5, 99), outcome={2: Outcome.REJECTED})
    found = metrics(log, counted=[False, True, False])
    assert (found["jobs"], found["started"], found["unstarted"]) == (1, 0, 1)
    assert (found["completed"], found["rejected"]) == (0, 0)
    assert math.isnan(found["makespan_s"])
    assert math.isnan(found["utilization"])


def test_counting_none(three):
    found = metrics(three, counted=[False] * 3)
    assert (found["jobs"], found["started"], found["busy_node_h"]) == (0, 0, 0)
    assert math.isnan(found["mean_bsld"])
    assert math.isnan(found["makespan_s"])


def test_counted_job_of_several_segments():
    """One segment per job elsewhere must not hide that the counted one has two."""
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
def test_bad_mask(three, counted, message):
    with pytest.raises(InputError, match=message):
        metrics(three, counted=counted)
    with pytest.raises(InputError, match=message):
        by_class(three, "size", counted=counted)
