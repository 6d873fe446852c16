"""How hard jobs use their nodes, and the watts that makes: measured where possible, modelled otherwise.

For each job the first that is known counts: its measured `power_w`; its columns `cpu_utilization` and
`gpu_utilization`; the profile. Jobs hold whole nodes. Nobody knows what was measured before a job has run: where a
table has `predicted_power_w`, levers decide by that and accounts by the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kilowait.energy.power.model import PowerModel
from kilowait.energy.power.validate import Floats, require
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

__all__ = [
    "UtilizationByClass",
    "ConstantUtilization",
    "MeasuredReport",
    "UtilizationProfile",
    "UtilizationClass",
    "unique_classes",
    "with_planned_power",
    "job_power_w",
    "power_sources",
    "utilization",
    "with_measured_power",
]

Mask = npt.NDArray[np.bool_]

_OF_A_JOB = ("power_w", "predicted_power_w", "cpu_utilization", "gpu_utilization", "beta")
"""Columns by which jobs of one size differ in power or speed."""
_LARGEST = 1 << 24  # nodes up to which sizes are counted rather than sorted


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
    """Jobs of a class, by size, queue and true run time, and their utilization; bounds count as inside."""

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
                raise InputError(f"class {self.name!r} has {key} from {low} to {high}; nothing lies between")

    def holds(self, jobs: JobTable) -> Mask:
        """Which jobs are in it."""
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
    """Utilization by class, the first that holds a job counting; `otherwise` for the rest.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 64])
    >>> UtilizationByClass(
    ...     (UtilizationClass("wide", cpu=0.9, nodes=(32, 512)),), ConstantUtilization(0.4)
    ... ).use(jobs)[0].tolist()
    [0.4, 0.9]
    """

    classes: tuple[UtilizationClass, ...]
    otherwise: ConstantUtilization

    def use(self, jobs: JobTable) -> tuple[Floats, Floats]:
        """One value of each per job."""
        cpu, gpu = self.otherwise.use(jobs)
        for kind in reversed(self.classes):
            inside = kind.holds(jobs)
            cpu[inside], gpu[inside] = kind.cpu, kind.gpu
        return cpu, gpu


def utilization(jobs: JobTable, profile: UtilizationProfile) -> tuple[Floats, Floats]:
    """CPU and GPU utilization per job: its columns where they are known, the profile elsewhere."""
    cpu, gpu = (
        use if name not in jobs else np.where(np.isnan(jobs[name]), use, jobs[name])
        for name, use in zip(("cpu_utilization", "gpu_utilization"), profile.use(jobs), strict=True)
    )
    return cpu, gpu


def unique_classes(
    jobs: JobTable, profile: UtilizationProfile, *, by_cores: bool = False
) -> tuple[JobTable, npt.NDArray[np.int64] | None]:
    """One job of each size, and the row of each job among them, where nothing but its nodes tells what a job draws.

    Else (`by_cores`: it does on nodes that are shared) the jobs themselves, and None.

    >>> jobs = JobTable(job_id=[1, 2, 3], submit_s=[0, 0, 0], runtime_s=[9, 9, 9], nodes=[4, 1, 4])
    >>> few, kind = unique_classes(jobs, ConstantUtilization())
    >>> few["nodes"].tolist(), kind.tolist()
    ([1, 4], [1, 0, 1])
    """
    own = by_cores or any(name in jobs for name in _OF_A_JOB)
    if own or not isinstance(profile, ConstantUtilization) or not len(jobs):
        return jobs, None
    nodes = jobs["nodes"]
    if int(nodes.max()) > _LARGEST:
        return jobs, None
    size = np.cumsum(np.bincount(nodes) > 0) - 1
    kind = size[nodes]
    one = np.empty(int(size[-1]) + 1, np.int64)
    one[kind] = np.arange(len(jobs))
    return jobs[one], kind


def job_power_w(
    jobs: JobTable, model: PowerModel, profile: UtilizationProfile, group: str | None = None
) -> Floats:
    """Mean watts of each job at full speed, all its nodes together, on the nodes of `group` (None: the only one).

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
    """The jobs as levers see them before they run: with `predicted_power_w` instead of what was measured, where they
    have it.

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
    """How many jobs have their power measured, from columns of utilization, or from the profile.

    >>> power_sources(
    ...     JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[2, 2], power_w=[np.nan, 5])
    ... )
    {'measured': 1, 'columns': 0, 'profile': 1}
    """
    if not any(name in jobs for name in _OF_A_JOB):
        return {"measured": 0, "columns": 0, "profile": len(jobs)}
    measured = ~np.isnan(jobs.column("power_w"))
    used = ~(np.isnan(jobs.column("cpu_utilization")) & np.isnan(jobs.column("gpu_utilization")))
    columns = int((used & ~measured).sum())
    return {
        "measured": int(measured.sum()),
        "columns": columns,
        "profile": len(jobs) - int((used | measured).sum()),
    }


@dataclass(frozen=True, slots=True)
class MeasuredReport:
    """What became of each job when power was taken from measured energy."""

    attached: int
    kept: int
    """Had a `power_w` already."""
    unmeasured: int
    """No `energy_j`."""
    no_runtime: int
    """Energy, but a run time of 0 s."""
    no_energy: int
    """Measured as 0 J over a run time: a meter that did not count."""
    too_low: int
    too_high: int
    """Mean watts per node below or above what a node can draw."""

    def text(self) -> str:
        """In words, for people."""
        counts = {
            "with power from measured energy": self.attached,
            "had power already": self.kept,
            "not measured": self.unmeasured,
            "ran for 0 s": self.no_runtime,
            "measured as 0 J": self.no_energy,
            "impossibly low": self.too_low,
            "impossibly high": self.too_high,
        }
        return "; ".join(f"{number:,} {what}" for what, number in counts.items() if number)


def with_measured_power(
    jobs: JobTable, least_w: float = 1.0, most_w: float = 20_000.0
) -> tuple[JobTable, MeasuredReport]:
    """The jobs with `power_w` = `energy_j` / `runtime_s` where that is possible, and a report of the rest.

    A mean power per node outside `least_w` to `most_w` is taken for a fault of the meter and not attached; give
    the machine's own limits where they are known. A `power_w` already there is kept.

    >>> jobs = JobTable(
    ...     job_id=[1, 2, 3], submit_s=[0] * 3, runtime_s=[10, 0, 10], nodes=[1] * 3, energy_j=[2000, 5, 0]
    ... )
    >>> measured, report = with_measured_power(jobs)
    >>> measured["power_w"].tolist(), report.text()
    ([200.0, nan, nan], '1 with power from measured energy; 1 ran for 0 s; 1 measured as 0 J')
    """
    require("least_w", least_w)
    require("most_w", most_w, least_w)
    energy, runtime, own = jobs.column("energy_j"), jobs["runtime_s"], jobs.column("power_w")
    left = np.ones(len(jobs), np.bool_)

    def taken(condition: Mask) -> Mask:
        """The jobs not spoken for yet that meet the condition."""
        chosen = left & condition
        left[chosen] = False
        return chosen

    kept = taken(~np.isnan(own))
    unmeasured = taken(np.isnan(energy))
    no_runtime = taken(runtime == 0)
    no_energy = taken(energy == 0)
    per_node = np.divide(energy, runtime * jobs["nodes"], out=np.full(len(jobs), np.nan), where=left)
    too_low = taken(per_node < least_w)
    too_high = taken(per_node > most_w)
    power = np.where(left, per_node * jobs["nodes"], own)
    counts = (left, kept, unmeasured, no_runtime, no_energy, too_low, too_high)
    return jobs.with_columns(power_w=power), MeasuredReport(*(int(count.sum()) for count in counts))
