"""Forecasts of signals: perfect, persistence, noisy or recorded.

A policy sees only forecasts issued before the current time, so there is no data leakage. Forecasts are issued at whole
multiples of `issue_every_s` of Unix time (by default on the hour); each is valid until the next one. So a forecast
requested at 12:10 uses no data from after 12:00.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from kilowait.energy.signals.signal_file import chosen_unit, open_signal, times_of
from kilowait.energy.signals.units import canonical_unit, find_intensity_unit, find_price_unit
from kilowait.errors import InputError
from kilowait.rng import stream
from kilowait.series import Floats, Series

_BLOCK = 2**19


class Forecast(ABC):
    """Forecasts of a series, issued at certain times."""

    horizon_s: float
    """Forecast horizon."""

    def issued(self, at_s: float) -> Series:
        """The forecast known at `at_s`, from then until `horizon_s` later: the last issue no later than `at_s`."""
        at = float(at_s)
        issue = float(self._issue_time_s(np.array([at]))[0])
        return self._issued_series(issue, at + self.horizon_s).between(at, at + self.horizon_s)

    def matrix(self, at_s: npt.ArrayLike, lead_edge_s: npt.ArrayLike) -> Floats:
        """Forecast means at many times: row i is the forecast known at ``at_s[i]``.

        Column j is the mean from ``at_s[i] + lead_edge_s[j]`` to ``at_s[i] + lead_edge_s[j + 1]``.
        """
        at, lead = np.asarray(at_s, np.float64), np.asarray(lead_edge_s, np.float64)
        if at.ndim != 1 or lead.ndim != 1 or len(lead) < 2 or lead[0] < 0 or not (np.diff(lead) > 0).all():
            raise InputError("give a list of times, and two or more increasing leads of 0 s or more")
        if lead[-1] > self.horizon_s:
            raise InputError(
                f"a lead of {lead[-1]:g} s exceeds the forecast horizon of {self.horizon_s:g} s; give shorter leads or "
                "a longer horizon_s"
            )
        means = np.empty((len(at), len(lead) - 1))
        # In blocks to limit memory; sorted, so that the times of one issue are in one or two blocks.
        blocks = math.ceil(len(at) * len(lead) / _BLOCK)
        for rows in np.array_split(np.argsort(at, kind="stable"), blocks) if len(at) else ():
            means[rows] = self._means(at[rows], lead)
        return means

    def _means(self, at: Floats, lead: Floats) -> Floats:
        means = np.empty((len(at), len(lead) - 1))
        issues, group = np.unique(self._issue_time_s(at), return_inverse=True)
        rows_by_issue = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])
        for issue, rows in zip(issues.tolist(), rows_by_issue, strict=True):
            edge = at[rows, None] + lead
            issued = self._issued_series(issue, float(edge.max()))
            means[rows] = issued.mean(edge[:, :-1], edge[:, 1:])
        return means

    @abstractmethod
    def describe(self) -> str:
        """The forecast as text, printed with every result."""

    @abstractmethod
    def _issue_time_s(self, at: Floats) -> Floats:
        """The last issue time no later than each time."""

    @abstractmethod
    def _issued_series(self, issue_s: float, until_s: float) -> Series:
        """The series issued at `issue_s`, until `until_s` or later."""


def _positive(value: float, name: str) -> float:
    """Validate a positive number of seconds."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} is {value}; it must be a finite number of seconds above 0")
    return float(value)


DAY_S = 86400.0
HOUR_S = 3600.0

FORECAST_ERRORS: dict[str, tuple[float, float, float, float]] = {
    "CISO": (0.065, 0.147, 0.197, 0.218),
    "DE": (0.072, 0.118, 0.140, 0.166),
    "ERCO": (0.079, 0.154, 0.190, 0.209),
    "ES": (0.108, 0.176, 0.204, 0.214),
    "ISNE": (0.043, 0.092, 0.107, 0.116),
    "NYISO": (0.068, 0.093, 0.107, 0.111),
    "PJM": (0.031, 0.055, 0.071, 0.082),
    "BPAT": (0.065, 0.088, 0.099, 0.108),
    "NL": (0.049, 0.068, 0.080, 0.093),
    "AUS_QLD": (0.039, 0.051, 0.058, 0.063),
    "SE": (0.033, 0.059, 0.068, 0.073),
    "PL": (0.024, 0.042, 0.049, 0.056),
    "FPL": (0.024, 0.031, 0.037, 0.040),
}
"""Mean absolute relative error one to four days ahead, by grid: measured on the source-production forecasts published
with CarbonCast (Maji, Shenoy and Sitaraman 2022); life-cycle intensity, July to December 2021, 181 daily issues of
96 hours."""


