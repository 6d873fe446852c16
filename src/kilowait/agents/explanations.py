"""Explanations of an agent's decisions: the contribution of each feature to single decisions, and on average.

What is explained is the *margin* of a decision: the score of the chosen job minus that of the next best. It is compared
with the margin of a baseline (a job like the mean of the others, at an average time), and the difference is attributed
to the features, so that the contributions add up to it. For a `LinearAgent` a contribution is a weight times a
difference, computed here; for networks see `kilowait.agents.integrated_gradients`.

The results are plain numbers, small, and need no torch: they are stored with the agent and plotted by the report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.linear_batch import LinearAgent
from kilowait.agents.linear_batch_score import FEATURES, compiled_agent_score, compiled_statistics, features
from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.settings import Settings
from kilowait.jobs import JobTable
from kilowait.policies import simulate

Floats = npt.NDArray[np.float64]

WINDOW_JOBS = 400
"""Jobs in the run that explains a linear agent."""
TYPICAL_DECISIONS = ("the longest queue", "the most doubtful choice", "the clearest choice")
"""Decisions that are explained one by one."""


@dataclass(frozen=True)
class FeatureContribution:
    """Contribution of one feature to a decision."""

    name: str
    of: str
    """"job", or "whole": the machine, the queue and the time."""
    value: float
    """Value in the agent's observation."""
    usual: float
    """Baseline: the mean of the other jobs, or of all decision times."""
    moved: float
    """Contribution to the margin; above 0 it favours the chosen job."""


@dataclass(frozen=True)
class Attention:
    """Attention weights between jobs; rows sum to 1."""

    jobs: tuple[Mapping[str, float], ...]
    """The chosen job, the next best, and the jobs with most attention from the chosen one."""
    whole: bool
    """Whether the first row and column are the summary: the machine, the queue and the time."""
    weights: tuple[tuple[float, ...], ...]
    """Rows attend to columns; the last column sums over all jobs without a row."""


@dataclass(frozen=True)
class ExplainedDecision:
    """One explained decision."""

    which: str
    choices: int
    """Jobs that could be chosen."""
    margin: float
    """Score of the chosen job minus that of the next best."""
    usual: float
    """Margin of the baseline."""
    chosen: Mapping[str, float]
    """nodes or gpus, estimate_s, wait_s, as far as they are known."""
    other: Mapping[str, float]
    """The next best job; empty where the next best action starts no job."""
    parts: tuple[FeatureContribution, ...]
    """The sum of their `moved` is margin minus usual."""
    attention: Attention | None = None


@dataclass(frozen=True)
class FeatureImportance:
    """Average effect of one feature."""

    name: str
    of: str
    meaning: str
    mean: float
    """Mean of the absolute values of `FeatureContribution.moved`."""
    leaning: float
    """Slope of the margin over the feature; above 0, larger values favour a job."""


