"""Small GPU clusters and their logs, and a reference integrator that sums power node by node."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kilowait.cluster import Cluster, NodeGroup
from kilowait.energy.power import (
    AffineLoss,
    Component,
    ConstantPue,
    Conversion,
    Facility,
    GroupPower,
    NodePower,
    PowerModel,
)
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import Allocations, Outcome

LOSS = Conversion((AffineLoss("supply", 7.0, 0.9),))


def fast(nodes: int = 2, *, lossy: bool = False) -> GroupPower:
    """2 GPUs of 10 to 110 W, a CPU of 20 to 100 W, a board of 15 W: 55 W idle, 335 W full."""
    parts = (
        Component("CPU", "cpu", 1, 20, 100),
        Component("GPU", "gpu", 2, 10, 110),
        Component("board", "other", 1, 15, 15),
    )
    return GroupPower("fast", nodes, NodePower(parts), LOSS if lossy else Conversion())


def slow(nodes: int = 1) -> GroupPower:
    """1 GPU of 5 to 45 W, a CPU of 10 to 30 W: 15 W idle, 75 W full."""
    parts = (Component("CPU", "cpu", 1, 10, 30), Component("GPU", "gpu", 1, 5, 45))
    return GroupPower("slow", nodes, NodePower(parts))


def gpu_cluster(fast_nodes: int = 2, slow_nodes: int = 0) -> Cluster:
    """A cluster of nodes of 10 cores and 2 V100, and of nodes of 4 cores and a T4."""
    groups = [NodeGroup("fast", fast_nodes, 10, gpus=2, gpu_type="V100", node_level=True)]
    if slow_nodes:
        groups.append(NodeGroup("slow", slow_nodes, 4, gpus=1, gpu_type="T4", node_level=True))
    return Cluster(tuple(groups), name="small")


def power_model(*groups: GroupPower) -> PowerModel:
    """A power model with a PUE of 1.5."""
    return PowerModel("small", groups or (fast(),), Facility(0.0, ConstantPue(1.5)))


NodeAllocation = tuple[int, int, int, int]
"""Node, GPUs as bits, thousandths of GPUs, pieces."""


def gpu_log(
    jobs: JobTable, cluster: Cluster, segments: Sequence[tuple[int, float, float, Sequence[NodeAllocation]]]
) -> ExecutionLog:
    """An execution log of segments (job, start, end, allocations); nodes are numbered group by group."""
    node_group = np.repeat(np.arange(len(cluster.groups)), [group.nodes for group in cluster.groups])
    rows = [(number, *place) for number, (*_, allocations) in enumerate(segments) for place in allocations]
    column = np.array(rows, np.int64).reshape(-1, 5).T
    return ExecutionLog(
        jobs_table=jobs,
        job=np.array([job for job, *_ in segments], np.int64),
        start_s=np.array([start for _, start, _, _ in segments], np.float64),
        end_s=np.array([end for _, _, end, _ in segments], np.float64),
        group=np.array([node_group[allocations[0][0]] for *_, allocations in segments], np.int16),
        level=np.zeros(len(segments), np.int16),
        outcome=np.full(len(segments), Outcome.COMPLETED, np.int8),
        eligible_s=jobs["submit_s"].copy(),
        job_outcome=np.full(len(jobs), Outcome.COMPLETED, np.int8),
        capacity_s=np.array([-np.inf]),
        capacity=np.array([cluster.nodes]),
        groups=tuple(group.name for group in cluster.groups),
        pieces=Allocations(*column, np.zeros(len(segments)), np.zeros(len(segments)), node_group),
    )


@dataclass
class Energies:
    """Energy by plain addition."""

    it_j: float = 0.0
    peak_w: float = 0.0
    jobs_j: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    held_idle_j: dict[int, float] = field(default_factory=lambda: defaultdict(float))


def integrate_by_node(
    log: ExecutionLog, cluster: Cluster, power_model: PowerModel, horizon: tuple[float, float]
) -> Energies:
    """Sum, interval by interval and node by node, idle power and the power added by each piece."""
    assert log.pieces is not None
    times = {*horizon, *log.start_s.tolist(), *log.end_s.tolist()}
    edges = sorted(time for time in times if horizon[0] <= time <= horizon[1])
    on_node: dict[int, list[int]] = defaultdict(list)
    for row in range(len(log.pieces)):
        on_node[int(log.pieces.node[row])].append(row)
    energies = Energies()
    for begin, end in itertools.pairwise(edges):
        it_w = sum(power.fixed_w() for power in power_model.groups)
        for node, number in enumerate(log.pieces.node_group.tolist()):
            power, group = power_model.groups[number], cluster.groups[number]
            it_w += power.idle_w
            for row in on_node[node]:
                segment = int(log.pieces.segment[row])
                if log.start_s[segment] <= begin < log.end_s[segment]:
                    idle, added = piece_power(log, row, group, power)
                    it_w += added
                    energies.jobs_j[int(log.job[segment])] += (idle + added) * (end - begin)
                    energies.held_idle_j[int(log.job[segment])] += idle * (end - begin)
        energies.it_j += it_w * (end - begin)
        energies.peak_w = max(energies.peak_w, it_w)
    return energies


def piece_power(log: ExecutionLog, row: int, group: NodeGroup, power: GroupPower) -> tuple[float, float]:
    """Idle power of the resources of a piece, and the power it adds, from the thousandths of the log."""
    assert log.pieces is not None
    jobs, job = log.jobs_table, int(log.job[log.pieces.segment[row]])
    count, gpus = int(log.pieces.count[row]), float(log.pieces.gpu_milli[row]) / 1000
    gpus_requested = int(jobs["gpus"][job]) if "gpus" in jobs else 0
    pieces = (
        gpus_requested if jobs.column("gpus_may_span_nodes")[job] == 1 and gpus_requested else int(jobs["nodes"][job])
    )
    gpu_milli = int(jobs.column("cpu_milli")[job])
    if gpu_milli < 0:
        gpu_milli = 1000 * int(jobs["cores"][job]) if "cores" in jobs else 0
    cores = count * math.ceil(gpu_milli / pieces) / (1000 * group.cores)
    if "cores" not in jobs and max(jobs.column("cpu_milli")) < 0:
        cores = gpus / group.gpus if gpus else 0.0
    gpu_idle = gpu_rise = rest_rise = 0.0
    for part in power.node.components:
        if part.kind == "gpu":
            gpu_idle, gpu_rise = part.idle_w, part.max_w - part.idle_w
        else:
            rest_rise += part.count * (part.max_w - part.idle_w)
    slope = 1.0
    for step in power.conversion.steps:
        slope /= step.efficiency
    idle = slope * gpu_idle * gpus + (power.idle_w - slope * gpu_idle * group.gpus) * cores
    measured = float(jobs.column("power_w")[job])
    if not math.isnan(measured):
        return idle, measured * count / pieces - idle
    load, cpu_load = float(jobs.column("gpu_utilization")[job]), float(jobs.column("cpu_utilization")[job])
    used = gpus
    if not math.isnan(load):  # of whole GPUs, and at most the allocated part
        used = min(load * int(log.pieces.gpus[row]).bit_count(), gpus)
    cpu_load = 1.0 if math.isnan(cpu_load) else cpu_load
    return idle, slope * (gpu_rise * used + rest_rise * cores * cpu_load)
