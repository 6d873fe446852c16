"""How jobs are placed on single nodes, preempted and moved: settings in words, for clusters of placed nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import (
    SOURCES,
    Speeds,
    speeds_for,
)
from kilowait.cluster.gpus import gpu
from kilowait.energy.power import PowerModel, UtilizationProfile, energy_by_type
from kilowait.engine.gpu.demand import node_types
from kilowait.engine.gpu.settings import PLACEMENTS, GpuSettings
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.gpu_power_cap import cap_of
from kilowait.experiments.power_context import PowerContext
from kilowait.jobs import JobTable
from kilowait.policies.registry import AnyPolicy
from kilowait.policies.simulation import gpu_settings_for
from kilowait.units import parse_duration

__all__ = [
    "BACKFILLS",
    "TYPES",
    "GpuOptions",
    "arguments",
    "check_placement",
    "check_placement_on",
    "run_speeds",
    "source_words",
    "speeds_for",
    "types_by_energy",
    "default_backfill",
]

Floats = npt.NDArray[np.float64]
BACKFILLS = ("none", "skip")
"""What the first job that does not fit means for the others: they wait, or the next are tried."""
TYPES = ("any", "fastest", "least-energy")
_SPANS = {
    "preempt_min_runtime": "min_run_before_preempt_s",
    "preempt_grace": "grace_s",
    "checkpoint_write_time": "checkpoint_write_s",
    "checkpoint_load_time": "checkpoint_load_s",
    "checkpoint_interval": "checkpoint_s",
    "round_interval": "round_interval_s",
}
NEVER = "never"


@dataclass(frozen=True)
class GpuOptions:
    """What a command line says of placed nodes; None: the policy's own way. Spans as people write them: 5m, 90s."""

    gpu_type_order: str | None = None
    """Which GPU types are tried first: any, fastest, least-energy."""
    preempt: bool | None = None
    migrate: bool | None = None
    checkpoint_interval: str | None = None
    """Work between checkpoints; 0: one is written whenever the job is preempted; never."""
    checkpoint_load_time: str | None = None
    checkpoint_write_time: str | None = None
    preempt_grace: str | None = None
    preempt_min_runtime: str | None = None
    round_interval: str | None = None
    """Passes are made at these intervals only; 0: at every event."""
    gpu_speeds: str = GpuSettings.gpu_speeds
    """auto (measured where known, else roofline, else 1), roofline, none (all 1), or a file of throughputs."""

    def __post_init__(self) -> None:
        if self.gpu_type_order is not None and self.gpu_type_order not in TYPES:
            raise UnknownNameError("order of GPU types", self.gpu_type_order, TYPES)
        for name in _SPANS:
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
    def unusual(self) -> list[str]:
        """Names of what was asked for."""
        usual = asdict(GpuOptions())
        return [name for name, value in asdict(self).items() if value != usual[name]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without what was not asked for."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def placing(
        self,
        policy: AnyPolicy,
        backfill: str | int,
        placement: str | None,
        **rules: Any,
    ) -> GpuSettings:
        """The policy's own settings with what was asked for.

        >>> GpuOptions(checkpoint_interval="1h", preempt=False).placing("las", "skip", "fgd").checkpoint_s
        3600.0
        """
        asked: dict[str, Any] = {"gpu_speeds": self.gpu_speeds, **rules}
        if placement is not None:
            asked["placement"] = placement
        for name, field in _SPANS.items():
            seconds = self._seconds(name)
            if seconds is not None:
                asked[field] = seconds
        if self.round_interval is not None:
            asked["rounds"] = asked["round_interval_s"] > 0
        if self.preempt is not None:
            asked["preempt"] = self.preempt
        if self.migrate is not None:
            asked["migrate"] = self.migrate
        if self.gpu_type_order is not None:
            asked["gpu_type_order"] = (
                "given" if self.gpu_type_order == "least-energy" else self.gpu_type_order
            )
        return gpu_settings_for(policy, backfill, **asked)


