"""Why an agent chose a job: what each number it looked at did to a choice, and to choices in general.

Of a choice the *margin* is looked at: how far the chosen job is ahead of the next best. It is held against the margin
that a job like the mean of the others would have had at a usual moment, and the difference is shared out among the
numbers that make it, so that the shares add up to it. For a `LinearAgent` that is a weight times a difference, here;
for networks see `kilowait.agents.rl.integrated_gradients`.

Everything here is plain numbers, small, and needs no torch: it is stored with the agent and drawn by the report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.linear_batch.agent import FEATURES, LinearAgent
from kilowait.agents.linear_batch.score import compiled, features, recalled
from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.jobs import JobTable
from kilowait.policies import simulate

__all__ = [
    "TYPICAL",
    "Attention",
    "ExplainedDecision",
    "AgentExplanation",
    "FeatureContribution",
    "FeatureImportance",
    "explained_weights",
    "typical",
    "usual_parts",
]

Floats = npt.NDArray[np.float64]

WINDOW_JOBS = 400
"""Jobs a linear agent is watched with."""
TYPICAL = ("the longest queue", "the most doubtful choice", "the clearest choice")
"""Which choices are told one by one."""


@dataclass(frozen=True)
class FeatureContribution:
    """What one number did to a choice."""

    name: str
    of: str
    """job, or whole: the machine, the queue and the time."""
    value: float
    """As the agent saw it."""
    usual: float
    """What it is held against: the mean of the other jobs, or of all moments that were met."""
    moved: float
    """By how much it moved the margin; above 0 it spoke for the job."""


@dataclass(frozen=True)
class Attention:
    """How much jobs looked at one another; rows sum to 1."""

    jobs: tuple[Mapping[str, float], ...]
    """The chosen job, the next best, and those the chosen one looked at most."""
    whole: bool
    """Whether the first row and column are those of the machine, the queue and the time."""
    weights: tuple[tuple[float, ...], ...]
    """Rows look at columns; the last column is all that have no row."""


@dataclass(frozen=True)
class ExplainedDecision:
    """One choice."""

    which: str
    choices: int
    """Jobs that could have been chosen."""
    margin: float
    """Score of the chosen job above that of the next best."""
    usual: float
    """The same if it had been like the others, at a usual moment."""
    chosen: Mapping[str, float]
    """nodes or gpus, estimate_s, wait_s, as far as they are known."""
    other: Mapping[str, float]
    """The next best; empty where that is to choose nobody."""
    parts: tuple[FeatureContribution, ...]
    """Their moved add up to margin less usual."""
    attention: Attention | None = None


@dataclass(frozen=True)
class FeatureImportance:
    """What one number does in general."""

    name: str
    of: str
    meaning: str
    mean: float
    """Mean of the absolute values of `Part.moved`."""
    leaning: float
    """How the margin grows with the number; above 0, more of it speaks for a job."""


@dataclass(frozen=True)
class AgentExplanation:
    """What an agent looks at."""

    score: str
    """What the margin is a difference of: logits, values or scores."""
    choices: int
    """Choices that were met while playing."""
    measured: int
    """Choices behind the means."""
    usual: tuple[FeatureImportance, ...]
    cases: tuple[ExplainedDecision, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, numbers of four digits."""
        told: dict[str, Any] = _short(asdict(self))
        return told


def typical(
    queue: npt.NDArray[np.int64], margin: Floats, told_apart: npt.NDArray[np.bool_]
) -> list[tuple[str, int]]:
    """One row for each of `TYPICAL`, each row once; fewer where there are fewer choices.

    Args:
        queue: jobs that could have been chosen.
        margin: of each choice.
        told_apart: whether the agent saw any difference between the chosen job and the next best.

    >>> typical(np.array([2, 9, 3, 4]), np.array([1.0, 2.0, 0.0, 5.0]), np.array([True, True, False, True]))
    [('the longest queue', 1), ('the most doubtful choice', 0), ('the clearest choice', 3)]
    """
    found: list[tuple[str, int]] = []
    left = told_apart.copy()
    for which, worth in zip(TYPICAL, (queue.astype(np.float64), -margin, margin), strict=True):
        if left.any():
            row = int(np.argmax(np.where(left, worth, -np.inf)))
            found.append((which, row))
            left[row] = False
    return found


