"""Clusters: groups, queues, outages, reservations and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from kilowait.cluster import Cluster, NodeGroup, Outage, Reservation
from kilowait.errors import ClusterError, UnknownNameError
from kilowait.jobs import JobTable

CPU = NodeGroup("cpu", 10, cores=32, memory_gb=128.0)
GPU = NodeGroup("gpu", 4, cores=64, memory_gb=512.0, gpus=8, gpu_type="A100", shared=True)


def test_nodes_of_all_groups():
    assert Cluster(groups=(CPU, GPU)).nodes == 14


def test_from_nodes():
    cluster = Cluster.from_nodes(128, cores=4)
    assert cluster.groups == (NodeGroup("nodes", 128, cores=4),)
    assert cluster.name == "128 nodes"
    assert not cluster.groups[0].shared
    assert type(Cluster.from_nodes(np.int64(128)).groups[0].nodes) is int


@pytest.mark.parametrize("nodes", [0, -1, 2.5, math.nan, math.inf])
def test_from_nodes_with_invalid_number(nodes):
    with pytest.raises(ClusterError, match=f"a cluster of {nodes} nodes; it needs a whole number, at least 1"):
        Cluster.from_nodes(nodes)


def test_clusters_compare_by_value():
    assert Cluster.from_nodes(3) == Cluster.from_nodes(3)
    with pytest.raises(AttributeError):
        Cluster.from_nodes(3).name = "x"


# -- groups ---------------------------------------------------------------------------------------


def test_group_without_name_is_an_error():
    with pytest.raises(ClusterError, match="a node group needs a name"):
        NodeGroup("", 4)


@pytest.mark.parametrize("nodes", [-1, 2**40, 1.5, math.nan])
def test_invalid_group_size_is_an_error(nodes):
    with pytest.raises(ClusterError, match=r"group 'x' has .* nodes; it needs a whole number, 0 to 2\^40"):
        NodeGroup("x", nodes)


@pytest.mark.parametrize(
    "node",
    [{"cores": 0}, {"cores": 1.5}, {"gpus": -1}, {"gpus": 0.5}, {"memory_gb": -1.0}]
    + [{"memory_gb": math.nan}, {"memory_gb": math.inf}],
)
def test_invalid_node_resources_are_errors(node):
    with pytest.raises(ClusterError, match="group 'x': cores .*a node has at least 1 core and no negative"):
        NodeGroup("x", 4, **node)


def test_empty_group_is_allowed():
    assert NodeGroup("x", 0).nodes == 0


# -- clusters -------------------------------------------------------------------------------------


def test_no_groups():
    with pytest.raises(ClusterError, match="cluster 'c' has no node groups; give it at least one"):
        Cluster(groups=(), name="c")


def test_duplicate_group_name_is_an_error():
    with pytest.raises(ClusterError, match="more than one node group called 'cpu'"):
        Cluster(groups=(CPU, GPU, CPU))


def test_maximum_number_of_groups_and_reservations():
    groups = tuple(NodeGroup(f"g{i}", 1) for i in range(62))
    assert len(Cluster(groups=groups).groups) == 62
    with pytest.raises(ClusterError, match="62 groups and 1 reservations; at most 62 together: merge"):
        Cluster(groups=groups, reservations=(Reservation("r", "g0", 1, 0, 1),))


def test_queue_of_unknown_group_is_an_error():
    assert Cluster(groups=(CPU, GPU), queues={"all": ("gpu", "cpu")}).queues["all"] == ("gpu", "cpu")
    with pytest.raises(UnknownNameError, match="unknown node group of queue 'q' 'gpus'; did you mean 'gpu'"):
        Cluster(groups=(CPU, GPU), queues={"q": ("gpus",)})
    with pytest.raises(ClusterError, match="queue 'q' maps to no group; name at least one"):
        Cluster(groups=(CPU,), queues={"q": ()})


# -- outages and reservations ---------------------------------------------------------------------


def window(kind, **changes):
    values = {"group": "cpu", "nodes": 2, "start_s": 10.0, "end_s": 20.0, **changes}
    return Outage(**values) if kind == "outage" else Reservation(name="r", **values)


@pytest.mark.parametrize("kind", ["outage", "reservation"])
class TestWindows:
    def test_valid_entry(self, kind):
        assert window(kind, announced_s=10.0).announced_s == 10
        assert window(kind).announced_s == -math.inf
        assert window(kind, end_s=math.inf).end_s == math.inf

    @pytest.mark.parametrize("nodes", [0, -1, 1.5])
    def test_invalid_node_numbers_are_errors(self, kind, nodes):
        with pytest.raises(ClusterError, match=f"{kind} on 'cpu' takes {nodes} nodes; it must take at least 1"):
            window(kind, nodes=nodes)

    @pytest.mark.parametrize(
        "times", [(10.0, 10.0), (10.0, 9.0), (math.nan, 9.0), (10.0, math.nan), (math.inf, math.inf)]
    )
    def test_end_must_be_after_start(self, kind, times):
        with pytest.raises(ClusterError, match=f"{kind} on 'cpu' from .* s; the end must be after the start"):
            window(kind, start_s=times[0], end_s=times[1])

    @pytest.mark.parametrize("announced", [10.5, math.nan])
    def test_announcement_must_not_be_after_the_start(self, kind, announced):
        with pytest.raises(ClusterError, match=f"{kind} on 'cpu' starts at 10.0 s but is announced at"):
            window(kind, announced_s=announced)

    def test_unknown_group_is_an_error(self, kind):
        with pytest.raises(UnknownNameError, match=f"unknown node group of {kind} 'cpus'; did you mean 'cpu'"):
            Cluster(groups=(CPU,), **{f"{kind}s": (window(kind, group="cpus"),)})

    def test_more_nodes_than_the_group_is_an_error(self, kind):
        assert Cluster(groups=(CPU,), **{f"{kind}s": (window(kind, nodes=10),)}).nodes == 10
        with pytest.raises(ClusterError, match=f"{kind} takes 11 nodes of 'cpu', which has 10"):
            Cluster(groups=(CPU,), **{f"{kind}s": (window(kind, nodes=11),)})


def test_reservation_names_are_unique():
    with pytest.raises(ClusterError, match="more than one reservation called 'r'"):
        Cluster(groups=(CPU,), reservations=(window("reservation"), window("reservation")))
    for others in ({"groups": (CPU, NodeGroup("r", 1))}, {"groups": (CPU,), "queues": {"r": ("cpu",)}}):
        with pytest.raises(ClusterError, match="reservation 'r' has the name of a group or a queue"):
            Cluster(**others, reservations=(window("reservation"),))


def test_with_outages_returns_a_new_cluster():
    cluster = Cluster(groups=(CPU,), outages=(window("outage"),))
    more = cluster.with_outages(window("outage", start_s=15.0), window("outage", nodes=1))
    assert len(more.outages) == 3
    assert len(cluster.outages) == 1
    with pytest.raises(ClusterError, match="takes 11 nodes"):
        cluster.with_outages(window("outage", nodes=11))


def test_units_of_machines() -> None:
    shared, whole = NodeGroup("a", 24, cores=72, shared=True), NodeGroup("b", 8, cores=4)
    loose = NodeGroup("c", 100, nodes_known=False)
    sizes = [
        (Cluster((shared,)), ("core", 1728, "24 nodes, 1,728 cores")),
        (Cluster((whole,)), ("node", 8, "8 nodes")),
        (Cluster((loose,)), ("processor", 100, "100 processors")),
        (Cluster((shared, whole)), ("node", 32, "32 nodes")),
        (Cluster((shared, loose)), ("core", 1828, "124 nodes, 1,828 cores")),
        (Cluster((NodeGroup("d", 1),)), ("node", 1, "1 node")),
    ]
    for machine, expected in sizes:
        assert (machine.unit, machine.size, machine.size_text) == expected


def test_nodes_that_differ_have_the_exact_number_of_cores() -> None:
    (group,) = Cluster.from_processors(2004, nodes=151).groups
    assert (group.nodes, group.cores, group.total_cores, group.cores_of(151)) == (151, 14, 2004, 2004)
    assert [int(group.nodes_for(cores)) for cores in (1, 13, 14, 2004)] == [1, 1, 2, 151]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (lambda: NodeGroup("a", 4, cores=8, total_cores=20), "only a shared group has it"),
        (lambda: NodeGroup("a", 4, cores=8, shared=True, total_cores=33), "total_cores 33; .* 4 to 32 cores"),
        (lambda: NodeGroup("a", 4, cores=8, nodes_known=False), "has one core for each"),
        (lambda: Cluster.from_processors(0), "a cluster of 0 processors"),
        (lambda: Cluster.from_processors(4, nodes=5), "4 processors on 5 nodes"),
    ],
)
def test_impossible_numbers_of_cores_are_errors(group: Callable[[], object], message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        group()


def test_jobs_are_sized_for_the_machine() -> None:
    """88 cores on nodes of 72: two whole nodes, 88 shared cores, or 88 nodes of one core."""
    jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[2], cores=[88], meta={"unit": "core"})
    nodes = NodeGroup("a", 24, cores=72)
    for machine, size in (
        (Cluster((nodes,)), 2),
        (Cluster((replace(nodes, shared=True),)), 88),
        (Cluster.from_nodes(100), 88),
        (Cluster.from_processors(100), 88),
        (Cluster((nodes, NodeGroup("b", 9, cores=40))), 3),
    ):
        sized = machine.sized(jobs)
        assert sized.unit == machine.unit and sized.size.tolist() == [size]
        assert machine.sized(sized) is sized
    whole = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[2])
    assert Cluster((nodes,)).sized(whole) is whole
    assert Cluster((replace(nodes, shared=True),)).sized(whole).size.tolist() == [144]
