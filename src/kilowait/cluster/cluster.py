"""Cluster description: node groups, queues, outages and reservations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

from kilowait.errors import ClusterError, UnknownNameError

MAX_GROUPS = 62
"""The engine stores the groups of a job as bits of an int64."""


MAX_GPUS = 62
"""The GPU engine stores the GPUs of a node as bits of an int64."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one kind.

    An exclusive group (the default) allocates whole nodes. A shared group allocates cores, memory and GPUs from
    one pool and does not model single nodes. A node-level group (`node_level`) allocates the cores, memory and GPUs of
    each node, GPUs in thousandths.

    >>> cluster = Cluster((NodeGroup("cpu", 64, cores=48, memory_gb=192), NodeGroup("gpu", 8, cores=64, gpus=4)))
    >>> cluster.nodes
    72
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
            raise ClusterError(f"group {self.name!r} has {self.nodes} nodes; it needs a whole number, 0 to 2^40")
        whole = self.cores % 1 == 0 and self.gpus % 1 == 0
        if not (whole and self.cores >= 1 and self.gpus >= 0 and 0 <= self.memory_gb < math.inf):
            raise ClusterError(
                f"group {self.name!r}: cores {self.cores}, memory_gb {self.memory_gb}, gpus {self.gpus}; "
                "a node has at least 1 core and no negative memory or GPUs"
            )
        if self.shared and self.node_level:
            raise ClusterError(
                f"group {self.name!r} is both shared (one pool) and node_level (single nodes); choose one"
            )
        if self.node_level and self.gpus > MAX_GPUS:
            raise ClusterError(
                f"group {self.name!r} has {self.gpus} GPUs a node; node-level groups have at most {MAX_GPUS}"
            )
        if max(self.nodes, 1) * max(self.cores, self.gpus, self.memory_gb * 1000) >= 2**62:
            raise ClusterError(
                f"group {self.name!r}: {self.nodes} nodes of {self.cores} cores, {self.gpus} GPUs and "
                f"{self.memory_gb} GB exceed the supported range; memory_gb is in GB"
            )


