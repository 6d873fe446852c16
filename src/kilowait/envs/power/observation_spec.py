"""Observation of `kilowait/Energy-v0`: that of `envs.observation_spec`, job power, node states and signals."""

from __future__ import annotations

from collections.abc import Iterable

from kilowait.envs.observation_spec import FEATURES as OF_JOBS
from kilowait.envs.observation_spec import PREDICTION_FEATURES
from kilowait.envs.observation_spec import SUMMARY as OF_MACHINE

__all__ = ["CARBON_UNIT", "FEATURES", "LEAD_H", "PRICE_UNIT", "SUMMARY", "feature_names", "signal_summary"]

FEATURES: dict[str, str] = {
    **OF_JOBS,
    "draw": "watts at full speed / watts of its nodes at full load",
    "stretch": "run time at the slowest allowed DVFS state / at full speed, less 1",
    "saving": "1 - minimum energy over the allowed DVFS states / energy at full speed",
}
"""Features of a waiting job. Its power is `predicted_power_w` where the jobs have that column, else the measured or
modelled power.
"""

SUMMARY: dict[str, str] = {
    **OF_MACHINE,
    "power": "IT power now / IT power with every node at full load; nodes that boot for a job count as idle",
    "idle": "free nodes that are awake / nodes of the machine",
    "asleep": "nodes asleep / nodes of the machine",
    "in_transition": "nodes shutting down or booting / nodes of the machine",
}
"""Summary of the machine, the queue and the time; `signal_summary` comes after it."""


def feature_names(descriptions: bool) -> tuple[str, ...]:
    """Names of the feature columns of a job; prediction features come before its power.

    >>> feature_names(True)[9:]
    ('place', 'bound', 'expected_inverse_runtime', 'cut', 'draw', 'stretch', 'saving')
    """
    power_features = tuple(name for name in FEATURES if name not in OF_JOBS)
    return (*OF_JOBS, *(PREDICTION_FEATURES if descriptions else ()), *power_features)


CARBON_UNIT, PRICE_UNIT = 500.0, 100.0
"""Scales: g/kWh, money per MWh."""

LEAD_H = (1, 3, 6, 12, 24)


def signal_summary(names: Iterable[str]) -> dict[str, str]:
    """Names and descriptions of the summary of each signal; forecasts are at most a quarter of an hour old.

    >>> list(signal_summary(["carbon"]))
    ['carbon', 'carbon_now', 'carbon_1h', 'carbon_3h', 'carbon_6h', 'carbon_12h', 'carbon_24h']
    """
    descriptions: dict[str, str] = {}
    for name in names:
        unit = f"{CARBON_UNIT:g} g/kWh" if name == "carbon" else f"{PRICE_UNIT:g} per MWh"
        descriptions[name] = f"{name} now / {unit}"
        descriptions[f"{name}_now"] = f"{name} now / its mean over the week before, from -10 to 10"
        for hours in LEAD_H:
            descriptions[f"{name}_{hours}h"] = f"mean forecast for the next {hours} h / the same"
    return descriptions
