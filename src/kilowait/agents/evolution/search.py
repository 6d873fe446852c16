"""The generations of an evolution strategy, the same for every agent, and objectives of batch agents by name.

The search is noisy, as every generation is evaluated on other windows. So not its last point is validated, but the
mean of the second half of its path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.checkpoint import Generation, SearchCheckpoint
from kilowait.agents.evolution.cma_es import EvolutionStrategy
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog

__all__ = [
    "OBJECTIVES",
    "Objective",
    "mean_bsld",
    "mean_wait_s",
    "objective_of",
    "averaged_point",
    "check_search",
    "evaluate_windows",
    "run_search",
    "unit_length",
]

Floats = npt.NDArray[np.float64]

Objective = Callable[[ExecutionLog], float]
"""Objective value of a run; smaller is better."""


def mean_bsld(log: ExecutionLog) -> float:
    """Mean bounded slowdown: (wait + run) / run, run times below 10 s counting as 10 s, at least 1."""
    records = log.jobs()
    started = ~np.isnan(records["start_s"])
    turnaround_s, run_s = records["turnaround_s"][started], records["run_s"][started]
    return float(np.maximum(1.0, turnaround_s / np.maximum(run_s, 10.0)).mean()) if len(run_s) else 1.0


def mean_wait_s(log: ExecutionLog) -> float:
    """Mean wait, seconds."""
    wait_s = log.jobs()["wait_s"]
    return float(np.nanmean(wait_s)) if np.isfinite(wait_s).any() else 0.0


OBJECTIVES: dict[str, Objective] = {"mean_bsld": mean_bsld, "mean_wait_s": mean_wait_s}
"""Objectives by name."""


def objective_of(objective: str | Objective) -> tuple[Objective, str]:
    """The objective as a function, and its name for the provenance.

    >>> objective_of("mean_wait_s")[1]
    'mean_wait_s'
    """
    if not isinstance(objective, str):
        return objective, getattr(objective, "__name__", "own")
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective", objective, OBJECTIVES)
    return OBJECTIVES[objective], objective


C = TypeVar("C")
W = TypeVar("W")

VALIDATIONS = 16
"""Largest number of validations of a search, evenly spaced over its generations."""


def check_search(generations: int, threads: int) -> None:
    """Refuse a search without generations or threads."""
    if generations < 1 or threads < 1:
        raise InputError(f"{generations} generations on {threads} threads; there must be at least 1 of each")


def run_search(
    search: EvolutionStrategy,
    checkpoint: SearchCheckpoint,
    random: np.random.Generator,
    evaluate: Callable[[Floats, int], tuple[npt.ArrayLike, float]],
    *,
    validate: Callable[[Floats], float] | None = None,
    scale_free: bool = False,
    progress: Callable[[Generation], None] | None = None,
) -> None:
    """Run the remaining generations of a search; its results are in the checkpoint.

    Args:
        search: the search distribution.
        checkpoint: path, history and best point; it is written after every generation.
        random: random numbers of the windows; its state is restored when the search is resumed.
        evaluate: returns the values of points (one a row) in the generation of this number, smaller is better, and
            their mean score relative to the start of the search.
        validate: returns the score of a point relative to the start, on validation windows; None: no validation.
        scale_free: only the direction of a point counts; points are scaled to length 1.
        progress: called with every generation; without validation the last is left to the caller.

    >>> search = EvolutionStrategy([3.0, -2.0], step=1.0, seed=0)
    >>> checkpoint = SearchCheckpoint({"seed": 0}, 60, None)
    >>> def evaluate(points, number):
    ...     values = (points**2).sum(axis=1)
    ...     return values, float(values.mean()) / 13.0
    >>> run_search(search, checkpoint, np.random.default_rng(0), evaluate)
    >>> len(checkpoint.history), bool(np.abs(search.mean).max() < 1e-2)
    (60, True)
    """
    generations = checkpoint.generations
    validate_every = max(1, generations // VALIDATIONS)
    for number in checkpoint.remaining_generations(search, random):
        points = search.ask()
        values, score = evaluate(points, number)
        search.tell(points, values)
        checkpoint.path.append(unit_length(search.mean) if scale_free else search.mean)
        validation, best = float("nan"), 1.0 if checkpoint.best is None else checkpoint.best[0]
        if validate is not None and (number % validate_every == 0 or number == generations):
            point = unit_length(averaged_point(checkpoint)) if scale_free else averaged_point(checkpoint)
            validation = validate(point)
            if validation < best:
                best = validation
                checkpoint.best = (validation, point)
        step = search.step / _length(search.mean) if scale_free else search.step
        checkpoint.close(Generation(number, generations, score, validation, best, step))
        if progress is not None and (validate is not None or number < generations):
            progress(checkpoint.history[-1])


def averaged_point(checkpoint: SearchCheckpoint) -> Floats:
    """Mean of the second half of the path of a search."""
    return np.asarray(np.mean(checkpoint.path[len(checkpoint.path) // 2 :], axis=0))


def evaluate_windows(
    pool: Executor, value: Callable[[C, W], float], candidates: Sequence[C], windows: Sequence[W]
) -> Floats:
    """Values (candidates, windows); gathered in order, so the result does not depend on the number of threads."""
    pairs = [(candidate, window) for candidate in candidates for window in windows]
    values = list(pool.map(lambda pair: value(*pair), pairs))
    return np.array(values).reshape(len(candidates), len(windows))


def unit_length(weights: Floats) -> Floats:
    """The weights scaled to length 1, which does not change an order by their score.

    >>> unit_length(np.array([3.0, 4.0])).tolist()
    [0.6, 0.8]
    """
    return np.asarray(weights / max(_length(weights), 1e-300))


def _length(weights: Floats) -> float:
    return float(np.sqrt((weights**2).sum()))
