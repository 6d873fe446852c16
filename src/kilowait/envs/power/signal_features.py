"""Carbon intensity and price as arrays for the kernels: exact integrals over time, and forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.energy.controls import ForecastFactory
from kilowait.energy.signals import forecast
from kilowait.envs.power.observation_spec import LEAD_H
from kilowait.errors import UnknownNameError
from kilowait.series import WEEK_S, Series

__all__ = ["FORECAST_STEP_S", "SignalArrays", "forecast_factory", "signal_arrays"]

FORECASTS = ("perfect", "persistence", "noisy")
FORECAST_STEP_S = 900.0
HOUR_S, DAY_S = 3600.0, 86400.0
MIN_WEEKLY_MEAN = 1.0
"""Lower bound of the weekly mean in denominators, g/kWh or money per MWh."""
MAX_RATIO = 10.0


class SignalArrays(NamedTuple):
    """Both signals on the union of their steps; a signal that is not given is 0."""

    edge_s: npt.NDArray[np.float64]  # (E,) start of each step
    value: npt.NDArray[np.float64]  # (E, 2) carbon g/kWh, price per MWh
    area: npt.NDArray[np.float64]  # (E, 2) integral up to the edge
    forecasts: npt.NDArray[
        np.float32
    ]  # (T, 2, 6) every FORECAST_STEP_S: 1 / mean of the week before, and means ahead over it


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
    forecasts = np.zeros((len(at), 2, 1 + len(LEAD_H)), np.float32)
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
    lead = HOUR_S * np.array([0, *LEAD_H])
    means = make_forecast(series, DAY_S + HOUR_S).matrix(at, lead)
    ahead = np.cumsum(means * np.diff(lead), axis=1) / lead[1:] / weekly_mean[:, None]
    return np.column_stack((1.0 / weekly_mean, np.clip(ahead, -MAX_RATIO, MAX_RATIO)))
