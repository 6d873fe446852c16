"""A meter: what power, prices and weather were like for a log on a machine; it makes accounts of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.energy.accounting import EnergyAccounts, account_energy, lower_bound_kwh
from kilowait.energy.controls import (
    ForecastFactory,
    ResolvedControls,
    dvfs_tables,
    resolve_controls,
)
from kilowait.energy.power import GpuCaps, PowerModel, UtilizationProfile, cap_gpus
from kilowait.energy.signals import Weather, forecast
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.gpu_power_cap import cap_of
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.series import Series

__all__ = ["PowerContext", "as_options", "foresight_of"]

FORECASTS = ("perfect", "persistence", "noisy")
_DAY_S = 86400.0
_SAID_AS_OPTIONS = {
    "repeat_signals=True": "--repeat-signals",
    "start='2022-01-01'": "--log-start 2022-01-01",
    "weather=read_weather(...)": "--weather FILE",
    "model.with_cooling('pue:1.2')": "--cooling pue:1.2",
}


@dataclass(frozen=True, eq=False)
class PowerContext:
    """Power, prices and weather for one log on one machine; all on the log's clock."""

    cluster: Cluster
    model: PowerModel
    utilization: UtilizationProfile | None
    carbon: Series | None
    price: Series | None
    weather: Weather | None
    forecast: str
    repeat_signals: bool
    digest: str
    """Of all of it, by content."""

    def pull(self, text: str, jobs: JobTable) -> ResolvedControls:
        """What a run of these jobs with the levers of a text is made with."""
        with as_options():
            return resolve_controls(
                text,
                jobs,
                self.cluster,
                self.model,
                utilization=self.utilization,
                carbon=self._ahead(self.carbon, jobs),
                price=self._ahead(self.price, jobs),
                make_forecast=foresight_of(self.forecast),
            )

    def account(
        self,
        log: ExecutionLog,
        power_controls: str | ResolvedControls = "none",
        horizon: tuple[float, float] | None = None,
    ) -> EnergyAccounts:
        """The accounts of a run that was made with these levers."""
        cap = None if isinstance(power_controls, ResolvedControls) else cap_of(power_controls)
        if isinstance(power_controls, ResolvedControls):
            tables = power_controls.tables
        elif cap is not None:
            tables = None
        else:
            tables = dvfs_tables(power_controls, log.jobs_table, self.cluster, self.model, self.utilization)
        with as_options():
            spent = account_energy(
                log,
                self.cluster,
                self.model,
                utilization=self.utilization,
                tables=tables,
                gpu_cap=cap,
                horizon=horizon,
                carbon=self.carbon,
                price=self.price,
                weather=self.weather,
                repeat_signals=self.repeat_signals,
            )
        if cap is None:
            return spent
        return replace(spent, notes=(*spent.notes, *self.capped(log.jobs_table, cap, None).notes))

    def capped(self, jobs: JobTable, cap: float, speeds: Speeds | None) -> GpuCaps:
        """What a run of these jobs with GPUs held to a share of their limit is made with, on placed nodes."""
        with as_options():
            return cap_gpus(jobs, self.cluster, self.model, cap, speeds, self.utilization)

    def least_kwh(
        self, jobs: JobTable, speeds: Speeds | None = None, caps: Iterable[float | None] = (None,)
    ) -> float:
        """IT energy of the work alone, with nothing idle; no schedule can draw less.

        Every job is at its level of least energy; on placed nodes on the type where it takes least at these `speeds`,
        under that of the `caps` under which all take least together (None: without one).
        """
        if self.cluster.node_level:
            return min(self._least_placed_kwh(jobs, speeds, cap) for cap in caps)
        several = any(len(group.levels) > 1 for group in self.model.groups)
        tables = dvfs_tables("dvfs=1", jobs, self.cluster, self.model, self.utilization) if several else None
        return lower_bound_kwh(jobs, self.cluster, self.model, tables, self.utilization)

    def _least_placed_kwh(self, jobs: JobTable, speeds: Speeds | None, cap: float | None) -> float:
        held = None if cap is None else self.capped(jobs, cap, speeds)
        return lower_bound_kwh(
            jobs,
            self.cluster,
            self.model,
            utilization=self.utilization,
            speeds=speeds if held is None else held.speeds,
            gpu_cap=None if held is None else held.gpu_cap,
        )

    def _ahead(self, signal: Series | None, jobs: JobTable) -> Series | None:
        """The signal as far as holds may look, where it may be repeated."""
        if signal is None or not self.repeat_signals or not len(jobs):
            return signal
        submit, own = jobs["submit_s"], jobs.column("slack_s")
        slack_s = float(np.max(own, initial=0.0, where=~np.isnan(own)))
        reach_s = 2 * (slack_s + float(jobs["estimate_s"].max())) + 60 * _DAY_S
        first, last = float(submit.min()) - 8 * _DAY_S, float(submit.max()) + reach_s
        return signal if signal.covers(first, last) else signal.wrapped(first, last)


def foresight_of(text: str) -> ForecastFactory | None:
    """What tells holds the future; None: the signal itself."""
    kind, _, grid = text.partition(":")
    if kind not in FORECASTS:
        raise UnknownNameError("forecast", kind, FORECASTS)
    if kind == "persistence":
        return lambda series, horizon_s: forecast.persistence(series, horizon_s=horizon_s)
    if kind == "noisy":
        known = forecast.FORECAST_ERRORS
        name = grid or "CISO"
        if name not in known:
            raise UnknownNameError("grid whose forecast errors are known", name, known)
        return partial(_noisy, known[name])
    return None


def _noisy(errors: Sequence[float], series: Series, horizon_s: float) -> forecast.Forecast:
    return forecast.noisy(series, errors, seed=0, horizon_s=horizon_s)


@contextmanager
def as_options() -> Iterator[None]:
    """Errors name Python's arguments; here people wrote options."""
    try:
        yield
    except InputError as problem:
        text = str(problem)
        for argument, option in _SAID_AS_OPTIONS.items():
            text = text.replace(argument, option)
        raise InputError(text) from None
