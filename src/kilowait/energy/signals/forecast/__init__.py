"""Forecasts of signals: perfect, persistence, noisy or recorded.

A policy sees only forecasts issued before the current time, so there is no data leakage. Forecasts are issued at whole
multiples of `issue_every_s` of Unix time (by default on the hour); each is valid until the next one. So a forecast
requested at 12:10 uses no data from after 12:00.
"""

from kilowait.energy.signals.forecast.base import Forecast
from kilowait.energy.signals.forecast.models import FORECAST_ERRORS, noisy, perfect, persistence
from kilowait.energy.signals.forecast.recorded import recorded_forecast

__all__ = ["FORECAST_ERRORS", "Forecast", "recorded_forecast", "noisy", "perfect", "persistence"]
