"""Resource pools and capacity changes of a cluster."""

from __future__ import annotations

import math

import pytest

from kilowait.cluster import Cluster, NodeGroup, Outage, Reservation
from kilowait.engine.pools import CORES, GPUS, MEMORY, NODES, resource_pools
from kilowait.errors import KilowaitError


def test_exclusive_group_has_one_pool_of_nodes() -> None:
    machine = resource_pools(Cluster((NodeGroup("a", 7, cores=4, memory_gb=9, gpus=2),)))
    assert machine.pool_kind.tolist() == [NODES]
    assert machine.capacity.tolist() == machine.free.tolist() == [7]


def test_shared_group_has_a_pool_per_resource() -> None:
    groups = (
        NodeGroup("a", 3, cores=4, memory_gb=1.2505, gpus=2, shared=True),
        NodeGroup("b", 2, cores=8, shared=True),
    )
    machine = resource_pools(Cluster(groups))
    assert machine.pool_kind.tolist() == [CORES, MEMORY, GPUS, CORES]
    assert machine.pool_lo.tolist() == [0, 3, 4]
    assert machine.capacity.tolist() == [12, 3750, 6, 16]  # 1250 MB a node, rounded down


def test_queue_rows_list_groups_in_order_of_preference() -> None:
    cluster = Cluster(
        (NodeGroup("a", 3), NodeGroup("b", 2)),
        queues={"q": ("b", "a"), "small": ("b",)},
        reservations=(Reservation("r", "a", 1, 0, 9),),
    )
    assert resource_pools(cluster).rows == {"": (0, 1), "q": (1, 0), "small": (1,), "r": (2,)}
    assert resource_pools(cluster).names == ("a", "b", "r")


def test_changes_are_sorted_by_time_with_outages_first() -> None:
    cluster = Cluster(
        (NodeGroup("a", 8),),
        outages=(Outage("a", 2, 5.0, 10.0, 1.0), Outage("a", 1, 10.0)),
        reservations=(Reservation("r", "a", 3, 5.0, 10.0, 4.0),),
    )
    machine = resource_pools(cluster)
    assert machine.capacity.tolist() == [8, 3]
    assert machine.free.tolist() == [8, 0]
    # time, announced, number, pool, by; the second outage never ends
    assert machine.changes == [
        (5.0, 1.0, 0, 0, -2),
        (5.0, 4.0, 1, 0, -3),
        (5.0, 4.0, 2, 1, 3),
        (10.0, 1.0, 3, 0, 2),
        (10.0, -math.inf, 4, 0, -1),
        (10.0, 4.0, 5, 1, -3),
        (10.0, 4.0, 6, 0, 3),
    ]
    assert machine.capacity_s.tolist() == [-math.inf, 5.0, 10.0]
    assert machine.capacity_size.tolist() == [8, 6, 7]


def test_shared_group_change_has_one_number_for_all_pools() -> None:
    cluster = Cluster(
        (NodeGroup("a", 2, cores=4, memory_gb=1, gpus=1, shared=True),), outages=(Outage("a", 1, 0.0, 9.0),)
    )
    changes = resource_pools(cluster).changes
    assert [(number, pool, by) for _, _, number, pool, by in changes] == [
        (0, 0, -4),
        (0, 1, -1000),
        (0, 2, -1),
        (1, 0, 4),
        (1, 1, 1000),
        (1, 2, 1),
    ]


def test_excessive_memory_is_an_error() -> None:
    with pytest.raises(Exception) as caught:
        resource_pools(Cluster((NodeGroup("a", 4, memory_gb=1e300, shared=True),)))
    assert isinstance(caught.value, KilowaitError)
