"""Resource pools of a cluster and their capacity changes over time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, NodeGroup

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
    capacity: Ints
    """Capacity of each pool of the empty cluster; for a reservation's group its future capacity."""
    free: Ints
    """Free amount at the beginning."""
    changes: list[tuple[float, float, int, int, int]]
    """CAPACITY_CHANGE rows, sorted."""
    capacity_s: npt.NDArray[np.float64]
    capacity_size: Ints
    """Available size of the machine over time, in units of `unit`."""
    reservation_end_s: npt.NDArray[np.float64]
    """Of each group: end of the reservation that it belongs to; infinite: none."""
    like: Ints
    """Cluster group of each group's nodes: itself, or the group of a reservation."""
    cluster: Cluster

    def group_of(self, g: int) -> NodeGroup:
        """The nodes of a group, with the cluster's own numbers."""
        return self.cluster.groups[self.like[g]]


def resource_pools(cluster: Cluster) -> ResourcePools:
    """Convert a cluster to pools, its outages and reservations to capacity changes."""
    names = [group.name for group in cluster.groups]
    by_name = {group.name: group for group in cluster.groups}
    kinds: list[int] = []
    capacity: list[int] = []
    free: list[int] = []
    pool_lo = [0]

    def amounts(group: str, nodes: int) -> list[tuple[int, int]]:
        """Kinds and amounts of the pools that these nodes of a group add to."""
        node = by_name[group]
        if not node.shared:
            return [(NODES, nodes)]
        each = [(MEMORY, math.floor(node.memory_gb * 1000)), (GPUS, node.gpus)]
        return [(CORES, node.cores_of(nodes)), *((kind, nodes * amount) for kind, amount in each if amount > 0)]

    def add(group: str, nodes: int, initial_nodes: int) -> None:
        for (kind, amount), (_, initial) in zip(amounts(group, nodes), amounts(group, initial_nodes), strict=True):
            kinds.append(kind)
            capacity.append(amount)
            free.append(initial)
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
        sign = 1 if nodes > 0 else -1
        for p, (_, amount) in zip(range(pool_lo[g], pool_lo[g + 1]), amounts(group_names[g], abs(nodes)), strict=True):
            changes.append((time, announced, number, p, sign * amount))

    size_now = cluster.size
    capacity_s, capacity_size = [-math.inf], [size_now]
    for time, g, nodes, _ in steps:
        size_now += (1 if nodes > 0 else -1) * cluster.units_of(by_name[group_names[g]], abs(nodes))
        if time == capacity_s[-1]:
            capacity_size[-1] = size_now
        else:
            capacity_s.append(time)
            capacity_size.append(size_now)
    rows = {"": tuple(range(len(names)))}
    rows |= {queue: tuple(names.index(g) for g in groups) for queue, groups in cluster.queues.items()}
    rows |= {reserved.name: (len(names) + i,) for i, reserved in enumerate(cluster.reservations)}
    return ResourcePools(
        names=(*names, *(reserved.name for reserved in cluster.reservations)),
        rows=rows,
        pool_lo=np.array(pool_lo, np.int64),
        pool_kind=np.array(kinds, np.int64),
        capacity=np.array(capacity, np.int64),
        free=np.array(free, np.int64),
        changes=changes,
        capacity_s=np.array(capacity_s),
        capacity_size=np.array(capacity_size, np.int64),
        reservation_end_s=np.array([*[math.inf] * len(names), *(each.end_s for each in cluster.reservations)]),
        like=np.array([*range(len(names)), *(names.index(reserved.group) for reserved in cluster.reservations)]),
        cluster=cluster,
    )
