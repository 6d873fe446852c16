from __future__ import annotations

import json
import math

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import constant_speeds
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation import gpu_metrics
from kilowait.jobs import JobTable
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.example_logs import example_log
from tests.evaluation.gpu.example_logs import SEEDS, C, M, node_level_log, nodes, preempted_run, random_run


def test_completion_times():
    result = gpu_metrics(*preempted_run())  # 44, 8 and 4 s; the first waited 4 s of them
    assert (result["jobs"], result["unfinished_jobs"]) == (3, 0)
    assert result["mean_jct_s"] == pytest.approx(56 / 3)
    assert result["median_jct_s"] == 8
    assert result["p95_jct_s"] == pytest.approx(8 + 0.9 * 36)
    assert result["p99_jct_s"] == pytest.approx(8 + 0.98 * 36)
    assert result["mean_queueing_s"] == pytest.approx(4 / 3)
    assert result["p95_queueing_s"] == pytest.approx(0.9 * 4)
    assert result["makespan_s"] == 44


def test_allocated_and_lost_gpu_hours():
    result = gpu_metrics(*preempted_run())
    assert result["gpu_hours"] == pytest.approx((2 * 10 + 2 * 30 + 0.5 * 8) / 3600)
    assert (result["preemptions"], result["migrations"]) == (1, 0)
    assert result["lost_gpu_hours"] == pytest.approx(2 * 4 / 3600)


def test_utilizations():
    result = gpu_metrics(*preempted_run())
    assert result["gpu_utilization"] == pytest.approx((20 + 4 + 60) / (4 * 44))
    assert result["flops_utilization"] == pytest.approx((24 * 15.7 + 60 * 8.1) / (44 * (2 * 15.7 + 2 * 8.1)))
    assert result["flops_known_share"] == 1
    # useful: 6 s at full speed, then 14 s at half speed, which takes 28 s; the other job's 8 s on half a GPU
    assert result["work_utilization"] == pytest.approx((2 * 6 + 2 * 28 + 0.5 * 8) / (4 * 44))


def test_flops_utilization_of_another_precision():
    result = gpu_metrics(*preempted_run(), precision="fp16")
    assert result["flops_utilization"] == pytest.approx((24 * 125 + 60 * 65) / (44 * (2 * 125 + 2 * 65)))
    with pytest.raises(UnknownNameError, match="unknown precision 'fp8'"):
        gpu_metrics(*preempted_run(), precision="fp8")


def test_nodes_in_use():
    result = gpu_metrics(*preempted_run())  # the first from 0 to 18, the second from 0 to 4 and 14 to 44
    assert result["mean_nodes_in_use"] == pytest.approx((18 + 4 + 30) / 44)
    assert result["peak_nodes_in_use"] == 2


def test_horizon_cuts_segments_and_may_exceed_the_run():
    log, cluster, speeds = preempted_run()
    result = gpu_metrics(log, cluster, speeds, horizon_s=(5, 15))
    assert result["gpu_utilization"] == pytest.approx((2 * 5 + 2 * 1 + 0.5 * 5) / (4 * 10))
    # evenly over a segment: 6 of 10 s are useful in the first, 28 of 30 s in the second
    assert result["work_utilization"] == pytest.approx((2 * 5 * 0.6 + 2 * 1 * 28 / 30 + 0.5 * 5) / 40)
    assert result["mean_nodes_in_use"] == pytest.approx((10 + 1) / 10)
    assert result["gpu_hours"] == gpu_metrics(log, cluster, speeds)["gpu_hours"]
    wide = gpu_metrics(log, cluster, speeds, horizon_s=(-44, 88))
    assert wide["gpu_utilization"] == pytest.approx(84 / (4 * 132))
    assert gpu_metrics(log, cluster, speeds, horizon_s=(100, 200))["gpu_utilization"] == 0


@pytest.mark.parametrize("horizon", [(5, 5), (9, 5), (0, math.inf), 44.0, (1, 2, 3)])
def test_invalid_horizon(horizon):
    log, cluster, speeds = preempted_run()
    with pytest.raises(InputError, match="the horizon"):
        gpu_metrics(log, cluster, speeds, horizon_s=horizon)


