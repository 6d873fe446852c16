"""Cluster: node groups, the queues that map to them, and the times when they were not whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike

from kilowait.errors import ClusterError, UnknownNameError

__all__ = ["Cluster", "NodeGroup", "Outage", "Reservation"]

MAX_GROUPS = 62
"""Groups a job may run on are bits of an int64 in the engine."""


MAX_GPUS = 62
"""GPUs of a node are bits of an int64 where jobs are placed."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one kind.

    An exclusive group (the default) gives out whole nodes. A shared group gives out cores, memory and GPUs from
    one pool; how they lie on single nodes is not looked at. In a placed group every node, and every GPU on it down to
    thousandths, is given out singly.
    """

    name: str
    nodes: int
    cores: int = 1
    """Cores per node."""
    memory_gb: float = 0.0
    """Memory per node, GB (10^9 bytes); 0: not modelled."""
    gpus: int = 0
    """GPUs per node."""
    gpu_type: str = ""
    shared: bool = False
    node_level: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise ClusterError("a node group needs a name")
        if not (0 <= self.nodes < 2**40 and self.nodes % 1 == 0):
            raise ClusterError(
                f"group {self.name!r} has {self.nodes} nodes; it needs a whole number, 0 to 2^40"
            )
        whole = self.cores % 1 == 0 and self.gpus % 1 == 0
        if not (whole and self.cores >= 1 and self.gpus >= 0 and 0 <= self.memory_gb < math.inf):
            raise ClusterError(
                f"group {self.name!r}: cores {self.cores}, memory_gb {self.memory_gb}, gpus {self.gpus}; "
                "a node has at least 1 core and no negative memory or GPUs"
            )
        if self.shared and self.node_level:
            raise ClusterError(
                f"group {self.name!r} is both shared (one pool) and placed (node by node); choose one"
            )
        if self.node_level and self.gpus > MAX_GPUS:
            raise ClusterError(
                f"group {self.name!r} has {self.gpus} GPUs a node; placed groups have at most {MAX_GPUS}"
            )
        if max(self.nodes, 1) * max(self.cores, self.gpus, self.memory_gb * 1000) >= 2**62:
            raise ClusterError(
                f"group {self.name!r}: {self.nodes} nodes of {self.cores} cores, {self.gpus} GPUs and "
                f"{self.memory_gb} GB are more than can be counted; memory_gb is in GB"
            )


@dataclass(frozen=True, slots=True)
class Outage:
    """`nodes` of a group are away from `start_s` to `end_s`.

    Planners know it from `announced_s` on (the default: from the beginning, as with planned maintenance;
    ``announced_s=start_s`` is a failure). Jobs that run when it starts run on: the nodes go as they fall free.
    """

    group: str
    nodes: int
    start_s: float
    end_s: float = math.inf
    announced_s: float = -math.inf

    def __post_init__(self) -> None:
        _check_window("outage", self.group, self.nodes, self.start_s, self.end_s, self.announced_s)


@dataclass(frozen=True, slots=True)
class Reservation:
    """`nodes` of a group are kept from `start_s` to `end_s` for jobs of the queue called `name`."""

    name: str
    group: str
    nodes: int
    start_s: float
    end_s: float
    announced_s: float = -math.inf

    def __post_init__(self) -> None:
        _check_window("reservation", self.group, self.nodes, self.start_s, self.end_s, self.announced_s)


def _check_window(
    kind: str, group: str, nodes: int, start_s: float, end_s: float, announced_s: float
) -> None:
    if not (nodes >= 1 and nodes % 1 == 0):
        raise ClusterError(f"{kind} on {group!r} takes {nodes} nodes; it must take at least 1")
    if not start_s < end_s:
        raise ClusterError(
            f"{kind} on {group!r} from {start_s} to {end_s} s; the end must be after the start"
        )
    if not announced_s <= start_s:
        raise ClusterError(
            f"{kind} on {group!r} starts at {start_s} s but is announced at {announced_s} s, after it"
        )


@dataclass(frozen=True)
class Cluster:
    """A machine.

    `queues` maps a queue (partition) to the groups its jobs may use, in order of preference; jobs of a queue
    that is not listed, or of none, may use every group.

    >>> Cluster.from_nodes(128).nodes, Cluster.preset("polaris").nodes
    (128, 560)
    """

    groups: tuple[NodeGroup, ...]
    queues: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    name: str = "cluster"
    node_groups: tuple[int, ...] | None = None
    """Number of the group of each node, by number of the node, where kinds of placed nodes are mixed; None: the groups
    one after another."""

    def __post_init__(self) -> None:
        names = [group.name for group in self.groups]
        if not names:
            raise ClusterError(f"cluster {self.name!r} has no node groups; give it at least one")
        for kind, listed in (("node group", names), ("reservation", [r.name for r in self.reservations])):
            twice = sorted({n for n in listed if listed.count(n) > 1})
            if twice:
                raise ClusterError(f"cluster {self.name!r} has more than one {kind} called {twice[0]!r}")
        if self.node_level:
            self._check_node_level()
        elif len(names) + len(self.reservations) > MAX_GROUPS:
            raise ClusterError(
                f"cluster {self.name!r} has {len(names)} groups and {len(self.reservations)} reservations; "
                f"at most {MAX_GROUPS} together: merge like groups"
            )
        for queue, members in self.queues.items():
            if not members:
                raise ClusterError(f"queue {queue!r} maps to no group; name at least one")
            for member in members:
                if member not in names:
                    raise UnknownNameError(f"node group of queue {queue!r}", member, names)
        windows: tuple[Outage | Reservation, ...] = (*self.outages, *self.reservations)
        for away in windows:
            if away.group not in names:
                raise UnknownNameError(f"node group of {type(away).__name__.lower()}", away.group, names)
            size = self.groups[names.index(away.group)].nodes
            if away.nodes > size:
                kind = type(away).__name__.lower()
                raise ClusterError(f"{kind} takes {away.nodes} nodes of {away.group!r}, which has {size}")
        for reservation in self.reservations:
            if reservation.name in names or reservation.name in self.queues:
                raise ClusterError(f"reservation {reservation.name!r} has the name of a group or a queue")

    def _check_node_level(self) -> None:
        for group in self.groups:
            if not group.node_level:
                raise ClusterError(
                    f"cluster {self.name!r} has placed groups, but {group.name!r} is not; "
                    "jobs are placed on single nodes in all groups of a cluster or in none"
                )
        if self.outages or self.reservations:
            raise ClusterError(
                f"cluster {self.name!r} has placed groups and outages or reservations, which placed nodes cannot have"
            )
        if self.node_groups is not None and sorted(self.node_groups) != [
            number for number, group in enumerate(self.groups) for _ in range(group.nodes)
        ]:
            raise ClusterError(
                f"the layout of cluster {self.name!r} does not name each group once for every node it has"
            )

    @property
    def node_level(self) -> bool:
        """Whether its jobs are placed on single nodes."""
        return any(group.node_level for group in self.groups)

    @property
    def nodes(self) -> int:
        """Nodes in all groups, outages apart."""
        return sum(group.nodes for group in self.groups)

    def with_outages(self, *outages: Outage) -> Cluster:
        """The same machine with further outages."""
        return replace(self, outages=(*self.outages, *outages))

    @classmethod
    def from_nodes(cls, nodes: int, *, cores: int = 1) -> Cluster:
        """One exclusive group of `nodes` like nodes (or processors, for logs that count those)."""
        if not (nodes >= 1 and nodes % 1 == 0):
            raise ClusterError(f"a cluster of {nodes} nodes; it needs a whole number, at least 1")
        return cls(groups=(NodeGroup("nodes", int(nodes), cores=cores),), name=f"{nodes} nodes")

    @classmethod
    def preset(cls, name: str) -> Cluster:
        """A machine known by name; `kilowait.cluster.presets.PRESETS` lists them with their sources."""
        from kilowait.cluster.presets import PRESETS

        try:
            return PRESETS[name.lower()]
        except KeyError:
            raise UnknownNameError("cluster preset", name, PRESETS) from None

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Cluster:
        """A machine described in a TOML file; the format is in docs/formats.md."""
        from kilowait.cluster.toml import read_cluster

        return read_cluster(path)
