"""GPU fragmentation over time: idle GPUs that typical jobs cannot use (Weng et al., ATC 2023).

The *targets* are the most frequent per-node requests of the log's jobs, 95 % of them, each with its share p. For a
target, all idle GPUs of a node are fragments if the request does not fit on the node; otherwise only the idle capacity
of GPUs with less free than the request needs of one. The fragmentation of a node is F = sum of p times that;
docs/gpu-engine.md ("fgd") has the full definition. For a target without GPUs all idle GPUs are fragments, so the share
of such targets is a lower limit: an empty cluster does not have fragmentation 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.gpu.typical_jobs import TypicalShape, typical_shapes
from kilowait.errors import InputError
from kilowait.evaluation.gpu.allocations import WHOLE, NodeAllocations, node_allocations
from kilowait.evaluation.gpu.timeline import cumulative_steps, timeline_horizon
from kilowait.evaluation.job_measures import Floats, Ints
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome
from kilowait.series import Series

__all__ = ["TypicalShape", "fragmentation", "fragments_over"]

Small = npt.NDArray[np.int32]


def fragmentation(log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None) -> Series:
    """Fragmentation over time, as a share of all GPUs of the cluster (FGD's "frag ratio"): 0 to 1.

    It spans the first submission to the last end, or the given horizon.

    >>> from kilowait.evaluation.gpu.allocations import two_jobs
    >>> found = fragmentation(*two_jobs())
    >>> (found.edge_s.tolist(), found.value.tolist())  # from 10 s on half a GPU is too little for one of two targets
    ([0.0, 10.0, 20.0], [0.0, 0.375])
    """
    return fragments_over(log, node_allocations(log, cluster), timeline_horizon(log, horizon_s))


def fragments_over(log: ExecutionLog, allocations: NodeAllocations, horizon: tuple[float, float]) -> Series:
    """Like `fragmentation`, for allocations that are already computed."""
    gpus = int(allocations.node_gpus.sum())
    if gpus == 0:
        raise InputError("the cluster has no GPUs, so fragmentation is not defined")
    targets = targets_of(log, allocations)
    total = sum(target[4] for target in targets)
    time, node, before, free = _states(log, allocations)
    count = _fragments(allocations, targets, node, *free)
    # Fragments times `total` are integers: sums of changes are exact.
    empty = _fragments(allocations, targets, np.arange(len(allocations.node_gpus)), *_empty(allocations))
    change = count - np.where(before < 0, empty[node], count[before])
    found = cumulative_steps(time, change, int(empty.sum()), horizon)
    return Series(found.edge_s, found.value / (max(total, 1) * gpus * WHOLE))


def targets_of(log: ExecutionLog, allocations: NodeAllocations) -> list[TypicalShape]:
    """Typical requests for the fragmentation, most frequent first; the same as in the placement of the engine."""
    return typical_shapes(allocations.want, log.job_outcome != Outcome.REJECTED)


def _states(log: ExecutionLog, allocations: NodeAllocations) -> tuple[Floats, Ints, Ints, tuple[Small, Ints]]:
    """Every change on a node, sorted by node and time: time, node, index of the node's previous change (-1: none), and
    the free capacity after it, in thousandths: (GPUs of a node, changes) and cores."""
    pieces = allocations.pieces
    segment = np.concatenate((pieces.segment, pieces.segment))
    sign = np.repeat(np.array([1, -1]), len(pieces))
    time = np.concatenate((log.start_s[pieces.segment], log.end_s[pieces.segment]))
    node = np.concatenate((pieces.node, pieces.node))
    order = np.lexsort((time, node))
    node, time = node[order], time[order]
    new = np.append(True, (node[1:] != node[:-1]) | (time[1:] != time[:-1]))[: len(node)]
    instant = np.empty(len(order), np.int64)
    instant[order] = np.cumsum(new) - 1
    node, time = node[new], time[new]
    before = np.arange(len(node)) - 1
    before[np.append(True, node[1:] != node[:-1])[: len(node)]] = -1
    cores = np.zeros(len(node), np.int64)
    np.add.at(cores, instant, sign * np.tile(pieces.count, 2) * allocations.want.cpu[log.job[segment]])
    gpus, each = np.tile(pieces.gpus, 2), np.tile(_each(allocations), 2)
    free = np.zeros((int(allocations.node_gpus.max(initial=0)), len(node)), np.int32)
    for place, row in enumerate(free):
        on = (gpus >> place) & 1 == 1
        np.add.at(row, instant[on], (sign * each)[on].astype(np.int32))
        # Every node is empty at the end, so one cumulative sum over all nodes works.
        np.subtract(np.where(place < allocations.node_gpus[node], WHOLE, 0), np.cumsum(row), out=row)
    return time, node, before, (free, allocations.node_cpu[node] - np.cumsum(cores))


def _each(allocations: NodeAllocations) -> Ints:
    """Thousandths of each of its GPUs that a piece uses."""
    gpu_count = np.bitwise_count(allocations.pieces.gpus).astype(np.int64)
    return allocations.pieces.gpu_milli // np.maximum(gpu_count, 1)


def _empty(allocations: NodeAllocations) -> tuple[Small, Ints]:
    """Free capacity of empty nodes."""
    place = np.arange(int(allocations.node_gpus.max(initial=0)))[:, None]
    return np.where(place < allocations.node_gpus, WHOLE, 0).astype(np.int32), allocations.node_cpu


def _fragments(allocations: NodeAllocations, targets: list[TypicalShape], node: Ints, free: Small, cpu: Ints) -> Ints:
    """Fragments of nodes with this free capacity, in thousandths times the number of jobs of the targets."""
    idle = free.sum(0, dtype=np.int64)
    count: Ints = idle * sum(target[4] for target in targets)
    kind = allocations.node_type[node]
    sizes: dict[int, dict[tuple[int, int], list[tuple[int, int]]]] = {}
    for cores, gpu_milli, gpus, label, jobs in targets:
        if gpu_milli > 0:
            sizes.setdefault(gpu_milli, {}).setdefault((gpus, label), []).append((cores, jobs))
    for gpu_milli, requests in sizes.items():
        sufficient = free >= gpu_milli
        gpu_count = sufficient.sum(0, dtype=np.int32)
        usable = np.where(sufficient, free, 0).sum(0, dtype=np.int64)
        for (gpus, label), by_cores in requests.items():
            fits = (gpu_count >= gpus) & allocations.want.label_types[label][kind]
            cores, jobs = np.array(sorted(by_cores)).T
            enough = np.concatenate(([0], np.cumsum(jobs)))[np.searchsorted(cores, cpu, side="right")]
            count -= np.where(fits, usable * enough, 0)
    return count
