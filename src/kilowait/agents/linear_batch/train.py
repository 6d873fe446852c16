"""Training of a `LinearAgent` by CMA-ES on simulated windows.

Small changes of a schedule have large effects: another order of two equal jobs can change the slowdown of a whole
window, so a search on single windows overfits to noise. Therefore the search

- starts from weights derived from theory (`default_weights`), or an alternative that is clearly better on training
  jobs,
- samples new windows every generation, and evaluates all candidates on the same ones,
- penalizes the distance from the start,
- returns the mean of the second half of its path instead of the last point. That mean, or the point halfway to it, is
  accepted only if it is clearly better than the start both on new windows of the training jobs and on the later
  validation jobs.

A policy that is clearly better than the start becomes the agent's fallback, unless the search clearly beats it.

The user history of a window leaves out the most recent jobs before it: an agent is used, and evaluated, some time after
training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.checkpoint import CheckpointDir, Generation, SearchCheckpoint
from kilowait.agents.evolution.cma_es import EvolutionStrategy
from kilowait.agents.evolution.search import (
    OBJECTIVES,
    Objective,
    averaged_point,
    check_search,
    evaluate_windows,
    objective_of,
    run_search,
)
from kilowait.agents.evolution.training_windows import LogPart, TrainingWindow, WindowSampler, even_starts
from kilowait.agents.linear_batch.agent import LinearAgent, default_weights, named_weights, saf_weights
from kilowait.agents.linear_batch.score import FEATURE_COUNT
from kilowait.agents.training_data import SyntheticMix
from kilowait.cluster import Cluster
from kilowait.engine.settings import Settings
from kilowait.files import locks_output
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.rng import stream

__all__ = ["train_linear_batch"]

Floats = npt.NDArray[np.float64]

STARTS: dict[str, Callable[[], Floats]] = {
    "default": default_weights,
    "expected area": lambda: named_weights(length=1.0, width=1.0, used_share=1.0, user_used_share=1.0),
    "area": saf_weights,
}
"""Candidates for the start of the search, the default first."""

FALLBACK_POLICIES = ("fcfs", "sjf", "saf", "f1", "f2", "f3", "f4", "wfp3", "unicef")
"""Policies that become the fallback where they are better."""

STEP = 0.1
DISTANCE_PENALTY = 0.1
"""Penalty of a squared step away from the start, in logarithms of the objective."""
ACCEPT_RATIO = 0.98
"""Largest ratio to the start at which the result of the search is accepted."""
REPLACE_RATIO = 0.95
"""Largest ratio to the default at which another start, or a fallback policy, replaces it."""


@locks_output("checkpoint_dir", inside=True)
def train_linear_batch(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    *,
    seed: int,
    generations: int = 40,
    population: int = 16,
    windows: int = 48,
    window_jobs: int = 1024,
    backfill: str | int = Settings.backfill,
    objective: str | Objective = "mean_bsld",
    max_wait_s: float = np.inf,
    trace: str | None = None,
    threads: int = 1,
    progress: Callable[[Generation], None] | None = None,
    checkpoint_dir: CheckpointDir | None = None,
    synthetic_mix: SyntheticMix | None = None,
) -> tuple[LinearAgent, list[Generation]]:
    """An agent trained on `jobs` and selected on `validation`, which should be later jobs of the same log.

    Test jobs are not an argument, so that there is no data leakage from them.

    The same arguments give bit-identical weights, on any number of threads, also after a resume.

    Args:
        jobs: training jobs.
        validation: later jobs, which select among the results of the search.
        cluster: the machine.
        seed: of the search and of the windows.
        generations: generations of the search.
        population: candidates a generation.
        windows: windows each candidate is evaluated on, the same for all of a generation.
        window_jobs: jobs in a window.
        backfill: as in `kilowait.simulate`.
        objective: a name of `OBJECTIVES`, or a function of a log; smaller is better.
        max_wait_s: jobs that have waited longer go first, seconds; fallback policies are not used then, as they have
            no such bound.
        trace: name of the log, for the provenance.
        threads: number of parallel simulations.
        progress: called with every generation.
        checkpoint_dir: folder of the checkpoint, and whether to resume from it; None: no checkpoint.
        synthetic_mix: synthetic jobs to train on besides; with a share of 1 `jobs` are not used.
    """
    check_search(generations, threads)
    objective_function, objective_name = objective_of(objective)
    random = stream(seed, "agents.windows")
    until_s = float(validation["submit_s"].min())
    sampler = WindowSampler(jobs, synthetic_mix, cluster, window_jobs, max_wait_s, until_s=until_s)
    length = min(window_jobs, len(validation))
    validation_part = LogPart(validation.sorted(), cluster, length, max_wait_s)
    user_history = sampler.final_history
    validation_windows = [
        validation_part.window(first, user_history)
        for first in even_starts(validation, max(windows, 2 * len(validation) // length), length)
    ]
    # For a custom objective there is no theoretical start: larger steps, no penalty.
    step, penalty = (STEP, DISTANCE_PENALTY) if objective_name in OBJECTIVES else (4 * STEP, 0.0)
    search = EvolutionStrategy(np.zeros(FEATURE_COUNT), step=step, seed=seed, population=population)
    with ThreadPoolExecutor(threads) as pool:

        def evaluate(candidates: Sequence[Floats | str], on: Sequence[TrainingWindow]) -> Floats:
            """Objective values (candidates, windows)."""

            def value(candidate: Floats | str, window: TrainingWindow) -> float:
                return objective_function(simulate(window.jobs, cluster, window.policy(candidate), backfill))

            return evaluate_windows(pool, value, candidates, on)

        training = sampler.sample(2 * windows, random)
        identity = {
            "search": "linear batch agent",
            "seed": seed,
            "objective": objective_name,
            "backfill": backfill,
            "population": population,
            "windows": windows,
            "window_jobs": window_jobs,
            "max_wait_s": None if np.isinf(max_wait_s) else max_wait_s,
            "synthetic_mix": None if synthetic_mix is None else synthetic_mix.record,
        }
        checkpoint = SearchCheckpoint(identity, generations, checkpoint_dir)
        candidates: list[Floats | str] = [*(weights() for weights in STARTS.values()), *FALLBACK_POLICIES]
        values = checkpoint.start_scores(candidates, lambda batch: evaluate(batch, training))
        start_name, start, fallback = _best_start(values)
        fallback = fallback if np.isinf(max_wait_s) else None

        def evaluate_moves(moves: Floats, number: int) -> tuple[Floats, float]:
            """Logarithms of the scores, plus the penalty of the distance from the start."""
            share = None if synthetic_mix is None else synthetic_mix.share_at((number - 1) / generations)
            values = evaluate([start, *(start + moves)], sampler.sample(windows, random, share))
            scores = [_relative(value, values[0]) for value in values[1:]]
            return np.log(scores) + penalty * (moves**2).sum(axis=1), float(np.mean(scores))

        run_search(search, checkpoint, random, evaluate_moves, progress=progress)
        averaged_move = averaged_point(checkpoint)
        points: list[Floats] = [start, start + 0.5 * averaged_move, start + averaged_move]
        compared: list[Floats | str] = [*points, *([] if fallback is None else [fallback])]
        score_sets = [
            [_relative(value, values[0]) for value in values]
            for values in (
                evaluate(compared, sampler.sample(2 * windows, random)),
                evaluate(compared, validation_windows),
            )
        ]
        accepted = _accepted(score_sets)
        if fallback is not None and max(scores[accepted] / scores[-1] for scores in score_sets) < ACCEPT_RATIO:
            fallback = None  # the result of the search is clearly better than the policy
        history = checkpoint.history
        history[-1] = replace(history[-1], validation=score_sets[1][2], best=score_sets[1][accepted])
        if progress is not None:
            progress(history[-1])
    provenance = {
        "trained_by": "kilowait.agents.linear_batch.train (CMA-ES)",
        "trace": trace,
        "trained_on_jobs": 0 if synthetic_mix is not None and synthetic_mix.alone else len(jobs),
        "validation_jobs": len(validation),
        "nodes": cluster.nodes,
        "seed": seed,
        "objective": objective_name,
        "backfill": backfill,
        "generations": len(history),
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
        "start": start_name,
        "fallback_policy": fallback,
        "accepted_step": (0.0, 0.5, 1.0)[accepted],
        "validation_relative_to_start": score_sets[1][accepted],
        "averaged_move": averaged_move.tolist(),
        **({} if synthetic_mix is None else synthetic_mix.record),
    }
    user_history = sampler.history_with(validation)
    agent = LinearAgent(
        points[accepted],
        provenance=provenance,
        user_history=user_history,
        fallback_policy=fallback,
        max_wait_s=max_wait_s,
    )
    return agent, history


def _best_start(values: Floats) -> tuple[str, Floats, str | None]:
    """Start of the search by name and by weights, and the fallback policy, if one is clearly better than the start."""
    scores = [_relative(value, values[0]) for value in values]
    first = int(np.argmin(scores[: len(STARTS)]))
    first = first if scores[first] < REPLACE_RATIO else 0
    policy_ratios = np.array(scores[len(STARTS) :]) / scores[first]
    fallback = FALLBACK_POLICIES[int(np.argmin(policy_ratios))] if policy_ratios.min() < REPLACE_RATIO else None
    return list(STARTS)[first], list(STARTS.values())[first](), fallback


def _accepted(score_sets: Sequence[Sequence[float]]) -> int:
    """The better of half (1) and all (2) of the step, if clearly better than the start on both sets; else 0."""
    products = [float(np.prod([scores[point] for scores in score_sets])) for point in range(3)]
    clear = [point for point in (1, 2) if max(scores[point] for scores in score_sets) < ACCEPT_RATIO]
    return min(clear, key=lambda point: products[point], default=0)


def _relative(values: Floats, reference: Floats) -> float:
    """Square root of (ratio of the means times geometric mean of the windows' ratios).

    The ratio of the means is what comparisons report, and a few busy windows dominate it; the geometric mean has less
    variance. Values near zero count as 1 % of the mean reference.
    """
    floor = max(0.01 * float(reference.mean()), 1e-12)
    ratios = np.log(np.maximum(values, floor) / np.maximum(reference, floor))
    means = np.log(max(float(values.mean()), floor) / max(float(reference.mean()), floor))
    return float(np.exp(0.5 * ratios.mean() + 0.5 * means))
