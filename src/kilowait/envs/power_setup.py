"""Power tables for the kernels, from user settings: power controls, watts of every job and node, signals.

Signals (carbon intensity and price) are arrays for the kernels: exact integrals over time, and forecasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, PowerControls
from kilowait.energy.accounting import EnergyAccounts, account_energy
from kilowait.energy.accounting.job_power import DvfsTableByClass, full_speed_w, held_nodes
from kilowait.energy.controls import ForecastFactory, parse_controls, resolve_controls
from kilowait.energy.power import ConstantUtilization, DvfsTable, PowerModel, UtilizationProfile
from kilowait.energy.power.utilization import unique_classes, with_planned_power
from kilowait.energy.signals import forecast, read_carbon, read_price
from kilowait.energy.signals.align import ClockOrigin, ExternalSignals, Signals, align_signals
from kilowait.envs.observation_spec import FORECAST_LEAD_H, FORECAST_STEP_S, MAX_SIGNAL_RATIO
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.series import WEEK_S, Series

Floats = npt.NDArray[np.float64]
Signal = Series | str | PathLike[str]

FORECASTS = ("perfect", "persistence", "noisy")
HOUR_S, DAY_S = 3600.0, 86400.0
MIN_WEEKLY_MEAN = 1.0
"""Lower bound of the weekly mean in denominators, g/kWh or money per MWh."""
SIGNAL_HORIZON_S = 30 * DAY_S
"""Signals cover at most this time after the last submission."""

POWER = np.dtype(
    [
        ("base_w", np.float64),  # IT power with every node idle
        ("full_w", np.float64),  # IT power at full load
        ("per_it", np.float64),  # facility watts per IT watt
        ("fixed_w", np.float64),  # constant facility watts
    ],
    align=True,
)
"""IT power range, and facility power as a linear function of it."""


class SignalArrays(NamedTuple):
    """Both signals on the union of their steps; a signal that is not given is 0."""

    edge_s: npt.NDArray[np.float64]  # (E,) start of each step
    value: npt.NDArray[np.float64]  # (E, 2) carbon g/kWh, price per MWh
    area: npt.NDArray[np.float64]  # (E, 2) integral up to the edge
    forecasts: npt.NDArray[
        np.float32
    ]  # (T, 2, 6) every FORECAST_STEP_S: 1 / mean of the week before, and means ahead over it


@dataclass(frozen=True)
class PowerConfig:
    """Power model, signals and power controls, as texts of the command line or as objects."""

    power: PowerModel | str | PathLike[str] = "auto"
    """A preset, a TOML file, a model, or auto: the preset with the cluster's name."""
    carbon: Signal | None = None
    """Carbon intensity over time: a series or a file that `kilowait.energy.read_carbon` reads; None: no CO2."""
    price: Signal | None = None
    """Electricity price over time: a series or a file that `kilowait.energy.read_price` reads; None: no cost."""
    power_controls: str = "all"
    """Power controls. sleep=POLICY: idle nodes also sleep by that policy (``sleep=timeout:1000d``: only by action).
    dvfs=SLOWDOWN: DVFS states up to that slowdown can be chosen. budget=WATTS limits the power. all: break-even and
    1.1, as far as the machine has them. Load shifting is left to the agent."""
    forecast: str | ForecastFactory = "perfect"
    """perfect, persistence, noisy[:GRID], or a function that returns a forecast of a series."""
    utilization: UtilizationProfile | None = None
    """Assumed utilization of jobs where it is unknown; None: full load."""
    cooling: str | None = None
    """Replaces the cooling of the power model, such as pue:1.2; it must not depend on the weather."""
    log_start: str | None = None
    """Date of the first submission, for logs without dates."""
    repeat_signals: bool = False
    """Whether signals that are too short are repeated."""

    def setup(self, jobs: JobTable, cluster: Cluster, episode_jobs: int) -> PowerSetup:
        """The setup for a sorted log in episodes of `episode_jobs` jobs."""
        model = model_of(self.power, cluster).for_cluster(cluster)
        if self.cooling is not None:
            model = model.with_cooling(self.cooling)
        if model.facility.cooling.needs:
            raise InputError(
                f"the cooling ({type(model.facility.cooling).__name__}) depends on the weather, which "
                "kilowait/Energy-v0 does not simulate; choose another, such as cooling='pue:1.2'"
            )
        parsed = parse_controls(self.power_controls).resolved(model, carbon=False, price=False)
        if parsed.shift is not None:
            raise InputError(
                f"power controls {self.power_controls!r}: in kilowait/Energy-v0 the agent shifts load; leave shift out"
            )
        resolved = resolve_controls(self.power_controls, jobs, cluster, model, utilization=self.utilization)
        controls = replace(resolved.controls or PowerControls(), preferred_level=None, full_speed_backlog_nodes=-1)
        power_tables = _power_tables(jobs, cluster, model, self.utilization, resolved.tables, parsed.slowdown)
        if "predicted_power_w" in jobs:  # observed: predicted power; rewarded: actual power
            predicted_jobs = with_planned_power(jobs)
            expected = resolve_controls(
                self.power_controls, predicted_jobs, cluster, model, utilization=self.utilization
            ).tables
            predicted_tables = _power_tables(
                predicted_jobs, cluster, model, self.utilization, expected, parsed.slowdown
            )
            power_tables = replace(power_tables, features=predicted_tables.features)
        first_s, last_s = float(jobs["submit_s"][0]), float(jobs["submit_s"][-1])
        slowest = 1.0 if controls.factor is None else float(controls.factor.max())
        until_s = last_s + min(SIGNAL_HORIZON_S, DAY_S + slowest * _max_serial_runtime_s(jobs, episode_jobs))
        past_s = 0.0 if self.forecast == "perfect" else DAY_S + HOUR_S
        given = ExternalSignals(
            _read(self.carbon, read_carbon), _read(self.price, read_price), repeat_signals=self.repeat_signals
        )
        signals = align_signals(
            given,
            ClockOrigin.of(jobs, self.log_start),
            (first_s - past_s, until_s + DAY_S + HOUR_S),
            model.facility.cooling,
        )
        make_forecast = forecast_factory(self.forecast)
        return PowerSetup(
            cluster,
            model,
            self.utilization,
            controls,
            resolved.tables,
            signals,
            power_tables,
            _building_power(model, signals),
            signal_arrays(signals.carbon, signals.price, first_s, until_s, make_forecast),
            resolved.description,
            self.repeat_signals,
        )


