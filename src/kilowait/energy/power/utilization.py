"""Utilization and power of jobs: measured where available, modelled otherwise.

For each job the first known source counts: its measured `power_w`; its columns `cpu_utilization` and
`gpu_utilization`; the utilization profile. Jobs hold whole nodes. Measured values are not known before a job has run:
if a table has `predicted_power_w`, power controls use that column and energy accounting uses the other columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kilowait.energy.power.components import require
from kilowait.energy.power.model import PowerModel
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.series import Floats

Mask = npt.NDArray[np.bool_]

_POWER_COLUMNS = ("power_w", "predicted_power_w", "cpu_utilization", "gpu_utilization", "beta")
"""Columns by which jobs of equal size can differ in power or slowdown."""
_MAX_COUNTED_NODES = 1 << 24  # up to this job size, classes are found by counting


class UtilizationProfile(Protocol):
    """CPU and GPU utilization (0 to 1) of every job of a table."""

    def use(self, jobs: JobTable) -> tuple[Floats, Floats]:
        """One value of each per job, in the table's order."""


@dataclass(frozen=True, slots=True)
class ConstantUtilization:
    """The same utilization for every job.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1])
    >>> [use.tolist() for use in ConstantUtilization(0.5, 0.8).use(jobs)]
    [[0.5], [0.8]]
    """

    cpu: float = 1.0
    gpu: float = 1.0

    def __post_init__(self) -> None:
        require("cpu utilization", self.cpu, 0, 1)
        require("gpu utilization", self.gpu, 0, 1)

    def use(self, jobs: JobTable) -> tuple[Floats, Floats]:
        """One value of each per job."""
        return np.full(len(jobs), self.cpu), np.full(len(jobs), self.gpu)


@dataclass(frozen=True, slots=True)
class UtilizationClass:
    """Utilization of the jobs of a class, defined by nodes, run time and queue; bounds are inclusive."""

    name: str
    cpu: float
    gpu: float = 0.0
    nodes: tuple[float, float] = (1, math.inf)
    runtime_s: tuple[float, float] = (0, math.inf)
    queue: str | None = None

    def __post_init__(self) -> None:
        require(f"cpu utilization of the class {self.name!r}", self.cpu, 0, 1)
        require(f"gpu utilization of the class {self.name!r}", self.gpu, 0, 1)
        for key in ("nodes", "runtime_s"):
            low, high = getattr(self, key)
            if not low <= high:
                raise InputError(
                    f"class {self.name!r} has {key} from {low} to {high}; the lower bound must not exceed the upper"
                )

    def contains(self, jobs: JobTable) -> Mask:
        """Which jobs belong to the class."""
        inside = np.ones(len(jobs), np.bool_)
        for key in ("nodes", "runtime_s"):
            low, high = getattr(self, key)
            inside &= (jobs[key] >= low) & (jobs[key] <= high)
        if self.queue is not None:
            known = jobs.labels.get("queue", ())
            if self.queue not in known:
                raise UnknownNameError(f"queue of the class {self.name!r}", self.queue, known)
            inside &= jobs.column("queue") == known.index(self.queue)
        return inside


@dataclass(frozen=True, slots=True)
class UtilizationByClass:
    """Utilization by job class; the first class that contains a job counts, `otherwise` applies to the rest.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 64])
    >>> UtilizationByClass((UtilizationClass("wide", cpu=0.9, nodes=(32, 512)),), ConstantUtilization(0.4)).use(jobs)[
    ...     0
    ... ].tolist()
    [0.4, 0.9]
    """

    classes: tuple[UtilizationClass, ...]
    otherwise: ConstantUtilization

    def use(self, jobs: JobTable) -> tuple[Floats, Floats]:
        """One value of each per job."""
        cpu, gpu = self.otherwise.use(jobs)
        for job_class in reversed(self.classes):
            inside = job_class.contains(jobs)
            cpu[inside], gpu[inside] = job_class.cpu, job_class.gpu
        return cpu, gpu


FULL_LOAD = ConstantUtilization()


def utilization(jobs: JobTable, utilization: UtilizationProfile | None) -> tuple[Floats, Floats]:
    """CPU and GPU utilization of each job: from its columns where known, else from the profile (None: full load)."""
    cpu, gpu = (FULL_LOAD if utilization is None else utilization).use(jobs)
    job_cpu, job_gpu = jobs.column("cpu_utilization"), jobs.column("gpu_utilization")
    return np.where(np.isnan(job_cpu), cpu, job_cpu), np.where(np.isnan(job_gpu), gpu, job_gpu)


def unique_classes(
    jobs: JobTable, utilization: UtilizationProfile | None, *, by_cores: bool = False
) -> tuple[JobTable, npt.NDArray[np.int64] | None]:
    """One job of each size and the row of each job among them, if the power of a job depends on its nodes only.

    Otherwise the jobs themselves and None. With `by_cores` (shared nodes) power also depends on the cores.

    >>> jobs = JobTable(job_id=[1, 2, 3], submit_s=[0, 0, 0], runtime_s=[9, 9, 9], nodes=[4, 1, 4])
    >>> classes, row = unique_classes(jobs, ConstantUtilization())
    >>> classes["nodes"].tolist(), row.tolist()
    ([1, 4], [1, 0, 1])
    """
    individual = by_cores or any(name in jobs for name in _POWER_COLUMNS)
    if individual or not isinstance(utilization, ConstantUtilization | None) or not len(jobs):
        return jobs, None
    nodes = jobs["nodes"]
    if int(nodes.max()) > _MAX_COUNTED_NODES:
        return jobs, None
    row_of_size = np.cumsum(np.bincount(nodes) > 0) - 1
    row = row_of_size[nodes]
    representative = np.empty(int(row_of_size[-1]) + 1, np.int64)
    representative[row] = np.arange(len(jobs))
    return jobs[representative], row


