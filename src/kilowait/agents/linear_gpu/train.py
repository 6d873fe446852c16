"""Training of a `LinearGpuAgent` by CMA-ES, starting from the best built-in policy.

First every policy of `linear_gpu.agent.POLICY_WEIGHTS` runs on the training jobs with every order of types and
placement; the best is the start and the reference: values are relative to it, window by window, so that a window with
one very long job has no more weight than another. Each generation samples windows of the training jobs and evaluates
every candidate on the same ones. The mean of the second half of the path is validated, as the search itself is noisy.
Of the validation windows, which are later jobs, the even ones select among these means, and the odd ones test whether
the selected one is significantly better than the policy; if it is not, the policy is the agent.
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
from kilowait.agents.evolution.search import check_search, evaluate_windows, run_search, unit_length
from kilowait.agents.evolution.training_windows import even_starts, random_starts
from kilowait.agents.linear_gpu.agent import POLICY_WEIGHTS, LinearGpuAgent, agent_equal_to_policy
from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.errors import InputError, UnknownNameError
from kilowait.files import locks_output
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import simulate
from kilowait.rng import stream

__all__ = ["OBJECTIVES", "best_policy", "train_linear_gpu"]

Floats = npt.NDArray[np.float64]
SpeedsOf = Callable[[JobTable], Speeds | None]
"""Returns the speed of jobs on each GPU type."""

GPU_TYPE_ORDERS = ("any", "fastest")
PLACEMENTS = ("first", "best", "worst", "consolidate", "gpu-packing", "fgd")
"""Placements tried with every policy; the others are random or similar to these."""
Z_95 = 1.96
"""Standard errors by which the mean log-ratio must lie below 0 to be significant."""
MIN_RUN_S = 10.0


def mean_jct_s(log: ExecutionLog) -> float:
    """Mean job completion time, seconds."""
    return float(np.nanmean(log.jobs()["turnaround_s"]))


def mean_wait_s(log: ExecutionLog) -> float:
    """Mean time without an allocation, seconds."""
    return float(np.nanmean(log.jobs()["wait_s"]))


def mean_bsld(log: ExecutionLog) -> float:
    """Mean bounded slowdown: completion time over run time at speed 1 (at least 10 s), at least 1."""
    slow = log.jobs()["turnaround_s"] / np.maximum(log.jobs_table["runtime_s"], MIN_RUN_S)
    return float(np.nanmean(np.maximum(slow, 1.0)))


OBJECTIVES = {"mean_jct_s": mean_jct_s, "mean_wait_s": mean_wait_s, "mean_bsld": mean_bsld}
"""Objectives by name; smaller is better."""


@locks_output("checkpoint_dir", inside=True)
def train_linear_gpu(
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
    checkpoint_dir: CheckpointDir | None = None,
) -> tuple[LinearGpuAgent, list[Generation]]:
    """An agent trained on `jobs` and selected on `validation`, which should be later jobs of the same log.

    The same arguments give bit-identical weights, on any number of threads, also after a resume.

    Args:
        jobs: training jobs.
        validation: later jobs, which select among the results of the search, and decide between it and the policy.
        cluster: a node-level GPU cluster.
        seed: of the search and of the windows.
        speeds: returns the speed of jobs on each type; by default 1 everywhere.
        generations: generations of the search.
        population: candidates a generation.
        windows: windows each candidate is evaluated on, the same for all of a generation.
        window_jobs: jobs in a window.
        objective: a name of `OBJECTIVES`.
        placements: tried with every policy for the start.
        trace: name of the log, for the provenance.
        threads: number of parallel simulations.
        progress: called with every generation.
        checkpoint_dir: folder of the checkpoint, and whether to resume from it; None: no checkpoint.
    """
    check_search(generations, threads)
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective on GPU clusters", objective, OBJECTIVES)
    random = stream(seed, "agents.placed windows")
    count = len(validation) // window_jobs
    if count < 4:
        raise InputError(
            f"{len(validation):,} validation jobs contain {count} windows of {window_jobs:,} side by side, and 4 are "
            "needed to select and to test; take a longer log or shorter windows (--window)"
        )
    validation_windows = [validation[i * window_jobs : (i + 1) * window_jobs] for i in range(count)]
    with ThreadPoolExecutor(threads) as pool:
        evaluate = _evaluator(pool, cluster, speeds, objective)
        training = _windows(jobs, even_starts(jobs, windows, window_jobs), window_jobs)
        identity = {
            "search": "linear GPU agent",
            "seed": seed,
            "objective": objective,
            "placements": list(placements),
            "population": population,
            "windows": windows,
            "window_jobs": window_jobs,
        }
        checkpoint = SearchCheckpoint(identity, generations, checkpoint_dir)
        policies = policy_agents(cluster, placements)
        start = _best(policies, checkpoint.start_scores(policies, lambda agents: evaluate(agents, training)))
        search = EvolutionStrategy(unit_length(start.weights), step=0.2, seed=seed, population=population)
        reference = evaluate([start], validation_windows)[0]

        def evaluate_weights(weights: Floats, _: int) -> tuple[list[float], float]:
            sampled = _windows(jobs, random_starts(jobs, windows, window_jobs, random), window_jobs)
            values = evaluate([start, *(LinearGpuAgent(row, start.overrides) for row in weights)], sampled)
            scores = [_relative(value, values[0]) for value in values[1:]]
            return scores, float(np.mean(scores))

        def validate(weights: Floats) -> float:
            values = evaluate([LinearGpuAgent(weights, start.overrides)], validation_windows[::2])
            return _relative(values[0], reference[::2])

        run_search(search, checkpoint, random, evaluate_weights, validate=validate, scale_free=True, progress=progress)
        chosen = start if checkpoint.best is None else LinearGpuAgent(checkpoint.best[1], start.overrides)
        ratios = np.log(evaluate([chosen], validation_windows[1::2])[0] / reference[1::2])
    keeps_policy = chosen is start or not _significantly_below(ratios)
    provenance = {
        "trained_by": "kilowait.agents.linear_gpu.train (CMA-ES)",
        "trace": trace,
        "trained_on_jobs": len(jobs),
        "validation_jobs": len(validation),
        "cluster": cluster.name,
        "seed": seed,
        "objective": objective,
        "generations": len(checkpoint.history),
        "population": population,
        "windows": windows,
        "window_jobs": window_jobs,
        "start": dict(start.provenance),
        "policy_kept": keeps_policy,
        "validation_relative_to_policy": float(np.exp(ratios.mean())),
    }
    result = start if keeps_policy else chosen
    return LinearGpuAgent(result.weights, result.overrides, provenance=provenance), checkpoint.history


def policy_agents(
    cluster: Cluster, placements: Sequence[str] = PLACEMENTS, migrate: Sequence[bool] = (False, True)
) -> list[LinearGpuAgent]:
    """Every policy with every order of types, placement and migration setting."""
    gpus = sum(group.nodes * group.gpus for group in cluster.groups)
    return [
        agent_equal_to_policy(policy, gpus, gpu_type_order=types, placement=placement, migrate=migration)
        for policy, types, placement, migration in product(POLICY_WEIGHTS, GPU_TYPE_ORDERS, placements, migrate)
    ]


def best_policy(
    jobs: JobTable,
    cluster: Cluster,
    *,
    policies: Sequence[str] = tuple(POLICY_WEIGHTS),
    speeds: SpeedsOf = lambda jobs: None,
    windows: int = 16,
    window_jobs: int = 512,
    objective: str = "mean_jct_s",
    placements: Sequence[str] = PLACEMENTS,
    migrate: Sequence[bool] = (False, True),
) -> LinearGpuAgent:
    """The policy, with an order of types, placement and migration setting, that is best on windows of these jobs.

    Its `provenance` contains the names of the policy, the order of types and the placement.
    """
    every_agent = policy_agents(cluster, placements, migrate)
    candidates = [agent for agent in every_agent if agent.provenance["policy"] in policies]
    with ThreadPoolExecutor(1) as pool:
        evaluate = _evaluator(pool, cluster, speeds, objective)
        training = _windows(jobs, even_starts(jobs, windows, window_jobs), window_jobs)
        return _best(candidates, evaluate(candidates, training))


Evaluator = Callable[[Sequence[LinearGpuAgent], Sequence[JobTable]], Floats]


def _evaluator(pool: ThreadPoolExecutor, cluster: Cluster, speeds: SpeedsOf, objective: str) -> Evaluator:
    objective_function = OBJECTIVES[objective]

    def evaluate(candidates: Sequence[LinearGpuAgent], on: Sequence[JobTable]) -> Floats:
        tables = list(pool.map(speeds, on))

        def value(agent: LinearGpuAgent, window: int) -> float:
            options: dict[str, Any] = {"speeds": tables[window], "on_oversized": "drop"}
            return objective_function(simulate(on[window], cluster, agent, "skip", **options))

        return evaluate_windows(pool, value, candidates, range(len(on)))

    return evaluate


def _windows(jobs: JobTable, starts: Sequence[int], window_jobs: int) -> list[JobTable]:
    return [jobs[first : first + window_jobs] for first in starts]


def _best(candidates: Sequence[LinearGpuAgent], values: Floats) -> LinearGpuAgent:
    scores = [_relative(value, values[0]) for value in values]
    return candidates[int(np.argmin(scores))]


def _relative(values: Floats, reference: Floats) -> float:
    """Geometric mean over windows of value / reference; values near zero count as 1 % of the mean reference."""
    floor = max(0.01 * float(reference.mean()), 1e-12)
    return float(np.exp(np.log(np.maximum(values, floor) / np.maximum(reference, floor)).mean()))


def _significantly_below(ratios: Floats) -> bool:
    """Whether the mean of these log-ratios is significantly below 0."""
    return float(ratios.mean() + Z_95 * ratios.std(ddof=1) / math.sqrt(len(ratios))) < 0
