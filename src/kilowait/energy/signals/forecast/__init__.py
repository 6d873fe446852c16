"""Forecasts issued at one time for later ones: a decider sees what was issued before now, and nothing else.

Issues come at whole multiples of `issue_every_s` of Unix time (on the hour unless told otherwise); between two of them
the earlier one stands. So a forecast told at ten past noon knows nothing from after noon.
"""

from kilowait.energy.signals.forecast.base import Forecast
from kilowait.energy.signals.forecast.models import (
    FORECAST_ERRORS,
    noisy,
    perfect,
    persistence,
)
from kilowait.energy.signals.forecast.recorded import from_file

__all__ = ["FORECAST_ERRORS", "Forecast", "from_file", "noisy", "perfect", "persistence"]
