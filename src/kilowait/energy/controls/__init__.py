"""Power controls: node sleep, DVFS, load shifting and power budgets, from their text to the inputs of a run."""

from kilowait.energy.controls.budget import BudgetViolation, exceeded
from kilowait.energy.controls.parse import LEVERS, ControlSpec, parse_levers
from kilowait.energy.controls.resolve import (
    ForecastFactory,
    ResolvedControls,
    resolve_controls,
    tables_of,
)
from kilowait.energy.controls.sleep import forecast_demand

__all__ = [
    "LEVERS",
    "BudgetViolation",
    "ForecastFactory",
    "ControlSpec",
    "ResolvedControls",
    "exceeded",
    "forecast_demand",
    "parse_levers",
    "resolve_controls",
    "tables_of",
]
