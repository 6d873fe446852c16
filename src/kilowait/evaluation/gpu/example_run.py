"""A small run on a node-level cluster, for docstring examples that can be checked manually."""

from __future__ import annotations

import numpy as np

from kilowait.cluster import Cluster, NodeGroup
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import Allocations

__all__ = ["two_jobs"]


def two_jobs() -> tuple[ExecutionLog, Cluster]:
    """Log and cluster of two jobs submitted at 0 s on a node with two GPUs: one uses both for 10 s, then one uses half
    a GPU for 10 s.

    >>> log, cluster = two_jobs()
    >>> log.pieces.gpu_milli.tolist(), log.jobs()["wait_s"].tolist()
    ([2000, 500], [0.0, 10.0])
    """
    jobs = JobTable(
        job_id=[1, 2], submit_s=[0, 0], runtime_s=[10, 10], nodes=[1, 1], gpus=[2, 1], gpu_milli=[1000, 500]
    )
    pieces = Allocations(
        segment=np.array([0, 1]),
        node=np.array([0, 0]),
        gpus=np.array([0b11, 0b01]),
        gpu_milli=np.array([2000, 500]),
        count=np.array([1, 1]),
        work_s=np.array([10.0, 10.0]),
        lost_s=np.zeros(2),
        node_group=np.array([0]),
    )
    log = ExecutionLog(
        jobs_table=jobs,
        job=np.array([0, 1]),
        start_s=np.array([0.0, 10.0]),
        end_s=np.array([10.0, 20.0]),
        group=np.zeros(2, np.int16),
        level=np.zeros(2, np.int16),
        outcome=np.ones(2, np.int8),
        eligible_s=jobs["submit_s"],
        job_outcome=np.ones(2, np.int8),
        capacity_s=np.array([-np.inf]),
        capacity_nodes=np.array([1]),
        groups=("t4",),
        pieces=pieces,
    )
    return log, Cluster((NodeGroup("t4", 1, cores=8, gpus=2, gpu_type="T4", node_level=True),))
