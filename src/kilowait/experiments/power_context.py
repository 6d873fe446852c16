"""Power model, carbon intensity, prices and weather for one log on one cluster; energy accounting of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.energy.accounting import EnergyAccounts, account_energy, lower_bound_kwh
from kilowait.energy.controls import ForecastFactory, ResolvedControls, dvfs_tables, resolve_controls
from kilowait.energy.power import GpuCaps, PowerModel, UtilizationProfile, cap_gpus
from kilowait.energy.signals import Weather, forecast
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.gpu_power_cap import gpu_cap_share
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.series import Series

__all__ = ["PowerContext", "option_names_in_errors", "forecast_factory"]

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
                carbon=self.carbon,
                price=self.price,
                weather=self.weather,
                repeat_signals=self.repeat_signals,
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
