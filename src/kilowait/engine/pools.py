"""A cluster as the kernels see it: pools of resources, and the times at which they change."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster

__all__ = ["CORES", "GPUS", "MEMORY", "NODES", "WATTS", "ResourcePools", "machine_of"]

Ints = npt.NDArray[np.int64]
NODES, CORES, MEMORY, GPUS, WATTS = 0, 1, 2, 3, 4


@dataclass(frozen=True)
class ResourcePools:
    """A cluster as pools: what the engine knows of it."""

    names: tuple[str, ...]
    rows: dict[str, tuple[int, ...]]
    """Groups of each queue in order of preference; "" is every other job's."""
    pool_lo: Ints
    pool_kind: Ints
    pool_cores: Ints
    """Cores per node of the pool's group."""
    capacity: Ints
    """Of the empty machine, per pool; for a reservation's group what it will hold."""
    free: Ints
    """At the beginning of time."""
    changes: list[tuple[float, float, int, int, int]]
    """CHANGE_OF_CAPACITY rows, sorted."""
    capacity_s: npt.NDArray[np.float64]
    capacity_nodes: Ints
    like: Ints
    """Of each group the cluster's group its nodes are of: itself, or the one a reservation is made on."""


def machine_of(cluster: Cluster) -> ResourcePools:
    """Lay a cluster out as pools, its outages and reservations as capacity changes."""
    names = [group.name for group in cluster.groups]
    by_name = {group.name: group for group in cluster.groups}
    kinds: list[int] = []
    cores: list[int] = []
    capacity: list[int] = []
    free: list[int] = []
    pool_lo = [0]

    def per_node(group: str) -> list[tuple[int, int]]:
        node = by_name[group]
        if not node.shared:
            return [(NODES, 1)]
        listed = [(CORES, node.cores), (MEMORY, math.floor(node.memory_gb * 1000)), (GPUS, node.gpus)]
        return [(kind, amount) for kind, amount in listed if amount > 0]

    def add(group: str, nodes: int, nodes_at_first: int) -> None:
        for kind, amount in per_node(group):
            kinds.append(kind)
            cores.append(by_name[group].cores)
            capacity.append(nodes * amount)
            free.append(nodes_at_first * amount)
        pool_lo.append(len(kinds))

    for group in cluster.groups:
        add(group.name, group.nodes, group.nodes)
    for kept in cluster.reservations:
        add(kept.group, kept.nodes, 0)

    steps: list[tuple[float, int, int, float]] = []  # (time, group, nodes, announced), in order of listing
    for away in cluster.outages:
        g = names.index(away.group)
        steps += [
            (away.start_s, g, -away.nodes, away.announced_s),
            (away.end_s, g, away.nodes, away.announced_s),
        ]
    for i, kept in enumerate(cluster.reservations):
        g, own = names.index(kept.group), len(names) + i
        steps += [
            (kept.start_s, g, -kept.nodes, kept.announced_s),
            (kept.start_s, own, kept.nodes, kept.announced_s),
            (kept.end_s, own, -kept.nodes, kept.announced_s),
            (kept.end_s, g, kept.nodes, kept.announced_s),
        ]
    steps = [step for step in sorted(steps, key=lambda step: step[0]) if step[0] < math.inf]
    group_names = [*names, *(kept.group for kept in cluster.reservations)]
    changes = []
    for number, (time, g, nodes, announced) in enumerate(steps):
        for p, (_, amount) in zip(range(pool_lo[g], pool_lo[g + 1]), per_node(group_names[g]), strict=True):
            changes.append((time, announced, number, p, nodes * amount))

    nodes_now = cluster.nodes
    capacity_s, capacity_nodes = [-math.inf], [nodes_now]
    for time, _, nodes, _ in steps:
        nodes_now += nodes
        if time == capacity_s[-1]:
            capacity_nodes[-1] = nodes_now
        else:
            capacity_s.append(time)
            capacity_nodes.append(nodes_now)
    rows = {"": tuple(range(len(names)))}
    rows |= {queue: tuple(names.index(g) for g in groups) for queue, groups in cluster.queues.items()}
    rows |= {kept.name: (len(names) + i,) for i, kept in enumerate(cluster.reservations)}
    return ResourcePools(
        names=(*names, *(kept.name for kept in cluster.reservations)),
        rows=rows,
        pool_lo=np.array(pool_lo, np.int64),
        pool_kind=np.array(kinds, np.int64),
        pool_cores=np.array(cores, np.int64),
        capacity=np.array(capacity, np.int64),
        free=np.array(free, np.int64),
        changes=changes,
        capacity_s=np.array(capacity_s),
        capacity_nodes=np.array(capacity_nodes, np.int64),
        like=np.array([*range(len(names)), *(names.index(kept.group) for kept in cluster.reservations)]),
    )
