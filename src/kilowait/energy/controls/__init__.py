"""Power controls: node sleep, DVFS, load shifting and power budgets, from their text to the inputs of a run."""

from kilowait.energy.controls.budget_violation import BudgetViolation, budget_violation
from kilowait.energy.controls.parse import CONTROLS, ControlSpec, parse_controls
from kilowait.energy.controls.resolve import ForecastFactory, ResolvedControls, dvfs_tables, resolve_controls
from kilowait.energy.controls.sleep_policies import forecast_demand

__all__ = [
    "CONTROLS",
    "BudgetViolation",
    "ForecastFactory",
    "ControlSpec",
    "ResolvedControls",
    "budget_violation",
    "forecast_demand",
    "parse_controls",
    "resolve_controls",
    "dvfs_tables",
]
