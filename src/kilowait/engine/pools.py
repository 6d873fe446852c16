"""Resource pools of a cluster and their capacity changes over time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster

Ints = npt.NDArray[np.int64]
NODES, CORES, MEMORY, GPUS, WATTS = 0, 1, 2, 3, 4


@dataclass(frozen=True)
class ResourcePools:
    """Resource pools of a cluster."""

    names: tuple[str, ...]
    rows: dict[str, tuple[int, ...]]
    """Groups of each queue in order of preference; "" is for all other jobs."""
    pool_lo: Ints
    pool_kind: Ints
    pool_cores: Ints
    """Cores per node of the pool's group."""
    capacity: Ints
    """Capacity of each pool of the empty cluster; for a reservation's group its future capacity."""
    free: Ints
    """Free amount at the beginning."""
    changes: list[tuple[float, float, int, int, int]]
    """CAPACITY_CHANGE rows, sorted."""
    capacity_s: npt.NDArray[np.float64]
    capacity_nodes: Ints
    reservation_end_s: npt.NDArray[np.float64]
    """Of each group: end of the reservation that it belongs to; infinite: none."""
    like: Ints
    """Cluster group of each group's nodes: itself, or the group of a reservation."""


def resource_pools(cluster: Cluster) -> ResourcePools:
    """Convert a cluster to pools, its outages and reservations to capacity changes."""
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
        amounts = [(CORES, node.cores), (MEMORY, math.floor(node.memory_gb * 1000)), (GPUS, node.gpus)]
        return [(kind, amount) for kind, amount in amounts if amount > 0]

    def add(group: str, nodes: int, initial_nodes: int) -> None:
        for kind, amount in per_node(group):
            kinds.append(kind)
            cores.append(by_name[group].cores)
            capacity.append(nodes * amount)
            free.append(initial_nodes * amount)
        pool_lo.append(len(kinds))

    for group in cluster.groups:
        add(group.name, group.nodes, group.nodes)
    for reserved in cluster.reservations:
        add(reserved.group, reserved.nodes, 0)

    steps: list[tuple[float, int, int, float]] = []  # (time, group, nodes, announced), in table order
    for outage in cluster.outages:
        g = names.index(outage.group)
        steps += [
            (outage.start_s, g, -outage.nodes, outage.announced_s),
            (outage.end_s, g, outage.nodes, outage.announced_s),
        ]
    for i, reserved in enumerate(cluster.reservations):
        g, own_group = names.index(reserved.group), len(names) + i
        steps += [
            (reserved.start_s, g, -reserved.nodes, reserved.announced_s),
            (reserved.start_s, own_group, reserved.nodes, reserved.announced_s),
            (reserved.end_s, own_group, -reserved.nodes, reserved.announced_s),
            (reserved.end_s, g, reserved.nodes, reserved.announced_s),
        ]
    steps = [step for step in sorted(steps, key=lambda step: step[0]) if step[0] < math.inf]
    group_names = [*names, *(reserved.group for reserved in cluster.reservations)]
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
    rows |= {reserved.name: (len(names) + i,) for i, reserved in enumerate(cluster.reservations)}
    return ResourcePools(
        names=(*names, *(reserved.name for reserved in cluster.reservations)),
        rows=rows,
        pool_lo=np.array(pool_lo, np.int64),
        pool_kind=np.array(kinds, np.int64),
        pool_cores=np.array(cores, np.int64),
        capacity=np.array(capacity, np.int64),
        free=np.array(free, np.int64),
        changes=changes,
        capacity_s=np.array(capacity_s),
        capacity_nodes=np.array(capacity_nodes, np.int64),
        reservation_end_s=np.array([*[math.inf] * len(names), *(each.end_s for each in cluster.reservations)]),
        like=np.array([*range(len(names)), *(names.index(reserved.group) for reserved in cluster.reservations)]),
    )
