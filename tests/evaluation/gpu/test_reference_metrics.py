"""`metrics` of runs on node-level clusters."""

from __future__ import annotations

import pytest

from kilowait.cluster import Cluster
from kilowait.evaluation import by_class, fairness, gpu_metrics, metrics, timeline
from kilowait.jobs import JobTable
from kilowait.jobs.execution_log import Outcome
from tests.evaluation.gpu.example_logs import (
    SEEDS,
    C,
    P,
    moved,
    node_level_log,
    nodes,
    random_run,
)


def test_a_node_counts_once():
    log, _, _ = moved()
    found = metrics(log)
    assert found["busy_node_h"] == pytest.approx((18 + 4 + 30) / 3600)
    assert found["utilization"] == pytest.approx(52 / 88)
    assert metrics(log, counted=[False, True, True])["busy_node_h"] == pytest.approx((8 + 4) / 3600)


def test_with_its_cluster_the_share_of_gpus():
    log, cluster, _ = moved()
    assert metrics(log, cluster=cluster)["utilization"] == pytest.approx(84 / 176)
    assert metrics(log, cluster=cluster, horizon=(5, 15))["utilization"] == pytest.approx(14.5 / 40)
    cluster = Cluster((nodes("c", 2, 0, ""),))
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], cores=[1])
    log = node_level_log(cluster, jobs, (0, 0, 9, C, 9, 0, [(0, 0, 0)]))
    assert metrics(log, cluster=cluster)["utilization"] == 0.5  # there are no GPUs: of nodes


def test_waiting_between_segments_is_waiting():
    log, _, _ = moved()
    found = metrics(log)
    assert found["mean_wait_s"] == pytest.approx(4 / 3)
    assert found["mean_backlog_jobs"] == found["mean_backlog_nodes"] == pytest.approx(4 / 44)
    assert metrics(log, horizon=(12, 20))["mean_backlog_jobs"] == pytest.approx(2 / 8)
    assert metrics(log, horizon=(20, 30))["mean_backlog_jobs"] == 0


def test_slowdown_of_several_segments():
    log, _, _ = moved()
    found = metrics(log, bound_s=5.0)
    assert found["max_slowdown"] == pytest.approx(44 / 40)
    assert found["mean_bsld"] == pytest.approx((44 / 40 + 1 + 1) / 3)


def test_a_job_that_waits_again_has_not_ended():
    cluster = Cluster((nodes("t", 1, 1, "T4"),))
    jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[1, 1])
    log = node_level_log(
        cluster, jobs, (0, 0, 5, P, 5, 0, [(0, 1, 1000)]), (1, 5, 14, C, 9, 0, [(0, 1, 1000)])
    )
    found = metrics(log)
    assert found["throughput_per_h"] == pytest.approx(1 / 14 * 3600)
    assert found["mean_backlog_jobs"] == pytest.approx((9 + 5) / 14)
    assert (found["completed"], found["unstarted"]) == (1, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_metrics_agree_with_those_of_gpus(seed):
    log, cluster, speeds = random_run(seed)
    plain, gpu = metrics(log, cluster=cluster), gpu_metrics(log, cluster, speeds)
    assert plain["utilization"] == pytest.approx(gpu["gpu_utilization"])
    assert 0 <= metrics(log)["utilization"] <= 1
    assert metrics(log)["utilization"] * cluster.nodes == pytest.approx(gpu["mean_nodes_in_use"])
    for which in ("mean", "median", "p95", "p99"):
        assert plain[f"{which}_turnaround_s"] == pytest.approx(gpu[f"{which}_jct_s"])
    assert plain["mean_wait_s"] == pytest.approx(gpu["mean_queueing_s"])
    assert plain["makespan_s"] == gpu["makespan_s"]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_backlog_is_all_the_waiting(seed):
    log, _, _ = random_run(seed)
    found, jobs = metrics(log), log.jobs_table
    waited = log.jobs()["wait_s"][log.job_outcome == Outcome.COMPLETED].sum()
    gone = log.job_outcome == Outcome.CANCELLED
    waited += (jobs["cancel_s"] - log.eligible_s)[gone].clip(0).sum()
    assert found["mean_backlog_jobs"] * found["makespan_s"] == pytest.approx(waited)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_else_breaks(seed):
    log, _, _ = random_run(seed)
    assert fairness(log)["jain_size_bsld"] <= 1
    assert sum(row.jobs for row in by_class(log, "size")) == len(log.jobs_table)
    assert len(timeline(log)) > 100
