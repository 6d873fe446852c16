"""GPU scheduling options of the command line, the engine settings they define, and speeds and energy by GPU type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_catalogue import gpu
from kilowait.cluster.gpu_speeds import SPEED_SOURCES, Speeds, speeds_for
from kilowait.energy.power import PowerModel, UtilizationProfile, energy_by_type
from kilowait.engine.gpu.demand import node_types
from kilowait.engine.gpu.settings import PLACEMENTS, GpuSettings
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.gpu_power_cap import gpu_cap_share
from kilowait.experiments.power_context import PowerContext
from kilowait.jobs import JobTable
from kilowait.policies.registry import AnyPolicy
from kilowait.policies.simulation import gpu_settings_for
from kilowait.units import parse_duration

__all__ = [
    "BACKFILLS",
    "GpuOptions",
    "simulate_arguments",
    "check_placement",
    "check_placement_on",
    "run_speeds",
    "speed_sources_text",
    "speeds_for",
    "gpu_type_energy",
    "default_backfill",
]

Floats = npt.NDArray[np.float64]
BACKFILLS = ("none", "skip")
"""Backfilling on GPU clusters. none: the first job that does not fit blocks the queue; skip: later jobs are tried."""
GPU_TYPE_ORDERS = ("any", "fastest", "least-energy")
_DURATIONS = {
    "preempt_min_runtime": "min_run_before_preempt_s",
    "preempt_grace": "grace_s",
    "checkpoint_write_time": "checkpoint_write_s",
    "checkpoint_load_time": "checkpoint_load_s",
    "checkpoint_interval": "checkpoint_s",
    "round_interval": "round_interval_s",
}
"""Options that are durations, and the fields of `GpuSettings` they set."""
NEVER = "never"


@dataclass(frozen=True)
class GpuOptions:
    """Options for GPU clusters; None: the default of the policy. Times are written with units: 5m, 90s."""

    gpu_type_order: str | None = None
    """Order in which GPU types are tried: any, fastest, least-energy."""
    preempt: bool | None = None
    """Whether jobs may be preempted."""
    migrate: bool | None = None
    """Whether running jobs may be moved."""
    checkpoint_interval: str | None = None
    """Run time between checkpoints; 0: a checkpoint is written at every preemption; never: no checkpoints."""
    checkpoint_load_time: str | None = None
    checkpoint_write_time: str | None = None
    preempt_grace: str | None = None
    preempt_min_runtime: str | None = None
    round_interval: str | None = None
    """Time between scheduling rounds; 0: a scheduling pass at every event."""
    gpu_speeds: str = GpuSettings.gpu_speeds
    """auto (measured if known, else roofline, else 1), roofline, none (all 1), or a file of throughputs."""

    def __post_init__(self) -> None:
        if self.gpu_type_order is not None and self.gpu_type_order not in GPU_TYPE_ORDERS:
            raise UnknownNameError("order of GPU types", self.gpu_type_order, GPU_TYPE_ORDERS)
        for name in _DURATIONS:
            self._seconds(name)

    def _seconds(self, name: str) -> float | None:
        text = getattr(self, name)
        if text is None:
            return None
        if name == "checkpoint_interval" and text.strip().lower() == NEVER:
            return math.inf
        try:
            return parse_duration(text)
        except InputError as problem:
            raise InputError(f"--{name.replace('_', '-')}: {problem}") from None

    @property
    def changed_options(self) -> list[str]:
        """The names of options that differ from their defaults."""
        defaults = asdict(GpuOptions())
        return [name for name, value in asdict(self).items() if value != defaults[name]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without options that have no value."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def to_settings(
        self, policy: AnyPolicy, backfill: str | int, placement: str | None, **engine_settings: Any
    ) -> GpuSettings:
        """The default settings of the policy, changed by these options.

        >>> GpuOptions(checkpoint_interval="1h", preempt=False).to_settings("las", "skip", "fgd").checkpoint_s
        3600.0
        """
        settings: dict[str, Any] = {"gpu_speeds": self.gpu_speeds, **engine_settings}
        if placement is not None:
            settings["placement"] = placement
        for name, field in _DURATIONS.items():
            seconds = self._seconds(name)
            if seconds is not None:
                settings[field] = seconds
        if self.round_interval is not None:
            settings["rounds"] = settings["round_interval_s"] > 0
        if self.preempt is not None:
            settings["preempt"] = self.preempt
        if self.migrate is not None:
            settings["migrate"] = self.migrate
        if self.gpu_type_order is not None:
            settings["gpu_type_order"] = "given" if self.gpu_type_order == "least-energy" else self.gpu_type_order
        return gpu_settings_for(policy, backfill, **settings)


def simulate_arguments(
    settings: Mapping[str, Any],
    jobs: JobTable,
    cluster: Cluster,
    policy: AnyPolicy,
    backfill: str | int,
    context: PowerContext | None = None,
    power_controls: str = "none",
) -> dict[str, Any]:
    """The arguments of `simulate` for the settings of a scenario; on GPU clusters "settings" is a `GpuSettings`.

    Of the power controls only a GPU power cap is used here. Raises if the cluster does not support an option.
    """
    arguments = {name: value for name, value in settings.items() if name != "gpu"}
    options: GpuOptions = settings["gpu"]
    placement: str | None = arguments.pop("placement")
    if not cluster.node_level:
        if options.changed_options:
            raise InputError(
                f"{options.changed_options[0]} is for GPU clusters, and {cluster.name!r} is a batch cluster: take a "
                "preset such as gpu-mixed, or leave it out"
            )
        return {**arguments, "placement": placement}
    engine_settings = {name: arguments.pop(name) for name in ("at_limit", "on_oversized")}
    arguments.pop("dependencies")
    speeds = run_speeds(options.gpu_speeds, jobs, cluster, context, power_controls)
    preference = None
    if options.gpu_type_order == "least-energy":
        cap = gpu_cap_share(power_controls)
        caps = None if cap is None else np.full(len(jobs), cap)
        model, utilization = (None, None) if context is None else (context.model, context.utilization)
        preference = gpu_type_energy(jobs, cluster, speeds, model, utilization, caps)
    return {
        **arguments,
        "settings": options.to_settings(policy, backfill, placement, **engine_settings),
        "speeds": speeds,
        "preference": preference,
    }


def default_backfill(node_level: bool) -> str:
    """The default backfilling: that of `Settings`; on GPU clusters none, because they have no reservations."""
    return "none" if node_level else str(Settings.backfill)


def check_placement(name: str | None) -> None:
    """Raise unless batch or GPU clusters support this placement."""
    known = ("balance", *PLACEMENTS)
    if name is not None and name not in known:
        raise UnknownNameError("placement rule", name, known)


def check_placement_on(name: str | None, cluster: Cluster) -> None:
    """Raise unless this cluster supports this placement."""
    known = tuple(PLACEMENTS) if cluster.node_level else ("first", "balance")
    if name is not None and name not in known:
        raise UnknownNameError(f"placement rule on {cluster.name!r}", name, known)


# -- speeds ----------------------------------------------------------------------------------------


def run_speeds(
    text: str, jobs: JobTable, cluster: Cluster, context: PowerContext | None = None, power_controls: str = "none"
) -> Speeds | None:
    """The speeds of a run with these power controls, including the slowdown by a GPU power cap."""
    speeds, cap = speeds_for(text, jobs, cluster), gpu_cap_share(power_controls)
    return speeds if cap is None or context is None else context.gpu_caps(jobs, cap, speeds).speeds


def speed_sources_text(speeds: Speeds | None, jobs: JobTable) -> str:
    """The sources of the speeds, as text.

    >>> speed_sources_text(None, JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1]))
    'the same on every type of GPU'
    """
    if speeds is None or not len(jobs):
        return "the same on every type of GPU"
    names = {"measured": "measured", "roofline": "by roofline (a guess)", "given": "taken as 1"}
    rows = jobs["gpus"] > 0
    gpu_types = [index for index, name in enumerate(speeds.types) if name]
    codes = speeds.source[gpu_types][:, rows]
    if not codes.size:
        return "the same on every type of GPU"
    shares = {name: float(np.mean(codes == SPEED_SOURCES.index(name))) for name in names}
    return ", ".join(f"{100 * share:.0f} % {names[name]}" for name, share in shares.items() if share > 0)


def gpu_type_energy(
    jobs: JobTable,
    cluster: Cluster,
    speeds: Speeds | None,
    model: PowerModel | None = None,
    utilization: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> Floats:
    """(types of the cluster, jobs): joules of each job by the power model; without one, TDP over speed.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], gpus=[1])
    >>> gpu_type_energy(jobs, Cluster.preset("gpu-mixed"), None).ravel().tolist()
    [400.0, 300.0, 70.0, 450.0]
    """
    if model is not None:
        return energy_by_type(jobs, cluster, model, speeds, utilization, gpu_cap)
    names = [kind.gpu for kind in node_types(cluster)]
    watts = np.zeros((len(names), len(jobs)))
    for index, name in enumerate(names):
        try:
            limit = gpu(name).tdp_w if name else 0.0
        except UnknownNameError:
            limit = math.nan
        if math.isnan(limit):
            raise InputError(
                f"the power of GPU type {name!r} is unknown; give a power model with --power, or another order of GPU "
                "types"
            )
        watts[index] = limit
    if speeds is None:
        return watts
    speed = speeds.speed[[speeds.types.index(name) for name in names]]
    joules: Floats = np.divide(watts, speed, out=np.full(watts.shape, np.inf), where=speed > 0)
    return joules