def perfect(series: Series, *, horizon_s: float = 4 * DAY_S) -> Forecast:
    """The actual signal, known in advance: an upper bound of the value of a forecast.

    >>> perfect(Series([0, 10, 20, 30], [1, 2, 3]), horizon_s=15).issued(5).value.tolist()
    [1.0, 2.0]
    """
    return _Perfect(series, _positive(horizon_s, "horizon_s"))


def persistence(
    series: Series, *, period_s: float = DAY_S, horizon_s: float = 4 * DAY_S, issue_every_s: float = HOUR_S
) -> Forecast:
    """Persistence: the last `period_s` before the issue, repeated (the same hour yesterday, or last week).

    >>> forecast = persistence(Series([0, 10, 20, 30], [1, 2, 3]), period_s=20, horizon_s=30, issue_every_s=10)
    >>> forecast.issued(20).value.tolist()
    [1.0, 2.0, 1.0]
    """
    period = _positive(period_s, "period_s")
    return _Persistence(series, _positive(horizon_s, "horizon_s"), _positive(issue_every_s, "issue_every_s"), period)


def noisy(
    series: Series,
    error_per_day: Sequence[float] = FORECAST_ERRORS["CISO"],
    *,
    seed: int,
    horizon_s: float = 4 * DAY_S,
    issue_every_s: float = HOUR_S,
    step_s: float = HOUR_S,
    memory_s: float = 6 * HOUR_S,
) -> Forecast:
    """The actual signal times a random error; `error_per_day` is the mean absolute relative error for each day ahead.

    The error of the last day given applies to all later days. The factor is lognormal with mean 1, so the forecast is
    unbiased and keeps its sign. Errors of one issue are correlated over the lead time (the correlation falls to 1/e
    after `memory_s`, an assumption about the persistence of weather errors) and change every `step_s`; errors of
    different issues are independent. They depend only on the seed and the issue time.

    >>> noisy(Series.constant(100.0), [0.1], seed=1, horizon_s=7200).issued(0).value.round(1).tolist()
    [87.8, 89.8]
    """
    sizes = tuple(float(size) for size in error_per_day)
    if not sizes or not all(0 <= size <= 1 for size in sizes):
        raise InputError(f"error_per_day is {sizes}; give one share for each day ahead, such as 0.065 for 6.5 %")
    if seed < 0:
        raise InputError(f"the seed is {seed}; it must be 0 or more")
    return _Noisy(
        series,
        _positive(horizon_s, "horizon_s"),
        _positive(issue_every_s, "issue_every_s"),
        sizes,
        seed,
        _positive(step_s, "step_s"),
        _positive(memory_s, "memory_s"),
    )


@dataclass(frozen=True, eq=False)
class _Perfect(Forecast):
    truth: Series
    horizon_s: float

    def describe(self) -> str:
        return "perfect forecast"

    def _issue_time_s(self, at: Floats) -> Floats:
        return at

    def _issued_series(self, issue_s: float, until_s: float) -> Series:
        return self.truth.between(issue_s, until_s)

    def _means(self, at: Floats, lead: Floats) -> Floats:
        edge = at[:, None] + lead
        return self.truth.mean(edge[:, :-1], edge[:, 1:])


@dataclass(frozen=True, eq=False)
class _Regular(Forecast):
    """Forecasts issued at whole multiples of `issue_every_s` of Unix time, in whatever time the signal is."""

    truth: Series
    horizon_s: float
    issue_every_s: float

    def _issue_time_s(self, at: Floats) -> Floats:
        zero = self.truth.unix_zero_s or 0.0
        return np.asarray(np.floor((at + zero) / self.issue_every_s) * self.issue_every_s - zero)


