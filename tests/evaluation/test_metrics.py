from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.evaluation import metrics
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.example_logs import NEVER, example_log

STATISTICS = ("mean", "median", "p95", "p99", "max")
QUANTITIES = ("wait_s", "turnaround_s", "slowdown", "bsld")


@pytest.fixture
def example():
    """Three jobs on 8 nodes: 100 s on 8 nodes without waiting, 50 s on 4 after 90 s, 5 s on 2 after 80 s."""
    return example_log((0, 0, 100, 8), (10, 100, 50, 4), (20, 100, 5, 2))


def test_known_values(example):
    result = metrics(example)
    assert (result["jobs"], result["started"], result["completed"]) == (3, 3, 3)
    assert result["mean_wait_s"] == pytest.approx((0 + 90 + 80) / 3)
    assert result["median_wait_s"] == 80
    assert result["p95_wait_s"] == pytest.approx(80 + 0.9 * 10)
    assert result["p99_wait_s"] == pytest.approx(80 + 0.98 * 10)
    assert result["max_wait_s"] == 90
    assert result["mean_turnaround_s"] == pytest.approx((100 + 140 + 85) / 3)
    assert result["mean_slowdown"] == pytest.approx((1 + 140 / 50 + 85 / 5) / 3)
    assert result["mean_bsld"] == pytest.approx((1 + 140 / 50 + 85 / 10) / 3)
    assert result["max_bsld"] == 8.5
    assert result["makespan_s"] == 150
    assert result["busy_node_h"] == pytest.approx((800 + 200 + 10) / 3600)
    assert result["utilization"] == pytest.approx(1010 / (8 * 150))
    assert result["throughput_per_h"] == pytest.approx(3 / 150 * 3600)
    assert result["mean_backlog_jobs"] == pytest.approx((90 + 80) / 150)
    assert result["mean_backlog_nodes"] == pytest.approx((90 * 4 + 80 * 2) / 150)
    assert (result["horizon_start_s"], result["horizon_end_s"]) == (0, 150)


def test_values_are_plain_numbers(example):
    assert all(type(value) in (int, float) for value in metrics(example).values())
    json.dumps(metrics(example))


def test_bound(example):
    assert metrics(example, bound_s=1.0)["max_bsld"] == 17
    assert metrics(example, bound_s=1000.0)["max_bsld"] == 1


def test_horizon_cuts_jobs_on_both_sides(example):
    result = metrics(example, horizon=(50, 110))
    assert result["utilization"] == pytest.approx((50 * 8 + 10 * 4 + 5 * 2) / (60 * 8))
    assert result["throughput_per_h"] == pytest.approx(2 / 60 * 3600)
    assert result["mean_backlog_jobs"] == pytest.approx((50 + 50) / 60)
    assert result["mean_wait_s"] == metrics(example)["mean_wait_s"]
    assert result["makespan_s"] == 150
    assert metrics(example, horizon=(1000, 2000))["utilization"] == 0
    assert metrics(example, horizon=(-150, 150))["utilization"] == pytest.approx(1010 / (8 * 300))


def test_throughput_counts_both_ends_of_the_horizon(example):
    assert metrics(example, horizon=(100, 150))["throughput_per_h"] == pytest.approx(3 / 50 * 3600)
    assert metrics(example, horizon=(101, 149))["throughput_per_h"] == pytest.approx(1 / 48 * 3600)
    first_runs_zero_seconds = example_log((0, 0, 0, 1), (0, 0, 36, 1))
    assert metrics(first_runs_zero_seconds)["throughput_per_h"] == 200


def test_horizons_add_up(example):
    whole = metrics(example)["utilization"] * 150
    parts = sum(metrics(example, horizon=(a, a + 10))["utilization"] * 10 for a in range(0, 150, 10))
    assert parts == pytest.approx(whole)


def test_outages_reduce_the_capacity():
    log = example_log((0, 0, 100, 4), capacity=((0, 8), (20, 4), (60, 8)))
    assert metrics(log)["utilization"] == pytest.approx(400 / (20 * 8 + 40 * 4 + 40 * 8))
    assert metrics(log, horizon=(20, 60))["utilization"] == 1.0
    assert metrics(log, horizon=(30, 50))["utilization"] == 1.0
    assert metrics(log, horizon=(10, 70))["utilization"] == pytest.approx(240 / (80 + 160 + 80))


def test_first_capacity_step_extends_backwards():
    log = example_log((0, 0, 100, 4), capacity=((50, 8), (80, 4)))
    assert metrics(log)["utilization"] == pytest.approx(400 / (80 * 8 + 20 * 4))
    without_changes = example_log((0, 0, 100, 4), capacity=((-math.inf, 8),))
    assert metrics(without_changes)["utilization"] == 0.5


def test_machine_without_nodes_has_no_utilization():
    log = example_log((0, 0, 100, 4), capacity=((0, 0),))
    assert math.isnan(metrics(log)["utilization"])


def test_waiting_counts_from_the_eligible_time():
    result = metrics(example_log((0, 100, 10, 1), eligible={0: 60.0}))
    assert result["mean_wait_s"] == 40
    assert result["mean_turnaround_s"] == 50
    assert result["makespan_s"] == 110
    assert result["mean_backlog_jobs"] == pytest.approx(40 / 110)


