from __future__ import annotations

import json
import math

import pytest

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation import by_priority, by_type, gpu_metrics
from kilowait.jobs import JobTable
from tests.evaluation.example_logs import example_log
from tests.evaluation.gpu.example_logs import SEEDS, C, node_level_log, nodes, preempted_run, random_run


def test_breakdown_by_type():
    log, cluster, _ = preempted_run()
    v100, t4 = by_type(log, cluster)
    assert v100 == {
        "type": "V100",
        "nodes": 1,
        "gpus": 2,
        "jobs": 2,
        "gpu_hours": pytest.approx(24 / 3600),
        "utilization": pytest.approx(24 / 88),
        "shared": 0,
        "preemptions": 1,
        "migrations": 0,
    }
    assert (t4["type"], t4["jobs"], t4["preemptions"]) == ("T4", 2, 0)
    assert t4["utilization"] == pytest.approx(60 / 88)
    json.dumps([v100, t4])


def test_breakdown_by_type_over_a_horizon():
    log, cluster, _ = preempted_run()
    v100, t4 = by_type(log, cluster, horizon_s=(5, 15))
    assert v100["utilization"] == pytest.approx((2 * 5 + 0.5 * 5) / 20)
    assert t4["utilization"] == pytest.approx(2 * 1 / 20)
    assert v100["gpu_hours"] == pytest.approx(24 / 3600)


def test_shared_gpus():
    cluster = Cluster((nodes("t", 1, 2, "T4"), nodes("c", 2, 0, "")))
    jobs = JobTable(
        job_id=[1, 2, 3],
        submit_s=[0] * 3,
        runtime_s=[10, 6, 4],
        nodes=[1] * 3,
        cores=[1] * 3,
        gpus=[1, 1, 1],
        gpu_milli=[500, 500, 1000],
    )
    log = node_level_log(
        cluster,
        jobs,
        (0, 0, 10, C, 10, 0, [(0, 0b01, 500)]),
        (1, 7, 13, C, 6, 0, [(0, 0b01, 500)]),
        (2, 0, 4, C, 4, 0, [(0, 0b10, 1000)]),
    )
    t4, none = by_type(log, cluster)
    assert t4["shared"] == pytest.approx(
        3 / (13 + 4)
    )  # one GPU is used from 0 to 13 and shared from 7 to 10; the other is used until 4
    assert (none["type"], none["nodes"], none["gpus"], none["jobs"], none["gpu_hours"]) == ("-", 2, 0, 0, 0)
    assert math.isnan(none["utilization"]) and math.isnan(none["shared"])


def test_breakdown_by_priority():
    log, _, _ = preempted_run()
    high, low = by_priority(log)
    assert high == {
        "priority": 1,
        "jobs": 1,
        "finished": 1,
        "mean_jct_s": 8,
        "p95_jct_s": 8,
        "mean_queueing_s": 0,
        "p95_queueing_s": 0,
        "preemptions": 0,
        "gpu_hours": pytest.approx(4 / 3600),
    }
    assert (low["priority"], low["jobs"], low["mean_jct_s"], low["preemptions"]) == (0, 2, 24, 1)
    assert low["p95_jct_s"] == pytest.approx(4 + 0.95 * 40)
    assert (low["mean_queueing_s"], low["p95_queueing_s"]) == (2, pytest.approx(3.8))
    json.dumps([high, low])


def test_priorities_of_counted_jobs():
    log, _, _ = preempted_run()
    (row,) = by_priority(log, counted=[False, False, True])
    assert (row["jobs"], row["mean_jct_s"], row["preemptions"]) == (1, 4, 0)
    waiting = node_level_log(preempted_run()[1], log.jobs_table, (2, 0, 4, C, 4, 0, [(1, 0, 0)]))
    high, low = by_priority(waiting)
    assert (high["jobs"], high["finished"], low["finished"]) == (1, 0, 1) and math.isnan(high["mean_jct_s"])


def test_breakdowns_need_node_level_allocations():
    with pytest.raises(InputError, match="has no node-level allocations"):
        by_priority(example_log((0, 0, 1, 1)))
    with pytest.raises(InputError, match="has no node-level allocations"):
        by_type(example_log((0, 0, 1, 1)), preempted_run()[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_breakdowns_add_up(seed):
    log, cluster, speeds = random_run(seed)
    result = gpu_metrics(log, cluster, speeds)
    for rows in (by_type(log, cluster), by_priority(log)):
        assert sum(row["gpu_hours"] for row in rows) == pytest.approx(result["gpu_hours"])
        assert sum(row["preemptions"] for row in rows) == result["preemptions"]
    types = [row for row in by_type(log, cluster) if row["gpus"]]
    gpus = sum(row["gpus"] for row in types)
    mean = sum(row["utilization"] * row["gpus"] for row in types) / gpus
    assert mean == pytest.approx(result["gpu_utilization"])
    assert all(0 <= row["utilization"] <= 1 and 0 <= row["shared"] <= 1 for row in types)
    assert sum(row["jobs"] for row in by_priority(log)) == result["jobs"]
