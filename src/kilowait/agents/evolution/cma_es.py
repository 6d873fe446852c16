"""CMA-ES: derivative-free minimization of a function of a few numbers.

Each generation samples candidates from a normal distribution, ranks them by their value and moves the distribution
towards the better half: its mean, its covariance and its step size. Only ranks count, so the function may be noisy,
and any monotone transform of it gives the same search. As in N. Hansen, "The CMA Evolution Strategy: A Tutorial",
arXiv:1604.00772, with its default constants; positive weights only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.rng import stream

Floats = npt.NDArray[np.float64]

_ARRAYS = ("path", "step_path", "covariance", "axes", "widths")
"""State that changes every generation, besides mean, step size and random state."""


class EvolutionStrategy:
    """A (mu/mu_w, lambda)-CMA-ES with an ask-and-tell interface.

    >>> search = EvolutionStrategy([3.0, -2.0], step=1.0, seed=0)
    >>> for _ in range(120):
    ...     points = search.ask()
    ...     search.tell(points, (points**2).sum(axis=1))
    >>> bool(np.abs(search.mean).max() < 1e-6)
    True
    """

    def __init__(self, start: npt.ArrayLike, *, step: float, seed: int, population: int | None = None) -> None:
        """Start at the point `start` with initial step size `step` along each axis."""
        self.mean: Floats = np.array(start, np.float64)
        if self.mean.ndim != 1 or not len(self.mean) or not np.isfinite(self.mean).all():
            raise InputError(f"the search starts at {start!r}; give a list of finite numbers")
        if not (math.isfinite(step) and step > 0):
            raise InputError(f"the first step is {step}; it must be a finite number above 0")
        n = len(self.mean)
        self.population = 4 + int(3 * math.log(n)) if population is None else population
        check_population(self.population)
        self.step = float(step)
        self.generation = 0
        self._random = stream(seed, "agents.search")
        # Recombination weights: the better half counts, by rank.
        parents = self.population // 2
        raw = math.log((self.population + 1) / 2) - np.log(np.arange(1, parents + 1))
        self._weights: Floats = raw / raw.sum()
        effective_parents = 1.0 / float((self._weights**2).sum())
        # Learning rates of the evolution paths, the covariance and the step size.
        self._c_path = (4 + effective_parents / n) / (n + 4 + 2 * effective_parents / n)
        self._c_step = (effective_parents + 2) / (n + effective_parents + 5)
        self._c_one = 2 / ((n + 1.3) ** 2 + effective_parents)
        self._c_many = min(
            1 - self._c_one, 2 * (effective_parents - 2 + 1 / effective_parents) / ((n + 2) ** 2 + effective_parents)
        )
        self._damping = 1 + 2 * max(0.0, math.sqrt((effective_parents - 1) / (n + 1)) - 1) + self._c_step
        self._expected_length = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))  # expected norm of a normal vector
        self._effective_parents = effective_parents
        self._path: Floats = np.zeros(n)
        self._step_path: Floats = np.zeros(n)
        self._covariance: Floats = np.eye(n)
        self._axes: Floats = np.eye(n)
        self._widths: Floats = np.ones(n)

    def ask(self) -> Floats:
        """Candidates to evaluate, one a row."""
        normal = self._random.standard_normal((self.population, len(self.mean)))
        candidates: Floats = self.mean + self.step * (normal * self._widths) @ self._axes.T
        return candidates

    def tell(self, candidates: Floats, values: npt.ArrayLike) -> None:
        """Update the distribution with the values of the candidates of `ask`; smaller is better, NaN is the worst."""
        value = np.asarray(values, np.float64)
        if value.shape != (self.population,) or candidates.shape != (self.population, len(self.mean)):
            raise InputError(
                f"{candidates.shape[0]} candidates with {value.size} values; this search asked for "
                f"{self.population} and needs one value for each"
            )
        n = len(self.mean)
        order = np.argsort(np.where(np.isnan(value), np.inf, value), kind="stable")[: len(self._weights)]
        moves = (candidates[order] - self.mean) / self.step
        move = self._weights @ moves
        self.mean = self.mean + self.step * move
        self.generation += 1

        c, effective_parents = self._c_step, self._effective_parents
        whitened = self._axes @ ((self._axes.T @ move) / self._widths)
        self._step_path = (1 - c) * self._step_path + math.sqrt(c * (2 - c) * effective_parents) * whitened
        length = float(np.sqrt((self._step_path**2).sum()))
        path_correction = 1 - (1 - c) ** (2 * self.generation)
        stalled = length / math.sqrt(path_correction) / self._expected_length >= 1.4 + 2 / (n + 1)
        c = self._c_path
        self._path = (1 - c) * self._path
        if not stalled:
            self._path = self._path + math.sqrt(c * (2 - c) * effective_parents) * move
        covariance_decay = 1 - self._c_one - self._c_many + (self._c_one * c * (2 - c) if stalled else 0.0)
        self._covariance = (
            covariance_decay * self._covariance
            + self._c_one * np.outer(self._path, self._path)
            + self._c_many * (moves.T * self._weights) @ moves
        )
        self.step *= math.exp(min(1.0, self._c_step / self._damping * (length / self._expected_length - 1)))
        self._covariance = (self._covariance + self._covariance.T) / 2
        eigenvalues, axes = np.linalg.eigh(self._covariance)
        self._axes = np.ascontiguousarray(axes)
        self._widths = np.sqrt(np.maximum(eigenvalues, 1e-20))

    def state_dict(self) -> dict[str, Any]:
        """State as plain lists and numbers, from which the search resumes bit-identically."""
        arrays = {name: getattr(self, f"_{name}").tolist() for name in _ARRAYS}
        return {
            "mean": self.mean.tolist(),
            "step": self.step,
            "generation": self.generation,
            "random": self._random.bit_generator.state,
            **arrays,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state.

        >>> search = EvolutionStrategy([3.0, -2.0], step=1.0, seed=0)
        >>> state, first = search.state_dict(), search.ask()
        >>> search.load_state_dict(state)
        >>> bool((search.ask() == first).all())
        True
        """
        arrays = {name: np.array(state[name], np.float64) for name in ("mean", *_ARRAYS)}
        for name, array in arrays.items():
            current: Floats = getattr(self, name if name == "mean" else f"_{name}")
            if array.shape != current.shape or not np.isfinite(array).all():
                raise ValueError(f"{name} is not an array of shape {current.shape} of finite numbers")
        step, generation = state["step"], state["generation"]
        if isinstance(generation, bool) or not isinstance(generation, int) or not 0 <= generation < 10**9:
            raise ValueError(f"generation is {generation!r:.60}, not a number of generations")
        if not isinstance(step, float) or not 0 < step < np.inf or (arrays["widths"] <= 0).any():
            raise ValueError(f"step is {step!r:.60}, or widths are not above 0")
        self._random.bit_generator.state = state["random"]
        self.mean, self.step, self.generation = arrays["mean"], step, generation
        for name in _ARRAYS:
            setattr(self, f"_{name}", arrays[name])


def check_population(population: int) -> None:
    """Refuse a population that is too small."""
    if population < 4:
        raise InputError(f"a population of {population}; ranking needs at least 4")


def minimize(
    function: Callable[[Floats], float],
    start: npt.ArrayLike,
    *,
    step: float,
    seed: int,
    generations: int,
    population: int | None = None,
) -> tuple[Floats, float]:
    """The best point found in `generations` generations, and its value.

    >>> point, value = minimize(lambda x: float(((x - 1) ** 2).sum()), [0, 0], step=0.5, seed=1, generations=40)
    >>> np.round(point, 3).tolist()
    [1.0, 1.0]
    """
    search = EvolutionStrategy(start, step=step, seed=seed, population=population)
    best, smallest = search.mean, math.inf
    for _ in range(generations):
        candidates = search.ask()
        values = [float(function(candidate)) for candidate in candidates]
        search.tell(candidates, values)
        best_index = int(np.argmin(values))
        if values[best_index] < smallest:
            best, smallest = candidates[best_index], values[best_index]
    return best, smallest
