"""Jobs and machines that count cores or processors in runs of the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster, NodeGroup, Outage, PowerControls, SleepPolicy
from kilowait.engine.simulator import Simulator
from kilowait.errors import ClusterError, TableError
from kilowait.jobs import JobTable

NODES = NodeGroup("nodes", 24, cores=72, shared=True)


def log_of(cores: list[int], **columns: Any) -> JobTable:
    """Jobs of a log of 24 nodes with 72 cores each, submitted together."""
    n = len(cores)
    base = {"submit_s": np.zeros(n), "runtime_s": np.full(n, 100.0), "nodes": -(-np.array(cores) // 72)}
    return JobTable(job_id=range(n), cores=cores, meta={"unit": "core"}, **(base | columns))


def test_jobs_allocate_cores_of_shared_nodes() -> None:
    log = kw.simulate(log_of([1700, 28, 1]), Cluster((NODES,)), "fcfs", "none")
    assert log.start_s.tolist() == [0, 0, 100]
    assert (log.unit, log.size.tolist(), log.capacity.tolist()) == ("core", [1700, 28, 1], [1728])
    assert kw.metrics(log)["utilization"] == pytest.approx(1729 / (2 * 1728))
    assert kw.metrics(log)["busy_core_h"] == pytest.approx(1729 * 100 / 3600)


def test_jobs_allocate_whole_nodes_of_an_exclusive_group() -> None:
    log = kw.simulate(log_of([73, 1440, 100, 72]), Cluster((replace(NODES, shared=False),)), "fcfs", "none")
    assert log.size.tolist() == [2, 20, 2, 1] and log.unit == "node"
    assert log.jobs()["start_s"].tolist() == [0, 0, 0, 100]


def test_records_of_jobs_have_true_nodes_and_cores() -> None:
    for machine, expected in ((Cluster((NODES,)), (88, 2, 88)), (Cluster((replace(NODES, shared=False),)), (2, 2, 88))):
        view = Simulator(log_of([88]), machine).advance()
        assert view is not None
        assert [int(view.waiting[name][0]) for name in ("units", "nodes", "cores")] == list(expected)


def test_rules_order_jobs_by_what_they_allocate() -> None:
    """Both jobs have one node; the second has fewer cores."""
    jobs = log_of([1728, 72, 2], submit_s=[0, 1, 2])
    log = kw.simulate(jobs, Cluster((NODES,)), "smallest", "none")
    assert log.job.tolist() == [0, 2, 1]


def test_an_outage_takes_the_cores_of_its_nodes() -> None:
    machine = Cluster((replace(NODES, nodes=4, cores=8, total_cores=26),), outages=(Outage("nodes", 2, 50, 150, 50),))
    log = kw.simulate(log_of([13, 13, 14], submit_s=[0, 0, 1]), machine, "fcfs", "none")
    assert log.capacity.tolist() == [26, 13, 26]
    assert log.jobs()["start_s"].tolist() == [0, 0, 150]


def test_a_job_that_is_too_large_is_described_in_the_unit_of_the_machine() -> None:
    with pytest.raises(TableError, match="job 0 with 1,729 cores; the machine has 1,728 cores: use a larger"):
        kw.simulate(log_of([1729]), Cluster((NODES,)), on_oversized="error")


def test_nodes_of_processors_cannot_sleep() -> None:
    controls = PowerControls(sleep={"nodes": SleepPolicy(60.0)})
    with pytest.raises(ClusterError, match="shared among jobs; .* --exclusive-nodes"):
        kw.simulate(log_of([1]), Cluster((NODES,)), power_controls=controls)
    controls = PowerControls(sleep={"processors": SleepPolicy(60.0)})
    with pytest.raises(ClusterError, match="its nodes are unknown; give the cores of a node with --cores-per-node"):
        kw.simulate(log_of([1]), Cluster.from_processors(9), power_controls=controls)
