"""Slowdown under DVFS states and GPU power caps, and measurements of it (Zeus power tables).

The slowdown and power of every job in every DVFS state or under a GPU power cap are computed before the simulation.

Frequency: T(f) = T(f_max) * (beta * (f_max / f - 1) + 1); beta is 1 for compute-bound and 0 for memory-bound work
(Hsu & Feng; Etinski). Power cap: T(cap) = T * (1 + a * max(1 / r - 1, 0) ** c) with r = cap / uncapped draw of the job,
so a cap at or above the draw causes no slowdown.

Columns of Zeus tables: dataset, network, batch_size, optimizer, power_limit (W), time_per_epoch (s), average_power (W).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_catalogue import gpu
from kilowait.cluster.gpu_speeds import Speeds, constant_speeds, gpu_types
from kilowait.energy.power.components import checked_numbers, require
from kilowait.energy.power.model import CapCurve, GroupPower, PowerModel
from kilowait.energy.power.partial_node_power import checked_gpu_caps, piece_power
from kilowait.energy.power.utilization import UtilizationProfile, utilization
from kilowait.errors import InputError, UnknownNameError
from kilowait.files.compression import decompressed
from kilowait.jobs import JobTable
from kilowait.series import Floats


def clock_slowdown(beta: npt.ArrayLike, speed: npt.ArrayLike) -> Floats:
    """Run time at `speed` = f / f_max relative to full speed, for a `beta` from 0 to 1; at least 1.

    >>> clock_slowdown([0, 0.5, 1], 0.5).tolist()
    [1.0, 1.5, 2.0]
    """
    slow = checked_numbers("beta", beta, 0, 1) * (1 / checked_numbers("speed", speed, 1e-6, 1) - 1) + 1
    return np.asarray(slow, np.float64)


def break_even_beta(level_w: npt.ArrayLike, speed: npt.ArrayLike, full_w: float) -> Floats:
    """The beta below which a DVFS state saves energy: where level_w * slowdown = full_w.

    `level_w` and `full_w` are watts of the whole node while the job runs. To count only energy above the power of the
    node after the job, subtract that power from both.

    >>> float(break_even_beta(171.0, 0.89, 190.7).round(3))
    0.932
    """
    watts = checked_numbers("level_w", level_w, 0)
    at = checked_numbers("speed", speed, 1e-6, 1)
    if (watts <= 0).any() or (at >= 1).any():
        raise InputError("break-even needs a DVFS state that draws power and is below full speed; leave others out")
    return np.asarray((full_w / watts - 1) / (1 / at - 1), np.float64)


_ZEUS = "fitted to Zeus summary_power_{}.csv (ml-energy/zeus, NSDI'23, Apache-2.0), jobs drawing more than 90 W"
GPU_CAP_CURVES: dict[str, CapCurve] = {
    "V100": CapCurve("V100", 0.58, 1.51, 0.08, _ZEUS.format("v100")),
    "RTX6000": CapCurve("RTX6000", 0.73, 1.62, 0.20, _ZEUS.format("rtx6000")),
    "A40": CapCurve("A40", 1.38, 1.45, 0.24, _ZEUS.format("a40")),
}
"""Fitted curves by GPU type, with the root mean square error of the slowdown over the capped runs."""


_KEYS = ("dataset", "network", "batch_size", "optimizer")
_NUMBERS = ("power_limit", "time_per_epoch", "average_power")


@dataclass(frozen=True, slots=True)
class CappedRun:
    """Measurement of one job under one power cap."""

    job: tuple[str, ...]
    """Data set, network, batch size, optimizer."""
    cap_w: float
    throughput_per_s: float
    """Epochs per second."""
    power_w: float


@dataclass(frozen=True, slots=True)
class CapTable:
    """Throughput and power by job and cap; the largest cap counts as uncapped."""

    gpu: str
    runs: tuple[CappedRun, ...]

    def relative(self, least_w: float = 90.0) -> tuple[Floats, Floats, Floats]:
        """r = cap / uncapped draw, slowdown and power ratio of every run of the jobs that draw more than `least_w`.

        Jobs without a run at the largest cap have no reference and are left out.
        """
        top = max(run.cap_w for run in self.runs)
        uncapped = {run.job: run for run in self.runs if run.cap_w == top}
        pairs = [
            (run, uncapped[run.job]) for run in self.runs if run.job in uncapped and uncapped[run.job].power_w > least_w
        ]
        if not pairs:
            raise InputError(f"no job of the {self.gpu} table draws more than {least_w:g} W without a cap")
        r = np.array([run.cap_w / base.power_w for run, base in pairs])
        slowdown = np.array([base.throughput_per_s / run.throughput_per_s for run, base in pairs])
        power = np.array([run.power_w / base.power_w for run, base in pairs])
        return r, slowdown, power


def read_cap_table(path: str | PathLike[str], gpu: str = "") -> CapTable:
    """Read a Zeus power table (CSV, plain or gzip); a row with a missing or invalid number is an error."""
    path = Path(path)
    try:
        data, _ = decompressed(path.read_bytes(), str(path), remedy="decompress it and give the decompressed file")
        rows = csv.DictReader(StringIO(data.decode("utf-8"), newline=""))
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot read the power table {path}: {problem}") from None
    absent = [name for name in (*_KEYS, *_NUMBERS) if name not in (rows.fieldnames or ())]
    if absent:
        raise InputError(f"{path} lacks the column(s) {', '.join(absent)}; it is not a Zeus power table")
    runs = tuple(_runs(rows, path))
    if not runs:
        raise InputError(f"{path} has no rows; it needs one for each job and cap")
    return CapTable(gpu or path.name.split(".")[0], runs)


def _runs(rows: csv.DictReader[str], path: Path) -> Iterator[CappedRun]:
    for row in rows:
        try:
            cap, seconds, watts = (float(row[name] or "nan") for name in _NUMBERS)
        except ValueError:
            cap = seconds = watts = float("nan")
        if not (0 < cap < 1e5 and 0 < seconds < 1e9 and 0 < watts < 1e5):
            wrong = ", ".join(f"{name} {row[name]!r}" for name in _NUMBERS)
            raise InputError(f"{path}, line {rows.line_num}: {wrong}; each must be a number above 0")
        yield CappedRun(tuple(row[key] for key in _KEYS), cap, 1 / seconds, watts)


def fit_cap_curve(table: CapTable, least_w: float = 90.0) -> CapCurve:
    """Least-squares fit of slowdown = 1 + a * max(1 / r - 1, 0) ** c; the error includes the uncapped runs."""
    from scipy.optimize import least_squares

    r, slowdown, _ = table.relative(least_w)
    over = np.maximum(1 / r - 1, 0)

    def residuals(parameters: Floats) -> Floats:
        return np.asarray(1 + parameters[0] * over ** parameters[1] - slowdown, np.float64)

    fit = least_squares(residuals, x0=(0.5, 1.5), bounds=((1e-3, 0.2), (10, 5)))
    a, c = (float(value) for value in fit.x)
    return CapCurve(table.gpu, a, c, float(np.sqrt(np.mean(fit.fun**2))), f"fitted to {table.gpu}")


# -- tables of jobs and states ---------------------------------------------------------------------


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
    nodes: Floats | None = None,
) -> DvfsTable:
    """Run-time factors and power of every job in every DVFS state of `group`.

    `power_w` is each job's power at full speed (`job_power_w`). The part above the idle power of its nodes is split
    between CPUs, GPUs and the rest as the component model does at the job's utilization (`profile`; None: full load).
    A lower frequency scales the CPUs' part; a cap limits the GPUs' power. A job's column `beta` is used where known,
    else `beta` (None: the group's). The slowdowns of frequency and cap multiply. `nodes` is what each job holds, on
    shared nodes a fraction (`held_nodes`); None: its nodes.
    """
    watts = checked_numbers("power_w", power_w, 0)
    if watts.shape != (len(jobs),):
        raise InputError(f"power_w has the shape {watts.shape}; give one value for each of the {len(jobs)} jobs")
    nodes = jobs["nodes"].astype(np.float64) if nodes is None else nodes
    above_idle = np.maximum(watts - nodes * group.idle_w, 0.0)
    cpu_part, gpu_part = _parts(group, *utilization(jobs, profile))
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
    fitted = model.for_cluster(cluster)
    caps = checked_gpu_caps(fraction, len(jobs))
    if speeds is None:
        speeds = constant_speeds(jobs, gpu_types(cluster), 1.0)
    slowdown, curves = np.ones(speeds.speed.shape), dict[str, CapCurve]()
    for nodes, power in zip(cluster.groups, fitted.groups, strict=True):
        if nodes.gpus == 0:
            continue
        row = speeds.row(nodes.gpu_type)
        curve = curves[nodes.gpu_type] = cap_curve(power, nodes.gpu_type)
        draw_w = piece_power(jobs, nodes, power, utilization, caps).gpu_w
        cap_w = caps * power.node.limit_of("gpu") / nodes.gpus
        r = np.divide(cap_w, draw_w, out=np.ones(len(jobs)), where=(caps < 1) & (draw_w > cap_w))
        slowdown[row] = np.maximum(slowdown[row], curve.slowdown(r))
    capped_speeds = replace(speeds, speed=speeds.speed / slowdown)
    notes = tuple(
        f"slowdown of {name} under a power cap by the curve of {curve.gpu}, {curve.source}"
        for name, curve in curves.items()
    )
    return GpuCaps(caps, capped_speeds, slowdown, notes)


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
