"""Training of a `LinearAgent` by CMA-ES: its objective on simulated windows, and its starting points.

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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.evolution.search import (
    Objective,
    SearchCheckpoint,
    SearchSettings,
    averaged_point,
    evaluate_windows,
    even_starts,
    mean_bsld,
    random_starts,
)
from kilowait.agents.linear_batch import (
    OVERRUN,
    USER_HISTORY_WEIGHT,
    LinearAgent,
    UserHistory,
    default_weights,
    named_weights,
    parameters_for,
    saf_weights,
    user_histories,
)
from kilowait.agents.linear_batch_score import FEATURE_COUNT, compiled_agent_score
from kilowait.agents.training_data import SyntheticMix
from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.settings import Settings
from kilowait.errors import UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import simulate
from kilowait.rng import stream

Floats = npt.NDArray[np.float64]

LogObjective = Callable[[ExecutionLog], float]
"""Objective value of a run; smaller is better."""


def mean_wait_s(log: ExecutionLog) -> float:
    """Mean wait, seconds."""
    wait_s = log.jobs()["wait_s"]
    return float(np.nanmean(wait_s)) if np.isfinite(wait_s).any() else 0.0


OBJECTIVES: dict[str, LogObjective] = {"mean_bsld": mean_bsld, "mean_wait_s": mean_wait_s}
"""LogObjectives by name."""


def _objective_of(objective: str | LogObjective) -> tuple[LogObjective, str]:
    """The objective as a function, and its name for the provenance."""
    if not isinstance(objective, str):
        return objective, getattr(objective, "__name__", "own")
    if objective not in OBJECTIVES:
        raise UnknownNameError("objective", objective, OBJECTIVES)
    return OBJECTIVES[objective], objective


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


@dataclass(frozen=True, kw_only=True)
class BatchSearchSettings(SearchSettings):
    """Settings of the training of a `LinearAgent`."""

    generations: int = 40
    population: int = 16
    windows: int = 48
    window_jobs: int = 1024
    backfill: str | int = Settings.backfill
    """As in `kilowait.simulate`."""
    objective: str | LogObjective = "mean_bsld"
    """A name of `OBJECTIVES`, or a function of a log; smaller is better."""
    max_wait_s: float = np.inf
    """Jobs that have waited longer go first, seconds; fallback policies are not used then, as they have no such bound.
    """


class BatchObjective(Objective[LinearAgent]):
    """The objective of a `LinearAgent`, trained on `jobs` and selected on `validation`, later jobs of the same log.

    Test jobs are not an argument, so that there is no data leakage from them.

    Args:
        jobs: training jobs.
        validation: later jobs, which select among the results of the search.
        cluster: the machine.
        settings: settings of the search.
        synthetic_mix: synthetic jobs to train on besides; with a share of 1 `jobs` are not used.
    """

    kind = "linear batch agent"
    validates = False

    def __init__(
        self,
        jobs: JobTable,
        validation: JobTable,
        cluster: Cluster,
        settings: BatchSearchSettings,
        *,
        synthetic_mix: SyntheticMix | None = None,
    ) -> None:
        self._jobs, self._validation, self._cluster = jobs, validation, cluster
        self.settings: BatchSearchSettings = settings
        self._mix = synthetic_mix
        self._value, self._objective = _objective_of(settings.objective)
        max_wait_s = settings.max_wait_s
        self.identity = {
            "objective": self._objective,
            "backfill": settings.backfill,
            "max_wait_s": None if np.isinf(max_wait_s) else max_wait_s,
            "synthetic_mix": None if synthetic_mix is None else synthetic_mix.record,
        }
        self.random = stream(settings.seed, "agents.windows")
        # For a custom objective there is no theoretical start: larger steps, no penalty.
        known = self._objective in OBJECTIVES
        self.step, self._penalty = (STEP, DISTANCE_PENALTY) if known else (4 * STEP, 0.0)
        until_s = float(validation["submit_s"].min())
        self._sampler = WindowSampler(jobs, synthetic_mix, cluster, settings.window_jobs, max_wait_s, until_s=until_s)
        length = min(settings.window_jobs, len(validation))
        validation_part = LogPart(validation.sorted(), cluster, length, max_wait_s)
        user_history = self._sampler.final_history
        self._validation_windows = [
            validation_part.window(first, user_history)
            for first in even_starts(validation, max(settings.windows, 2 * len(validation) // length), length)
        ]
        self._start_windows = self._sampler.sample(2 * settings.windows, self.random)

    def start(self, checkpoint: SearchCheckpoint) -> Floats:
        """No move away from the best starting point."""
        candidates: list[Floats | str] = [*(weights() for weights in STARTS.values()), *FALLBACK_POLICIES]
        values = checkpoint.start_scores(candidates, lambda batch: self._evaluate(batch, self._start_windows))
        self._start_name, self._start, fallback = _best_start(values)
        self._fallback = fallback if np.isinf(self.settings.max_wait_s) else None
        return np.zeros(FEATURE_COUNT)

    def evaluate(self, points: Floats, number: int) -> tuple[Floats, float]:
        """Logarithms of the scores of moves, plus the penalty of the distance from the start."""
        share = None if self._mix is None else self._mix.share_at((number - 1) / self.settings.generations)
        windows = self._sampler.sample(self.settings.windows, self.random, share)
        values = self._evaluate([self._start, *(self._start + points)], windows)
        scores = [_relative(value, values[0]) for value in values[1:]]
        return np.log(scores) + self._penalty * (points**2).sum(axis=1), float(np.mean(scores))

    def agent(self, checkpoint: SearchCheckpoint) -> LinearAgent:
        """The start, or the averaged point of the search or the point halfway to it, if clearly better."""
        settings, start, fallback = self.settings, self._start, self._fallback
        move = averaged_point(checkpoint)
        points: list[Floats] = [start, start + 0.5 * move, start + move]
        compared: list[Floats | str] = [*points, *([] if fallback is None else [fallback])]
        score_sets = [
            [_relative(value, values[0]) for value in values]
            for values in (
                self._evaluate(compared, self._sampler.sample(2 * settings.windows, self.random)),
                self._evaluate(compared, self._validation_windows),
            )
        ]
        accepted = _accepted(score_sets)
        if fallback is not None and max(scores[accepted] / scores[-1] for scores in score_sets) < ACCEPT_RATIO:
            fallback = None  # the result of the search is clearly better than the policy
        history = checkpoint.history
        history[-1] = replace(history[-1], validation=score_sets[1][2], best=score_sets[1][accepted])
        provenance = {
            "trained_by": "kilowait.agents.evolution.batch (CMA-ES)",
            "trace": settings.trace,
            "trained_on_jobs": 0 if self._mix is not None and self._mix.alone else len(self._jobs),
            "validation_jobs": len(self._validation),
            "nodes": self._cluster.size,
            "seed": settings.seed,
            "objective": self._objective,
            "backfill": settings.backfill,
            **self.size(checkpoint),
            "start": self._start_name,
            "fallback_policy": fallback,
            "accepted_step": (0.0, 0.5, 1.0)[accepted],
            "validation_relative_to_start": score_sets[1][accepted],
            "averaged_move": move.tolist(),
            **({} if self._mix is None else self._mix.record),
        }
        return LinearAgent(
            points[accepted],
            provenance=provenance,
            user_history=self._sampler.history_with(self._validation),
            fallback_policy=fallback,
            max_wait_s=settings.max_wait_s,
        )

    def _evaluate(self, candidates: Sequence[Floats | str], windows: Sequence[TrainingWindow]) -> Floats:
        """Objective values (candidates, windows)."""

        def value(candidate: Floats | str, window: TrainingWindow) -> float:
            return self._value(simulate(window.jobs, self._cluster, window.policy(candidate), self.settings.backfill))

        return evaluate_windows(self.settings.threads, value, candidates, windows)


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


SNAPSHOTS = 32
"""Times of the training jobs at which snapshots of the user history are taken."""


@dataclass(frozen=True, eq=False)
class TrainingWindow:
    """Jobs to schedule, and the agent's parameters with the user history before the first of them."""

    jobs: JobTable
    parameters: Floats

    def policy(self, candidate: Floats | str) -> PriorityPolicy | str:
        """The policy of candidate weights as the engine takes it; a policy name is returned unchanged."""
        if isinstance(candidate, str):
            return candidate
        return PriorityPolicy(
            "candidate",
            compiled_agent_score(),
            np.concatenate([candidate, self.parameters[FEATURE_COUNT:]]),
            time_dependent=True,
            observes_jobs=True,
            overrun=OVERRUN,
        )


