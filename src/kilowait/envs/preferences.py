"""Preferences: weights of reward terms, sampled for every episode and observed by the agent (multi-objective RL).

A preference-conditioned network learns all trade-offs between the terms at once. Terms differ in scale, so each has a
fixed unit: an episode costs the sum of weight x metric / unit. Weights are 0 or above and sum to 1; they are sampled
uniformly from this simplex (Dirichlet(1, ..., 1)).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.envs.batched_sim import random_state_bytes, restore_random_state
from kilowait.errors import InputError, UnknownNameError
from kilowait.rng import stream

Floats = npt.NDArray[np.float64]


def weights_from(preference: Mapping[str, float], terms: Iterable[str]) -> Floats:
    """The weights in the order of the terms, normalized to a sum of 1; a term that is not named has 0.

    >>> weights_from({"slowdown": 3, "energy": 1}, ["energy", "slowdown", "sla"]).tolist()
    [0.25, 0.75, 0.0]
    """
    known = tuple(terms)
    for name, weight in preference.items():
        if name not in known:
            raise UnknownNameError("preference", name, known)
        if not (np.isfinite(weight) and weight >= 0):
            raise InputError(f"the preference of {name} is {weight}; give a finite number, 0 or above")
    weights = np.array([float(preference.get(name, 0.0)) for name in known])
    if not weights.sum() > 0:
        raise InputError(f"all preferences are 0; give at least one of {', '.join(known)} a number above 0")
    return weights / weights.sum()


def preference_text(preference: Mapping[str, float]) -> str:
    """The preference as text of the command line.

    >>> preference_text({"slowdown": 0.25, "energy": 0.75})
    'slowdown=0.25+energy=0.75'
    """
    return "+".join(f"{name}={weight:g}" for name, weight in preference.items())


def preference_grid(terms: int, grid_steps: int) -> Floats:
    """(points, terms) all preferences whose weights are multiples of 1 / grid_steps, in order of the last term.

    >>> preference_grid(2, 2).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    >>> len(preference_grid(3, 4))
    15
    """
    combinations = combinations_with_replacement(range(terms), grid_steps)
    return np.array([np.bincount(each, minlength=terms) / grid_steps for each in combinations])


@dataclass(frozen=True)
class Preferences:
    """Reward terms with preference weights, and the unit of each.

    >>> Preferences({"energy": 2.0, "slowdown": 20.0}, ("slowdown", "energy")).cost_per_metric([1.0, 0.0]).tolist()
    [0.0, 0.5]
    """

    units: Mapping[str, float]
    """Term to the metric value that counts as 1."""
    known: tuple[str, ...]
    """All reward terms, in order."""

    def __post_init__(self) -> None:
        for name, unit in self.units.items():
            if not isinstance(name, str):
                raise InputError(
                    f"preferences are for built-in reward terms, and {name!r} is not one; give the "
                    "name of a built-in term"
                )
            if name not in self.known:
                raise UnknownNameError("reward term", name, self.known)
            if not (np.isfinite(unit) and unit > 0):
                raise InputError(f"the unit of {name} is {unit}; give a finite number above 0")
        if len(self.units) < 2:
            raise InputError(
                f"preferences between {', '.join(self.units) or 'no terms'}; name at least two of "
                f"{', '.join(self.known)}"
            )

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms with preference weights."""
        return tuple(self.units)

    def cost_per_metric(self, weights: npt.ArrayLike) -> Floats:
        """(..., all terms) factor of each metric in the cost, for these weights, (..., terms)."""
        weights_array = np.asarray(weights, np.float64)
        factors = np.zeros((*weights_array.shape[:-1], len(self.known)))
        for index, (name, unit) in enumerate(self.units.items()):
            factors[..., self.known.index(name)] = weights_array[..., index] / unit
        return factors


class EpisodePreferences:
    """Preference of every environment copy in its current episode, and the random stream of the next ones."""

    def __init__(self, preferences: Preferences, copies: int, seed: int) -> None:
        """Samples a first preference for every copy; `begin` samples the next ones."""
        self.preferences = preferences
        self.weights = np.zeros((copies, len(preferences.terms)))
        self._observed_weights = np.zeros((copies, len(preferences.terms)), np.float32)
        self._cost_per_metric = np.zeros((copies, len(preferences.known)))
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Reseed the random stream. The windows have another stream: they are the same with and without preferences."""
        self._random = stream(seed, "envs.preferences")
        self.begin(np.ones(len(self.weights), np.bool_))

    def begin(self, which: npt.NDArray[np.bool_], weights: Any = None) -> None:
        """Preferences of the episodes that these copies begin: random ones, or `weights`.

        `weights` is a mapping from terms to weights, for all copies, or an array, (terms,) or (copies, terms).
        """
        terms = self.preferences.terms
        if not which.any():
            return
        if weights is None:
            self.weights[which] = self._random.dirichlet(np.ones(len(terms)), int(which.sum()))
        else:
            weights = weights_from(weights, terms) if isinstance(weights, Mapping) else np.asarray(weights, np.float64)
            if weights.shape not in ((len(terms),), self.weights.shape) or not _on_simplex(weights):
                raise InputError(
                    f"preferences {weights.tolist()}; give weights of {', '.join(terms)}, 0 or above, with a sum of 1, "
                    "one row for all or one per copy"
                )
            self.weights[which] = np.broadcast_to(weights, self.weights.shape)[which]
        self._update()

    def _update(self) -> None:
        self._observed_weights = self.weights.astype(np.float32)
        self._cost_per_metric = self.preferences.cost_per_metric(self.weights)

    def cost(self, metrics: Floats) -> Floats:
        """(copies,) cost of these metrics, (copies, all terms), under the preference of each copy."""
        cost: Floats = np.einsum("ct,ct->c", metrics, self._cost_per_metric)
        return cost

    def with_preferences(self, observation: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The observation with the preference weights at the end of its summary."""
        return {**observation, "summary": np.concatenate([observation["summary"], self._observed_weights], axis=1)}

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """The state, for `restore`."""
        return {"preferences": self.weights.copy(), "preferences.random": random_state_bytes(self._random)}

    def restore(self, saved: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Restore a snapshot; returns its other entries."""
        if "preferences" not in saved or np.shape(saved["preferences"]) != self.weights.shape:
            raise InputError(
                "the snapshot has no preferences of these terms; make the environment with the same arguments"
            )
        self.weights[:] = saved["preferences"]
        restore_random_state(self._random, saved["preferences.random"])
        self._update()
        return {name: array for name, array in saved.items() if not name.startswith("preferences")}


def _on_simplex(weights: Floats) -> bool:
    return bool((weights >= 0).all() and np.allclose(weights.sum(axis=-1), 1.0, rtol=0, atol=1e-9))
