"""Power controls: node sleep, DVFS, load shifting and power budgets, from their text to the inputs of a run."""

from kilowait.energy.accounting.result import BudgetViolation, budget_violation
from kilowait.energy.controls.parse import CONTROL_NAMES, ControlSpec, parse_controls
from kilowait.energy.controls.resolve import (
    ForecastFactory,
    ResolvedControls,
    dvfs_tables,
    forecast_awake_nodes,
    resolve_controls,
)

__all__ = [
    "CONTROL_NAMES",
    "BudgetViolation",
    "ForecastFactory",
    "ControlSpec",
    "ResolvedControls",
    "budget_violation",
    "forecast_awake_nodes",
    "parse_controls",
    "resolve_controls",
    "dvfs_tables",
]