@dataclass(frozen=True, eq=False)
class _Persistence(_Regular):
    period_s: float

    def describe(self) -> str:
        return f"persistence forecast (as {self.period_s / HOUR_S:g} h before)"

    def _issued_series(self, issue_s: float, until_s: float) -> Series:
        self.truth.require(issue_s - self.period_s, issue_s, "a persistence forecast")
        last = self.truth.between(issue_s - self.period_s, issue_s)
        periods = range(1, math.floor((until_s - issue_s) / self.period_s) + 2)
        edge = np.concatenate([last.edge_s[:-1] + period * self.period_s for period in periods])
        end = issue_s + len(periods) * self.period_s
        return Series(np.append(edge, end), np.tile(last.value, len(periods)), last.unit, last.meta, last.unix_zero_s)

    def _means(self, at: Floats, lead: Floats) -> Floats:
        first = (self._issue_time_s(at) - self.period_s)[:, None]
        self.truth.require(float(first.min()), float(first.max()) + self.period_s, "a persistence forecast")
        periods, rest = np.divmod(at[:, None] + lead - first - self.period_s, self.period_s)
        period_area = self.truth.integral(first, first + self.period_s)
        area = periods * period_area + self.truth.integral(first, first + rest)
        return np.asarray(np.diff(area, axis=1) / np.diff(lead))