@dataclass(frozen=True, eq=False)
class PowerTables:
    """Power of jobs and nodes; R kinds of jobs, L DVFS states."""

    above_w: Floats  # (G, R, L) watts of a job above its idle nodes
    nodes_held: Floats  # (G, R) nodes that a job occupies
    kind: npt.NDArray[np.int64]  # (N,) kind of each job
    may: npt.NDArray[np.uint8]  # (R, choices) whether the DVFS state is allowed
    features: npt.NDArray[np.float32]  # (N, 3) draw, stretch, saving
    state_w: Floats  # (G, 3) watts of a node shutting down, asleep, booting, above an idle node


@dataclass(frozen=True, eq=False)
class PowerSetup:
    """Power model, power controls and signals of a log on a machine, in the time of the log."""

    cluster: Cluster
    model: PowerModel
    utilization: UtilizationProfile | None
    power_controls: PowerControls
    """Power controls for `kilowait.simulate`; jobs run at full speed unless the agent chooses another DVFS state."""
    tables: Mapping[str, DvfsTable] | None
    signals: Signals
    power_tables: PowerTables
    building: npt.NDArray[Any]  # (1,) POWER
    signal_arrays: SignalArrays
    description: str
    """The power controls as text."""
    repeat_signals: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the given signals."""
        series_by_name = {"carbon": self.signals.carbon, "price": self.signals.price}
        return tuple(name for name, series in series_by_name.items() if series is not None)

    def account(self, log: ExecutionLog, horizon: tuple[float, float] | None = None) -> EnergyAccounts:
        """Energy accounts of a run of all these jobs with these power controls."""
        carbon, price = (
            None if series is None else replace(series, unix_zero_s=None)  # already in the time of the log
            for series in (self.signals.carbon, self.signals.price)
        )
        return account_energy(
            log,
            self.cluster,
            self.model,
            utilization=self.utilization,
            tables=self.tables,
            horizon=horizon,
            signals=ExternalSignals(carbon=carbon, price=price, repeat_signals=self.repeat_signals),
        )


def model_of(power: PowerModel | str | PathLike[str], cluster: Cluster) -> PowerModel:
    """The power model named by a preset, a file, or the cluster's name.

    >>> model_of("auto", Cluster.preset("polaris")).name
    'polaris'
    """
    if isinstance(power, PowerModel):
        return power
    name = str(power).strip()
    if name.lower() == "auto":
        if cluster.name.lower() not in PowerModel.presets():
            raise InputError(
                f"no power model is known for the cluster {cluster.name!r}; give power= one of "
                f"{', '.join(PowerModel.presets())}, or a TOML file"
            )
        return PowerModel.preset(cluster.name)
    if name.endswith(".toml") or "/" in name or Path(name).is_file():
        return PowerModel.from_file(name)
    return PowerModel.preset(name)


def _read(signal: Signal | None, reader: Any) -> Series | None:
    return signal if signal is None or isinstance(signal, Series) else reader(signal)


def _max_serial_runtime_s(jobs: JobTable, episode_jobs: int) -> float:
    """The longest time that the jobs of an episode take one after another."""
    total = np.concatenate(([0.0], np.cumsum(np.maximum(jobs["runtime_s"], jobs["estimate_s"]))))
    n = min(episode_jobs, len(jobs))
    return float((total[n:] - total[: len(total) - n]).max())


def _power_tables(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    utilization: UtilizationProfile | None,
    tables: Mapping[str, DvfsTable] | None,
    slowdown: float | None,
) -> PowerTables:
    classes, kind = unique_classes(
        jobs,
        ConstantUtilization() if utilization is None else utilization,
        by_cores=any(g.shared for g in cluster.groups),
    )
    watts, factors, nodes_held = [], [], []
    for group in cluster.groups:
        table = None if tables is None else tables[group.name]
        if table is None:
            watts.append(full_speed_w(classes, group, model, utilization)[:, None])
            factors.append(np.ones((len(classes), 1)))
        else:
            assert (kind is not None) == isinstance(table, DvfsTableByClass)
            watts.append(table.power_w)
            factors.append(table.factor)
        nodes_held.append(held_nodes(classes, group)[:, None])
    power_w, factor = np.stack(watts), np.stack(factors)
    idle_w = np.array([group.idle_w for group in model.groups])[:, None, None]
    full_w = np.array([group.full_w for group in model.groups])[:, None, None]
    slow = factor.max(axis=0)
    may = np.ones((len(classes), 1), np.bool_) if slowdown is None else slow <= slowdown
    may = may[:, : int(np.flatnonzero(may.any(axis=0))[-1]) + 1]  # level 0 is full speed
    spent = np.where(may, (power_w * factor)[:, :, : may.shape[1]].mean(axis=0), np.inf)
    features = np.column_stack(
        (
            (power_w[:, :, :1] / np.maximum(np.stack(nodes_held) * full_w, 1e-9)).mean(axis=0),
            np.where(may, slow[:, : may.shape[1]], 1.0).max(axis=1) - 1.0,
            1.0 - spent.min(axis=1) / np.maximum(spent[:, 0], 1e-9),
        )
    )
    state_watts = [
        (0.0, 0.0, 0.0)
        if g.sleep is None
        else (g.sleep.to_sleep_w - g.idle_w, g.sleep.sleep_w - g.idle_w, g.sleep.wake_w - g.idle_w)
        for g in model.groups
    ]
    rows = np.arange(len(jobs)) if kind is None else kind
    return PowerTables(
        above_w=np.ascontiguousarray(power_w - np.stack(nodes_held) * idle_w),
        nodes_held=np.stack(nodes_held)[:, :, 0],
        kind=np.ascontiguousarray(rows, np.int64),
        may=np.ascontiguousarray(may, np.uint8),
        features=np.ascontiguousarray(features[rows], np.float32),
        state_w=np.array(state_watts, np.float64),
    )


def _building_power(model: PowerModel, signals: Signals) -> npt.NDArray[Any]:
    """IT and facility power. With CO2 or cost in the reward, facility power must be linear in IT power."""
    idle_w, full_w = model.idle_it_w(), model.full_it_w()
    building = np.zeros(1, POWER)
    building["base_w"], building["full_w"] = idle_w, full_w
    ends = np.array([0.0, full_w])
    low, high = model.facility.facility_w(ends)
    building["per_it"], building["fixed_w"] = (high - low) / max(full_w, 1e-9), low
    it_watts = np.linspace(0.0, full_w, 17)
    linear = low + (high - low) * it_watts / max(full_w, 1e-9)
    nonlinear = not np.allclose(model.facility.facility_w(it_watts), linear, rtol=1e-12, atol=1e-9)
    if nonlinear and (signals.carbon is not None or signals.price is not None):
        raise InputError(
            f"the facility power of the power model {model.name!r} is not linear in its IT power (a curve of the power "
            "supply, or a chiller), so CO2 and cost cannot be rewarded step by step; leave the supply out and give "
            "cooling='pue:1.2'"
        )
    return building


def forecast_factory(name: str | ForecastFactory) -> ForecastFactory:
    """The forecast function, by name: perfect, persistence, noisy or noisy:GRID."""
    if not isinstance(name, str):
        return name
    kind, _, grid = name.partition(":")
    if kind not in FORECASTS:
        raise UnknownNameError("forecast", kind, FORECASTS)
    if kind == "perfect":
        return lambda series, horizon_s: forecast.perfect(series, horizon_s=horizon_s)
    if kind == "persistence":
        return lambda series, horizon_s: forecast.persistence(series, horizon_s=horizon_s)
    errors_by_grid = forecast.FORECAST_ERRORS
    if (grid or "CISO") not in errors_by_grid:
        raise UnknownNameError("grid whose forecast errors are known", grid, errors_by_grid)
    return partial(_noisy, errors_by_grid[grid or "CISO"])


def _noisy(errors: Sequence[float], series: Series, horizon_s: float) -> forecast.Forecast:
    return forecast.noisy(series, errors, seed=0, horizon_s=horizon_s)


def signal_arrays(
    carbon: Series | None, price: Series | None, first_s: float, last_s: float, make_forecast: ForecastFactory
) -> SignalArrays:
    """The signals from `first_s` to `last_s`; they must cover that and what the forecasts need.

    >>> arrays = signal_arrays(
    ...     Series.constant(400, "g/kWh"), None, 0, 3600, lambda s, ahead: forecast.perfect(s, horizon_s=ahead)
    ... )
    >>> arrays.value.tolist(), arrays.forecasts.shape, arrays.forecasts[0, 0, 1:].tolist()
    ([[400.0, 0.0]], (5, 2, 6), [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    windows = [None if series is None else series.between(first_s, last_s) for series in (carbon, price)]
    edge = np.unique(np.concatenate([[first_s], *(window.edge_s[:-1] for window in windows if window is not None)]))
    value, area = np.zeros((len(edge), 2)), np.zeros((len(edge), 2))
    at = first_s + FORECAST_STEP_S * np.arange(int((last_s - first_s) // FORECAST_STEP_S) + 1)
    forecasts = np.zeros((len(at), 2, 1 + len(FORECAST_LEAD_H)), np.float32)
    for column, (window, series) in enumerate(zip(windows, (carbon, price), strict=True)):
        if window is not None and series is not None:
            value[:, column] = window.at(edge)
            area[:, column] = window.integral(first_s, edge)
            forecasts[:, column] = _forecast_ratios(series, np.asarray(at, np.float64), make_forecast)
    return SignalArrays(edge, value, area, forecasts)


def _forecast_ratios(
    series: Series, at: npt.NDArray[np.float64], make_forecast: ForecastFactory
) -> npt.NDArray[np.float64]:
    """1 / mean of the week before (at least a day of it), and mean forecasts over that mean."""
    since = np.maximum(at - WEEK_S, series.start_s)
    until = np.minimum(np.maximum(at, since + DAY_S), series.end_s)
    weekly_mean = np.maximum(np.abs(series.mean(since, until)), MIN_WEEKLY_MEAN)
    lead = HOUR_S * np.array([0, *FORECAST_LEAD_H])
    means = make_forecast(series, DAY_S + HOUR_S).matrix(at, lead)
    ahead = np.cumsum(means * np.diff(lead), axis=1) / lead[1:] / weekly_mean[:, None]
    return np.column_stack((1.0 / weekly_mean, np.clip(ahead, -MAX_SIGNAL_RATIO, MAX_SIGNAL_RATIO)))
