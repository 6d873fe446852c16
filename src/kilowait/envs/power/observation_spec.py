"""What is seen besides what `envs.observation_spec` names: the power of jobs, what nodes do, and the signals."""

from __future__ import annotations

from collections.abc import Iterable

from kilowait.envs.observation_spec import FEATURES as OF_JOBS
from kilowait.envs.observation_spec import PREDICTION_FEATURES
from kilowait.envs.observation_spec import SUMMARY as OF_MACHINE

__all__ = ["CARBON_UNIT", "FEATURES", "LEAD_H", "PRICE_UNIT", "SUMMARY", "feature_names", "signal_summary"]

FEATURES: dict[str, str] = {
    **OF_JOBS,
    "draw": "watts at full speed / watts of its nodes at full load",
    "stretch": "run time at the slowest level it may be given / at full speed, less 1",
    "saving": "1 - least energy of those levels / energy at full speed",
}
"""Of a waiting job. Its power is what levers plan with: `predicted_power_w` where jobs have that, else taken for
known.
"""

SUMMARY: dict[str, str] = {
    **OF_MACHINE,
    "power": "IT power now / IT power with every node at full load; nodes a job waits for count as idle",
    "idle": "nodes that are free and awake / nodes of the machine",
    "asleep": "nodes asleep / nodes of the machine",
    "turning": "nodes falling asleep or waking / nodes of the machine",
}
"""Of the machine, the queue and the time; then `of_signals`."""


def feature_names(predictions: bool) -> tuple[str, ...]:
    """Names of the columns of a job; what predictions know stands before its power.

    >>> feature_names(True)[9:]
    ('place', 'bound', 'expected_inverse_runtime', 'cut', 'draw', 'stretch', 'saving')
    """
    own = tuple(name for name in FEATURES if name not in OF_JOBS)
    return (*OF_JOBS, *(PREDICTION_FEATURES if predictions else ()), *own)


CARBON_UNIT, PRICE_UNIT = 500.0, 100.0
"""Scales: grams per kWh, money per MWh."""

LEAD_H = (1, 3, 6, 12, 24)


def signal_summary(names: Iterable[str]) -> dict[str, str]:
    """Names and meanings of what is told of each signal; the last issue of a forecast is at most a quarter hour old.

    >>> list(signal_summary(["carbon"]))
    ['carbon', 'carbon_now', 'carbon_1h', 'carbon_3h', 'carbon_6h', 'carbon_12h', 'carbon_24h']
    """
    predictions: dict[str, str] = {}
    for name in names:
        unit = f"{CARBON_UNIT:g} g/kWh" if name == "carbon" else f"{PRICE_UNIT:g} per MWh"
        predictions[name] = f"{name} now / {unit}"
        predictions[f"{name}_now"] = f"{name} now / its mean over the week before, from -10 to 10"
        for hours in LEAD_H:
            predictions[f"{name}_{hours}h"] = f"mean forecast for the next {hours} h / the same"
    return predictions
