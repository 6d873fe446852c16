"""Training a `LinearAgent` by direct search: simulate, rank, move on.

A schedule is a chaotic thing: a tie broken the other way can change the slowdown of a whole window, so a search
that believes single windows learns their noise. Hence the search begins where theory says (`usual_weights`, or one of
its neighbours if that is surely better on training jobs), draws new windows for every generation, lets all candidates
schedule the same ones, pulls back towards the start, and takes not its last point but the mean of its path over its
latter half. That, or half the way there, is taken only if it is clearly better than the start both on new windows of
the training jobs and on the validation jobs, which are later. And a rule that is surely better than the start is kept,
unless what the search found clearly beats it.

A window knows of its users what jobs before it taught, and not the latest of them: an agent is used, and judged, some
time after it was trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.checkpoint import CheckpointDir, Generation, SearchCheckpoint
from kilowait.agents.evolution.cma_es import EvolutionStrategy
from kilowait.agents.evolution.objectives import OBJECTIVES, Objective, objective_of
from kilowait.agents.evolution.training_windows import LogPart, TrainingWindow, WindowSampler
from kilowait.agents.evolution.window_starts import spread_starts
from kilowait.agents.linear_batch.agent import (
    LinearAgent,
    saf_weights,
    usual_weights,
    weights_of,
)
from kilowait.agents.linear_batch.score import COUNT
from kilowait.agents.training_data import SyntheticMix
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.rng import stream

__all__ = ["train"]

Floats = npt.NDArray[np.float64]

STARTS: dict[str, Callable[[], Floats]] = {
    "usual": usual_weights,
    "expected area": lambda: weights_of(length=1.0, width=1.0, usual=1.0, habit=1.0),
    "area": saf_weights,
}
"""Where a search may begin, the usual place first."""

RULES = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4", "wfp3", "unicef")
"""Rules that are kept where they are better."""

STEP = 0.1
PULL = 0.1
"""What a squared step away from the start costs, in logarithms of the objective."""
CLEARLY = 0.98
"""What the search found must be at most this much of the start to be taken."""
SURELY = 0.95
"""What is begun with, or kept, instead of the usual must be at most this much of it."""


def train(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    *,
    seed: int,
    generations: int = 40,
    population: int = 16,
    windows: int = 48,
    window_jobs: int = 1024,
    backfill: str | int = "easy",
    objective: str | Objective = "mean_bsld",
    max_wait_s: float = np.inf,
    trace: str | None = None,
    threads: int = 1,
    progress: Callable[[Generation], None] | None = None,
    keeping: CheckpointDir | None = None,
    mixture: SyntheticMix | None = None,
) -> tuple[LinearAgent, list[Generation]]:
    """An agent trained on `jobs` and chosen on `validation`, which should be later jobs of the same log.

    What it is to be judged on is not handed in, and so cannot be learned from.

    Same arguments, same weights, to the bit, on any number of threads, and gone on with after a kill or not.

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
        max_wait_s: jobs that have waited longer go first, seconds; rules are not kept then, as they know no bound.
        trace: name of the log, for the record.
        threads: simulations at a time.
        progress: hears of every generation.
        keeping: where the search is kept, and whether it goes on from there; None: nowhere.
        mixture: generated jobs to learn from besides; with a share of 1 `jobs` are not looked at.
    """
    if generations < 1 or threads < 1:
        raise InputError(f"{generations} generations on {threads} threads; there must be at least 1 of each")
    measure, measured = objective_of(objective)
    random = stream(seed, "agents.windows")
    until_s = float(validation["submit_s"].min())
    ground = WindowSampler(jobs, mixture, cluster, window_jobs, max_wait_s, until_s=until_s)
    length = min(window_jobs, len(validation))
    later = LogPart(validation.sorted(), cluster, length, max_wait_s)
    known = ground.at_the_end
    checks = [
        later.window(first, known)
        for first in spread_starts(validation, max(windows, 2 * len(validation) // length), length)
    ]
    # Of an objective of one's own theory says nothing: the search goes far, and nothing pulls it back.
    step, pull = (STEP, PULL) if measured in OBJECTIVES else (4 * STEP, 0.0)
    search = EvolutionStrategy(np.zeros(COUNT), step=step, seed=seed, population=population)
    with ThreadPoolExecutor(threads) as pool:

        def tried(candidates: Sequence[Floats | str], on: Sequence[TrainingWindow]) -> Floats:
            """Values, candidate by window; gathered in order, so threads do not change a bit."""
            pairs = [(candidate, window) for candidate in candidates for window in on]
            values = pool.map(
                lambda pair: measure(simulate(pair[1].jobs, cluster, pair[1].rule(pair[0]), backfill)), pairs
            )
            return np.array(list(values)).reshape(len(candidates), len(on))

        training = ground.drawn(2 * windows, random)
        identity = {
            "search": "of a score",
            "seed": seed,
            "objective": measured,
            "backfill": backfill,
            "population": population,
            "windows": windows,
            "window_jobs": window_jobs,
            "max_wait_s": None if np.isinf(max_wait_s) else max_wait_s,
            "mixture": None if mixture is None else mixture.words,
        }
        course = SearchCheckpoint(identity, generations, keeping)
        places: list[Floats | str] = [*(make() for make in STARTS.values()), *RULES]
        values = course.starts(places, lambda some: tried(some, training))
        began, start, kept = _best_start(values)
        kept = kept if np.isinf(max_wait_s) else None
        for number in course.rest(search, random):
            moves = search.ask()
            share = None if mixture is None else mixture.share_at((number - 1) / generations)
            values = tried([start, *(start + moves)], ground.drawn(windows, random, share))
            scores = [_relative(value, values[0]) for value in values[1:]]
            search.tell(moves, np.log(scores) + pull * (moves**2).sum(axis=1))
            course.path.append(search.mean)
            course.close(
                Generation(number, generations, float(np.mean(scores)), float("nan"), 1.0, search.step)
            )
            if progress is not None and number < generations:  # of the last when it has been validated
                progress(course.history[-1])
        found = np.mean(course.path[len(course.path) // 2 :], axis=0)
        ways: list[Floats] = [start, start + 0.5 * found, start + found]
        rivals: list[Floats | str] = [*ways, *([] if kept is None else [kept])]
        both = [
            [_relative(value, values[0]) for value in values]
            for values in (tried(rivals, ground.drawn(2 * windows, random)), tried(rivals, checks))
        ]
        taken = _taken(both)
        if kept is not None and max(again[taken] / again[-1] for again in both) < CLEARLY:
            kept = None  # the search has come out clearly ahead of the rule after all
        history = course.history
        history[-1] = replace(history[-1], validation=both[1][2], best=both[1][taken])
        if progress is not None:
            progress(history[-1])
    provenance = {
        "trained_by": "kilowait.agents.train (CMA-ES)",
        "trace": trace,
        "trained_on_jobs": 0 if mixture is not None and mixture.alone else len(jobs),
        "chosen_on_jobs": len(validation),
        "nodes": cluster.nodes,
        "seed": seed,
        "objective": measured,
        "backfill": backfill,
        "generations": len(history),
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
        "began_at": began,
        "kept_rule": kept,
        "went": ("nowhere: nothing clearly better", "half the way", "all the way")[taken],
        "validation_relative_to_start": both[1][taken],
        "found": found.tolist(),
        **({} if mixture is None else mixture.words),
    }
    memory = ground.and_later(validation)
    agent = LinearAgent(
        ways[taken], provenance=provenance, memory=memory, fallback_rule=kept, max_wait_s=max_wait_s
    )
    return agent, history


def _best_start(values: Floats) -> tuple[str, Floats, str | None]:
    """Where to begin, by name and in weights, and the rule to be kept, if one is surely better than that."""
    scores = [_relative(value, values[0]) for value in values]
    first = int(np.argmin(scores[: len(STARTS)]))
    first = first if scores[first] < SURELY else 0
    rules = np.array(scores[len(STARTS) :]) / scores[first]
    kept = RULES[int(np.argmin(rules))] if rules.min() < SURELY else None
    return list(STARTS)[first], list(STARTS.values())[first](), kept


def _taken(both: Sequence[Sequence[float]]) -> int:
    """Which way to go, none (0), half (1) or all (2): the best of those clearly better on both sets of windows."""
    products = [float(np.prod([again[way] for again in both])) for way in range(3)]
    clear = [way for way in (1, 2) if max(again[way] for again in both) < CLEARLY]
    return min(clear, key=lambda way: products[way], default=0)


def _relative(values: Floats, reference: Floats) -> float:
    """Value over reference: the root of the ratio of the means times the geometric mean of the windows' ratios.

    The first is what is judged, and a few busy windows decide it; the second is steadier. What is near zero counts as
    1 % of the mean reference.
    """
    floor = max(0.01 * float(reference.mean()), 1e-12)
    ratios = np.log(np.maximum(values, floor) / np.maximum(reference, floor))
    means = np.log(max(float(values.mean()), floor) / max(float(reference.mean()), floor))
    return float(np.exp(0.5 * ratios.mean() + 0.5 * means))
