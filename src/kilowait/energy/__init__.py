"""Energy: power models, power controls and signals of a run, and its accounts of energy, CO2 and cost."""

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
from kilowait.energy.signals.align import ExternalSignals

__all__ = [
    "EnergyAccounts",
    "UtilizationByClass",
    "ConstantUtilization",
    "ExternalSignals",
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
