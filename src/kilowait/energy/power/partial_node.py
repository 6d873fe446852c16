"""What a part of a node draws: jobs that share nodes, and GPUs down to thousandths.

A node's idle watts lie with its parts: those of a GPU with the GPU, all others (processors, memory, board, constant
losses) with its cores. A job that holds thousandths of these holds as much of their idle watts, and adds what its work
draws: GPUs by their load, all else by the load of its cores. Nothing is lost in between: what all jobs hold and what
nobody holds is the idle power of the node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.cluster import NodeGroup
from kilowait.energy.power.model import GroupPower
from kilowait.energy.power.utilization import ConstantUtilization, UtilizationProfile
from kilowait.energy.power.validate import Floats, numbers
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["PartialNodePower", "gpu_caps", "pieces_of", "watts_of_pieces"]

_WHOLE = 1000


@dataclass(frozen=True, eq=False)
class PartialNodePower:
    """One piece of each job on a node of one group; watts at the wall."""

    idle_w: Floats
    """Idle watts of what it holds."""
    draw_w: Floats
    """What all it holds draws while the job runs; `idle_w` is in it."""
    gpu_w: Floats
    """What one of its GPUs, all of it used as the job uses its part, would draw without a cap, before losses; 0 for a
    job without GPUs."""
    fits: npt.NDArray[np.bool_]
    """Whether a node of the group has so many cores and GPUs at all."""


def pieces_of(jobs: JobTable) -> npt.NDArray[np.int64]:
    """How many pieces each job is made of where it is placed on single nodes.

    >>> jobs = JobTable(
    ...     job_id=[1, 2],
    ...     submit_s=[0, 0],
    ...     runtime_s=[9, 9],
    ...     nodes=[2, 1],
    ...     gpus=[8, 3],
    ...     gpus_may_span_nodes=[0, 1],
    ... )
    >>> pieces_of(jobs).tolist()
    [2, 3]
    """
    spread = (jobs.column("gpus_may_span_nodes") == 1) & (_gpus(jobs) > 0)
    return np.where(spread, _gpus(jobs), jobs["nodes"]).astype(np.int64)


def gpu_caps(fraction: npt.ArrayLike, jobs: int) -> Floats:
    """Caps as shares of the GPUs' limit, one for each job; checked."""
    caps = numbers("gpu_cap", fraction)
    if caps.shape not in ((), (jobs,)):
        raise InputError(
            f"gpu_cap has the shape {caps.shape}; give one number, or one for each of the {jobs} jobs"
        )
    if ((caps <= 0) | (caps > 1)).any():
        raise InputError(
            f"gpu_cap goes from {caps.min():g} to {caps.max():g}; a cap is a share of the GPU's limit, above 0 and at "
            "most 1 (no cap)"
        )
    return np.broadcast_to(caps, (jobs,))


