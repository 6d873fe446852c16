"""How much of the idle GPUs the usual job could not use: the fragmentation of Weng et al. (ATC 2023) over time.

The *targets* are the most frequent pieces of the log's own jobs, 95 % of them, each with its share p. For a target,
all that is idle on a node is a fragment if the node could not hold the target's piece now; otherwise only what is idle
on GPUs with less left than the piece takes of one. A node has the fragments F = sum of p times that; docs/gpu-engine.md
("fgd") says it in full. A target without GPUs finds fragments everywhere, so that their share of the targets is a
floor: an empty cluster is not at 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.gpu.typical_jobs import Target, typical_shapes
from kilowait.errors import InputError
from kilowait.evaluation.gpu.allocations import WHOLE, NodeAllocations, places_of
from kilowait.evaluation.gpu.timeline import shown, steps
from kilowait.evaluation.job_measures import Floats, Ints
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import Outcome
from kilowait.series import Series

__all__ = ["Target", "fragmentation", "fragments_over", "targets_of"]

Small = npt.NDArray[np.int32]


def fragmentation(
    log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None
) -> Series:
    """Fragments over time, as a share of all GPUs of the cluster (FGD's "frag ratio"): 0 to 1.

    It goes from the first submission to the last end, or over the horizon asked for.

    >>> from kilowait.evaluation.gpu.example_run import two_jobs
    >>> found = fragmentation(*two_jobs())
    >>> (
    ...     found.edge_s.tolist(),
    ...     found.value.tolist(),
    ... )  # from 10 s on half a GPU is too little for one of two targets
    ([0.0, 10.0, 20.0], [0.0, 0.375])
    """
    return fragments_over(log, places_of(log, cluster), shown(log, horizon_s))


def fragments_over(log: ExecutionLog, places: NodeAllocations, horizon: tuple[float, float]) -> Series:
    """The same, of places known already."""
    gpus = int(places.node_gpus.sum())
    if gpus == 0:
        raise InputError("the cluster has no GPUs, and so no fragments of any")
    targets = targets_of(log, places)
    total = sum(target[4] for target in targets)
    time, node, before, free = _states(log, places)
    count = _fragments(places, targets, node, *free)
    # Fragments times `total` are whole numbers: sums of changes are exact.
    empty = _fragments(places, targets, np.arange(len(places.node_gpus)), *_empty(places))
    change = count - np.where(before < 0, empty[node], count[before])
    found = steps(time, change, int(empty.sum()), horizon)
    return Series(found.edge_s, found.value / (max(total, 1) * gpus * WHOLE))


def targets_of(log: ExecutionLog, places: NodeAllocations) -> list[Target]:
    """What fragments are measured against, most frequent first: what the engine places by."""
    return typical_shapes(places.want, log.job_outcome != Outcome.REJECTED)


def _states(log: ExecutionLog, places: NodeAllocations) -> tuple[Floats, Ints, Ints, tuple[Small, Ints]]:
    """Every instant at which something changes on a node, by node and time: when, which node, its instant before (-1:
    none), and what is free then, thousandths: (GPUs of a node, instants) and of cores."""
    pieces = places.pieces
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
    np.add.at(cores, instant, sign * np.tile(pieces.count, 2) * places.want.cpu[log.job[segment]])
    gpus, each = np.tile(pieces.gpus, 2), np.tile(_each(places), 2)
    free = np.zeros((int(places.node_gpus.max(initial=0)), len(node)), np.int32)
    for place, row in enumerate(free):
        on = (gpus >> place) & 1 == 1
        np.add.at(row, instant[on], (sign * each)[on].astype(np.int32))
        # Every node ends up empty, so one sum runs through all of them.
        np.subtract(np.where(place < places.node_gpus[node], WHOLE, 0), np.cumsum(row), out=row)
    return time, node, before, (free, places.node_cpu[node] - np.cumsum(cores))


def _each(places: NodeAllocations) -> Ints:
    """Thousandths that each piece takes of every GPU it has."""
    many = np.bitwise_count(places.pieces.gpus).astype(np.int64)
    return places.pieces.gpu_milli // np.maximum(many, 1)


def _empty(places: NodeAllocations) -> tuple[Small, Ints]:
    """What is free on empty nodes."""
    place = np.arange(int(places.node_gpus.max(initial=0)))[:, None]
    return np.where(place < places.node_gpus, WHOLE, 0).astype(np.int32), places.node_cpu


def _fragments(places: NodeAllocations, targets: list[Target], node: Ints, free: Small, cpu: Ints) -> Ints:
    """Fragments of nodes with so much free, thousandths times the number of jobs that the targets stand for."""
    idle = free.sum(0, dtype=np.int64)
    count: Ints = idle * sum(target[4] for target in targets)
    kind = places.node_type[node]
    sizes: dict[int, dict[tuple[int, int], list[tuple[int, int]]]] = {}
    for cores, gpu_milli, gpus, label, jobs in targets:
        if gpu_milli > 0:
            sizes.setdefault(gpu_milli, {}).setdefault((gpus, label), []).append((cores, jobs))
    for gpu_milli, alike in sizes.items():
        room = free >= gpu_milli
        many = room.sum(0, dtype=np.int32)
        usable = np.where(room, free, 0).sum(0, dtype=np.int64)
        for (gpus, label), by_cores in alike.items():
            fits = (many >= gpus) & places.want.label_types[label][kind]
            cores, jobs = np.array(sorted(by_cores)).T
            enough = np.concatenate(([0], np.cumsum(jobs)))[np.searchsorted(cores, cpu, side="right")]
            count -= np.where(fits, usable * enough, 0)
    return count
