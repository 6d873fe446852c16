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

__all__ = ["FORECASTS", "FORECAST_STEP_S", "SignalArrays", "forecast_factory", "signal_arrays"]

FORECASTS = ("perfect", "persistence", "noisy")
FORECAST_STEP_S = 900.0
HOUR_S, DAY_S = 3600.0, 86400.0
LEAST = 1.0
"""Lower bound of the weekly mean in denominators, g/kWh or money per MWh."""
MAX_RATIO = 10.0


class SignalArrays(NamedTuple):
    """Both signals on the union of their steps; a signal that is not given is 0."""

    edge_s: npt.NDArray[np.float64]  # (E,) start of each step
    value: npt.NDArray[np.float64]  # (E, 2) carbon g/kWh, price per MWh
    area: npt.NDArray[np.float64]  # (E, 2) integral up to the edge
    forecasts: npt.NDArray[
        np.float32
    ]  # (T, 2, 6) every TOLD_EVERY_S: 1 / mean of the week before, and means ahead over it


def forecast_factory(words: str | ForecastFactory) -> ForecastFactory:
    """The function that makes forecasts, by name: perfect, persistence, noisy or noisy:GRID."""
    if not isinstance(words, str):
        return words
    kind, _, grid = words.partition(":")
    if kind not in FORECASTS:
        raise UnknownNameError("forecast", kind, FORECASTS)
    if kind == "perfect":
        return lambda series, horizon_s: forecast.perfect(series, horizon_s=horizon_s)
    if kind == "persistence":
        return lambda series, horizon_s: forecast.persistence(series, horizon_s=horizon_s)
    known = forecast.FORECAST_ERRORS
    if (grid or "CISO") not in known:
        raise UnknownNameError("grid whose forecast errors are known", grid, known)
    return partial(_noisy, known[grid or "CISO"])


def _noisy(errors: Sequence[float], series: Series, horizon_s: float) -> forecast.Forecast:
    return forecast.noisy(series, errors, seed=0, horizon_s=horizon_s)


def signal_arrays(
    carbon: Series | None, price: Series | None, first_s: float, last_s: float, foresight: ForecastFactory
) -> SignalArrays:
    """The signals from `first_s` to `last_s`; they must cover that and what the forecasts need.

    >>> seen = signal_arrays(
    ...     Series.constant(400, "g/kWh"),
    ...     None,
    ...     0,
    ...     3600,
    ...     lambda s, ahead: forecast.perfect(s, horizon_s=ahead),
    ... )
    >>> seen.value.tolist(), seen.forecasts.shape, seen.forecasts[0, 0, 1:].tolist()
    ([[400.0, 0.0]], (5, 2, 6), [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    parts = [None if series is None else series.between(first_s, last_s) for series in (carbon, price)]
    edge = np.unique(np.concatenate([[first_s], *(part.edge_s[:-1] for part in parts if part is not None)]))
    value, area = np.zeros((len(edge), 2)), np.zeros((len(edge), 2))
    at = first_s + FORECAST_STEP_S * np.arange(int((last_s - first_s) // FORECAST_STEP_S) + 1)
    forecasts = np.zeros((len(at), 2, 1 + len(LEAD_H)), np.float32)
    for column, (part, series) in enumerate(zip(parts, (carbon, price), strict=True)):
        if part is not None and series is not None:
            value[:, column] = part.at(edge)
            area[:, column] = part.integral(first_s, edge)
            forecasts[:, column] = _forecast_ratios(series, np.asarray(at, np.float64), foresight)
    return SignalArrays(edge, value, area, forecasts)


def _forecast_ratios(
    series: Series, at: npt.NDArray[np.float64], foresight: ForecastFactory
) -> npt.NDArray[np.float64]:
    """1 / mean of the week before (at least a day of it), and mean forecasts over that mean."""
    since = np.maximum(at - WEEK_S, series.start_s)
    until = np.minimum(np.maximum(at, since + DAY_S), series.end_s)
    usual = np.maximum(np.abs(series.mean(since, until)), LEAST)
    lead = HOUR_S * np.array([0, *LEAD_H])
    means = foresight(series, DAY_S + HOUR_S).matrix(at, lead)
    ahead = np.cumsum(means * np.diff(lead), axis=1) / lead[1:] / usual[:, None]
    return np.column_stack((1.0 / usual, np.clip(ahead, -MAX_RATIO, MAX_RATIO)))