@dataclass(frozen=True)
class AgentExplanation:
    """Which features an agent's decisions depend on."""

    score: str
    """What the margin is a difference of: logits, Q values or scores."""
    choices: int
    """Decisions met during the run."""
    measured: int
    """Decisions used for the averages."""
    usual: tuple[FeatureImportance, ...]
    cases: tuple[ExplainedDecision, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, numbers rounded to four significant digits."""
        rounded: dict[str, Any] = _rounded(asdict(self))
        return rounded


def typical_decisions(
    queue: npt.NDArray[np.int64], margin: Floats, distinguishable: npt.NDArray[np.bool_]
) -> list[tuple[str, int]]:
    """The decision (row) of each kind in `TYPICAL_DECISIONS`, each row at most once; fewer if decisions are
    few.

    Args:
        queue: number of jobs that could be chosen.
        margin: of each decision.
        distinguishable: whether the observations of the chosen and the next best job differ.

    >>> typical_decisions(np.array([2, 9, 3, 4]), np.array([1.0, 2.0, 0.0, 5.0]), np.array([True, True, False, True]))
    [('the longest queue', 1), ('the most doubtful choice', 0), ('the clearest choice', 3)]
    """
    decisions: list[tuple[str, int]] = []
    remaining = distinguishable.copy()
    for kind, rank in zip(TYPICAL_DECISIONS, (queue.astype(np.float64), -margin, margin), strict=True):
        if remaining.any():
            row = int(np.argmax(np.where(remaining, rank, -np.inf)))
            decisions.append((kind, row))
            remaining[row] = False
    return decisions


def feature_importances(
    names: Sequence[tuple[str, str]], differences: Floats, moved: Floats, meaning: Mapping[str, str]
) -> tuple[FeatureImportance, ...]:
    """Averages over decisions; `away` (from the baseline) and `moved` (contribution) are (decisions, features).

    >>> importances = feature_importances([("length", "job")], np.array([[-1.0], [2.0]]), np.array([[0.5], [-1.0]]), {})
    >>> importances[0].mean, importances[0].leaning
    (0.75, -0.5)
    """
    mean = np.abs(moved).mean(axis=0)
    squares = (differences**2).sum(axis=0)
    leaning = (differences * moved).sum(axis=0) / np.where(squares > 0, squares, 1.0)
    return tuple(
        FeatureImportance(name, of, meaning.get(name, ""), float(mean[place]), float(leaning[place]))
        for place, (name, of) in enumerate(names)
    )


def explain_linear_agent(
    agent: LinearAgent, jobs: JobTable, cluster: Cluster, backfill: str | int = Settings.backfill
) -> AgentExplanation | None:
    """Explanation of a linear agent: its decisions at every time of a run of at most `WINDOW_JOBS` jobs.

    None if two jobs never wait at the same time, and for an agent that applies a fallback policy instead of weights.

    >>> import kilowait as kw
    >>> agent = LinearAgent([1.0, *[0.0] * (len(FEATURES) - 1)])
    >>> explanation = explain_linear_agent(agent, kw.lublin(200, 32, load=1.1, seed=1), kw.Cluster.from_nodes(32))
    >>> (
    ...     [part.name for part in explanation.usual if part.mean > 0],
    ...     explanation.usual[0].leaning,
    ... )  # shorter jobs go first
    (['length'], -1.0)
    """
    if agent.fallback_policy is not None:
        return None
    queues = _queues(agent, jobs.sorted()[:WINDOW_JOBS], cluster, backfill)
    if not queues:
        return None
    weights = agent.weights
    queue = np.array([len(queue_features) for queue_features in queues], np.int64)
    feature_rows = [
        features(queue_features[:, 0], queue_features[:, 1], queue_features[:, 2], cluster.size, queue_features[:, 3:])
        for queue_features in queues
    ]
    order = [np.argsort(rows @ weights, kind="stable") for rows in feature_rows]
    chosen = np.stack([rows[first[0]] for rows, first in zip(feature_rows, order, strict=True)])
    other = np.stack([rows[first[1]] for rows, first in zip(feature_rows, order, strict=True)])
    usual = np.stack([rows[first[1:]].mean(axis=0) for rows, first in zip(feature_rows, order, strict=True)])
    margin, moved = (other - chosen) @ weights, (usual - chosen) * weights
    cases = []
    for kind, row in typical_decisions(queue, margin, margin != 0):
        named = zip(FEATURES, chosen[row], usual[row], moved[row], strict=True)
        described = [
            {"nodes": float(nodes), "estimate_s": float(estimate_s), "wait_s": float(wait_s)}
            for estimate_s, nodes, wait_s, *_ in (queues[row][order[row][place]] for place in (0, 1))
        ]
        cases.append(
            ExplainedDecision(
                which=kind,
                choices=len(queues[row]),
                margin=float(margin[row]),
                usual=float(margin[row] - moved[row].sum()),
                chosen=described[0],
                other=described[1],
                parts=tuple(FeatureContribution(name, "job", float(a), float(b), float(c)) for name, a, b, c in named),
            )
        )
    names = [(name, "job") for name in FEATURES]
    means = feature_importances(names, chosen - usual, moved, FEATURES)
    return AgentExplanation("scores", len(queues), len(queues), means, tuple(cases))


def _queues(agent: LinearAgent, jobs: JobTable, cluster: Cluster, backfill: str | int) -> list[Floats]:
    """For every time when several jobs waited: estimate, nodes, wait and user-history statistics of each job."""
    queues_by_time: dict[float, dict[int, tuple[float, ...]]] = {}
    weights, nodes = agent.weights, cluster.size
    score_function, statistics_function = compiled_agent_score(), compiled_statistics()

    def score(job: Any, now: float, parameters: Any) -> float:
        if job["ran_s"] != 0:
            return float(score_function(job, now, parameters))
        limit_s = float(job["limit_s"])
        requested_s = limit_s if np.isfinite(limit_s) else float(job["estimate_s"])
        request = (requested_s, float(job["units"]), max(now - float(job["submit_s"]), 0.0))
        statistics = statistics_function(job, now, parameters)
        queues_by_time.setdefault(now, {})[int(job["number"])] = (*request, *statistics)
        return float(features(*request, nodes, statistics)[0] @ weights)

    policy = PriorityPolicy(
        agent.name, score, agent.parameters(jobs, cluster), time_dependent=True, compiled=False, observes_jobs=True
    )
    simulate(jobs, cluster, policy, backfill)
    queues = [
        np.array([queue_features[number] for number in sorted(queue_features)])
        for queue_features in queues_by_time.values()
    ]
    return [queue_features for queue_features in queues if len(queue_features) > 1]


def _rounded(value: Any) -> Any:
    """Numbers rounded to four significant digits, to keep the file small."""
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) and math.isfinite(value) else value
