"""Training a `PlacedLinearAgent` by direct search, from the best rule on.

First every rule of `placed_linear.RULES` runs with every order of types and placement on the training jobs; the best of
them is the start, and what all values are relative to, window by window, so that a window with one very long job counts
no more than another. Each generation draws windows from the training jobs, lets every candidate schedule the same
ones, and tells CMA-ES which did better. What is validated is the mean of the path over its latter half, as the search
wanders in its noise. Of the validation windows, which are later jobs, the even ones pick among these and the odd ones
decide whether the pick surely beats the rule; if it does not, the rule is the agent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.checkpoint import CheckpointDir, Generation, SearchCheckpoint
from kilowait.agents.evolution.cma_es import EvolutionStrategy
from kilowait.agents.evolution.window_starts import drawn_starts, spread_starts
from kilowait.agents.linear_gpu.agent import RULES, LinearGpuAgent, rule_agent
from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import simulate
from kilowait.rng import stream

__all__ = ["OBJECTIVES", "PLACEMENTS", "best_rule", "train_placed"]

Floats = npt.NDArray[np.float64]
SpeedsOf = Callable[[JobTable], Speeds | None]
"""How fast these jobs run on each type."""

TYPES = ("any", "fastest")
PLACEMENTS = ("first", "best", "worst", "consolidate", "pack", "fgd")
"""Tried with every rule; the others are random, or much like these."""
SURE = 1.96
"""Standard errors by which the mean of the log-ratios must lie below 0."""
LEAST_RUN_S = 10.0


def mean_jct_s(log: ExecutionLog) -> float:
    """Mean job completion time, seconds."""
    return float(np.nanmean(log.jobs()["turnaround_s"]))


def mean_wait_s(log: ExecutionLog) -> float:
    """Mean time without a place, seconds."""
    return float(np.nanmean(log.jobs()["wait_s"]))


def mean_bsld(log: ExecutionLog) -> float:
    """Mean of completion time over run time at speed 1 (at least 10 s), at least 1."""
    slow = log.jobs()["turnaround_s"] / np.maximum(log.jobs_table["runtime_s"], LEAST_RUN_S)
    return float(np.nanmean(np.maximum(slow, 1.0)))


OBJECTIVES = {"mean_jct_s": mean_jct_s, "mean_wait_s": mean_wait_s, "mean_bsld": mean_bsld}
"""What is to be small, by name."""


def train_placed(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    *,
    seed: int,
    speeds: SpeedsOf = lambda jobs: None,
    generations: int = 80,
    population: int = 16,
    windows: int = 16,
    window_jobs: int = 512,
    objective: str = "mean_jct_s",
    placements: Sequence[str] = PLACEMENTS,
    trace: str | None = None,
    threads: int = 1,
    progress: Callable[[Generation], None] | None = None,
    keeping: CheckpointDir | None = None,
) -> tuple[LinearGpuAgent, list[Generation]]:
    """An agent trained on `jobs` and chosen on `validation`, which should be later jobs of the same log.

    Same arguments, same weights, to the bit, on any number of threads, and gone on with after a kill or not.

    Args:
        jobs: what is learned from.
        validation: later jobs, which pick among what the search found, and between that and the rule.
        cluster: the machine, of placed nodes.
        seed: of the search and of the windows.
        speeds: says how fast jobs run on each type; by default all alike.
        generations: rounds of the search.
        population: candidates a round.
        windows: windows each candidate is tried on, the same for all of a round.
        window_jobs: jobs in each.
        objective: a name of `OBJECTIVES`.
        placements: tried with every rule for the start.
        trace: name of the log, for the record.
        threads: simulations at a time.
        progress: hears of every generation.
        keeping: where the search is kept, and whether it goes on from there; None: nowhere.
    """
    if generations < 1 or threads < 1:
        raise InputError(f"{generations} generations on {threads} threads; there must be at least 1 of each")
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective on placed nodes", objective, OBJECTIVES)
    random = stream(seed, "agents.placed windows")
    count = len(validation) // window_jobs
    if count < 4:
        raise InputError(
            f"{len(validation):,} validation jobs hold {count} windows of {window_jobs:,} side by side, and 4 are "
            "needed to choose and to be sure; take a longer log or shorter windows (--window)"
        )
    checks = [validation[i * window_jobs : (i + 1) * window_jobs] for i in range(count)]
    with ThreadPoolExecutor(threads) as pool:
        tried = _trial(pool, cluster, speeds, objective)
        training = _windows(jobs, spread_starts(jobs, windows, window_jobs), window_jobs)
        identity = {
            "search": "on placed nodes",
            "seed": seed,
            "objective": objective,
            "placements": list(placements),
            "population": population,
            "windows": windows,
            "window_jobs": window_jobs,
        }
        course = SearchCheckpoint(identity, generations, keeping)
        rules = rule_agents(cluster, placements)
        start = _best(rules, course.starts(rules, lambda some: tried(some, training)))
        search = EvolutionStrategy(_unit(start.weights), step=0.2, seed=seed, population=population)
        reference = tried([start], checks)[0]
        every = max(1, generations // 16)
        path = course.path
        best = 1.0 if course.best is None else course.best[0]
        for number in course.rest(search, random):
            drawn = _windows(jobs, drawn_starts(jobs, windows, window_jobs, random), window_jobs)
            candidates = search.ask()
            values = tried([start, *(LinearGpuAgent(row, start.gpu_settings) for row in candidates)], drawn)
            scores = [_relative(value, values[0]) for value in values[1:]]
            search.tell(candidates, scores)
            path.append(_unit(search.mean))
            score = float("nan")
            if number % every == 0 or number == generations:
                averaged = _unit(np.mean(path[len(path) // 2 :], axis=0))
                score = _relative(
                    tried([LinearGpuAgent(averaged, start.gpu_settings)], checks[::2])[0], reference[::2]
                )
                if score < best:
                    best = score
                    course.best = (score, averaged)
            step = search.step / float(np.sqrt((search.mean**2).sum()))
            course.close(Generation(number, generations, float(np.mean(scores)), score, best, step))
            if progress is not None:
                progress(course.history[-1])
        chosen = start if course.best is None else LinearGpuAgent(course.best[1], start.gpu_settings)
        ratios = np.log(tried([chosen], checks[1::2])[0] / reference[1::2])
    kept = chosen is start or not _surely_below(ratios)
    provenance = {
        "trained_by": "kilowait.agents.train_placed (CMA-ES)",
        "trace": trace,
        "trained_on_jobs": len(jobs),
        "chosen_on_jobs": len(validation),
        "cluster": cluster.name,
        "seed": seed,
        "objective": objective,
        "generations": len(course.history),
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
        "start": dict(start.provenance),
        "kept_the_rule": kept,
        "validation_relative_to_the_rule": float(np.exp(ratios.mean())),
    }
    found = start if kept else chosen
    return LinearGpuAgent(found.weights, found.gpu_settings, provenance=provenance), course.history


def rule_agents(
    cluster: Cluster, placements: Sequence[str] = PLACEMENTS, migrate: Sequence[bool] = (False, True)
) -> list[LinearGpuAgent]:
    """Every rule in every way it may be run."""
    gpus = sum(group.nodes * group.gpus for group in cluster.groups)
    return [
        rule_agent(rule, gpus, types=types, placement=placement, migrate=moves)
        for rule, types, placement, moves in product(RULES, TYPES, placements, migrate)
    ]


def best_rule(
    jobs: JobTable,
    cluster: Cluster,
    *,
    rules: Sequence[str] = tuple(RULES),
    speeds: SpeedsOf = lambda jobs: None,
    windows: int = 16,
    window_jobs: int = 512,
    objective: str = "mean_jct_s",
    placements: Sequence[str] = PLACEMENTS,
    migrate: Sequence[bool] = (False, True),
) -> LinearGpuAgent:
    """Of these rules with every order of types and placement, moving jobs or not, the best on windows of these jobs.

    Its `provenance` has the names of the rule, the order of types and the placement.
    """
    every = rule_agents(cluster, placements, migrate)
    candidates = [each for each in every if each.provenance["rule"] in rules]
    with ThreadPoolExecutor(1) as pool:
        tried = _trial(pool, cluster, speeds, objective)
        training = _windows(jobs, spread_starts(jobs, windows, window_jobs), window_jobs)
        return _best(candidates, tried(candidates, training))


Trial = Callable[[Sequence[LinearGpuAgent], Sequence[JobTable]], Floats]


def _trial(pool: ThreadPoolExecutor, cluster: Cluster, speeds: SpeedsOf, objective: str) -> Trial:
    measure = OBJECTIVES[objective]

    def tried(candidates: Sequence[LinearGpuAgent], on: Sequence[JobTable]) -> Floats:
        """Values, candidate by window; gathered in order, so threads do not change a bit."""
        tables = list(pool.map(speeds, on))
        pairs = [(agent, place) for agent in candidates for place in range(len(on))]

        def value(pair: tuple[LinearGpuAgent, int]) -> float:
            agent, place = pair
            told: dict[str, Any] = {"speeds": tables[place], "on_oversized": "drop"}
            return measure(simulate(on[place], cluster, agent, "skip", **told))

        return np.array(list(pool.map(value, pairs))).reshape(len(candidates), len(on))

    return tried


def _windows(jobs: JobTable, starts: Sequence[int], window_jobs: int) -> list[JobTable]:
    return [jobs[first : first + window_jobs] for first in starts]


def _best(candidates: Sequence[LinearGpuAgent], values: Floats) -> LinearGpuAgent:
    scores = [_relative(value, values[0]) for value in values]
    return candidates[int(np.argmin(scores))]


def _relative(values: Floats, reference: Floats) -> float:
    """Geometric mean over windows of value / reference; what is near zero counts as 1 % of the mean reference."""
    floor = max(0.01 * float(reference.mean()), 1e-12)
    return float(np.exp(np.log(np.maximum(values, floor) / np.maximum(reference, floor)).mean()))


def _surely_below(ratios: Floats) -> bool:
    """Whether the mean of these log-ratios lies surely below 0."""
    return float(ratios.mean() + SURE * ratios.std(ddof=1) / math.sqrt(len(ratios))) < 0


def _unit(weights: Floats) -> Floats:
    """The same proportions at length 1: the order of jobs is the same."""
    return np.asarray(weights / max(float(np.sqrt((weights**2).sum())), 1e-300))