def job_power_w(
    jobs: JobTable, model: PowerModel, profile: UtilizationProfile | None, group: str | None = None
) -> Floats:
    """Mean power of each job at full speed, all its nodes together, on the nodes of `group` (None: the only group).

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[2, 2], power_w=[np.nan, 500])
    >>> job_power_w(jobs, PowerModel.preset("polaris"), ConstantUtilization()).round(1).tolist()
    [3838.0, 500.0]
    """
    modelled = jobs["nodes"] * model.group(group).node_w(*utilization(jobs, profile))
    if "power_w" not in jobs:
        return np.asarray(modelled, np.float64)
    measured = jobs["power_w"]
    return np.asarray(np.where(np.isnan(measured), modelled, measured), np.float64)


def with_planned_power(jobs: JobTable) -> JobTable:
    """The jobs as power controls know them before they run: `predicted_power_w`, if present, replaces measurements.

    >>> jobs = JobTable(
    ...     job_id=[1, 2],
    ...     submit_s=[0, 0],
    ...     runtime_s=[9, 9],
    ...     nodes=[2, 2],
    ...     power_w=[400, 500],
    ...     predicted_power_w=[450, np.nan],
    ... )
    >>> with_planned_power(jobs)["power_w"].tolist()
    [450.0, nan]
    """
    if "predicted_power_w" not in jobs:
        return jobs
    measured = dict.fromkeys(("predicted_power_w", "cpu_utilization", "gpu_utilization"))
    return jobs.with_columns(power_w=jobs["predicted_power_w"], **measured)


def power_sources(jobs: JobTable) -> dict[str, int]:
    """Number of jobs by the source of their power: measured, utilization columns, or the utilization profile.

    >>> power_sources(JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[2, 2], power_w=[np.nan, 5]))
    {'measured': 1, 'columns': 0, 'utilization': 1}
    """
    if not any(name in jobs for name in _POWER_COLUMNS):
        return {"measured": 0, "columns": 0, "utilization": len(jobs)}
    measured = ~np.isnan(jobs.column("power_w"))
    used = ~(np.isnan(jobs.column("cpu_utilization")) & np.isnan(jobs.column("gpu_utilization")))
    columns = int((used & ~measured).sum())
    return {
        "measured": int(measured.sum()),
        "columns": columns,
        "utilization": len(jobs) - int((used | measured).sum()),
    }


@dataclass(frozen=True, slots=True)
class MeasuredPowerReport:
    """Number of jobs by outcome when power is computed from measured energy."""

    attached: int
    """Jobs that got `power_w` from `energy_j`."""
    existing: int
    """Jobs that had a `power_w` already."""
    unmeasured: int
    """Jobs without `energy_j`."""
    no_runtime: int
    """Jobs with energy but a run time of 0 s."""
    no_energy: int
    """Jobs with 0 J over a run time: the meter did not count."""
    too_low: int
    """Jobs whose mean power per node is below the minimum."""
    too_high: int
    """Jobs whose mean power per node is above the maximum."""

    def text(self) -> str:
        """The counts as text."""
        counts = {
            "with power from measured energy": self.attached,
            "with existing power": self.existing,
            "not measured": self.unmeasured,
            "ran for 0 s": self.no_runtime,
            "measured as 0 J": self.no_energy,
            "implausibly low": self.too_low,
            "implausibly high": self.too_high,
        }
        return "; ".join(f"{number:,} {what}" for what, number in counts.items() if number)


def with_measured_power(
    jobs: JobTable, least_w: float = 1.0, most_w: float = 20_000.0
) -> tuple[JobTable, MeasuredPowerReport]:
    """The jobs with `power_w` = `energy_j` / `runtime_s` where possible, and a report of the others.

    A mean power per node outside `least_w` to `most_w` counts as a meter fault and is not used; give the limits of the
    machine if they are known. An existing `power_w` is kept.

    >>> jobs = JobTable(job_id=[1, 2, 3], submit_s=[0] * 3, runtime_s=[10, 0, 10], nodes=[1] * 3, energy_j=[2000, 5, 0])
    >>> measured, report = with_measured_power(jobs)
    >>> measured["power_w"].tolist(), report.text()
    ([200.0, nan, nan], '1 with power from measured energy; 1 ran for 0 s; 1 measured as 0 J')
    """
    require("least_w", least_w)
    require("most_w", most_w, least_w)
    energy, runtime, power_w = jobs.column("energy_j"), jobs["runtime_s"], jobs.column("power_w")
    remaining = np.ones(len(jobs), np.bool_)

    def remove(condition: Mask) -> Mask:
        """Remove the jobs that meet the condition from the remaining jobs, and return them."""
        removed = remaining & condition
        remaining[removed] = False
        return removed

    existing = remove(~np.isnan(power_w))
    unmeasured = remove(np.isnan(energy))
    no_runtime = remove(runtime == 0)
    no_energy = remove(energy == 0)
    per_node = np.divide(energy, runtime * jobs["nodes"], out=np.full(len(jobs), np.nan), where=remaining)
    too_low = remove(per_node < least_w)
    too_high = remove(per_node > most_w)
    power = np.where(remaining, per_node * jobs["nodes"], power_w)
    counts = (remaining, existing, unmeasured, no_runtime, no_energy, too_low, too_high)
    return jobs.with_columns(power_w=power), MeasuredPowerReport(*(int(count.sum()) for count in counts))
