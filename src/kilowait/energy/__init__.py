"""Watts before the clock starts; joules, grams and money after it stops.

Names are loaded when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilowait.energy.accounts import Accounts, account, lower_bound_kwh
    from kilowait.energy.holding import hold_until
    from kilowait.energy.levering import Pulled, pull
    from kilowait.energy.power import (
        ByClass,
        ConstantUse,
        GpuCaps,
        PowerModel,
        UseClass,
        cap_gpus,
        least_energy,
        with_measured_power,
    )
    from kilowait.energy.signals import Weather, forecast, read_carbon, read_price, read_weather

__all__ = [
    "Accounts",
    "ByClass",
    "ConstantUse",
    "GpuCaps",
    "PowerModel",
    "Pulled",
    "UseClass",
    "Weather",
    "account",
    "cap_gpus",
    "forecast",
    "hold_until",
    "least_energy",
    "lower_bound_kwh",
    "pull",
    "read_carbon",
    "read_price",
    "read_weather",
    "with_measured_power",
]

_HOME = {
    "accounts": ("Accounts", "account", "lower_bound_kwh"),
    "holding": ("hold_until",),
    "levering": ("Pulled", "pull"),
    "power": (
        "ByClass",
        "ConstantUse",
        "GpuCaps",
        "PowerModel",
        "UseClass",
        "cap_gpus",
        "least_energy",
        "with_measured_power",
    ),
    "signals": ("Weather", "forecast", "read_carbon", "read_price", "read_weather"),
}
_PLACE = {name: room for room, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACE[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
