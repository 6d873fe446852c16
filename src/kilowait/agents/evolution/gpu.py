"""Training of a `LinearGpuAgent` by CMA-ES, starting from the best built-in policy.

First every policy of `linear_gpu.POLICY_WEIGHTS` runs on the training jobs with every order of types and
placement; the best is the start and the reference: values are relative to it, window by window, so that a window with
one very long job has no more weight than another. Each generation samples windows of the training jobs and evaluates
every candidate on the same ones. The mean of the second half of the path is validated, as the search itself is noisy.
Of the validation windows, which are later jobs, the even ones select among these means, and the odd ones test whether
the selected one is significantly better than the policy; if it is not, the policy is the agent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.search import (
    Objective,
    SearchCheckpoint,
    SearchSettings,
    evaluate_windows,
    even_starts,
    random_starts,
    unit_length,
)
from kilowait.agents.linear_gpu import POLICY_WEIGHTS, LinearGpuAgent, agent_equal_to_policy
from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import simulate
from kilowait.rng import stream

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


@dataclass(frozen=True, kw_only=True)
class GpuSearchSettings(SearchSettings):
    """Settings of the training of a `LinearGpuAgent`."""

    generations: int = 80
    population: int = 16
    windows: int = 16
    window_jobs: int = 512
    objective: str = "mean_jct_s"
    """A name of `OBJECTIVES`."""
    placements: Sequence[str] = PLACEMENTS
    """Tried with every policy for the start."""
    speeds: SpeedsOf = lambda jobs: None
    """Returns the speed of jobs on each type; by default 1 everywhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in OBJECTIVES:
            raise UnknownNameError("objective on GPU clusters", self.objective, OBJECTIVES)


class GpuObjective(Objective[LinearGpuAgent]):
    """The objective of a `LinearGpuAgent`, trained on `jobs` and selected on `validation`, later jobs of the same log.

    Args:
        jobs: training jobs.
        validation: later jobs, which select among the results of the search, and decide between it and the policy.
        cluster: a node-level GPU cluster.
        settings: settings of the search.
    """

    kind = "linear GPU agent"
    scale_free = True
    step = 0.2

    def __init__(self, jobs: JobTable, validation: JobTable, cluster: Cluster, settings: GpuSearchSettings) -> None:
        self._jobs, self._validation, self._cluster = jobs, validation, cluster
        self.settings: GpuSearchSettings = settings
        self.identity = {"objective": settings.objective, "placements": list(settings.placements)}
        self.random = stream(settings.seed, "agents.placed windows")
        count = len(validation) // settings.window_jobs
        if count < 4:
            raise InputError(
                f"{len(validation):,} validation jobs contain {count} windows of {settings.window_jobs:,} side by "
                "side, and 4 are needed to select and to test; take a longer log or shorter windows (--window)"
            )
        starts = [number * settings.window_jobs for number in range(count)]
        self._validation_windows = _windows(validation, starts, settings.window_jobs)
        self._start_windows = _windows(
            jobs, even_starts(jobs, settings.windows, settings.window_jobs), settings.window_jobs
        )

    def start(self, checkpoint: SearchCheckpoint) -> Floats:
        """The weights of the best policy."""
        policies = policy_agents(self._cluster, self.settings.placements)
        scores = checkpoint.start_scores(policies, lambda agents: self._evaluate(agents, self._start_windows))
        self._start = _best(policies, scores)
        self._reference = self._evaluate([self._start], self._validation_windows)[0]
        return unit_length(self._start.weights)

    def evaluate(self, points: Floats, number: int) -> tuple[list[float], float]:
        """Scores of weights relative to the best policy."""
        starts = random_starts(self._jobs, self.settings.windows, self.settings.window_jobs, self.random)
        sampled = _windows(self._jobs, starts, self.settings.window_jobs)
        values = self._evaluate([self._start, *(self._with_weights(row) for row in points)], sampled)
        scores = [_relative(value, values[0]) for value in values[1:]]
        return scores, float(np.mean(scores))

    def validate(self, point: Floats) -> float:
        """The score of weights on the even validation windows."""
        values = self._evaluate([self._with_weights(point)], self._validation_windows[::2])
        return _relative(values[0], self._reference[::2])

    def agent(self, checkpoint: SearchCheckpoint) -> LinearGpuAgent:
        """The best validated weights if they are significantly better than the policy on the odd windows."""
        settings = self.settings
        chosen = self._start if checkpoint.best is None else self._with_weights(checkpoint.best[1])
        ratios = np.log(self._evaluate([chosen], self._validation_windows[1::2])[0] / self._reference[1::2])
        keeps_policy = chosen is self._start or not _significantly_below(ratios)
        provenance = {
            "trained_by": "kilowait.agents.evolution.gpu (CMA-ES)",
            "trace": settings.trace,
            "trained_on_jobs": len(self._jobs),
            "validation_jobs": len(self._validation),
            "cluster": self._cluster.name,
            "seed": settings.seed,
            "objective": settings.objective,
            **self.size(checkpoint),
            "start": dict(self._start.provenance),
            "policy_kept": keeps_policy,
            "validation_relative_to_policy": float(np.exp(ratios.mean())),
        }
        result = self._start if keeps_policy else chosen
        return LinearGpuAgent(result.weights, result.overrides, provenance=provenance)

    def _with_weights(self, weights: Floats) -> LinearGpuAgent:
        return LinearGpuAgent(weights, self._start.overrides)

    def _evaluate(self, agents: Sequence[LinearGpuAgent], windows: Sequence[JobTable]) -> Floats:
        return _evaluate(agents, windows, self._cluster, self.settings)


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
    settings: GpuSearchSettings,
    *,
    policies: Sequence[str] = tuple(POLICY_WEIGHTS),
    migrate: Sequence[bool] = (False, True),
) -> LinearGpuAgent:
    """The policy, with an order of types, placement and migration setting, that is best on windows of these jobs.

    Its `provenance` contains the names of the policy, the order of types and the placement.
    """
    every_agent = policy_agents(cluster, settings.placements, migrate)
    candidates = [agent for agent in every_agent if agent.provenance["policy"] in policies]
    starts = even_starts(jobs, settings.windows, settings.window_jobs)
    return _best(candidates, _evaluate(candidates, _windows(jobs, starts, settings.window_jobs), cluster, settings))


def _evaluate(
    candidates: Sequence[LinearGpuAgent], windows: Sequence[JobTable], cluster: Cluster, settings: GpuSearchSettings
) -> Floats:
    """Objective values (candidates, windows)."""
    objective, speeds = OBJECTIVES[settings.objective], [settings.speeds(jobs) for jobs in windows]

    def value(agent: LinearGpuAgent, window: int) -> float:
        options: dict[str, Any] = {"speeds": speeds[window], "on_oversized": "drop"}
        return objective(simulate(windows[window], cluster, agent, "skip", **options))

    return evaluate_windows(settings.threads, value, candidates, range(len(windows)))


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
