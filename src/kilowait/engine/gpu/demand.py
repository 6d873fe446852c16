"""Resource demand of jobs: pieces, allowed GPU types, classes of identical jobs, and typical jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_catalogue import gpu, is_gpu_type
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.errors import ClusterError, InputError, TableError
from kilowait.jobs import JobTable

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
FULL_GPU = 1000
"""Thousandths of a GPU."""


@dataclass(frozen=True)
class Demand:
    """Resource demand of jobs, in table order."""

    pieces: Ints
    gpus: Ints
    """GPUs of a piece."""
    gpu_milli: Ints
    cpu: Ints
    """Thousandths of cores of a piece."""
    memory: Ints
    """Bytes of a piece."""
    load: Ints
    """Thousandths of a shared GPU that a job uses."""
    spread: Ints
    """1: the GPUs of a job may span nodes."""
    label: Ints
    """Row of `label_types`."""
    labels: tuple[str, ...]
    """The first is for jobs without a label."""
    label_types: npt.NDArray[np.bool_]
    """(labels, types)"""
    speed_class: Ints
    """Row of the tables below."""
    speed: Floats
    """(kinds, types); 0: the job cannot run on the type."""
    factor: Floats
    """(kinds, types): on speed, if the GPUs span more nodes than necessary."""
    preference: Floats
    """(kinds, types): smaller first."""
    demand_class: Ints
    """Jobs of one class have the same demand."""
    class_example: Ints
    """One job of each demand class."""


@dataclass(frozen=True)
class NodeType:
    """A node type: GPU type ("" without GPUs) and the queues that may use the nodes."""

    gpu: str
    queues: frozenset[str]


def node_types(cluster: Cluster) -> tuple[NodeType, ...]:
    """The cluster's types, in the order in which its groups name them."""
    return tuple(dict.fromkeys(group_node_types(cluster)))


def group_node_types(cluster: Cluster) -> list[NodeType]:
    """The type of each group."""
    types = []
    for group in cluster.groups:
        if group.gpus > 0 and not group.gpu_type:
            raise ClusterError(
                f"group {group.name!r} has {group.gpus} GPUs a node but no gpu_type; the GPU engine needs it"
            )
        queues = frozenset(queue for queue, members in cluster.queues.items() if group.name in members)
        types.append(NodeType(group.gpu_type if group.gpus else "", queues))
    return types


