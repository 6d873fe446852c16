"""Power of a fraction of a node, for jobs that share nodes and hold GPUs down to thousandths, and energy by GPU type.

The idle power of a node is assigned to its resources: the idle power of a GPU to that GPU, all other idle power
(processors, memory, board, constant losses) to its cores. A job that holds a fraction of these accounts for the same
fraction of their idle power, and adds the power of its work: GPUs by their load, all else by the load of its cores. The
idle power of all allocated and all free resources adds up to the idle power of the node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.energy.power.components import checked_numbers
from kilowait.energy.power.model import GroupPower, PowerModel
from kilowait.energy.power.utilization import FULL_LOAD, UtilizationProfile
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.series import Floats

_WHOLE = 1000


@dataclass(frozen=True, eq=False)
class PartialNodePower:
    """Power of one piece of each job (its part on one node) on a node of one group; watts at the wall."""

    idle_w: Floats
    """Idle power of the resources held."""
    draw_w: Floats
    """Power of the resources held while the job runs, `idle_w` included."""
    gpu_w: Floats
    """Uncapped power of one of its GPUs before losses, if the whole GPU were loaded like the job's part; 0 for jobs
    without GPUs."""
    fits: npt.NDArray[np.bool_]
    """Whether a node of the group has enough cores and GPUs."""


def piece_counts(jobs: JobTable) -> npt.NDArray[np.int64]:
    """Number of pieces of each job in a node-level cluster.

    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[2, 1], gpus=[8, 3], gpus_may_span_nodes=[0, 1]
    ... )
    >>> piece_counts(jobs).tolist()
    [2, 3]
    """
    spread = (jobs.column("gpus_may_span_nodes") == 1) & (_gpus(jobs) > 0)
    return np.where(spread, _gpus(jobs), jobs["nodes"]).astype(np.int64)


def checked_gpu_caps(fraction: npt.ArrayLike, jobs: int) -> Floats:
    """Validated GPU power caps, one per job, as shares of the GPUs' power limit."""
    caps = checked_numbers("gpu_cap", fraction)
    if caps.shape not in ((), (jobs,)):
        raise InputError(f"gpu_cap has the shape {caps.shape}; give one number, or one for each of the {jobs} jobs")
    if ((caps <= 0) | (caps > 1)).any():
        raise InputError(
            f"gpu_cap goes from {caps.min():g} to {caps.max():g}; a cap is a share of the GPU's power limit, above 0 "
            "and at most 1 (no cap)"
        )
    return np.broadcast_to(caps, (jobs,))


