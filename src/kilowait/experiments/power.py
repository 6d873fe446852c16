"""What power a run is judged with: settings in words become a meter."""

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
from kilowait.experiments.inputs import cluster_of
from kilowait.experiments.power_context import PowerContext, as_options, foresight_of
from kilowait.jobs import JobTable
from kilowait.series import Series

__all__ = [
    "DRAWN",
    "PowerSettings",
    "check_judged",
    "described_power",
    "with_power",
    "meter_for",
]

DRAWN = ("energy_kwh", "facility_kwh", "co2_kg", "cost", "peak_kw")
"""Metrics that need a power model."""


@dataclass(frozen=True)
class PowerSettings:
    """A power model and what is outside, as people write them."""

    power: str = "auto"
    """A preset, a TOML file, or auto: the preset with the cluster's name."""
    carbon: str | None = None
    """A file of carbon intensities."""
    price: str | None = None
    weather: str | None = None
    carbon_scope: Literal["life-cycle", "direct"] = "life-cycle"
    """Of the carbon intensity, where a file has both."""
    cooling: str | None = None
    """Instead of the model's own: pue:1.2, chiller, economiser ..."""
    utilization: str | None = None
    """Utilization of jobs where it is not known: cpu=0.8,gpu=0.5; or columns: it is known. None: full load."""
    forecast: str = "perfect"
    """What holds are decided by: perfect, persistence, or noisy[:GRID] with the errors measured for a grid."""
    log_start: str | None = None
    """Moment of the log's first submission, for logs without dates."""
    repeat_signals: bool = False
    """Whether signals that are too short are repeated."""

    def __post_init__(self) -> None:
        if self.carbon_scope not in ("life-cycle", "direct"):
            raise InputError(f"the scope is {self.carbon_scope!r}; it must be life-cycle or direct")

    @classmethod
    def from_options(cls, power: str | None, **others: Any) -> PowerSettings | None:
        """The settings of a command line; None without a power model, and then nothing else may be given."""
        settings = cls(power="auto" if power is None else power, **others)
        if power is not None:
            return settings
        usual = asdict(cls())
        extra = [key for key, value in asdict(settings).items() if value != usual[key]]
        if extra:
            raise InputError(
                f"--{extra[0].replace('_', '-')} needs a power model; name one with --power, or --power auto"
            )
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without what was not asked for."""
        return {key: value for key, value in asdict(self).items() if value is not None}


# -- from settings to a meter -------------------------------------------------------------------------


def with_power(settings: PowerSettings, jobs: JobTable) -> tuple[JobTable, tuple[str, ...]]:
    """The jobs with their measured power and, where one was given, a date; and notes for people."""
    notes = []
    if settings.log_start is not None:
        with as_options():
            dated = ClockOrigin.of(jobs, settings.log_start)
        columns = {name: jobs[name] for name in jobs.columns}
        # A whole second, so that signals fall on the log's clock without rounding; not earlier than asked for.
        meta = {**jobs.meta, "unix_start_s": float(math.ceil(dated.unix_zero_s or 0.0))}
        jobs = JobTable(labels=jobs.labels, meta=meta, **columns)
        notes.append(dated.note)
    if "energy_j" in jobs and not np.isnan(jobs["energy_j"]).all():
        jobs, report = with_measured_power(jobs)
        notes.append(f"power of jobs: {report.text()}")
    return jobs, tuple(notes)


def meter_for(settings: PowerSettings, jobs: JobTable, cluster: Cluster) -> PowerContext:
    """Read what the settings name, and lay it on the log's clock; jobs are those of `dressed`.

    >>> from kilowait.cluster import Cluster
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[3600], nodes=[2])
    >>> meter_for(PowerSettings("taurus"), jobs, Cluster.from_nodes(4)).model.idle_it_w()
    380.0
    """
    profile = _profile(settings.utilization, jobs)
    foresight_of(settings.forecast)
    model = _model(settings.power, cluster).for_groups({group.name: group.nodes for group in cluster.groups})
    if settings.cooling is not None:
        model = model.with_cooling(settings.cooling)
    carbon = (
        None if settings.carbon is None else read_carbon(settings.carbon, carbon_scope=settings.carbon_scope)
    )
    price = None if settings.price is None else read_price(settings.price)
    weather = None if settings.weather is None else read_weather(settings.weather)
    needs = model.facility.cooling.needs
    if needs and weather is None:
        raise InputError(
            f"the cooling ({type(model.facility.cooling).__name__}) needs the weather ({', '.join(needs)}); give "
            "--weather FILE, or choose another with --cooling pue:1.2"
        )
    dated = ClockOrigin.of(jobs)
    with as_options():
        if carbon is not None:
            carbon = _laid(carbon, dated, "the carbon intensity", jobs, settings.repeat_signals)
        if price is not None:
            price = _laid(price, dated, "the price", jobs, settings.repeat_signals)
        if weather is not None:
            parts = (weather.temperature, weather.humidity)
            weather = Weather(
                *(_laid(part, dated, "the weather", jobs, settings.repeat_signals) for part in parts)
            )
    made = PowerContext(
        cluster, model, profile, carbon, price, weather, settings.forecast, settings.repeat_signals, ""
    )
    return replace(made, digest=_digest(made, settings))


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


def _profile(text: str | None, jobs: JobTable) -> UtilizationProfile | None:
    if text is None:
        return None
    if text == "columns":
        if not {"power_w", "cpu_utilization", "gpu_utilization"} & set(jobs.columns):
            raise InputError(
                "profile columns: the log says nothing of power or utilization; give constants such as "
                "cpu=0.8,gpu=0.5"
            )
        return None
    values = {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in ("cpu", "gpu"):
            raise UnknownNameError("part of a profile", name, ("cpu", "gpu", "columns"))
        try:
            values[name] = float(number)
        except ValueError:
            raise InputError(f"profile {text!r}: {part!r} is not written as cpu=0.8") from None
    return ConstantUtilization(**values)


def _laid(series: Series, dated: ClockOrigin, what: str, jobs: JobTable, wrap: bool) -> Series:
    """On the log's clock; that it is long enough for the submissions is looked at before anything runs."""
    found = series.shifted(dated.offset_s(series, what))
    if not wrap and len(jobs):
        found.require(float(jobs["submit_s"].min()), float(jobs["submit_s"].max()))
    return found


