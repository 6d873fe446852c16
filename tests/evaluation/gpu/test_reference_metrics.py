"""`metrics` of runs on GPU clusters."""

from __future__ import annotations

import pytest

from kilowait.cluster import Cluster
from kilowait.evaluation import by_class, fairness, gpu_metrics, metrics, timeline
from kilowait.jobs import JobTable
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.gpu.example_logs import SEEDS, C, P, node_level_log, nodes, preempted_run, random_run


def test_shared_nodes_count_once():
    log, _, _ = preempted_run()
    result = metrics(log)
    assert result["busy_node_h"] == pytest.approx((18 + 4 + 30) / 3600)
    assert result["utilization"] == pytest.approx(52 / 88)
    assert metrics(log, counted=[False, True, True])["busy_node_h"] == pytest.approx((8 + 4) / 3600)


def test_utilization_is_of_gpus_if_the_cluster_is_given():
    log, cluster, _ = preempted_run()
    assert metrics(log, cluster=cluster)["utilization"] == pytest.approx(84 / 176)
    assert metrics(log, cluster=cluster, horizon=(5, 15))["utilization"] == pytest.approx(14.5 / 40)
    cluster = Cluster((nodes("c", 2, 0, ""),))
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], cores=[1])
    log = node_level_log(cluster, jobs, (0, 0, 9, C, 9, 0, [(0, 0, 0)]))
    assert metrics(log, cluster=cluster)["utilization"] == 0.5  # without GPUs: utilization of nodes


def test_waiting_between_segments_is_waiting():
    log, _, _ = preempted_run()
    result = metrics(log)
    assert result["mean_wait_s"] == pytest.approx(4 / 3)
    assert result["mean_backlog_jobs"] == result["mean_backlog_nodes"] == pytest.approx(4 / 44)
    assert metrics(log, horizon=(12, 20))["mean_backlog_jobs"] == pytest.approx(2 / 8)
    assert metrics(log, horizon=(20, 30))["mean_backlog_jobs"] == 0


def test_slowdown_of_several_segments():
    log, _, _ = preempted_run()
    result = metrics(log, bound_s=5.0)
    assert result["max_slowdown"] == pytest.approx(44 / 40)
    assert result["mean_bsld"] == pytest.approx((44 / 40 + 1 + 1) / 3)


def test_preempted_job_has_not_ended():
    cluster = Cluster((nodes("t", 1, 1, "T4"),))
    jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[1, 1])
    log = node_level_log(cluster, jobs, (0, 0, 5, P, 5, 0, [(0, 1, 1000)]), (1, 5, 14, C, 9, 0, [(0, 1, 1000)]))
    result = metrics(log)
    assert result["throughput_per_h"] == pytest.approx(1 / 14 * 3600)
    assert result["mean_backlog_jobs"] == pytest.approx((9 + 5) / 14)
    assert (result["completed"], result["unstarted"]) == (1, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_metrics_agree_with_those_of_gpus(seed):
    log, cluster, speeds = random_run(seed)
    batch_metrics, gpu_metric_values = metrics(log, cluster=cluster), gpu_metrics(log, cluster, speeds)
    assert batch_metrics["utilization"] == pytest.approx(gpu_metric_values["gpu_utilization"])
    assert 0 <= metrics(log)["utilization"] <= 1
    assert metrics(log)["utilization"] * cluster.nodes == pytest.approx(gpu_metric_values["mean_nodes_in_use"])
    for statistic in ("mean", "median", "p95", "p99"):
        assert batch_metrics[f"{statistic}_turnaround_s"] == pytest.approx(gpu_metric_values[f"{statistic}_jct_s"])
    assert batch_metrics["mean_wait_s"] == pytest.approx(gpu_metric_values["mean_queueing_s"])
    assert batch_metrics["makespan_s"] == gpu_metric_values["makespan_s"]


@pytest.mark.parametrize("seed", SEEDS)
def test_backlog_equals_the_total_wait(seed):
    log, _, _ = random_run(seed)
    result, jobs = metrics(log), log.jobs_table
    waited_s = log.jobs()["wait_s"][log.job_outcome == Outcome.COMPLETED].sum()
    cancelled = log.job_outcome == Outcome.CANCELLED
    waited_s += (jobs["cancel_s"] - log.eligible_s)[cancelled].clip(0).sum()
    assert result["mean_backlog_jobs"] * result["makespan_s"] == pytest.approx(waited_s)


@pytest.mark.parametrize("seed", SEEDS)
def test_other_measures_accept_gpu_logs(seed):
    log, _, _ = random_run(seed)
    assert fairness(log)["jain_size_bsld"] <= 1
    assert sum(row.jobs for row in by_class(log, "size")) == len(log.jobs_table)
    assert len(timeline(log)) > 100