class LogPart:
    """Jobs of a log, with snapshots of the user history at several times."""

    def __init__(self, jobs: JobTable, cluster: Cluster, window_jobs: int, max_wait_s: float = np.inf) -> None:
        self._jobs, self._nodes, self._window_jobs, self._max_wait_s = (jobs, cluster.size, window_jobs, max_wait_s)
        self._snapshot_jobs = np.unique(np.linspace(0, len(jobs), SNAPSHOTS + 1).astype(np.int64))
        self._snapshots = user_histories(jobs, self._snapshot_jobs.tolist())

    @property
    def final_history(self) -> UserHistory:
        """User history after all its jobs."""
        return self._snapshots[len(self._jobs)]

    def sample(self, count: int, random: np.random.Generator) -> list[TrainingWindow]:
        """Windows with random starts, each with the user history of a random earlier time."""
        starts = random_starts(self._jobs, count, self._window_jobs, random)
        return [self.lagged_window(first, int(random.integers(0, len(self._jobs) // 2 + 1))) for first in starts]

    def lagged_window(self, first: int, lag: int) -> TrainingWindow:
        """The window from job `first` on, with the latest snapshot of the history at least `lag` jobs before it."""
        cut = self._snapshot_jobs[np.searchsorted(self._snapshot_jobs, max(first - lag, 0), side="right") - 1]
        return self.window(first, self._snapshots[int(cut)])

    def window(self, first: int, user_history: UserHistory) -> TrainingWindow:
        """The window from job `first` on."""
        jobs = self._jobs[first : first + self._window_jobs]
        return TrainingWindow(
            jobs,
            parameters_for(
                np.zeros(FEATURE_COUNT), jobs, self._nodes, user_history, USER_HISTORY_WEIGHT, self._max_wait_s
            ),
        )


class WindowSampler:
    """Samples training windows from the log's training jobs, from synthetic jobs, or from both.

    Users of synthetic jobs are not users of the log: their history is separate, except for the statistics of all users.
    """

    def __init__(
        self,
        jobs: JobTable,
        synthetic_mix: SyntheticMix | None,
        cluster: Cluster,
        window_jobs: int,
        max_wait_s: float,
        *,
        until_s: float,
    ) -> None:
        """`until_s`: submission time of the first validation job; later jobs are not used for training."""
        self._synthetic_mix = synthetic_mix
        synthetic = () if synthetic_mix is None else synthetic_mix.generated
        self._log = None
        if synthetic_mix is None or not synthetic_mix.alone:
            self._log = LogPart(jobs.sorted(), cluster, window_jobs, max_wait_s)
        self._synthetic = [LogPart(table.sorted(), cluster, window_jobs, max_wait_s) for table in synthetic]
        self._training_tables = (
            [jobs] if self._log is not None else [without_users(table, until_s) for table in synthetic]
        )

    def sample(self, count: int, random: np.random.Generator, share: float | None = None) -> list[TrainingWindow]:
        """Random windows; this share of them (None: the share of the mix) consists of synthetic jobs."""
        if self._synthetic_mix is None:
            assert self._log is not None
            return self._log.sample(count, random)
        share = self._synthetic_mix.share if share is None else share
        windows = []
        for synthetic in (random.random(count) < share).tolist():
            log_part = self._synthetic[int(random.integers(len(self._synthetic)))] if synthetic else self._log
            assert log_part is not None  # the share is 1 where there are no log jobs
            windows += log_part.sample(1, random)
        return windows

    @property
    def final_history(self) -> UserHistory:
        """User history after the training jobs."""
        return self._log.final_history if self._log is not None else user_history_of(self._training_tables)

    def history_with(self, validation: JobTable) -> UserHistory:
        """User history after the training jobs and the validation jobs, which are always of the log."""
        return user_history_of([*self._training_tables, validation])


def without_users(jobs: JobTable, until_s: float) -> JobTable:
    """The same jobs without users, shifted in time so that the last is submitted just before `until_s`."""
    columns = {name: jobs[name] for name in ("job_id", "runtime_s", "estimate_s", "nodes")}
    return JobTable(submit_s=jobs["submit_s"] - jobs["submit_s"].max() + until_s - 1.0, **columns)


def user_history_of(tables: Sequence[JobTable]) -> UserHistory:
    """User history after these jobs, taken in order of submission.

    >>> one = JobTable(job_id=[1], submit_s=[9], runtime_s=[60], nodes=[1], user=[3])
    >>> user_history = user_history_of([without_users(one, until_s=9), one])
    >>> list(user_history.users), float(user_history.all_users[:, 0].sum()) > 1.5
    (['3'], True)
    """
    tables = [table.sorted() for table in tables]
    columns: dict[str, Any] = {
        name: np.concatenate([table.column(name) for table in tables])
        for name in ("submit_s", "runtime_s", "estimate_s", "nodes", "user")
    }
    labels = {"user": tables[-1].labels["user"]} if "user" in tables[-1].labels else {}
    joined = JobTable(job_id=np.arange(1, len(columns["nodes"]) + 1), labels=labels, **columns)
    return user_histories(joined, [len(joined)])[len(joined)]