def resource_demand(
    jobs: JobTable, cluster: Cluster, types: str, speeds: Speeds | None, preference: Floats | None
) -> Demand:
    """Resource demand of jobs. `preference`: (types of the cluster, jobs), smaller first, for types="given"."""
    n = len(jobs)
    types_of_nodes = node_types(cluster)
    names = tuple(kind.gpu for kind in types_of_nodes)
    gpus = jobs["gpus"] if "gpus" in jobs else np.zeros(n, np.int64)
    gpu_milli = jobs.column("gpu_milli")
    _reject(
        jobs,
        (gpu_milli < FULL_GPU) & (gpus != 1),
        lambda i: f"gpu_milli {gpu_milli[i]} with {gpus[i]} GPUs; a share of a GPU needs gpus 1",
    )
    spread = ((jobs.column("gpus_may_span_nodes") == 1) & (gpus > 0)).astype(np.int64)
    pieces = np.where(spread == 1, gpus, jobs["nodes"])
    _reject(
        jobs,
        gpus % pieces != 0,
        lambda i: f"{gpus[i]} GPUs on {pieces[i]} nodes; give a multiple of the nodes, or gpus_may_span_nodes 1",
    )
    cores = jobs["cores"] if "cores" in jobs else np.zeros(n, np.int64)
    cpu = jobs.column("cpu_milli")
    cpu = np.where(cpu >= 0, cpu, cores * FULL_GPU)
    memory = np.zeros(n, np.int64)
    if "memory_mb" in jobs:  # in bytes: 512 GiB is not a whole number of MB, and two halves must fit a node
        memory = np.rint(jobs["memory_mb"] * 1e6).astype(np.int64)
    if not any(name in jobs for name in ("cores", "cpu_milli", "memory_mb", "gpus")):
        raise TableError(
            "the jobs request no cores, memory or GPUs, which node-level clusters allocate; "
            "add such columns, or use a cluster that allocates whole nodes"
        )
    gpus_per_piece = gpus // pieces
    utilization = jobs.column("gpu_utilization")
    load = np.where(np.isnan(utilization), gpu_milli, np.rint(np.nan_to_num(utilization) * FULL_GPU)).astype(np.int64)
    label, labels, label_types = _labels(jobs, names)
    speed, factor = _speeds(jobs, names, speeds)
    allowed = label_types[label] & (np.array([name != "" for name in names]) | (gpus == 0)[:, None])
    allowed |= (gpus == 0)[:, None]
    allowed &= _queue_may_use(jobs, cluster, types_of_nodes)
    cpu_only = gpus == 0
    speed = np.where(cpu_only[:, None], 1.0, speed) * allowed
    factor = np.where(cpu_only[:, None], 1.0, factor)
    type_preference = np.zeros((n, len(names)))
    if types == "fastest":
        type_preference = -speed
    elif types == "given":
        if preference is None or preference.shape != (len(names), n):
            shape = None if preference is None else preference.shape
            raise InputError(
                f"types='given' needs a preference table, not one of shape {shape}; give (types, jobs), "
                f"here ({len(names)}, {n})"
            )
        type_preference = np.ascontiguousarray(preference.T)
    speed_class, first = _group_equal_rows(np.hstack([speed, factor, type_preference]))
    columns = [speed_class, pieces, gpus_per_piece, gpu_milli, -(-cpu // pieces), -(-memory // pieces), spread]
    demand_class, class_example = _group_equal_rows(np.column_stack(columns))
    return Demand(
        pieces=pieces,
        gpus=gpus_per_piece,
        gpu_milli=np.where(gpus > 0, gpu_milli, FULL_GPU),
        cpu=columns[4],
        memory=columns[5],
        load=load,
        spread=spread,
        label=label,
        labels=labels,
        label_types=label_types,
        speed_class=speed_class,
        speed=np.ascontiguousarray(speed[first]),
        factor=np.ascontiguousarray(factor[first]),
        preference=np.ascontiguousarray(type_preference[first]),
        demand_class=demand_class,
        class_example=class_example,
    )


def _reject(jobs: JobTable, bad: npt.NDArray[np.bool_], text: Any) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise TableError(f"job {jobs['job_id'][row]} requests {text(row)}")


def _labels(jobs: JobTable, names: tuple[str, ...]) -> tuple[Ints, tuple[str, ...], npt.NDArray[np.bool_]]:
    """Each job's GPU-type label, and the types of the cluster each label allows."""
    labels = ("", *jobs.labels.get("gpu_types", ()))
    label = jobs.column("gpu_types").astype(np.int64) + 1
    if len(label) and label.max() >= len(labels):
        raise TableError("column 'gpu_types' has numbers without labels; give labels={'gpu_types': (...)}")
    allowed = np.ones((len(labels), len(names)), np.bool_)
    for row in np.unique(label):
        if row > 0:
            allowed[row] = False
            for name in labels[row].split("|"):
                matches = np.array([is_gpu_type(name, known) for known in names])
                if not matches.any():
                    gpu(name.strip())  # raises for an unknown type; a known one may be missing in the cluster
                allowed[row] |= matches
    return label, labels, allowed


def _queue_may_use(jobs: JobTable, cluster: Cluster, kinds: tuple[NodeType, ...]) -> npt.NDArray[np.bool_]:
    """(jobs, types): whether the job's queue may use the type; queues that the cluster does not list may use all."""
    labels = jobs.labels.get("queue", ())
    rows = np.ones((len(labels) + 1, len(kinds)), np.bool_)
    for row, label in enumerate(labels, 1):
        if label in cluster.queues:
            rows[row] = [label in kind.queues for kind in kinds]
    queue = jobs.column("queue").astype(np.int64) + 1
    return rows[np.where(queue < len(rows), queue, 0)]


def _speeds(jobs: JobTable, names: tuple[str, ...], speeds: Speeds | None) -> tuple[Floats, Floats]:
    """(jobs, types) speeds, and factors of spread gangs."""
    n = len(jobs)
    speed, factor = np.ones((n, len(names))), np.ones((n, len(names)))
    if speeds is None:
        return speed, factor
    if speeds.speed.shape[1] != n:
        raise InputError(f"speeds of {speeds.speed.shape[1]} jobs were given for {n} jobs")
    for column, name in enumerate(names):
        if name == "":
            continue
        row = speeds.row(name)
        speed[:, column] = speeds.speed[row]
        factor[:, column] = speeds.spread[row]
    unknown = np.isnan(speed).any(1)
    if unknown.any():
        row = int(np.argmax(unknown))
        type_name = names[int(np.argmax(np.isnan(speed[row])))]
        raise InputError(
            f"the speed of job {jobs['job_id'][row]} on {type_name} is not known; "
            "combine measured speeds with roofline_speeds() for the others"
        )
    return speed, np.where(np.isnan(factor), 1.0, factor)


def _group_equal_rows(rows: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Index of each row among the distinct rows, and the first position of each."""
    code = np.zeros(len(rows), np.int64)
    for column in rows.T:
        _, index = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (int(index.max(initial=0)) + 1) + index, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    return code.astype(np.int64), first.astype(np.int64)


def request_text(pieces: int, gpus: int, gpu_milli: int, cpu_milli: int, memory_bytes: int) -> str:
    """The request of a job as text: the number of its pieces and the amounts of each.

    >>> request_text(2, 4, 1000, 8000, 64_000_000)
    '2 x (4 GPUs, 8 cores, 64 MB)'
    """
    part = f"{gpu_milli}/1000 of a GPU" if gpu_milli < 1000 else f"{gpus} GPUs"
    return f"{pieces} x ({part}, {cpu_milli / 1000:g} cores, {memory_bytes / 1e6:g} MB)"


# -- node types that can hold a job ----------------------------------------------------------------

UNLIMITED_MEMORY = 2**60
"""Bytes of a node whose group does not give its memory."""


def node_memory(group: NodeGroup) -> int:
    """Bytes of a node; unlimited if the group does not give its memory."""
    return round(group.memory_gb * 1e9) if group.memory_gb else UNLIMITED_MEMORY


def feasible_types(
    requests: Any, rows: Ints, may_use: npt.NDArray[np.bool_], cluster: Cluster
) -> npt.NDArray[np.bool_]:
    """(rows, types): whether each job can be placed on the empty nodes of each type.

    `requests` has the arrays pieces, gpus, gpu_milli, cpu, memory and spread (a `Demand`, or job states), of which
    `rows` are computed; `may_use` is (rows, types).

    >>> from kilowait.jobs import JobTable
    >>> groups = (
    ...     NodeGroup("a", 4, 8, 0, 2, "T4", node_level=True),
    ...     NodeGroup("b", 1, 8, 0, 4, "V100", node_level=True),
    ... )
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 2], gpus=[4, 4])
    >>> demand = resource_demand(jobs, Cluster(groups), "any", None, None)
    >>> feasible_types(demand, np.arange(2), np.ones((2, 2), bool), Cluster(groups)).tolist()
    [[False, True], [True, False]]
    """
    kinds = node_types(cluster)
    pieces, gpus, gpu_milli = requests.pieces[rows], requests.gpus[rows], requests.gpu_milli[rows]
    capacity = np.zeros((len(rows), len(kinds)))
    for group, its_type in zip(cluster.groups, group_node_types(cluster), strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            per_node = np.minimum(
                group.cores * FULL_GPU // requests.cpu[rows].astype(float),
                node_memory(group) // requests.memory[rows].astype(float),
            )
            shares = FULL_GPU // gpu_milli * group.gpus
            whole = group.gpus // gpus.astype(float)
        per_node = np.where(np.isnan(per_node), np.inf, per_node)
        on_gpus = np.where(gpu_milli < FULL_GPU, shares, whole)
        per_node = np.where(gpus > 0, np.minimum(per_node, on_gpus), per_node)
        per_node = np.where(requests.spread[rows] == 1, per_node, np.minimum(per_node, 1))
        capacity[:, kinds.index(its_type)] += np.where(per_node > 0, group.nodes * per_node, 0)
    return np.asarray((capacity >= pieces[:, None]) & may_use)


# -- typical jobs ----------------------------------------------------------------------------------

TYPICAL_SHARE = 0.95
"""Share of the jobs that the typical shapes cover."""

TypicalShape = tuple[int, int, int, int, int]
"""A job shape: thousandths of cores, of a GPU (0: no GPU), GPUs, row of the type labels, number of jobs."""


def typical_shapes(demand: Demand, counted: npt.NDArray[np.bool_], share: float = TYPICAL_SHARE) -> list[TypicalShape]:
    """The most frequent shapes of the counted jobs that together cover `share` of them.

    Does not use Numba, because reports call it.

    >>> from kilowait.cluster import Cluster
    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2, 3], submit_s=[0] * 3, runtime_s=[9] * 3, nodes=[1] * 3, gpus=[1, 2, 1])
    >>> demand = resource_demand(jobs, Cluster.preset("gpu-mixed"), "any", None, None)
    >>> typical_shapes(demand, np.ones(3, bool))
    [(0, 1000, 1, 0, 2), (0, 1000, 2, 0, 1)]
    >>> typical_shapes(demand, np.ones(3, bool), share=0.5)
    [(0, 1000, 1, 0, 2)]
    """
    columns = (demand.cpu, np.where(demand.gpus > 0, demand.gpu_milli, 0), demand.gpus, demand.label)
    rows, counts = np.unique(np.column_stack(columns)[counted], axis=0, return_counts=True)
    shapes: list[TypicalShape] = [(*row, count) for row, count in zip(rows.tolist(), counts.tolist(), strict=True)]
    shapes.sort(key=lambda shape: (shape[4], *shape[:3], demand.labels[shape[3]]), reverse=True)
    covered = 0
    for i, shape in enumerate(shapes):
        if covered >= share * np.count_nonzero(counted):
            return shapes[:i]
        covered += shape[4]
    return shapes
