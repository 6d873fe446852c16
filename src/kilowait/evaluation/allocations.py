"""Node-level clusters and allocations of a run, from its log and the description of its cluster."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_catalogue import FLOPS_PRECISIONS, gpu
from kilowait.cluster.gpu_speeds import Speeds, gpu_types
from kilowait.engine.gpu.demand import Demand, resource_demand
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.job_measures import left_queue_s
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import Allocations, Outcome
from kilowait.series import Floats, Ints

WHOLE = 1000
"""One GPU or core, in thousandths."""


@dataclass(frozen=True, eq=False)
class NodeAllocations:
    """The nodes of the machine, and the GPUs allocated to each segment."""

    types: tuple[str, ...]
    """GPU types of the cluster; "" for nodes without GPUs."""
    node_type: Ints
    """Per node, index into `types`."""
    node_gpus: Ints
    node_cpu: Ints
    """Per node, thousandths of cores."""
    pieces: Allocations
    gpus: Floats
    """Per segment: allocated GPUs, fractional GPUs as fractions."""
    type: Ints
    """Per segment, index into `types`."""
    want: Demand
    """Resource requests of the jobs."""
    speed: Floats
    """(jobs, types): 0 where a job may not run."""

    @property
    def type_gpus(self) -> Ints:
        """Number of GPUs of each type."""
        return np.bincount(self.node_type, self.node_gpus, len(self.types)).astype(np.int64)

    @property
    def job_gpus(self) -> Floats:
        """Per job: requested GPUs, fractional GPUs as fractions."""
        return self.want.pieces * self.want.gpus * self.want.gpu_milli / WHOLE

    def speed_there(self, log: ExecutionLog) -> Floats:
        """Per segment: the speed of its job on the GPU type it ran on, without interference from sharing."""
        speed: Floats = self.speed[log.job, self.type]
        if not (speed > 0).all():
            row = int(np.argmin(speed))
            job, name = log.jobs_table["job_id"][log.job[row]], self.types[self.type[row]]
            raise InputError(
                f"job {job} ran on {name!r}, where its speed is {speed[row]:g}; give the GPU speeds of this run"
            )
        return speed


def node_allocations(log: ExecutionLog, cluster: Cluster, speeds: Speeds | None = None) -> NodeAllocations:
    """The allocations of a log on this cluster; with `speeds` None all speeds are 1."""
    pieces = allocations_of(log)
    groups = cluster.groups
    layout = cluster.node_groups
    if layout is None:
        layout = tuple(np.repeat(np.arange(len(groups)), [group.nodes for group in groups]).tolist())
    if tuple(pieces.node_group.tolist()) != layout or tuple(log.groups) != tuple(g.name for g in groups):
        raise InputError(
            f"the log is of {len(pieces.node_group)} nodes in the groups {', '.join(log.groups)}, not of cluster "
            f"{cluster.name!r}; give the cluster of the run"
        )
    types = gpu_types(cluster)
    node_group = np.array(layout, np.int64)
    node_type = np.array([types.index(g.gpu_type if g.gpus else "") for g in groups], np.int64)[node_group]
    kind = np.zeros(len(log), np.int64)
    kind[pieces.segment] = node_type[pieces.node]  # all pieces of a segment lie on one type
    want = resource_demand(log.jobs_table, cluster, "any", speeds, None)
    return NodeAllocations(
        types=types,
        node_type=node_type,
        node_gpus=np.array([g.gpus for g in groups], np.int64)[node_group],
        node_cpu=np.array([g.cores * WHOLE for g in groups], np.int64)[node_group],
        pieces=pieces,
        gpus=np.bincount(pieces.segment, pieces.gpu_milli, len(log)) / WHOLE,
        type=kind,
        want=want,
        speed=want.speed[want.speed_class],
    )


def allocations_of(log: ExecutionLog) -> Allocations:
    """The node-level allocations of the segments; InputError for a log without them."""
    if log.pieces is None:
        raise InputError("the log has no node-level allocations; these metrics are for runs on node-level clusters")
    return log.pieces


def ended(log: ExecutionLog) -> Ints:
    """Rows of the jobs that completed or were killed at their limit."""
    return np.flatnonzero(np.isin(log.job_outcome, (Outcome.COMPLETED, Outcome.KILLED)))


def left_s(log: ExecutionLog) -> Floats:
    """Time at which each job left the system: inf if it never did, NaN if it never joined the queue."""
    left = left_queue_s(log).copy()
    left[log.job_outcome == Outcome.UNSTARTED] = np.inf  # including preempted jobs that wait again
    rows = ended(log)
    left[rows] = log.jobs()["end_s"][rows]
    return left


def tflops_of(types: tuple[str, ...], precision: str) -> Floats:
    """Catalogued dense TFLOPS of each type; NaN if undisclosed or if the type is not in the catalogue.

    >>> tflops_of(("V100", "G2"), "fp32").tolist()
    [15.7, nan]
    """
    if precision not in FLOPS_PRECISIONS:
        raise UnknownNameError("precision", precision, FLOPS_PRECISIONS)
    rates = np.full(len(types), math.nan)
    for index, name in enumerate(types):
        with suppress(UnknownNameError):
            rates[index] = gpu(name).tflops(precision)
    return rates


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
        capacity=np.array([1]),
        groups=("t4",),
        pieces=pieces,
    )
    return log, Cluster((NodeGroup("t4", 1, cores=8, gpus=2, gpu_type="T4", node_level=True),))
