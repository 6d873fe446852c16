"""Energy: power models, power controls and signals of a run, and its accounts of energy, CO2 and cost.

Public names are imported on first access.
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

_NAMES_BY_MODULE = {
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
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_BY_NAME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