def test_only_evaluated_jobs_count_but_all_load_the_machine():
    log, cluster, speeds = preempted_run()
    result = gpu_metrics(log, cluster, speeds, counted=[False, True, True], horizon_s=(0, 44))
    assert (result["jobs"], result["mean_jct_s"], result["makespan_s"]) == (2, 6, 18)
    assert result["gpu_hours"] == pytest.approx(4 / 3600)
    assert result["preemptions"] == result["lost_gpu_hours"] == 0
    assert result["max_rho"] == pytest.approx(0.75)
    assert result["gpu_utilization"] == pytest.approx(84 / (4 * 44))


def test_unfinished_jobs_are_counted_separately():
    cluster = Cluster((nodes("t", 1, 1, "T4"),))
    jobs = JobTable(job_id=[1, 2, 3, 4], submit_s=[0, 0, 0, 0], runtime_s=[9] * 4, nodes=[1] * 4, gpus=[1] * 4)
    log = node_level_log(
        cluster, jobs, (0, 0, 9, C, 9, 0, [(0, 1, 1000)]), outcome={1: Outcome.CANCELLED, 2: Outcome.REJECTED}
    )
    result = gpu_metrics(log, cluster)
    assert (result["jobs"], result["unfinished_jobs"], result["mean_jct_s"]) == (4, 3, 9)


def test_undisclosed_rates():
    cluster = Cluster((nodes("g", 1, 3, "G2"), nodes("t", 1, 1, "T4"), nodes("x", 1, 4, "Mine")))
    jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[10, 5], nodes=[1, 1], gpus=[3, 1])
    log = node_level_log(cluster, jobs, (0, 0, 10, C, 10, 0, [(0, 0b111, 3000)]), (1, 0, 5, C, 5, 0, [(1, 1, 1000)]))
    result = gpu_metrics(log, cluster)
    assert result["flops_utilization"] == 0.5  # of the T4
    assert result["flops_known_share"] == 1 / 8
    assert result["gpu_utilization"] == pytest.approx(35 / 80)


def test_migration_is_counted():
    cluster = Cluster((nodes("t", 2, 1, "T4"),))
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[10], nodes=[1], gpus=[1])
    log = node_level_log(cluster, jobs, (0, 0, 4, M, 4, 0, [(0, 1, 1000)]), (0, 4, 12, C, 6, 0, [(1, 1, 1000)]))
    result = gpu_metrics(log, cluster)
    assert (result["migrations"], result["preemptions"], result["mean_queueing_s"]) == (1, 0, 0)
    assert result["work_utilization"] == pytest.approx(10 / 24)
    assert result["peak_nodes_in_use"] == 1  # the job changes nodes at one instant


@pytest.mark.parametrize("count", [0, 1])
def test_run_without_started_jobs(count):
    cluster = Cluster((nodes("t", 1, 1, "T4"),))
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], gpus=[1])[:count]
    log = node_level_log(cluster, jobs)
    result = gpu_metrics(log, cluster)
    assert math.isnan(result["mean_jct_s"]) and math.isnan(result["gpu_utilization"])
    assert result["gpu_hours"] == 0 and math.isnan(result["max_rho"])
    assert gpu_metrics(log, cluster, horizon_s=(0, 9))["mean_nodes_in_use"] == 0


def test_job_of_zero_run_time():
    cluster = Cluster((nodes("t", 1, 1, "T4"),))
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[0], nodes=[1], gpus=[1])
    log = node_level_log(cluster, jobs, (0, 0, 0, C, 0, 0, [(0, 1, 1000)]))
    result = gpu_metrics(log, cluster)
    assert (result["mean_jct_s"], result["gpu_hours"]) == (0, 0) and math.isnan(result["gpu_utilization"])
    assert gpu_metrics(log, cluster, horizon_s=(-1, 1))["work_utilization"] == 0


def test_cluster_without_gpus():
    cluster = Cluster((nodes("c", 1, 0, ""),))
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], cores=[1])
    result = gpu_metrics(node_level_log(cluster, jobs, (0, 0, 9, C, 9, 0, [(0, 0, 0)])), cluster)
    assert math.isnan(result["gpu_utilization"]) and math.isnan(result["mean_fragmentation"])
    assert result["mean_nodes_in_use"] == 1 and result["mean_jct_s"] == 9


