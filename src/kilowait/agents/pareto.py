"""A preference-conditioned network under many preferences: its metrics on windows of a log, and the metrics' units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.networks.heads import ActorCritic, DuelingQ
from kilowait.agents.networks.preference import preference_terms, with_fixed_preference
from kilowait.agents.networks.spec import ObservationSpecProtocol
from kilowait.agents.rl.device import use_device
from kilowait.agents.rl.validation import term_metrics
from kilowait.envs.preferences import Preferences, preference_grid

__all__ = ["preference_metrics", "least_work_first", "preferences_for", "term_units", "weighted_metric"]

Floats = npt.NDArray[np.float64]
VALIDATION_GRID_STEPS = 4
"""Grid steps of the weights of two terms in validation: five preferences."""


def least_work_first(spec: ObservationSpecProtocol) -> Callable[[Mapping[str, Any]], npt.NDArray[np.int64]]:
    """The reference policy whose metrics are the units: start the allowed job with the least estimated work.

    The job is started at full speed, or with any placement: the first choice. If no job may be started, the first
    allowed action is taken. On Batch-v0 that is SAF; on Energy-v0 it is SAF at full speed, with node sleep controlled
    by the sleep setting of the power controls.
    """
    column = spec.features.index("area" if "area" in spec.features else "work")

    def decide(observation: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        mask = observation["mask"]
        jobs = mask[:, : spec.slots * spec.choices : spec.choices] != 0
        smallest = np.where(jobs, observation["jobs"][:, :, column], np.inf).argmin(axis=1)
        actions: npt.NDArray[np.int64] = np.where(jobs.any(axis=1), smallest * spec.choices, mask.argmax(axis=1))
        return actions

    return decide


def term_units(vec: Any, first: npt.ArrayLike, terms: Iterable[str]) -> dict[str, float]:
    """The unit of each term: its mean when `least_work_first` schedules the windows that begin at `first`.

    A weight then is the value of one per cent of that mean. A term with mean 0, such as sla where no job waits long,
    has unit 1.
    """
    names = tuple(vec.reward.terms)
    Preferences(dict.fromkeys(terms, 1.0), names)  # raises an error for unknown names
    means = term_metrics(least_work_first(vec.spec_of_observation), vec, first).mean(axis=0)
    measured = {name: float(means[names.index(name)]) for name in terms}
    return {name: value if value > 0 else 1.0 for name, value in measured.items()}


def preferences_for(terms: int, grid_steps: int | None = None) -> Floats:
    """(points, terms) the preference grid of a Pareto front: two terms in tenths, three in quarters, more in halves.

    >>> len(preferences_for(2)), len(preferences_for(3)), len(preferences_for(4))
    (11, 15, 10)
    """
    return preference_grid(terms, grid_steps or {2: 10, 3: 4}.get(terms, 2))


def preference_metrics(network: ActorCritic | DuelingQ, vec: Any, first: npt.ArrayLike, preferences: Floats) -> Floats:
    """(preferences, windows, terms of the preference) the network's metrics under each preference.

    `vec` samples no preferences itself and has one sub-environment a window.
    """
    terms = preference_terms(network.spec)
    columns = [tuple(vec.reward.terms).index(name) for name in terms]
    with use_device(next(network.parameters()).device, 1):  # more threads are slower for so few rows
        metrics = [
            term_metrics(with_fixed_preference(network, dict(zip(terms, weights, strict=True))), vec, first)[:, columns]
            for weights in preferences
        ]
    return np.stack(metrics)


def weighted_metric(
    network: ActorCritic | DuelingQ, vec: Any, first: npt.ArrayLike, units: Mapping[str, float]
) -> float:
    """Mean weighted metric of the windows over a few fixed preferences: for validation."""
    terms = preference_terms(network.spec)
    preferences = preferences_for(len(terms), VALIDATION_GRID_STEPS if len(terms) == 2 else 2)
    metrics = preference_metrics(network, vec, first, preferences).mean(axis=1)
    return float((preferences * metrics / [units[name] for name in terms]).sum(axis=1).mean())
