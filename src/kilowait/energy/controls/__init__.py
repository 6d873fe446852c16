"""Levers as people write them: a text becomes what a run pulls."""

from kilowait.energy.controls.budget import Exceeded, exceeded
from kilowait.energy.controls.parse import LEVERS, LeverSet, parse_levers
from kilowait.energy.controls.resolve import (
    Foresight,
    Pulled,
    pull,
    tables_of,
)
from kilowait.energy.controls.sleep import forecast_demand

__all__ = [
    "LEVERS",
    "Exceeded",
    "Foresight",
    "LeverSet",
    "Pulled",
    "exceeded",
    "forecast_demand",
    "parse_levers",
    "pull",
    "tables_of",
]