def watts_of_pieces(
    jobs: JobTable,
    nodes: NodeGroup,
    power: GroupPower,
    profile: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> PartialNodePower:
    """Watts of a piece of every job on the nodes of one group.

    - GPUs: (limit - idle) times the part it holds times the load. `gpu_utilization` is the load of the whole GPU, as
      it is where jobs on one GPU slow each other down; a job with a part of a GPU counts with at most that part. Where
      it is not known: the profile's load (None: 1) of the part it holds.
    - All else: (max - idle) times its part of the node's cores times the load that `cpu_utilization` or the profile
      makes. In a table that says nothing of cores, a job has the part of the cores that it has of the GPUs.
    - A measured `power_w` is what all it holds draws, the idle watts of that included, on whatever nodes; a
      piece has its part of it.
    - `gpu_cap` (shares of the limit, per job; None: none) holds each GPU to the cap, a part of a GPU to as much of it.

    >>> from kilowait.energy.power.model import PowerModel
    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[4, 1], gpu_milli=[1000, 500]
    ... )
    >>> power = PowerModel.preset("gpu-mixed").group("v100")
    >>> found = watts_of_pieces(jobs, NodeGroup("v100", 4, 40, 384.0, 4, "V100", node_level=True), power)
    >>> found.idle_w.tolist(), found.draw_w.tolist(), (power.idle_w, power.full_w)
    ([384.0, 48.0], [1634.0, 204.25], (384.0, 1634.0))
    """
    _same_gpus(nodes, power)
    pieces, each = pieces_of(jobs), _gpus(jobs) // pieces_of(jobs)
    part = np.where(each > 0, jobs.column("gpu_milli") / _WHOLE, 1.0)
    gpus = np.asarray(each * part, np.float64)
    cores = _cores(jobs, pieces, gpus, nodes)
    gpu_idle, gpu_most = (
        watts / max(nodes.gpus, 1) for watts in (power.node.idle_of("gpu"), power.node.limit_of("gpu"))
    )
    slope = power.conversion.slope
    idle_w = slope * gpu_idle * gpus + (power.idle_w - slope * power.node.idle_of("gpu")) * cores

    cpu_use, gpu_use = _loads(jobs, part, profile)
    dynamic = power.node.dynamic_w(cpu_use, gpu_use)
    added = {kind: slope * watts * cores for kind, watts in dynamic.items() if kind != "gpu"}
    gpu_added = slope * dynamic["gpu"] / max(nodes.gpus, 1) * gpus
    whole = gpu_added + sum(added.values(), np.zeros(len(jobs)))
    measured = jobs.column("power_w") / pieces
    known = ~np.isnan(measured)
    draw_w = np.where(known, measured, idle_w + whole)
    # What was measured above idle lies with GPUs as the model has it; where that has none, with the GPUs.
    share = np.divide(gpu_added, whole, out=(gpus > 0).astype(np.float64), where=whole > 0)
    gpu_added = np.where(known, np.maximum(draw_w - idle_w, 0.0) * share, gpu_added)
    has = gpus > 0
    gpu_w = np.where(has, gpu_idle, 0.0)
    gpu_w += np.divide(gpu_added, slope * gpus, out=np.zeros(len(jobs)), where=has)
    if gpu_cap is not None and nodes.gpus > 0:
        _above_idle(gpu_cap[has], nodes, gpu_idle, gpu_most)
        cap_w = np.where(gpu_cap < 1, gpu_cap * gpu_most, np.inf)
        draw_w = draw_w - slope * gpus * np.maximum(gpu_w - cap_w, 0.0)
    return PartialNodePower(idle_w, draw_w, gpu_w, (each <= nodes.gpus) & (cores <= 1))


def _gpus(jobs: JobTable) -> npt.NDArray[np.int64]:
    return jobs["gpus"] if "gpus" in jobs else np.zeros(len(jobs), np.int64)


def _cores(jobs: JobTable, pieces: npt.NDArray[np.int64], gpus: Floats, nodes: NodeGroup) -> Floats:
    """The part of the node's cores that a piece has."""
    own = jobs.column("cpu_milli")
    if "cores" not in jobs and not (own >= 0).any():
        return gpus / max(nodes.gpus, 1)
    cores = jobs["cores"] if "cores" in jobs else np.zeros(len(jobs), np.int64)
    gpu_milli = -(-np.where(own >= 0, own, cores * _WHOLE) // pieces)
    return np.asarray(gpu_milli / (nodes.cores * _WHOLE), np.float64)


def _loads(jobs: JobTable, part: Floats, profile: UtilizationProfile | None) -> tuple[Floats, Floats]:
    """Load of the cores and of the part of each GPU a job holds."""
    cpu, gpu = (ConstantUtilization() if profile is None else profile).use(jobs)
    own_cpu, own_gpu = jobs.column("cpu_utilization"), jobs.column("gpu_utilization")
    own_gpu = np.minimum(own_gpu / part, 1.0)
    return np.where(np.isnan(own_cpu), cpu, own_cpu), np.where(np.isnan(own_gpu), gpu, own_gpu)


def _same_gpus(nodes: NodeGroup, power: GroupPower) -> None:
    there = sum(part.count for part in power.node.components if part.kind == "gpu")
    if there != nodes.gpus:
        raise InputError(
            f"a node of the group {nodes.name!r} has {nodes.gpus} GPUs, and {there} in its power model; jobs that "
            "share nodes need the watts of each GPU: give a power file with as many"
        )


def _above_idle(caps: Floats, nodes: NodeGroup, gpu_idle: float, gpu_most: float) -> None:
    least = float(caps.min(initial=1.0))
    if least < 1 and least * gpu_most <= gpu_idle:
        raise InputError(
            f"a cap of {least:g} holds a GPU of the group {nodes.name!r} to {least * gpu_most:g} W, not above the "
            f"{gpu_idle:g} W it draws idle; give a cap above {gpu_idle / gpu_most:.3g}"
        )