def usual_parts(
    names: Sequence[tuple[str, str]], away: Floats, moved: Floats, meaning: Mapping[str, str]
) -> tuple[FeatureImportance, ...]:
    """Means over choices; `away` and `moved` are (choices, numbers): how far from usual, and what that did.

    >>> found = usual_parts([("length", "job")], np.array([[-1.0], [2.0]]), np.array([[0.5], [-1.0]]), {})
    >>> found[0].mean, found[0].leaning
    (0.75, -0.5)
    """
    mean = np.abs(moved).mean(axis=0)
    spread = (away**2).sum(axis=0)
    leaning = (away * moved).sum(axis=0) / np.where(spread > 0, spread, 1.0)
    return tuple(
        FeatureImportance(name, of, meaning.get(name, ""), float(mean[place]), float(leaning[place]))
        for place, (name, of) in enumerate(names)
    )


def explained_weights(
    agent: LinearAgent, jobs: JobTable, cluster: Cluster, backfill: str | int = "easy"
) -> AgentExplanation | None:
    """What weights do: who is first in line at every instant of a run of `jobs`, at most `WINDOW_JOBS` of them.

    None where no two jobs ever waited, and of an agent that plays a rule instead of its weights.

    >>> import kilowait as kw
    >>> agent = LinearAgent([1.0, *[0.0] * (len(FEATURES) - 1)])
    >>> found = explained_weights(agent, kw.lublin(200, 32, load=1.1, seed=1), kw.Cluster.from_nodes(32))
    >>> (
    ...     [part.name for part in found.usual if part.mean > 0],
    ...     found.usual[0].leaning,
    ... )  # the shorter, the sooner
    (['length'], -1.0)
    """
    if agent.fallback_rule is not None:
        return None
    lines = _watched(agent, jobs.sorted()[:WINDOW_JOBS], cluster, backfill)
    if not lines:
        return None
    weights = agent.weights
    queue = np.array([len(line) for line in lines], np.int64)
    seen = [features(line[:, 0], line[:, 1], line[:, 2], cluster.nodes, line[:, 3:]) for line in lines]
    order = [np.argsort(rows @ weights, kind="stable") for rows in seen]
    chosen = np.stack([rows[first[0]] for rows, first in zip(seen, order, strict=True)])
    other = np.stack([rows[first[1]] for rows, first in zip(seen, order, strict=True)])
    usual = np.stack([rows[first[1:]].mean(axis=0) for rows, first in zip(seen, order, strict=True)])
    margin, moved = (other - chosen) @ weights, (usual - chosen) * weights
    cases = []
    for which, row in typical(queue, margin, margin != 0):
        named = zip(FEATURES, chosen[row], usual[row], moved[row], strict=True)
        facts = [
            {"nodes": float(nodes), "estimate_s": float(estimate_s), "wait_s": float(wait_s)}
            for estimate_s, nodes, wait_s, *_ in (lines[row][order[row][place]] for place in (0, 1))
        ]
        cases.append(
            ExplainedDecision(
                which=which,
                choices=len(lines[row]),
                margin=float(margin[row]),
                usual=float(margin[row] - moved[row].sum()),
                chosen=facts[0],
                other=facts[1],
                parts=tuple(
                    FeatureContribution(name, "job", float(a), float(b), float(c)) for name, a, b, c in named
                ),
            )
        )
    names = [(name, "job") for name in FEATURES]
    means = usual_parts(names, chosen - usual, moved, FEATURES)
    return AgentExplanation("scores", len(lines), len(lines), means, tuple(cases))


def _watched(agent: LinearAgent, jobs: JobTable, cluster: Cluster, backfill: str | int) -> list[Floats]:
    """Of every instant when several jobs waited: estimate, nodes, wait of each, and what memory said of it."""
    instants: dict[float, dict[int, tuple[float, ...]]] = {}
    weights, nodes = agent.weights, cluster.nodes
    remember, recall = compiled(), recalled()

    def score(job: Any, now: float, parameters: Any) -> float:
        if job["ran_s"] != 0:
            return float(remember(job, now, parameters))
        limit_s = float(job["limit_s"])
        asked_s = limit_s if np.isfinite(limit_s) else float(job["estimate_s"])
        known = (asked_s, float(job["nodes"]), max(now - float(job["submit_s"]), 0.0))
        told = recall(job, now, parameters)
        instants.setdefault(now, {})[int(job["number"])] = (*known, *told)
        return float(features(*known, nodes, told)[0] @ weights)

    rule = PriorityPolicy(
        agent.name,
        score,
        agent.parameters(jobs, cluster),
        time_dependent=True,
        compiled=False,
        observes_jobs=True,
    )
    simulate(jobs, cluster, rule, backfill)
    lines = [np.array([line[number] for number in sorted(line)]) for line in instants.values()]
    return [line for line in lines if len(line) > 1]


def _short(value: Any) -> Any:
    """Numbers of four digits: the file stays small, and no reader sees the difference."""
    if isinstance(value, Mapping):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) and math.isfinite(value) else value