@dataclass(frozen=True, slots=True)
class Outage:
    """`nodes` of a group are unavailable from `start_s` to `end_s`.

    The scheduler knows it from `announced_s` on (default: from the beginning, as with planned maintenance;
    ``announced_s=start_s`` is a failure). Running jobs continue: nodes become unavailable when they become free.

    >>> cluster = Cluster((NodeGroup("cpu", 64),), outages=(Outage("cpu", 8, start_s=3600, end_s=7200),))
    >>> cluster.outages[0].nodes
    8
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
    """`nodes` of a group are reserved from `start_s` to `end_s` (log seconds) for jobs of the queue `name`.

    >>> training = Reservation("course", "cpu", 16, start_s=3600, end_s=7200)
    >>> Cluster((NodeGroup("cpu", 64),), reservations=(training,)).reservations[0].name
    'course'
    """

    name: str
    group: str
    nodes: int
    start_s: float
    end_s: float
    announced_s: float = -math.inf

    def __post_init__(self) -> None:
        _check_window("reservation", self.group, self.nodes, self.start_s, self.end_s, self.announced_s)


def _check_window(kind: str, group: str, nodes: int, start_s: float, end_s: float, announced_s: float) -> None:
    if not (nodes >= 1 and nodes % 1 == 0):
        raise ClusterError(f"{kind} on {group!r} takes {nodes} nodes; it must take at least 1")
    if not start_s < end_s:
        raise ClusterError(f"{kind} on {group!r} from {start_s} to {end_s} s; the end must be after the start")
    if not announced_s <= start_s:
        raise ClusterError(f"{kind} on {group!r} starts at {start_s} s but is announced at {announced_s} s, after it")


@dataclass(frozen=True)
class Cluster:
    """A cluster: node groups, queues, outages and reservations.

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
    """Group number of each node, where node-level groups are interleaved; None: nodes are numbered by group."""

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
                f"at most {MAX_GROUPS} together: merge similar groups"
            )
        for queue, members in self.queues.items():
            if not members:
                raise ClusterError(f"queue {queue!r} maps to no group; name at least one")
            for member in members:
                if member not in names:
                    raise UnknownNameError(f"node group of queue {queue!r}", member, names)
        windows: tuple[Outage | Reservation, ...] = (*self.outages, *self.reservations)
        for window in windows:
            if window.group not in names:
                raise UnknownNameError(f"node group of {type(window).__name__.lower()}", window.group, names)
            size = self.groups[names.index(window.group)].nodes
            if window.nodes > size:
                kind = type(window).__name__.lower()
                raise ClusterError(f"{kind} takes {window.nodes} nodes of {window.group!r}, which has {size}")
        for reservation in self.reservations:
            if reservation.name in names or reservation.name in self.queues:
                raise ClusterError(f"reservation {reservation.name!r} has the name of a group or a queue")

    def _check_node_level(self) -> None:
        for group in self.groups:
            if not group.node_level:
                raise ClusterError(
                    f"cluster {self.name!r} has node-level groups, but {group.name!r} is not one; "
                    "set node_level in all groups of a cluster or in none"
                )
        if self.outages or self.reservations:
            raise ClusterError(f"cluster {self.name!r} has node-level groups, which support no outages or reservations")
        if self.node_groups is not None and sorted(self.node_groups) != [
            number for number, group in enumerate(self.groups) for _ in range(group.nodes)
        ]:
            raise ClusterError(f"the layout of cluster {self.name!r} must name each group once per node of the group")

    @property
    def node_level(self) -> bool:
        """Whether jobs are allocated on single nodes (GPU engine)."""
        return any(group.node_level for group in self.groups)

    @property
    def nodes(self) -> int:
        """Nodes in all groups, ignoring outages."""
        return sum(group.nodes for group in self.groups)

    def with_outages(self, *outages: Outage) -> Cluster:
        """A copy with additional outages."""
        return replace(self, outages=(*self.outages, *outages))

    @classmethod
    def from_nodes(cls, nodes: int, *, cores: int = 1) -> Cluster:
        """One exclusive group of `nodes` identical nodes (or processors, for logs that count those)."""
        if not (nodes >= 1 and nodes % 1 == 0):
            raise ClusterError(f"a cluster of {nodes} nodes; it needs a whole number, at least 1")
        return cls(groups=(NodeGroup("nodes", int(nodes), cores=cores),), name=f"{nodes} nodes")

    @classmethod
    def from_trace(cls, jobs: Any) -> Cluster:
        """The machine of a log, as far as the log says: the preset it names, the size in its header, its largest job.

        A generated GPU workload names its own cluster. If a log names a preset that is a GPU cluster, only the number
        of its nodes is used, since such logs count whole nodes. `jobs` is a `kilowait.JobTable`.

        >>> from kilowait.jobs import JobTable
        >>> Cluster.from_trace(JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1])).nodes
        4
        """
        workload = jobs.meta.get("workload")
        if workload == "gavel":
            return cls.preset("gavel")
        if workload == "gpu":
            return cls.preset(str(jobs.meta["cluster"]))
        machine = _machine_of(jobs.meta)
        if machine is not None:
            return cls.from_nodes(machine.nodes) if machine.node_level else machine
        for key in ("max_procs", "max_nodes"):
            size = jobs.meta.get(key)
            if size is not None and size >= 1:
                return cls.from_nodes(int(size))
        if not len(jobs):
            raise ClusterError("the trace has no jobs and does not say how large its machine is; give a cluster")
        return cls.from_nodes(int(jobs["nodes"].max()))

    @classmethod
    def preset(cls, name: str) -> Cluster:
        """A predefined cluster; `kilowait.cluster.presets.PRESETS` lists them with their sources."""
        from kilowait.cluster.presets import PRESETS

        try:
            return PRESETS[name.lower()]
        except KeyError:
            raise UnknownNameError("cluster preset", name, PRESETS) from None

    @classmethod
    def from_file(cls, path: str | PathLike[str], *, unix_start_s: float | None = None) -> Cluster:
        """Read a cluster from a TOML file; the format is in docs/formats.md.

        `unix_start_s` is the Unix time of second 0 of the log (``jobs.meta["unix_start_s"]``), which is needed if
        outages or reservations have dates.
        """
        from kilowait.cluster.toml import read_cluster

        return read_cluster(path, unix_start_s)


def _machine_of(meta: Mapping[str, Any]) -> Cluster | None:
    """The preset that a log names as its machine, unless the log was rescaled to another size."""
    from kilowait.cluster.presets import PRESETS

    machine = PRESETS.get(str(meta.get("machine", "")))
    return machine if machine is not None and meta.get("max_nodes") == machine.nodes else None
