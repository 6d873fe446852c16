"""Levers as people write them: a text becomes what a run pulls."""

from kilowait.energy.levering.keeping import Exceeded, exceeded
from kilowait.energy.levering.pulling import Foresight, Pulled, pull, tables_of
from kilowait.energy.levering.sleep import forecast_demand
from kilowait.energy.levering.texts import LEVERS, LeverSet, parse_levers

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