@dataclass(frozen=True, eq=False)
class _Noisy(_Regular):
    error_per_day: tuple[float, ...]
    seed: int
    step_s: float
    memory_s: float
    _lead_edge: Floats = field(init=False, repr=False)
    _sigma: Floats = field(init=False, repr=False)
    _mixing: Floats = field(init=False, repr=False)

    def describe(self) -> str:
        sizes = "/".join(f"{100 * size:.3g}" for size in self.error_per_day)
        return f"forecast with errors of {sizes} % by day ahead (seed {self.seed})"

    def __post_init__(self) -> None:
        steps = math.ceil((self.horizon_s + self.issue_every_s) / self.step_s)
        lead = np.arange(steps) * self.step_s
        day = np.minimum((lead // DAY_S).astype(np.int64), len(self.error_per_day) - 1)
        # The mean absolute deviation of a lognormal factor of mean 1 from 1 is 2 (2 Phi(sigma / 2) - 1).
        normal = NormalDist()
        sigma = np.array([2 * normal.inv_cdf(0.5 + size / 4) for size in self.error_per_day])[day]
        keeps = math.exp(-self.step_s / self.memory_s)
        back = np.subtract.outer(np.arange(steps), np.arange(steps))
        mixing = np.where(back >= 0, keeps ** np.maximum(back, 0), 0.0) * math.sqrt(1 - keeps**2)
        mixing[:, 0] = keeps ** np.arange(steps)
        object.__setattr__(self, "_sigma", sigma)
        object.__setattr__(self, "_mixing", mixing)
        object.__setattr__(self, "_lead_edge", np.arange(steps + 1) * self.step_s)

    def _issued_series(self, issue_s: float, until_s: float) -> Series:
        known_s = max(issue_s, self.truth.start_s)
        self.truth.require(known_s, until_s, "a forecast")
        noise = Series(issue_s + self._lead_edge, self._factors(issue_s))
        return self.truth.between(known_s, until_s).times(noise, self.truth.unit)

    def _factors(self, issue_s: float) -> Floats:
        issue_unix_s = issue_s + (self.truth.unix_zero_s or 0.0)
        shocks = stream(self.seed, f"forecast issued at {issue_unix_s:.3f}").standard_normal(len(self._sigma))
        return np.asarray(np.exp(self._sigma * (self._mixing @ shocks) - self._sigma**2 / 2))

    def _means(self, at: Floats, lead: Floats) -> Floats:
        issues, which = np.unique(self._issue_time_s(at), return_inverse=True)
        factor = np.array([self._factors(issue) for issue in issues.tolist()])
        edge = at[:, None] + lead
        self.truth.require(float(edge.min()), float(edge.max()), "a forecast")
        # The area from the issue to each edge of the noise, then from there to each requested edge.
        noise_edge = np.clip(issues[:, None] + self._lead_edge, self.truth.start_s, self.truth.end_s)
        steps = self.truth.integral(noise_edge[:, :-1], noise_edge[:, 1:]) * factor
        area = np.concatenate((np.zeros((len(issues), 1)), np.cumsum(steps, axis=1)), axis=1)
        step = ((edge - issues[which, None]) // self.step_s).astype(np.int64)
        step = np.minimum(step, factor.shape[1] - 1)
        row = which[:, None]
        begun = np.minimum(noise_edge[row, step], edge)  # rounding may put it slightly later
        reached = area[row, step] + factor[row, step] * self.truth.integral(begun, edge)
        return np.asarray(np.diff(reached, axis=1) / np.diff(lead))


def recorded_forecast(
    path: str | PathLike[str],
    *,
    columns: Mapping[str, str] | None = None,
    zone: str | None = None,
    unit: str | None = None,
    step_s: float | None = None,
    horizon_s: float | None = None,
    unix_start_s: float = 0.0,
) -> Forecast:
    """Recorded forecasts from a CSV with the columns ``issue_time``, ``target_time`` and ``value``.

    `columns` maps these names to those of the file. The unit is read from the name of the value column or from `unit`;
    carbon intensity is converted to g/kWh, prices to per MWh. A value is valid until the next one of its issue, the
    first one from the issue time on. `unix_start_s` is the Unix time of second 0 of the log. By default `horizon_s` is
    the span that every issue covers until the next issue.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "forecasts.csv"
    >>> _ = path.write_text("issue_time,target_time,value\\n0,0,5\\n0,3600,7\\n3600,3600,8\\n3600,7200,9\\n")
    >>> forecast = recorded_forecast(path, unit="g/kWh")
    >>> forecast.issued(3599).value.tolist(), forecast.issued(3600).value.tolist(), forecast.horizon_s
    ([5.0, 7.0], [8.0], 3600.0)
    """
    file = open_signal(path)
    with file.named():
        table, names = (file.table(), {"issue_time": "issue_time", "target_time": "target_time", "value": "value"})
        names.update(columns or {})
        if len(names) > 3:
            raise InputError(f"columns has the keys {sorted(names)}; they are issue_time, target_time and value")
        issue, target, column = (table.index(names[key]) for key in ("issue_time", "target_time", "value"))
        file_unit = find_intensity_unit(table.header[column]) or find_price_unit(table.header[column])
        used_unit = chosen_unit(file_unit, unit, canonical_unit, "unit='g/kWh' or unit='EUR/MWh'")
        factor, unit_name = canonical_unit(used_unit)
        issue_s, target_s = times_of(table, issue, zone), times_of(table, target, zone)
        value = table.numbers(column) * factor
        issues = np.unique(issue_s)
        series = []
        for at in issues.tolist():
            rows = issue_s == at
            with_first = Series.from_samples(
                target_s[rows], value[rows], unit_name, file.origin(), step_s=step_s, unix_zero_s=0.0
            )
            series.append(_from_issue_on(with_first, at).shifted(-unix_start_s))
        covered = np.array([one.end_s for one in series]) + unix_start_s - np.append(issues[1:], issues[-1])
        horizon = float(covered.min()) if horizon_s is None else _positive(horizon_s, "horizon_s")
        if horizon <= 0:
            raise InputError("an issue ends before the next one begins; give horizon_s, or a file with longer issues")
        return _RecordedForecast(horizon, issues - unix_start_s, tuple(series), file.name)


@dataclass(frozen=True, eq=False)
class _RecordedForecast(Forecast):
    horizon_s: float
    issue_s: Floats
    series: tuple[Series, ...]
    source: str

    def describe(self) -> str:
        return f"forecasts of {self.source} ({len(self.issue_s)} issues)"

    def _issue_time_s(self, at: Floats) -> Floats:
        last = np.searchsorted(self.issue_s, at, side="right") - 1
        if (last < 0).any():
            moment = self.series[0].moment
            raise InputError(
                f"no forecast of {self.source} was issued by {moment(float(at.min()))}; the first was issued at "
                f"{moment(float(self.issue_s[0]))}: give a file that starts earlier"
            )
        return self.issue_s[last]

    def _issued_series(self, issue_s: float, until_s: float) -> Series:
        series = self.series[int(np.searchsorted(self.issue_s, issue_s))]
        series.require(issue_s, until_s, f"a forecast issued at {series.moment(issue_s)}")
        return series


def _from_issue_on(series: Series, issue_s: float) -> Series:
    if series.end_s <= issue_s:
        raise InputError(f"the forecast issued at {series.moment(issue_s)} has no later target time")
    if series.start_s <= issue_s:
        return series.between(issue_s, series.end_s)
    edge = series.edge_s.copy()
    edge[0] = issue_s
    return Series(edge, series.value, series.unit, series.meta, series.unix_zero_s)
