"""Power settings of a scenario, and the power context (model and signals) that they define."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kilowait.cluster import Cluster
from kilowait.energy.power import (
    ConstantUtilization,
    PowerModel,
    UtilizationProfile,
    power_breakdown,
    with_measured_power,
)
from kilowait.energy.signals import Weather, read_carbon, read_price, read_weather
from kilowait.energy.signals.align import ClockOrigin
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.power_context import PowerContext, forecast_factory, option_names_in_errors
from kilowait.experiments.scenario_inputs import resolve_cluster
from kilowait.jobs import JobTable
from kilowait.series import Series

__all__ = [
    "ENERGY_METRICS",
    "PowerSettings",
    "check_metric_available",
    "describe_power_model",
    "with_power",
    "make_power_context",
]

ENERGY_METRICS = ("energy_kwh", "facility_kwh", "co2_kg", "cost", "peak_kw")
"""Metrics that need a power model."""


@dataclass(frozen=True)
class PowerSettings:
    """Power model, signals and cooling, as on the command line."""

    power: str = "auto"
    """Power model: a preset, a TOML file, or auto: the preset with the cluster's name."""
    carbon: str | None = None
    """File of carbon intensity."""
    price: str | None = None
    """File of electricity prices."""
    weather: str | None = None
    """File of outdoor temperature and humidity."""
    carbon_scope: Literal["life-cycle", "direct"] = "life-cycle"
    """Emission scope, for files that contain both."""
    cooling: str | None = None
    """Cooling model instead of that of the power model: pue:1.2, chiller, economiser ..."""
    utilization: str | None = None
    """Utilization of jobs without measurement: cpu=0.8,gpu=0.5; or columns: it is in the log. None: full load."""
    forecast: str = "perfect"
    """Forecast for load shifting: perfect, persistence, or noisy[:GRID] with the forecast errors of a grid."""
    log_start: str | None = None
    """Date of the first submission, for logs without dates."""
    repeat_signals: bool = False
    """Whether signals that are shorter than the log are repeated."""

    def __post_init__(self) -> None:
        if self.carbon_scope not in ("life-cycle", "direct"):
            raise InputError(f"the carbon scope is {self.carbon_scope!r}; it must be life-cycle or direct")

    @classmethod
    def from_options(cls, power: str | None, **others: Any) -> PowerSettings | None:
        """The settings of a command line; None without a power model, and then no other setting may be given."""
        settings = cls(power="auto" if power is None else power, **others)
        if power is not None:
            return settings
        defaults = asdict(cls())
        extra = [key for key, value in asdict(settings).items() if value != defaults[key]]
        if extra:
            raise InputError(
                f"--{extra[0].replace('_', '-')} needs a power model; name one with --power, or --power auto"
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without settings that have no value."""
        return {key: value for key, value in asdict(self).items() if value is not None}


# -- from settings to a power context -----------------------------------------------------------------


def with_power(settings: PowerSettings, jobs: JobTable) -> tuple[JobTable, tuple[str, ...]]:
    """The jobs with measured power and, if `log_start` is set, the date of the log; and notes for the user."""
    notes = []
    if settings.log_start is not None:
        with option_names_in_errors():
            origin = ClockOrigin.of(jobs, settings.log_start)
        columns = {name: jobs[name] for name in jobs.columns}
        # Rounded up to a full second, so that signals are aligned with simulated time without rounding errors.
        meta = {**jobs.meta, "unix_start_s": float(math.ceil(origin.unix_zero_s or 0.0))}
        jobs = JobTable(labels=jobs.labels, meta=meta, **columns)
        notes.append(origin.note)
    if "energy_j" in jobs and not np.isnan(jobs["energy_j"]).all():
        jobs, report = with_measured_power(jobs)
        notes.append(f"power of jobs: {report.text()}")
    return jobs, tuple(notes)


def make_power_context(settings: PowerSettings, jobs: JobTable, cluster: Cluster) -> PowerContext:
    """Read the power model and the signals, and align the signals with the log; `jobs` come from `with_power`.

    >>> from kilowait.cluster import Cluster
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[3600], nodes=[2])
    >>> make_power_context(PowerSettings("taurus"), jobs, Cluster.from_nodes(4)).model.idle_it_w()
    380.0
    """
    utilization = _utilization(settings.utilization, jobs)
    forecast_factory(settings.forecast)
    model = _model(settings.power, cluster).for_groups({group.name: group.nodes for group in cluster.groups})
    if settings.cooling is not None:
        model = model.with_cooling(settings.cooling)
    carbon = None if settings.carbon is None else read_carbon(settings.carbon, carbon_scope=settings.carbon_scope)
    price = None if settings.price is None else read_price(settings.price)
    weather = None if settings.weather is None else read_weather(settings.weather)
    needs = model.facility.cooling.needs
    if needs and weather is None:
        raise InputError(
            f"the cooling ({type(model.facility.cooling).__name__}) needs the weather ({', '.join(needs)}); give "
            "--weather FILE, or choose another with --cooling pue:1.2"
        )
    origin = ClockOrigin.of(jobs)
    with option_names_in_errors():
        if carbon is not None:
            carbon = _aligned(carbon, origin, "the carbon intensity", jobs, settings.repeat_signals)
        if price is not None:
            price = _aligned(price, origin, "the price", jobs, settings.repeat_signals)
        if weather is not None:
            parts = (weather.temperature, weather.humidity)
            weather = Weather(*(_aligned(part, origin, "the weather", jobs, settings.repeat_signals) for part in parts))
    context = PowerContext(
        cluster, model, utilization, carbon, price, weather, settings.forecast, settings.repeat_signals, ""
    )
    return replace(context, digest=_digest(context, settings))


def _model(text: str, cluster: Cluster) -> PowerModel:
    name = text.strip()
    if name.lower() == "auto":
        if cluster.name.lower() not in PowerModel.presets():
            raise InputError(
                f"no power model is known for the cluster {cluster.name!r}; name one with --power: "
                f"{', '.join(PowerModel.presets())}, or a TOML file"
            )
        return PowerModel.preset(cluster.name)
    if name.endswith(".toml") or "/" in name or Path(name).is_file():
        return PowerModel.from_file(name)
    return PowerModel.preset(name)


def _utilization(text: str | None, jobs: JobTable) -> UtilizationProfile | None:
    if text is None:
        return None
    if text == "columns":
        if not {"power_w", "cpu_utilization", "gpu_utilization"} & set(jobs.columns):
            raise InputError(
                "--utilization columns needs power or utilization in the log, which has neither; give constants "
                "such as cpu=0.8,gpu=0.5"
            )
        return None
    values = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in ("cpu", "gpu"):
            raise UnknownNameError("utilization", name, ("cpu", "gpu", "columns"))
        try:
            values[name] = float(number)
        except ValueError:
            raise InputError(f"utilization {text!r}: {part!r} is not written as cpu=0.8") from None
    return ConstantUtilization(**values)


def _aligned(series: Series, origin: ClockOrigin, what: str, jobs: JobTable, repeat: bool) -> Series:
    """The signal in simulated time; raises before any run if it does not cover all submissions."""
    aligned = series.shifted(origin.offset_s(series, what))
    if not repeat and len(jobs):
        aligned.require(float(jobs["submit_s"].min()), float(jobs["submit_s"].max()))
    return aligned


def _digest(context: PowerContext, settings: PowerSettings) -> str:
    digest = hashlib.sha256(repr((context.model, context.utilization)).encode())
    options = {"forecast": settings.forecast, "repeat_signals": settings.repeat_signals}
    digest.update(json.dumps(options, sort_keys=True).encode())
    series_of_context = [context.carbon, context.price]
    if context.weather is None:
        series_of_context += [None, None]
    else:
        series_of_context += [context.weather.temperature, context.weather.humidity]
    for series in series_of_context:
        digest.update(b"|")
        if series is not None:
            digest.update(f"{series.unit} {series.unix_zero_s}".encode())
            digest.update(np.ascontiguousarray(series.edge_s).data)
            digest.update(np.ascontiguousarray(series.value).data)
    return digest.hexdigest()


def check_metric_available(metric: str, power: PowerSettings | None) -> None:
    """Raise if a metric needs a power model or a signal that was not given."""
    signal = {"co2_kg": "carbon", "cost": "price"}.get(metric)
    if power is None:
        raise InputError(f"{metric} needs a power model; name one with --power")
    if signal is not None and getattr(power, signal) is None:
        raise InputError(f"{metric} needs a signal; give a file with --{signal}")


def describe_power_model(
    model: str, cluster: str | None, cooling: str | None, temperature_c: float, wet_bulb_c: float
) -> dict[str, Any]:
    """The `energy.power.power_breakdown` of a power model (name or file), with the node counts of a cluster."""
    no_jobs = JobTable(job_id=[], submit_s=[], runtime_s=[], nodes=[])
    resolved = None if cluster is None else resolve_cluster(cluster, no_jobs)[0]
    power_model = _model(model, Cluster.from_nodes(1) if resolved is None else resolved)
    if resolved is not None:
        power_model = power_model.for_groups({group.name: group.nodes for group in resolved.groups})
    if cooling is not None:
        power_model = power_model.with_cooling(cooling)
    return power_breakdown(power_model, None, temperature_c, wet_bulb_c)