def _digest(meter: PowerContext, settings: PowerSettings) -> str:
    found = hashlib.sha256(repr((meter.model, meter.utilization)).encode())
    words = {"forecast": settings.forecast, "repeat_signals": settings.repeat_signals}
    found.update(json.dumps(words, sort_keys=True).encode())
    air = (None, None) if meter.weather is None else (meter.weather.temperature, meter.weather.humidity)
    for series in (meter.carbon, meter.price, *air):
        found.update(b"|")
        if series is not None:
            found.update(f"{series.unit} {series.unix_zero_s}".encode())
            found.update(np.ascontiguousarray(series.edge_s).data)
            found.update(np.ascontiguousarray(series.value).data)
    return found.hexdigest()


def check_judged(metric: str, power: PowerSettings | None) -> None:
    """Raise where a metric asks for a signal that was not given."""
    lacking = {"co2_kg": "carbon", "cost": "price"}.get(metric)
    if power is None:
        raise InputError(f"{metric} is known only with a power model; name one with --power")
    if lacking is not None and getattr(power, lacking) is None:
        raise InputError(f"{metric} is known only with a signal; give a file with --{lacking}")


def described_power(
    model: str, cluster: str | None, cooling: str | None, temperature_c: float, wet_bulb_c: float
) -> dict[str, Any]:
    """What `energy.power.breakdown` says of a model, by name or file, on its own or on a cluster."""
    none = JobTable(job_id=[], submit_s=[], runtime_s=[], nodes=[])
    machine = None if cluster is None else cluster_of(cluster, none)[0]
    found = _model(model, Cluster.from_nodes(1) if machine is None else machine)
    if machine is not None:
        found = found.for_groups({group.name: group.nodes for group in machine.groups})
    if cooling is not None:
        found = found.with_cooling(cooling)
    return power_breakdown(found, None, temperature_c, wet_bulb_c)
