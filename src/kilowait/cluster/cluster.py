"""Cluster description: node groups, queues, outages and reservations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np

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

    A group whose nodes are unknown (`nodes_known` is false) is a number of processors: `nodes` counts processors of one
    core each. It has no power per node and no node sleep.

    >>> cluster = Cluster((NodeGroup("cpu", 64, cores=48, memory_gb=192), NodeGroup("gpu", 8, cores=64, gpus=4)))
    >>> cluster.nodes
    72
    >>> NodeGroup("gaia", 151, cores=14, shared=True, total_cores=2004).cores_of(151)
    2004
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
    total_cores: int = 0
    """Cores of all nodes of a shared group whose nodes differ (`cores` is then the largest); 0: nodes x cores."""
    nodes_known: bool = True
    """Whether `nodes` counts nodes; if not, it counts processors, and which of them form a node is unknown."""

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
        self._check_total_cores()
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

    def _check_total_cores(self) -> None:
        if self.total_cores and not (self.shared and self.nodes <= self.total_cores <= self.nodes * self.cores):
            raise ClusterError(
                f"group {self.name!r} has total_cores {self.total_cores}; only a shared group has it, {self.nodes} to "
                f"{self.nodes * self.cores} cores: at least 1 and at most {self.cores} per node"
            )
        if not self.nodes_known and (self.cores != 1 or self.node_level):
            raise ClusterError(
                f"group {self.name!r} has {self.cores} cores per node and nodes_known = false; a group of processors "
                "has one core for each, and is not node-level"
            )

    @property
    def cores_per_node(self) -> float:
        """Mean number of cores of a node.

        >>> (
        ...     NodeGroup("cpu", 4, cores=48).cores_per_node,
        ...     NodeGroup("mixed", 4, 8, shared=True, total_cores=26).cores_per_node,
        ... )
        (48.0, 6.5)
        """
        return self.total_cores / self.nodes if self.total_cores else float(self.cores)

    def cores_of(self, nodes: int) -> int:
        """Cores of this many of the group's nodes, rounded down where nodes differ."""
        return nodes * self.total_cores // self.nodes if self.total_cores else nodes * self.cores

    @property
    def unit(self) -> str:
        """What jobs allocate: ``"core"`` in a shared group, ``"processor"`` if nodes are unknown, else ``"node"``."""
        if not self.nodes_known:
            return "processor"
        return "core" if self.shared else "node"

    def nodes_for(self, cores: Any) -> Any:
        """Nodes of this group that hold this many cores (a number or an array), if a job gets whole nodes.

        >>> (
        ...     NodeGroup("cpu", 24, cores=72).nodes_for(88),
        ...     NodeGroup("mixed", 4, 8, shared=True, total_cores=26).nodes_for(13),
        ... )
        (2, 2)
        """
        total, nodes = (self.total_cores, self.nodes) if self.total_cores else (self.cores, 1)
        return -(-cores * nodes // total)

    def cores_for(self, nodes: Any) -> Any:
        """Cores of this many nodes (a number or an array), at most 2^62.

        >>> int(NodeGroup("cpu", 24, cores=72).cores_for(2))
        144
        """
        if self.total_cores:
            return np.minimum(nodes, self.nodes + 1) * self.total_cores // self.nodes
        return np.minimum(nodes, 2**62 // self.cores) * self.cores


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

    @property
    def unit(self) -> str:
        """What jobs allocate and what utilization counts: ``"node"``, ``"core"`` or ``"processor"``.

        Cores if all groups are shared, processors if the nodes of all groups are unknown, else nodes.

        >>> Cluster.from_nodes(24).unit, Cluster((NodeGroup("cpu", 24, cores=72, shared=True),)).unit
        ('node', 'core')
        """
        units = {group.unit for group in self.groups}
        return units.pop() if len(units) == 1 else "node" if "node" in units else "core"

    @property
    def size(self) -> int:
        """Size of the machine in units of `unit`, ignoring outages: its nodes, cores or processors."""
        return sum(self.units_of(group, group.nodes) for group in self.groups)

    def units_of(self, group: NodeGroup, nodes: int) -> int:
        """Size of some nodes of a group in units of `unit`."""
        return nodes if self.unit == "node" else group.cores_of(nodes)

    @property
    def size_text(self) -> str:
        """The size in words: ``"128 nodes"``, ``"24 nodes, 1,728 cores"`` or ``"1,728 processors"``.

        >>> Cluster((NodeGroup("cpu", 24, cores=72, shared=True),)).size_text
        '24 nodes, 1,728 cores'
        """
        unit = self.unit
        of_unit = f"{self.size:,} {unit}{'' if self.size == 1 else 's'}"
        return f"{self.nodes:,} node{'' if self.nodes == 1 else 's'}, {of_unit}" if unit == "core" else of_unit

    def sized(self, jobs: Any) -> Any:
        """The `kilowait.JobTable` with the size of each job on this machine, in its `unit`; the table itself if it has.

        On whole nodes, the jobs of a log that counts cores or processors take as many nodes as hold them (of the group
        with the fewest cores, if groups differ). On shared nodes, jobs of a table without cores take all cores of their
        nodes.

        >>> from kilowait.jobs import JobTable
        >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[2], cores=[88], meta={"unit": "core"})
        >>> machine = NodeGroup("cpu", 24, cores=72)
        >>> Cluster((machine,)).sized(jobs).size, Cluster((replace(machine, shared=True),)).sized(jobs).size
        (array([2]), array([88]))
        """
        group = min(self.groups, key=lambda group: group.cores_per_node)
        if self.unit == "node":
            if jobs.unit == "node":
                return jobs
            return jobs.with_unit("node", nodes=group.nodes_for(jobs.size))
        cores = np.maximum(jobs["cores"], 1) if "cores" in jobs else group.cores_for(jobs["nodes"])
        if jobs.unit == self.unit and "cores" in jobs:
            return jobs
        nodes = group.nodes_for(cores) if jobs.unit == "processor" else jobs["nodes"]
        return jobs.with_unit(self.unit, nodes=nodes, cores=cores)

    def with_outages(self, *outages: Outage) -> Cluster:
        """A copy with additional outages."""
        return replace(self, outages=(*self.outages, *outages))

    @classmethod
    def from_nodes(cls, nodes: int, *, cores: int = 1) -> Cluster:
        """One exclusive group of `nodes` identical nodes."""
        if not (nodes >= 1 and nodes % 1 == 0):
            raise ClusterError(f"a cluster of {nodes} nodes; it needs a whole number, at least 1")
        return cls(groups=(NodeGroup("nodes", int(nodes), cores=cores),), name=f"{nodes} nodes")

    @classmethod
    def from_processors(cls, processors: int, *, nodes: int | None = None) -> Cluster:
        """A machine whose jobs allocate single processors (cores): on `nodes` shared nodes, or on unknown nodes (None).

        >>> Cluster.from_processors(1728, nodes=24).size_text, Cluster.from_processors(1728).size_text
        ('24 nodes, 1,728 cores', '1,728 processors')
        >>> Cluster.from_processors(2004, nodes=151).groups[0].cores_per_node.__round__(2)
        13.27
        """
        if not (processors >= 1 and processors % 1 == 0):
            raise ClusterError(f"a cluster of {processors} processors; it needs a whole number, at least 1")
        processors = int(processors)
        if nodes is None:
            group = NodeGroup("processors", processors, nodes_known=False)
        elif not (1 <= nodes <= processors and nodes % 1 == 0):
            raise ClusterError(f"{processors} processors on {nodes} nodes; a node has at least 1 processor")
        else:
            nodes = int(nodes)
            total = 0 if processors % nodes == 0 else processors
            group = NodeGroup("nodes", nodes, cores=-(-processors // nodes), shared=True, total_cores=total)
        return cls(groups=(group,), name=f"{processors} processors")

    @classmethod
    def from_trace(cls, jobs: Any) -> Cluster:
        """The machine of a log: the preset it names, the size in its header, or the peak of its recorded use.

        A log that counts cores has shared nodes, if the header gives their number. If the header gives no size, and
        the log no waits, the machine is as large as the largest job. A log may name a preset; of one that is a GPU
        cluster only the number of nodes is used, since such logs count whole nodes. A generated GPU workload names its
        own cluster. `jobs` is a `kilowait.JobTable`.

        >>> from kilowait.jobs import JobTable
        >>> Cluster.from_trace(JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1])).nodes
        4
        """
        return machine_of_trace(jobs)[0]

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


def machine_of_trace(jobs: Any) -> tuple[Cluster, str]:
    """The machine of a log as in `Cluster.from_trace`, and the source of its size: header, peak, largest or workload.

    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1], wait_s=[0, 0])
    >>> machine, source = machine_of_trace(jobs)
    >>> machine.nodes, source
    (5, 'peak')
    """
    workload = jobs.meta.get("workload")
    if workload == "gavel":
        return Cluster.preset("gavel"), "workload"
    if workload == "gpu":
        return Cluster.preset(str(jobs.meta["cluster"])), "workload"
    named = _machine_of(jobs.meta)
    if named is not None:
        return Cluster.from_nodes(named.nodes) if named.node_level else named, "header"
    if jobs.machine_size is not None:
        return _machine_of_size(jobs, jobs.machine_size), "header"
    if not len(jobs):
        raise ClusterError("the trace has no jobs and does not say how large its machine is; give a cluster")
    peak = jobs.meta.get("recorded_peak")  # of all jobs of the log, if these are only some of them
    peak = peak_use(jobs) if peak is None else int(peak)
    source, size = ("largest", int(jobs.size.max())) if peak is None else ("peak", peak)
    return _machine_of_size(jobs, size), source


def _machine_of_size(jobs: Any, size: int) -> Cluster:
    """A machine of this size in the unit of the jobs, with as many nodes as the log states."""
    if jobs.unit == "node":
        return Cluster.from_nodes(size)
    return Cluster.from_processors(size, nodes=int(jobs.meta["max_nodes"]) if jobs.unit == "core" else None)


def peak_use(jobs: Any) -> int | None:
    """Largest recorded concurrent use by these jobs, in the unit of the table; None if the table has no waits.

    Jobs whose wait is unknown are left out. A job that ends frees its processors before another one starts.

    >>> from kilowait.jobs import JobTable
    >>> peak_use(JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1], wait_s=[0, 55]))
    4
    """
    if "wait_s" not in jobs:
        return None
    known = np.flatnonzero(~np.isnan(jobs["wait_s"]) & (jobs["runtime_s"] > 0))
    if not len(known):
        return None
    start = jobs["submit_s"][known] + jobs["wait_s"][known]
    time = np.concatenate((start + jobs["runtime_s"][known], start))
    size = np.asarray(jobs.size, np.int64)[known]
    order = np.argsort(time, kind="stable")  # ends are listed before starts
    return int(np.cumsum(np.concatenate((-size, size))[order]).max())
