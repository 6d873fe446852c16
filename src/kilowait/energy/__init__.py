"""Watts before the clock starts; joules, grams and money after it stops.

Names are loaded when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kilowait.energy.accounting import EnergyAccounts, account_energy, lower_bound_kwh
    from kilowait.energy.controls import ResolvedControls, resolve_controls
    from kilowait.energy.load_shifting import shift_jobs
    from kilowait.energy.power import (
        ConstantUtilization,
        GpuCaps,
        PowerModel,
        UtilizationByClass,
        UtilizationClass,
        cap_gpus,
        energy_by_type,
        with_measured_power,
    )
    from kilowait.energy.signals import Weather, forecast, read_carbon, read_price, read_weather

__all__ = [
    "EnergyAccounts",
    "UtilizationByClass",
    "ConstantUtilization",
    "GpuCaps",
    "PowerModel",
    "ResolvedControls",
    "UtilizationClass",
    "Weather",
    "account_energy",
    "cap_gpus",
    "forecast",
    "shift_jobs",
    "energy_by_type",
    "lower_bound_kwh",
    "resolve_controls",
    "read_carbon",
    "read_price",
    "read_weather",
    "with_measured_power",
]

_HOME = {
    "accounting": ("EnergyAccounts", "account_energy", "lower_bound_kwh"),
    "load_shifting": ("shift_jobs",),
    "controls": ("ResolvedControls", "resolve_controls"),
    "power": (
        "UtilizationByClass",
        "ConstantUtilization",
        "GpuCaps",
        "PowerModel",
        "UtilizationClass",
        "cap_gpus",
        "energy_by_type",
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
