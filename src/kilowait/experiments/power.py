"""Power context of a log on a cluster: power model, carbon intensity, prices, weather, and the accounting of runs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.energy.accounting import EnergyAccounts, account_energy, lower_bound_kwh
from kilowait.energy.controls import ForecastFactory, ResolvedControls, dvfs_tables, resolve_controls
from kilowait.energy.power import (
    ConstantUtilization,
    GpuCaps,
    PowerModel,
    UtilizationProfile,
    cap_gpus,
    power_breakdown,
    with_measured_power,
)
from kilowait.energy.signals import Weather, forecast, read_carbon, read_price, read_weather
from kilowait.energy.signals.align import ClockOrigin, ExternalSignals
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.power_controls import gpu_cap_share
from kilowait.experiments.scenario_inputs import resolve_cluster
from kilowait.experiments.settings import PowerSettings
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.series import Series

FORECASTS = ("perfect", "persistence", "noisy")
_DAY_S = 86400.0
_OPTION_NAMES = {
    "repeat_signals=True": "--repeat-signals",
    "start='2022-01-01'": "--log-start 2022-01-01",
    "weather=read_weather(...)": "--weather FILE",
    "model.with_cooling('pue:1.2')": "--cooling pue:1.2",
}


@dataclass(frozen=True, eq=False)
class PowerContext:
    """Power model, signals and weather for one log on one cluster; all in the simulated time of the log."""

    cluster: Cluster
    model: PowerModel
    utilization: UtilizationProfile | None
    carbon: Series | None
    price: Series | None
    weather: Weather | None
    forecast: str
    repeat_signals: bool
    digest: str
    """Digest of the content of all fields."""

    def resolve_controls(self, text: str, jobs: JobTable) -> ResolvedControls:
        """The jobs, controls and DVFS tables of a run with the power controls of a text."""
        with option_names_in_errors():
            return resolve_controls(
                text,
                jobs,
                self.cluster,
                self.model,
                utilization=self.utilization,
                carbon=self._extended(self.carbon, jobs),
                price=self._extended(self.price, jobs),
                make_forecast=forecast_factory(self.forecast),
            )

    def account(
        self,
        log: ExecutionLog,
        power_controls: str | ResolvedControls = "none",
        horizon: tuple[float, float] | None = None,
    ) -> EnergyAccounts:
        """The energy accounts of a run with these power controls, within a time horizon (start and end, seconds)."""
        cap = None if isinstance(power_controls, ResolvedControls) else gpu_cap_share(power_controls)
        if isinstance(power_controls, ResolvedControls):
            tables = power_controls.tables
        elif cap is not None:
            tables = None
        else:
            tables = dvfs_tables(power_controls, log.jobs_table, self.cluster, self.model, self.utilization)
        with option_names_in_errors():
            accounts = account_energy(
                log,
                self.cluster,
                self.model,
                utilization=self.utilization,
                tables=tables,
                gpu_cap=cap,
                horizon=horizon,
                signals=ExternalSignals(
                    carbon=self.carbon, price=self.price, weather=self.weather, repeat_signals=self.repeat_signals
                ),
            )
        if cap is None:
            return accounts
        return replace(accounts, notes=(*accounts.notes, *self.gpu_caps(log.jobs_table, cap, None).notes))

    def gpu_caps(self, jobs: JobTable, cap: float, speeds: Speeds | None) -> GpuCaps:
        """Caps and speeds of these jobs with GPUs capped at a fraction of their power limit, on GPU clusters."""
        with option_names_in_errors():
            return cap_gpus(jobs, self.cluster, self.model, cap, speeds, self.utilization)

    def minimum_kwh(
        self, jobs: JobTable, speeds: Speeds | None = None, caps: Iterable[float | None] = (None,)
    ) -> float:
        """A lower bound of the IT energy of any schedule: the energy of the jobs alone, without idle nodes.

        Every job runs in the DVFS state with minimum energy. On GPU clusters it runs on the GPU type with minimum
        energy at these `speeds`, and the bound is the minimum over the `caps` (None: no cap).
        """
        if self.cluster.node_level:
            return min(self._minimum_gpu_kwh(jobs, speeds, cap) for cap in caps)
        has_dvfs = any(len(group.levels) > 1 for group in self.model.groups)
        tables = dvfs_tables("dvfs=1", jobs, self.cluster, self.model, self.utilization) if has_dvfs else None
        return lower_bound_kwh(jobs, self.cluster, self.model, tables, self.utilization)

    def _minimum_gpu_kwh(self, jobs: JobTable, speeds: Speeds | None, cap: float | None) -> float:
        caps = None if cap is None else self.gpu_caps(jobs, cap, speeds)
        return lower_bound_kwh(
            jobs,
            self.cluster,
            self.model,
            utilization=self.utilization,
            speeds=speeds if caps is None else caps.speeds,
            gpu_cap=None if caps is None else caps.gpu_cap,
        )

    def _extended(self, signal: Series | None, jobs: JobTable) -> Series | None:
        """The signal, repeated to cover all times that load shifting may consider, if `repeat_signals` is set."""
        if signal is None or not self.repeat_signals or not len(jobs):
            return signal
        submit, slack = jobs["submit_s"], jobs.column("slack_s")
        slack_s = float(np.max(slack, initial=0.0, where=~np.isnan(slack)))
        reach_s = 2 * (slack_s + float(jobs["estimate_s"].max())) + 60 * _DAY_S
        first, last = float(submit.min()) - 8 * _DAY_S, float(submit.max()) + reach_s
        return signal if signal.covers(first, last) else signal.wrapped(first, last)


def forecast_factory(text: str) -> ForecastFactory | None:
    """The forecasts of a text for load shifting; None: perfect, the signal itself."""
    kind, _, grid = text.partition(":")
    if kind not in FORECASTS:
        raise UnknownNameError("forecast", kind, FORECASTS)
    if kind == "persistence":
        return lambda series, horizon_s: forecast.persistence(series, horizon_s=horizon_s)
    if kind == "noisy":
        errors = forecast.FORECAST_ERRORS
        name = grid or "CISO"
        if name not in errors:
            raise UnknownNameError("grid with known forecast errors", name, errors)
        return partial(_noisy, errors[name])
    return None


def _noisy(errors: Sequence[float], series: Series, horizon_s: float) -> forecast.Forecast:
    return forecast.noisy(series, errors, seed=0, horizon_s=horizon_s)


@contextmanager
def option_names_in_errors() -> Iterator[None]:
    """Replace the names of Python arguments by those of command-line options in error messages."""
    try:
        yield
    except InputError as problem:
        text = str(problem)
        for argument, option in _OPTION_NAMES.items():
            text = text.replace(argument, option)
        raise InputError(text) from None


ENERGY_METRICS = ("energy_kwh", "facility_kwh", "co2_kg", "cost", "peak_kw")
"""Metrics that need a power model."""


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
    model = _model(settings.power, cluster).for_cluster(cluster)
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


DEFAULT_CONTROLS = "all"
"""Default power controls of an agent."""


@dataclass(frozen=True)
class PowerTraining:
    """Power model, signals and power controls of a training."""

    context: PowerContext
    power_controls: str = DEFAULT_CONTROLS
    settings: PowerSettings = field(default_factory=PowerSettings)

    @classmethod
    def of(cls, settings: PowerSettings, power_controls: str, jobs: JobTable, cluster: Cluster) -> PowerTraining:
        """From settings; reads the files they name, and aligns their signals with the times of the log."""
        return cls(make_power_context(settings, jobs, cluster), power_controls, settings)

    @property
    def record(self) -> dict[str, Any]:
        """Power controls and power settings as plain data, for the provenance."""
        return {"power_controls": self.power_controls, "power": self.settings.to_dict()}

    @property
    def identity(self) -> dict[str, Any]:
        """`record` with a digest of the content of all files, as a training is resumed only with equal content."""
        return {**self.record, "content of power and signals": f"digest {self.context.digest[:12]}"}


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
    no_jobs = JobTable(job_id=[], submit_s=[], runtime_s=[], nodes=[], meta={"unix_start_s": 0})
    resolved = None if cluster is None else resolve_cluster(cluster, no_jobs)[0]
    power_model = _model(model, Cluster.from_nodes(1) if resolved is None else resolved)
    if resolved is not None:
        power_model = power_model.for_cluster(resolved)
    if cooling is not None:
        power_model = power_model.with_cooling(cooling)
    return power_breakdown(power_model, None, temperature_c, wet_bulb_c)