def piece_power(
    jobs: JobTable,
    nodes: NodeGroup,
    power: GroupPower,
    utilization: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> PartialNodePower:
    """Power of a piece of every job on the nodes of one group.

    - GPUs: (limit - idle) times the part held times the load. `gpu_utilization` is the load of the whole GPU, which
      fits where jobs on one GPU slow each other down; a job with a part of a GPU counts with at most that part. If it
      is unknown: the profile's load (None: 1) of the part held.
    - All else: (max - idle) times the share of the node's cores times the load by `cpu_utilization` or the profile. In
      a table without cores, a job's share of the cores is its share of the GPUs.
    - A measured `power_w` is the power of all resources held, idle power included, on any nodes; it is split evenly
      among the pieces.
    - `gpu_cap` (shares of the power limit, per job; None: no caps) limits each GPU, a part of a GPU to its part of it.

    >>> from kilowait.energy.power.model import PowerModel
    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[4, 1], gpu_milli=[1000, 500]
    ... )
    >>> power = PowerModel.preset("gpu-mixed").group("v100")
    >>> piece = piece_power(jobs, NodeGroup("v100", 4, 40, 384.0, 4, "V100", node_level=True), power)
    >>> piece.idle_w.tolist(), piece.draw_w.tolist(), (power.idle_w, power.full_w)
    ([384.0, 48.0], [1634.0, 204.25], (384.0, 1634.0))
    """
    _check_gpu_count(nodes, power)
    pieces = piece_counts(jobs)
    gpus_per_piece = _gpus(jobs) // pieces
    part = np.where(gpus_per_piece > 0, jobs.column("gpu_milli") / _WHOLE, 1.0)
    gpus = np.asarray(gpus_per_piece * part, np.float64)
    cores = _core_share(jobs, pieces, gpus, nodes)
    gpu_idle, gpu_limit = (
        watts / max(nodes.gpus, 1) for watts in (power.node.idle_of("gpu"), power.node.limit_of("gpu"))
    )
    slope = power.conversion.slope
    idle_w = slope * gpu_idle * gpus + (power.idle_w - slope * power.node.idle_of("gpu")) * cores

    cpu_use, gpu_use = _loads(jobs, part, utilization)
    dynamic = power.node.dynamic_w(cpu_use, gpu_use)
    added = {kind: slope * watts * cores for kind, watts in dynamic.items() if kind != "gpu"}
    gpu_added = slope * dynamic["gpu"] / max(nodes.gpus, 1) * gpus
    total_added = gpu_added + sum(added.values(), np.zeros(len(jobs)))
    measured = jobs.column("power_w") / pieces
    known = ~np.isnan(measured)
    draw_w = np.where(known, measured, idle_w + total_added)
    # Measured power above idle is split between GPUs and the rest as in the model; all to GPUs if the model has none.
    share = np.divide(gpu_added, total_added, out=(gpus > 0).astype(np.float64), where=total_added > 0)
    gpu_added = np.where(known, np.maximum(draw_w - idle_w, 0.0) * share, gpu_added)
    has_gpus = gpus > 0
    gpu_w = np.where(has_gpus, gpu_idle, 0.0)
    gpu_w += np.divide(gpu_added, slope * gpus, out=np.zeros(len(jobs)), where=has_gpus)
    if gpu_cap is not None and nodes.gpus > 0:
        _check_caps(gpu_cap[has_gpus], nodes, gpu_idle, gpu_limit)
        cap_w = np.where(gpu_cap < 1, gpu_cap * gpu_limit, np.inf)
        draw_w = draw_w - slope * gpus * np.maximum(gpu_w - cap_w, 0.0)
    return PartialNodePower(idle_w, draw_w, gpu_w, (gpus_per_piece <= nodes.gpus) & (cores <= 1))


def _gpus(jobs: JobTable) -> npt.NDArray[np.int64]:
    return jobs["gpus"] if "gpus" in jobs else np.zeros(len(jobs), np.int64)


def _core_share(jobs: JobTable, pieces: npt.NDArray[np.int64], gpus: Floats, nodes: NodeGroup) -> Floats:
    """Share of the node's cores that a piece holds."""
    cpu_milli = jobs.column("cpu_milli")
    if "cores" not in jobs and not (cpu_milli >= 0).any():
        return gpus / max(nodes.gpus, 1)
    cores = jobs["cores"] if "cores" in jobs else np.zeros(len(jobs), np.int64)
    piece_milli = -(-np.where(cpu_milli >= 0, cpu_milli, cores * _WHOLE) // pieces)
    return np.asarray(piece_milli / (nodes.cores * _WHOLE), np.float64)


def _loads(jobs: JobTable, part: Floats, utilization: UtilizationProfile | None) -> tuple[Floats, Floats]:
    """Load of the cores, and of the part of each GPU, that a job holds."""
    cpu, gpu = (FULL_LOAD if utilization is None else utilization).use(jobs)
    job_cpu, job_gpu = jobs.column("cpu_utilization"), jobs.column("gpu_utilization")
    job_gpu = np.minimum(job_gpu / part, 1.0)
    return np.where(np.isnan(job_cpu), cpu, job_cpu), np.where(np.isnan(job_gpu), gpu, job_gpu)


def _check_gpu_count(nodes: NodeGroup, power: GroupPower) -> None:
    modelled = sum(part.count for part in power.node.components if part.kind == "gpu")
    if modelled != nodes.gpus:
        raise InputError(
            f"a node of the group {nodes.name!r} has {nodes.gpus} GPUs, but {modelled} in its power model; jobs that "
            "share nodes need the power of each GPU: give a power file with as many GPUs"
        )


def _check_caps(caps: Floats, nodes: NodeGroup, gpu_idle: float, gpu_limit: float) -> None:
    lowest = float(caps.min(initial=1.0))
    if lowest < 1 and lowest * gpu_limit <= gpu_idle:
        raise InputError(
            f"a cap of {lowest:g} limits a GPU of the group {nodes.name!r} to {lowest * gpu_limit:g} W, not above the "
            f"{gpu_idle:g} W it draws idle; give a cap above {gpu_idle / gpu_limit:.3g}"
        )


def energy_by_type(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    speeds: Speeds | None = None,
    utilization: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> Floats:
    """Energy of each job on each GPU type, joules (types, jobs), for runs with types="given".

    It is the power of the resources that the job holds there, idle power included, times its run-time estimate over its
    speed. (Policies know no other run time, and the order of the types does not depend on it.) It is infinite where the
    job cannot run or its pieces fit on no node. If groups of one type differ, it is their mean, weighted by nodes.

    The types are those of `kilowait.cluster.gpu_speeds.gpu_types`; on a cluster with queues, groups that different
    queues may use are types of their own, as in the run.

    >>> from kilowait.cluster.gpu_speeds import gpu_types, roofline_speeds
    >>> cluster, model = Cluster.preset("gpu-mixed"), PowerModel.preset("gpu-mixed")
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[3600], nodes=[1], gpus=[1])
    >>> joules = energy_by_type(jobs, cluster, model, roofline_speeds(jobs, gpu_types(cluster)))
    >>> dict(zip(gpu_types(cluster), (joules[:, 0] / 3.6e6).round(3).tolist(), strict=True))  # kWh
    {'A100': 0.436, 'V100': 0.408, 'T4': 0.491, 'RTX4090': 0.529}
    """
    energy_j = joules_by_group(jobs, cluster, model, np.maximum(jobs["estimate_s"], 1.0), speeds, utilization, gpu_cap)
    type_of_group = [
        (
            group.gpu_type if group.gpus else "",
            frozenset(queue for queue, groups in cluster.queues.items() if group.name in groups),
        )
        for group in cluster.groups
    ]
    nodes = np.array([group.nodes for group in cluster.groups], np.float64)
    by_type = np.full((len(set(type_of_group)), len(jobs)), np.inf)
    for row, gpu_type in enumerate(dict.fromkeys(type_of_group)):
        members = [number for number, group_type in enumerate(type_of_group) if group_type == gpu_type]
        weight = np.where(np.isfinite(energy_j[members]), nodes[members, None], 0.0)
        total_weight = weight.sum(axis=0)
        total_j = (np.where(weight > 0, energy_j[members], 0.0) * weight).sum(axis=0)
        np.divide(total_j, total_weight, out=by_type[row], where=total_weight > 0)
    return by_type


def joules_by_group(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    seconds: Floats,
    speeds: Speeds | None = None,
    utilization: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> Floats:
    """Joules (groups, jobs) of `seconds` of work at speed 1 on each group; infinite where a job does not fit."""
    if not cluster.node_level:
        raise InputError(f"cluster {cluster.name!r} is not node-level; it has no GPU types to choose from")
    fitted = model.for_cluster(cluster)
    caps = None if gpu_cap is None else checked_gpu_caps(gpu_cap, len(jobs))
    gpus, pieces = _gpus(jobs), piece_counts(jobs)
    energy_j = np.full((len(cluster.groups), len(jobs)), np.inf)
    for row, (nodes, power) in enumerate(zip(cluster.groups, fitted.groups, strict=True)):
        watts = piece_power(jobs, nodes, power, utilization, caps)
        speed = np.where(gpus > 0, _speed(speeds, nodes.gpu_type, len(jobs)) if nodes.gpus else 0.0, 1.0)
        runnable = watts.fits & (speed > 0)
        np.divide(watts.draw_w * pieces * seconds, speed, out=energy_j[row], where=runnable)
    return energy_j


def _speed(speeds: Speeds | None, gpu_type: str, jobs: int) -> Floats:
    if speeds is None:
        return np.ones(jobs)
    row = speeds.row(gpu_type)
    speeds.require_known()
    if speeds.speed.shape[1] != jobs:
        raise InputError(f"speeds of {speeds.speed.shape[1]} jobs were given for {jobs} jobs")
    return np.asarray(speeds.speed[row], np.float64)
