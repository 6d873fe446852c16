"""External signals: carbon intensity, electricity price and weather from files, and forecasts of them."""

from kilowait.energy.signals import forecast
from kilowait.energy.signals.carbon import CARBON_FORMATS, read_carbon
from kilowait.energy.signals.forecast import Forecast
from kilowait.energy.signals.price import read_price
from kilowait.energy.signals.weather import Weather, read_weather, wet_bulb_c

__all__ = [
    "CARBON_FORMATS",
    "Forecast",
    "Weather",
    "forecast",
    "read_carbon",
    "read_price",
    "read_weather",
    "wet_bulb_c",
]