def test_log_and_cluster_must_match():
    log, cluster, _ = preempted_run()
    with pytest.raises(InputError, match="has no node-level allocations"):
        gpu_metrics(example_log((0, 0, 1, 1)), cluster)
    for other in (
        Cluster((nodes("v", 2, 2, "V100"), nodes("t", 1, 2, "T4"))),
        Cluster((nodes("v", 1, 2, "V100"), nodes("u", 1, 2, "T4"))),
        Cluster(cluster.groups, node_groups=(1, 0)),
    ):
        with pytest.raises(InputError, match="give the cluster of the run"):
            gpu_metrics(log, other)


def test_speeds_must_be_those_of_the_run():
    log, cluster, _ = preempted_run()
    slow = constant_speeds(log.jobs_table, ("V100", "T4"), {"V100": 1.0, "T4": 0.0})
    with pytest.raises(InputError, match="job 1 ran on 'T4', where its speed is 0"):
        gpu_metrics(log, cluster, slow)


def test_values_are_plain_numbers():
    result = gpu_metrics(*preempted_run())
    assert all(type(value) is float for value in result.values())
    json.dumps(result)


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_are_between_0_and_1(seed):
    result = gpu_metrics(*random_run(seed))
    for name in ("unfair_share", "jain_rho", "flops_utilization", "flops_known_share", "mean_fragmentation"):
        assert 0 <= result[name] <= 1, name
    assert 0 < result["work_utilization"] <= result["gpu_utilization"] <= 1
    assert result["mean_fragmentation"] <= 1 - result["gpu_utilization"]
    assert result["lost_gpu_hours"] <= result["gpu_hours"]
    assert result["mean_nodes_in_use"] <= result["peak_nodes_in_use"] <= random_run(seed)[1].nodes


@pytest.mark.parametrize("seed", SEEDS)
def test_flops_utilization_with_one_gpu_type(seed):
    log, cluster, speeds = random_run(seed)
    result = gpu_metrics(log, cluster, speeds)
    if len({group.gpu_type for group in cluster.groups}) == 1:
        assert result["flops_utilization"] == pytest.approx(result["gpu_utilization"])
    else:
        assert result["flops_utilization"] != pytest.approx(result["gpu_utilization"])


def test_random_runs_are_not_trivial():
    result = [gpu_metrics(*random_run(seed)) for seed in SEEDS]
    for name in ("preemptions", "migrations", "lost_gpu_hours", "unfinished_jobs", "mean_queueing_s"):
        assert sum(metrics_of_run[name] > 0 for metrics_of_run in result) >= 2, name
    assert sum(len(random_run(seed)[1].groups) == 1 for seed in SEEDS) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_useful_work_equals_the_work_of_finished_jobs(seed):
    log, cluster, speeds = random_run(seed)
    ones = constant_speeds(log.jobs_table, speeds.types, 1.0)
    span = gpu_metrics(log, cluster, speeds)["makespan_s"]
    gpus = sum(group.nodes * group.gpus for group in cluster.groups)
    jobs, done = log.jobs_table, log.job_outcome == Outcome.COMPLETED
    work = (jobs["gpus"] * jobs["gpu_milli"] / 1000 * jobs["runtime_s"])[done].sum()
    assert gpu_metrics(log, cluster, ones)["work_utilization"] * gpus * span == pytest.approx(work)


@pytest.mark.parametrize("seed", SEEDS)
def test_horizons_add_up(seed):
    log, cluster, speeds = random_run(seed)
    whole = gpu_metrics(log, cluster, speeds)
    first = float(log.jobs_table["submit_s"].min())
    edges = first + np.linspace(0, whole["makespan_s"], 4)
    parts = [gpu_metrics(log, cluster, speeds, horizon_s=tuple(edges[i : i + 2])) for i in range(3)]
    for name in ("gpu_utilization", "flops_utilization", "work_utilization", "mean_fragmentation"):
        assert sum(part[name] for part in parts) / 3 == pytest.approx(whole[name]), name
    assert max(part["peak_nodes_in_use"] for part in parts) == whole["peak_nodes_in_use"]
