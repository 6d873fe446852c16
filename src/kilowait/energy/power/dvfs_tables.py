"""Slowdown and power of every job in every DVFS state or under a GPU power cap, computed before the simulation."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_catalogue import gpu
from kilowait.cluster.gpu_speeds import Speeds, constant_speeds, gpu_types
from kilowait.energy.power.dvfs import GPU_CAP_CURVES, CapCurve, clock_slowdown
from kilowait.energy.power.model import GroupPower, PowerModel
from kilowait.energy.power.number_checks import Floats, checked_numbers, require
from kilowait.energy.power.partial_node_power import checked_gpu_caps, piece_power
from kilowait.energy.power.utilization import ConstantUtilization, UtilizationProfile, utilization
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

__all__ = ["DvfsTable", "best_level", "level_tables", "GpuCaps", "cap_gpus"]


@dataclass(frozen=True, slots=True)
class DvfsTable:
    """Slowdown and power of n jobs in L DVFS states."""

    names: tuple[str, ...]
    """Names of the DVFS states; 0 is full speed."""
    factor: Floats  # (n, L)
    """Run time / run time at full speed; at least 1, and 1 in column 0."""
    power_w: Floats  # (n, L)
    """Power of the job, all its nodes together, while it runs."""

    def __post_init__(self) -> None:
        shape = (len(self.factor), len(self.names))
        if self.factor.shape != shape or self.power_w.shape != shape or not self.names:
            raise InputError(
                f"{len(self.names)} DVFS states, factors of shape {self.factor.shape}, powers of shape "
                f"{self.power_w.shape}; both must be (jobs, states)"
            )
        checked_numbers("factor", self.factor, 1)
        checked_numbers("power_w", self.power_w, 0)
        if (self.factor[:, 0] != 1).any():
            raise InputError("DVFS state 0 is full speed; its factor must be 1 for every job")

    def relative_energy(self, freed_w: npt.ArrayLike = 0.0) -> Floats:
        """Energy of each job in each DVFS state / at full speed, counted above `freed_w` (see `best_level`)."""
        energy = _energy(self, freed_w)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(energy[:, :1] > 0, energy / energy[:, :1], 1.0)


def level_tables(
    jobs: JobTable,
    power_w: npt.ArrayLike,
    group: GroupPower,
    profile: UtilizationProfile | None = None,
    beta: float | None = None,
) -> DvfsTable:
    """Run-time factors and power of every job in every DVFS state of `group`.

    `power_w` is each job's power at full speed (`job_power_w`). The part above the idle power of its nodes is split
    between CPUs, GPUs and the rest as the component model does at the job's utilization (`profile`; None: full load).
    A lower frequency scales the CPUs' part; a cap limits the GPUs' power. A job's column `beta` is used where known,
    else `beta` (None: the group's). The slowdowns of frequency and cap multiply.
    """
    watts = checked_numbers("power_w", power_w, 0)
    if watts.shape != (len(jobs),):
        raise InputError(f"power_w has the shape {watts.shape}; give one value for each of the {len(jobs)} jobs")
    nodes = jobs["nodes"].astype(np.float64)
    above_idle = np.maximum(watts - nodes * group.idle_w, 0.0)
    cpu_part, gpu_part = _parts(group, *utilization(jobs, profile if profile is not None else ConstantUtilization()))
    cpu_w, gpu_w = above_idle * cpu_part, above_idle * gpu_part
    job_beta = jobs.column("beta")
    betas = np.where(np.isnan(job_beta), group.beta if beta is None else beta, job_beta)

    # GPU power of one node before conversion losses, which is what the cap limits.
    slope, gpu_idle = group.conversion.slope, group.node.idle_of("gpu")
    gpu_draw = gpu_idle + gpu_w / (slope * nodes)
    factor, power = np.ones((len(jobs), len(group.levels))), np.tile(watts[:, None], (1, len(group.levels)))
    for column, level in enumerate(group.levels):
        if level.is_full:
            continue
        factor[:, column] = clock_slowdown(betas, level.speed)
        saved = cpu_w * (1 - level.cpu_dynamic)
        if level.gpu_cap < 1 and group.cap_curve is not None:
            cap = level.gpu_cap * group.node.limit_of("gpu")
            factor[:, column] *= group.cap_curve.slowdown(cap / np.maximum(gpu_draw, 1e-9))
            saved = saved + slope * nodes * np.maximum(gpu_draw - cap, 0.0)
        power[:, column] = watts - saved
    return DvfsTable(tuple(level.name for level in group.levels), factor, power)


def _parts(group: GroupPower, cpu: Floats, gpu: Floats) -> tuple[Floats, Floats]:
    """Shares of CPUs and GPUs in the node power above idle; those of full load if the modelled load is 0."""
    at, full = group.node.dynamic_w(cpu, gpu), group.node.dynamic_w(1.0, 1.0)
    total, full_total = sum(at.values(), np.float64(0)), float(sum(full.values(), np.float64(0)))
    shares = []
    for kind in ("cpu", "gpu"):
        at_full = float(full[kind]) / full_total if full_total > 0 else 0.0
        shares.append(np.divide(at[kind], total, out=np.full(cpu.shape, at_full), where=np.asarray(total) > 0))
    return shares[0], shares[1]


def best_level(
    table: DvfsTable, most_slowdown: float = math.inf, freed_w: npt.ArrayLike = 0.0
) -> npt.NDArray[np.int64]:
    """The DVFS state of least energy of each job, among those at most `most_slowdown` times as long; the first of ties.

    `freed_w` (watts, per job or one number) is the power of the job's nodes after it ends. With 0 all energy of its
    nodes counts, which fits where free nodes sleep or other jobs wait for them; with the nodes' idle power only the
    energy that the job adds counts.

    >>> one = DvfsTable(("full", "slow"), np.array([[1, 1.2]]), np.array([[200.0, 150.0]]))
    >>> best_level(one).tolist(), best_level(one, most_slowdown=1.1).tolist(), one.relative_energy().tolist()
    ([1], [0], [[1.0, 0.9]])
    """
    require("most_slowdown", most_slowdown if math.isfinite(most_slowdown) else 1e9, 1)
    allowed = np.where(table.factor <= most_slowdown, _energy(table, freed_w), np.inf)
    return np.asarray(np.argmin(allowed, axis=1), np.int64)


def _energy(table: DvfsTable, freed_w: npt.ArrayLike) -> Floats:
    freed = np.broadcast_to(checked_numbers("freed_w", freed_w, 0), len(table.factor))
    # A job that draws less than its nodes do when idle adds no energy, however long it runs.
    return np.asarray(np.maximum(table.power_w - freed[:, None], 0.0) * table.factor, np.float64)


_OTHERWISE = "V100"


@dataclass(frozen=True, eq=False)
class GpuCaps:
    """GPU power cap, speeds and slowdown of each job."""

    gpu_cap: Floats
    """Per job, share of its GPUs' power limit; 1: no cap. For `account_energy`."""
    speeds: Speeds
    """GPU speeds with the slowdown included, for the run."""
    slowdown: Floats
    """(types of `speeds`, jobs): run time with the cap / run time without."""
    notes: tuple[str, ...]
    """The measured curves that the slowdown is based on."""


def cap_gpus(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    fraction: npt.ArrayLike,
    speeds: Speeds | None = None,
    utilization: UtilizationProfile | None = None,
) -> GpuCaps:
    """GPU speeds and caps of a run of `jobs` with capped GPUs.

    Each GPU is capped at `fraction` (one number, or one per job) of its power limit. By the measured curve of its type,
    a job then takes 1 + a * max(1 / r - 1, 0) ** c times as long, where r is the cap over the uncapped draw of its GPU:
    a cap at or above that draw causes no slowdown. A job with a part of a GPU is capped at its part of the cap,
    whatever other jobs share the GPU. If groups of one type differ in power, the largest slowdown applies.

    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 1], gpus=[1, 1], gpu_utilization=[1, 0.3]
    ... )
    >>> capped = cap_gpus(jobs, Cluster.preset("gpu-mixed"), PowerModel.preset("gpu-mixed"), 0.6)
    >>> dict(zip(capped.speeds.types, capped.speeds.speed[:, 0].round(2).tolist()))
    {'A100': 0.76, 'V100': 0.76, 'T4': 0.76, 'RTX4090': 0.76}
    >>> capped.speeds.speed[:, 1].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if not cluster.node_level:
        raise InputError(
            f"cluster {cluster.name!r} is not node-level; there power caps are DVFS states: "
            "resolve_controls('dvfs=1.1', ...)"
        )
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    caps = checked_gpu_caps(fraction, len(jobs))
    if speeds is None:
        speeds = constant_speeds(jobs, gpu_types(cluster), 1.0)
    rows = {name.lower(): row for row, name in enumerate(speeds.types)}
    slowdown, curves = np.ones(speeds.speed.shape), dict[str, CapCurve]()
    for nodes, power in zip(cluster.groups, fitted.groups, strict=True):
        if nodes.gpus == 0:
            continue
        if nodes.gpu_type.lower() not in rows:
            raise InputError(
                f"speeds are given for {', '.join(speeds.types)}, not for {nodes.gpu_type}, which the cluster has"
            )
        row = rows[nodes.gpu_type.lower()]
        curve = curves[nodes.gpu_type] = cap_curve(power, nodes.gpu_type)
        draw_w = piece_power(jobs, nodes, power, utilization, caps).gpu_w
        cap_w = caps * power.node.limit_of("gpu") / nodes.gpus
        r = np.divide(cap_w, draw_w, out=np.ones(len(jobs)), where=(caps < 1) & (draw_w > cap_w))
        slowdown[row] = np.maximum(slowdown[row], curve.slowdown(r))
    capped_speeds = replace(speeds, speed=speeds.speed / slowdown)
    return GpuCaps(caps, capped_speeds, slowdown, _notes(curves))


def cap_curve(power: GroupPower, gpu_type: str) -> CapCurve:
    """The curve of the group; else the one measured on the GPU type; else that of V100, which has the best fit.

    >>> power = PowerModel.preset("gpu-mixed").group("t4")
    >>> cap_curve(power, "A40").gpu, cap_curve(power, "V100M32").gpu, cap_curve(power, "T4").gpu
    ('A40', 'V100', 'V100')
    """
    if power.cap_curve is not None:
        return power.cap_curve
    try:
        family = gpu(gpu_type).family
    except UnknownNameError:
        family = ""
    return GPU_CAP_CURVES.get(family, GPU_CAP_CURVES[_OTHERWISE])


def _notes(curves: dict[str, CapCurve]) -> tuple[str, ...]:
    return tuple(
        f"slowdown of {name} under a power cap by the curve of {curve.gpu}, {curve.source}"
        for name, curve in curves.items()
    )
