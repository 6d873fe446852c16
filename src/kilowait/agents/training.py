"""Training a `LinearAgent` by direct search: simulate, rank, move on.

Each generation draws windows from the training jobs, lets every candidate schedule the same ones, and
tells CMA-ES which did better. Values are taken relative to the start (the order of SAF) on the same window, so
that a busy window counts no more than a quiet one. The search wanders in its noise, so what is validated is not
its last point but the mean of its path over its latter half; the validation jobs, which are later, pick among these,
and among them is the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.agents.linear import LinearAgent, saf_weights
from kilowait.agents.search import EvolutionStrategy
from kilowait.agents.windows import drawn_windows, spread_windows
from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable, SegmentLog
from kilowait.policies import simulate
from kilowait.seeding import stream

__all__ = ["OBJECTIVES", "Generation", "Objective", "mean_bsld", "mean_wait_s", "train"]

Floats = npt.NDArray[np.float64]
Objective = Callable[[SegmentLog], float]
"""What a run is worth; smaller is better."""


@dataclass(frozen=True)
class Generation:
    """What one generation found. Scores are relative to the start: below 1 is better."""

    number: int
    of: int
    training: float
    """Mean of the candidates on this generation's windows."""
    validation: float
    """Of the averaged weights on the validation windows; NaN in generations that were not validated."""
    best: float
    """The least validation score so far; 1 is the start."""
    step: float
    """Step of the search, relative to the length of its mean."""


def mean_bsld(log: SegmentLog) -> float:
    """Mean bounded slowdown: wait plus run over run, run times below 10 s counting as 10 s, at least 1."""
    records = log.jobs()
    started = ~np.isnan(records["start_s"])
    turnaround_s, run_s = records["turnaround_s"][started], records["run_s"][started]
    return float(np.maximum(1.0, turnaround_s / np.maximum(run_s, 10.0)).mean()) if len(run_s) else 1.0


def mean_wait_s(log: SegmentLog) -> float:
    """Mean wait, seconds."""
    wait_s = log.jobs()["wait_s"]
    return float(np.nanmean(wait_s)) if np.isfinite(wait_s).any() else 0.0


OBJECTIVES: dict[str, Objective] = {"mean_bsld": mean_bsld, "mean_wait_s": mean_wait_s}
"""Objectives known by name."""


def train(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    *,
    seed: int,
    generations: int = 80,
    population: int = 16,
    windows: int = 16,
    window_jobs: int = 1024,
    backfill: str | int = "easy",
    objective: str | Objective = "mean_bsld",
    trace: str | None = None,
    threads: int = 1,
    progress: Callable[[Generation], None] | None = None,
) -> tuple[LinearAgent, list[Generation]]:
    """An agent trained on `jobs` and chosen on `validation`, which should be later jobs of the same log.

    What it is to be judged on is not handed in, and so cannot be learned from.

    Same arguments, same weights, to the bit, on any number of threads.

    Args:
        jobs: what is learned from.
        validation: later jobs, which pick among what the search found.
        cluster: the machine.
        seed: of the search and of the windows.
        generations: rounds of the search.
        population: candidates a round.
        windows: windows each candidate is tried on, the same for all of a round.
        window_jobs: jobs in each.
        backfill: as in `kilowait.simulate`.
        objective: a name of `OBJECTIVES`, or a function of a log; smaller is better.
        trace: name of the log, for the record.
        threads: simulations at a time.
        progress: hears of every generation.
    """
    if generations < 1 or threads < 1:
        raise InputError(f"{generations} generations on {threads} threads; there must be at least 1 of each")
    measure, measured = _objective(objective)
    random = stream(seed, "agents.windows")
    checks = spread_windows(validation, max(windows, 2 * len(validation) // window_jobs), window_jobs)
    start = LinearAgent(saf_weights(cluster.nodes))
    search = EvolutionStrategy(start.weights, step=0.2, seed=seed, population=population)
    every = max(1, generations // 16)
    history: list[Generation] = []
    path: list[Floats] = []
    best, chosen = 1.0, start.weights
    with ThreadPoolExecutor(threads) as pool:

        def tried(candidates: Sequence[Floats], on: Sequence[JobTable]) -> Floats:
            """Values, candidate by window; gathered in order, so threads do not change a bit."""
            rules = [LinearAgent(weights).rule for weights in candidates]
            pairs = [(rule, window) for rule in rules for window in on]
            values = pool.map(lambda pair: measure(simulate(pair[1], cluster, pair[0], backfill)), pairs)
            return np.array(list(values)).reshape(len(rules), len(on))

        reference = tried([start.weights], checks)[0]
        for number in range(1, generations + 1):
            drawn = drawn_windows(jobs, windows, window_jobs, random)
            candidates = search.ask()
            values = tried([start.weights, *candidates], drawn)
            scores = [_relative(value, values[0]) for value in values[1:]]
            search.tell(candidates, scores)
            path.append(_unit(search.mean))
            score = float("nan")
            if number % every == 0 or number == generations:
                averaged = _unit(np.mean(path[len(path) // 2 :], axis=0))
                score = _relative(tried([averaged], checks)[0], reference)
                if score < best:
                    best, chosen = score, averaged
            step = search.step / float(np.sqrt((search.mean**2).sum()))
            history.append(Generation(number, generations, float(np.mean(scores)), score, best, step))
            if progress is not None:
                progress(history[-1])
    provenance = {
        "trained_by": "kilowait.agents.train (CMA-ES)",
        "trace": trace,
        "trained_on_jobs": len(jobs),
        "chosen_on_jobs": len(validation),
        "nodes": cluster.nodes,
        "seed": seed,
        "objective": measured,
        "backfill": backfill,
        "generations": generations,
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
        "validation_relative_to_saf_order": best,
    }
    return LinearAgent(chosen, provenance=provenance), history


def _objective(objective: str | Objective) -> tuple[Objective, str]:
    if not isinstance(objective, str):
        return objective, getattr(objective, "__name__", "own")
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective", objective, OBJECTIVES)
    return OBJECTIVES[objective], objective


def _relative(values: Floats, reference: Floats) -> float:
    """Geometric mean over windows of value / reference; what is near zero counts as 1 % of the mean reference.

    Not the plain mean: of two equally good rules it would prefer the reference, as 2 and 1/2 make 1.25.
    """
    floor = max(0.01 * float(reference.mean()), 1e-12)
    return float(np.exp(np.log(np.maximum(values, floor) / np.maximum(reference, floor)).mean()))


def _unit(weights: Floats) -> Floats:
    """The same proportions at length 1: the order of jobs is the same."""
    return np.asarray(weights / max(float(np.sqrt((weights**2).sum())), 1e-300))