def test_jobs_that_never_started():
    log = example_log(
        (0, 0, 100, 8),
        (10, NEVER, 50, 4),
        (20, NEVER, 5, 2),
        (30, NEVER, 5, 99),
        (40, NEVER, 5, 1),
        (0, 100, 20, 8),
        cancel_s=[math.inf, math.inf, 45, math.inf, math.inf, math.inf],
        outcome={2: Outcome.CANCELLED, 3: Outcome.REJECTED, 5: Outcome.KILLED},
        eligible={4: NEVER},
    )
    result = metrics(log)
    counts = {"jobs": 6, "started": 2, "completed": 1, "killed": 1, "cancelled": 1, "rejected": 1, "unstarted": 2}
    assert {name: result[name] for name in counts} == counts
    assert result["mean_wait_s"] == 50
    # The unstarted job waits from 10 to 120, the cancelled one from 20 to 45, the killed one from 0 to 100.
    assert result["mean_backlog_jobs"] == pytest.approx((110 + 25 + 100) / 120)
    assert result["mean_backlog_nodes"] == pytest.approx((110 * 4 + 25 * 2 + 100 * 8) / 120)


def test_job_cancelled_before_it_is_eligible():
    log = example_log((0, 0, 100, 8), (10, NEVER, 5, 2), cancel_s=[math.inf, 5], outcome={1: Outcome.CANCELLED})
    assert metrics(log)["mean_backlog_jobs"] == 0


def test_zero_run_times_have_no_slowdown():
    result = metrics(example_log((0, 10, 0, 1), (0, 10, 10, 1)))
    assert result["mean_slowdown"] == result["max_slowdown"] == 2
    assert result["mean_bsld"] == pytest.approx((1 + 2) / 2)
    assert result["mean_wait_s"] == 10
    single_zero = metrics(example_log((5, 5, 0, 1)))
    assert math.isnan(single_zero["mean_slowdown"])
    assert single_zero["mean_bsld"] == 1
    assert single_zero["makespan_s"] == 0
    assert math.isnan(single_zero["utilization"])
    assert math.isnan(single_zero["throughput_per_h"])


def test_one_job():
    result = metrics(example_log((5, 5, 60, 8)))
    assert {result[f"{s}_bsld"] for s in STATISTICS} == {1.0}
    assert {result[f"{s}_wait_s"] for s in STATISTICS} == {0.0}
    assert result["utilization"] == 1.0
    assert result["throughput_per_h"] == 60


@pytest.mark.parametrize("log", [example_log(), example_log((0, NEVER, 5, 2)), example_log(capacity=())])
def test_nothing_started(log):
    result = metrics(log)
    assert result["started"] == 0
    for name in QUANTITIES:
        assert all(math.isnan(result[f"{s}_{name}"]) for s in STATISTICS)
    for name in ("makespan_s", "utilization", "throughput_per_h", "mean_backlog_jobs", "mean_backlog_nodes"):
        assert math.isnan(result[name])
    assert result["busy_node_h"] == 0


def test_nothing_started_over_a_horizon():
    result = metrics(example_log((0, NEVER, 5, 2)), horizon=(0, 10))
    assert result["utilization"] == 0
    assert result["mean_backlog_nodes"] == 2


def test_several_segments():
    """Runs 0-10 and 40-60: 30 s of running in a turnaround of 60."""
    log = example_log((0, 0, 10, 4), segments=[(0, 40.0, 60.0)])
    result = metrics(log)
    assert result["started"] == 1
    assert result["mean_turnaround_s"] == 60
    assert result["mean_slowdown"] == 2
    assert result["utilization"] == pytest.approx(30 * 4 / (60 * 8))


@pytest.mark.parametrize("horizon", [(10, 10), (10, 5), (math.nan, 5), (0, math.inf)])
def test_bad_horizon(example, horizon):
    with pytest.raises(InputError, match="the horizon goes from"):
        metrics(example, horizon=horizon)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_bad_bound(example, bound):
    with pytest.raises(InputError, match="bound_s is"):
        metrics(example, bound_s=bound)


def test_no_machine_size():
    with pytest.raises(InputError, match="capacity_s is empty"):
        metrics(example_log((0, 0, 5, 2), capacity=()))


def test_means_equal_those_of_other_simulators(data_dir):
    """The start times of other simulators give the means that they reported."""
    recorded = data_dir.parent / "oracles" / "lublin_256.json.gz"
    if not recorded.exists():
        pytest.skip(f"no {recorded}")
    oracle = json.loads(gzip.decompress(recorded.read_bytes()))
    with gzip.open(data_dir / "swf" / "lublin_256.swf.gz", "rt") as lines:
        jobs = np.array([line.split() for line in lines if not line.startswith(";")], float)
    assert jobs[:, 0].astype(int).tolist() == oracle["job_ids"]
    submit, run, procs = jobs[:, 1], jobs[:, 3], jobs[:, 4]
    assert len(oracle["runs"]) == 5
    for name, recorded_run in oracle["runs"].items():
        rows = zip(submit, recorded_run["start"], run, procs, strict=True)
        result = metrics(example_log(*rows, capacity=((0, oracle["processors"]),)))
        for ours, theirs in (
            ("mean_bsld", "avg_bsld"),
            ("mean_wait_s", "avg_wait"),
            ("mean_turnaround_s", "avg_turnaround"),
            ("makespan_s", "makespan"),
            ("utilization", "util"),
        ):
            assert result[ours] == pytest.approx(recorded_run["metrics"][theirs], rel=1e-9), (name, ours)