def arguments(
    rules: Mapping[str, Any],
    jobs: JobTable,
    cluster: Cluster,
    policy: AnyPolicy,
    backfill: str | int,
    meter: PowerContext | None = None,
    power_controls: str = "none",
) -> dict[str, Any]:
    """What `simulate` takes on this machine, of the rules a scenario has; `placed` among them holds `PlacedSettings`.

    Of the levers only a cap of the GPUs is looked at. What the machine does not know is an error.
    """
    plain = {name: value for name, value in rules.items() if name != "gpu"}
    settings: GpuOptions = rules["gpu"]
    placement: str | None = plain.pop("placement")
    if not cluster.node_level:
        if settings.unusual:
            raise InputError(
                f"{settings.unusual[0]} is for GPU clusters, and {cluster.name!r} is a batch cluster: take a preset "
                "such as gpu-mixed, or leave it out"
            )
        return {**plain, "placement": placement}
    own = {name: plain.pop(name) for name in ("at_limit", "on_oversized")}
    plain.pop("dependencies")
    speeds = run_speeds(settings.gpu_speeds, jobs, cluster, meter, power_controls)
    preference = None
    if settings.gpu_type_order == "least-energy":
        cap = cap_of(power_controls)
        caps = None if cap is None else np.full(len(jobs), cap)
        model, profile = (None, None) if meter is None else (meter.model, meter.utilization)
        preference = types_by_energy(jobs, cluster, speeds, model, profile, caps)
    return {
        **plain,
        "settings": settings.placing(policy, backfill, placement, **own),
        "speeds": speeds,
        "preference": preference,
    }


def default_backfill(node_level: bool) -> str:
    """Backfilling where none is named: the default of the settings; GPU clusters have no reservations."""
    return "none" if node_level else str(Settings.backfill)


def check_placement(name: str | None) -> None:
    """Raise unless some machine knows this placement."""
    known = ("balance", *PLACEMENTS)
    if name is not None and name not in known:
        raise UnknownNameError("placement rule", name, known)


def check_placement_on(name: str | None, cluster: Cluster) -> None:
    """Raise unless this machine knows this placement."""
    known = tuple(PLACEMENTS) if cluster.node_level else ("first", "balance")
    if name is not None and name not in known:
        raise UnknownNameError(f"placement rule on {cluster.name!r}", name, known)


# -- speeds ----------------------------------------------------------------------------------------


def run_speeds(
    text: str,
    jobs: JobTable,
    cluster: Cluster,
    meter: PowerContext | None = None,
    power_controls: str = "none",
) -> Speeds | None:
    """Those of a run with these levers: where they are a cap of the GPUs, its slowdown is in them."""
    speeds, cap = speeds_for(text, jobs, cluster), cap_of(power_controls)
    return speeds if cap is None or meter is None else meter.capped(jobs, cap, speeds).speeds


def source_words(speeds: Speeds | None, jobs: JobTable) -> str:
    """Where speeds come from, in words.

    >>> source_words(None, JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1]))
    'the same on every type of GPU'
    """
    if speeds is None or not len(jobs):
        return "the same on every type of GPU"
    names = {"measured": "measured", "roofline": "by roofline (a guess)", "given": "taken as 1"}
    rows = jobs["gpus"] > 0
    of_gpus = [place for place, name in enumerate(speeds.types) if name]
    codes = speeds.source[of_gpus][:, rows]
    if not codes.size:
        return "the same on every type of GPU"
    shares = {name: float(np.mean(codes == SOURCES.index(name))) for name in names}
    return ", ".join(f"{100 * share:.0f} % {names[name]}" for name, share in shares.items() if share > 0)


def types_by_energy(
    jobs: JobTable,
    cluster: Cluster,
    speeds: Speeds | None,
    model: PowerModel | None = None,
    utilization: UtilizationProfile | None = None,
    gpu_cap: Floats | None = None,
) -> Floats:
    """(types of the cluster, jobs): joules by the power model; without one, of a second of work by the catalogue's TDP.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], gpus=[1])
    >>> types_by_energy(jobs, Cluster.preset("gpu-mixed"), None).ravel().tolist()
    [400.0, 300.0, 70.0, 450.0]
    """
    if model is not None:
        return energy_by_type(jobs, cluster, model, speeds, utilization, gpu_cap)
    names = [kind.gpu for kind in node_types(cluster)]
    watts = np.zeros((len(names), len(jobs)))
    for place, name in enumerate(names):
        try:
            limit = gpu(name).tdp_w if name else 0.0
        except UnknownNameError:
            limit = math.nan
        if math.isnan(limit):
            raise InputError(
                f"nobody knows what a GPU of type {name!r} draws; give a power model with --power, or another "
                "order of types"
            )
        watts[place] = limit
    if speeds is None:
        return watts
    speed = speeds.speed[[speeds.types.index(name) for name in names]]
    joules: Floats = np.divide(watts, speed, out=np.full(watts.shape, np.inf), where=speed > 0)
    return joules
