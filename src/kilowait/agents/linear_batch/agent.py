"""Linear agent for batch systems: a job's score is a weighted sum of twelve features; the smallest score goes first.

Features are scaled by fixed units (hours, the size of the machine), never by statistics of a log: there is no data
leakage from the test jobs, and the agent transfers to other machines. Four features are statistics of ended jobs: those
of its stored user history, and those that end during the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.linear_batch.score import FEATURE_COUNT, FEATURES, compiled_agent_score, features
from kilowait.agents.linear_file import check_agent_fields, read_agent_document, weights_in_order
from kilowait.agents.user_history import USER_HISTORY_FIELDS, UserHistory, parameters_for
from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import RunInputs, run_priority_policy
from kilowait.errors import InputError, UnknownNameError
from kilowait.files import write_text
from kilowait.files.fields import Either, Null, Number, Text
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import POLICIES, resolve

__all__ = [
    "FEATURES",
    "USER_HISTORY_WEIGHT",
    "LinearAgent",
    "features",
    "load_linear_agent",
    "saf_weights",
    "default_weights",
]

Floats = npt.NDArray[np.float64]

FORMAT = "kilowait linear agent"
VERSION = 3
_FIELDS = {"prior_weight": Number(0, 1), "fallback_policy": Either(Null(), Text()), "user_history": USER_HISTORY_FIELDS}
_OPTIONAL = {"max_wait_s": Either(Null(), Number(0, 1e12))}

OVERRUN = "quantile"
"""Expected end of a job that has exceeded its prediction: next quantile, then the limit. Without either: double."""
USER_HISTORY_WEIGHT = 0.25
"""Weight of the stored user history relative to jobs of the run: users change their behaviour."""


def saf_weights() -> Floats:
    """Weights of the SAF order (smallest area first): ln(estimate) + ln(nodes).

    >>> saf_weights()[:3].tolist()
    [1.0, 1.0, 0.0]
    """
    return named_weights(length=1.0, width=1.0)


def default_weights() -> Floats:
    """Smallest expected area first, with priority for jobs expected to be short: the start of every search.

    The score is the estimate, times the share of it that such jobs use, times nodes, divided by the square root of the
    expected inverse run time. That is halfway to Smith's rule (weight over work), as a job's slowdown weighs
    1 / run time.

    >>> dict(zip(FEATURES, default_weights().tolist()))["user_inverse_runtime"]
    -0.5
    """
    return named_weights(
        length=1.0, width=1.0, used_share=1.0, user_used_share=1.0, inverse_runtime=-0.5, user_inverse_runtime=-0.5
    )


def named_weights(**weights: float) -> Floats:
    """Weights by name; the others are 0.

    >>> named_weights(width=2.0)[:3].tolist()
    [0.0, 2.0, 0.0]
    """
    return np.array([float(weights.get(name, 0.0)) for name in FEATURES])


@dataclass(frozen=True, eq=False)
class LinearAgent:
    """Weights that order a queue, and the stored user history.

    >>> agent = LinearAgent(named_weights(length=1.0))  # the order of SJF
    >>> agent.policy.name, agent.explain()[0]
    ('agent', ('length', 1.0))
    """

    weights: Floats
    """One for each of FEATURES, without unit; only their ratios matter."""
    name: str = "agent"
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Origin: seed, training trace, objective, settings."""
    user_history: UserHistory = field(default_factory=UserHistory)
    """Statistics of jobs that ended before the run."""
    prior_weight: float = USER_HISTORY_WEIGHT
    """Weight of that history, 0 to 1."""
    fallback_policy: str | None = None
    """A policy used instead of the weights: better on the training jobs than the start of the search, and not clearly
    worse than its result."""
    max_wait_s: float = np.inf
    """Jobs that have waited longer go first, the longest wait first: a bound against starvation, seconds."""

    def __post_init__(self) -> None:
        weights = np.array(self.weights, np.float64)
        if weights.shape != (FEATURE_COUNT,) or not np.isfinite(weights).all():
            raise InputError(
                f"the weights are {self.weights!r}; give {FEATURE_COUNT} finite numbers, one for each of "
                f"{', '.join(FEATURES)}"
            )
        if not 0.0 <= self.prior_weight <= 1.0:
            raise InputError(f"the weight of the stored user history is {self.prior_weight}; give a number from 0 to 1")
        if not self.max_wait_s >= 0:
            raise InputError(f"the longest wait is {self.max_wait_s} s; give 0 or more")
        if self.fallback_policy is not None and self.fallback_policy not in POLICIES:
            raise UnknownNameError("policy", self.fallback_policy, POLICIES)
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run in the order of the learned score."""
        return run_priority_policy(self.policy, inputs)

    @property
    def policy(self) -> PriorityPolicy:
        """The priority policy of the agent: ``kilowait.simulate(jobs, cluster, agent.policy, "easy")``."""
        if self.fallback_policy is not None:
            return replace(resolve(self.fallback_policy), name=self.name)
        return PriorityPolicy(
            self.name,
            compiled_agent_score(),
            time_dependent=True,
            observes_jobs=True,
            overrun=OVERRUN,
            prepare=self.parameters,
        )

    def parameters(self, jobs: JobTable, cluster: Cluster) -> Floats:
        """Initial parameters of the policy for a run of these jobs."""
        return parameters_for(self.weights, jobs, cluster.nodes, self.user_history, self.prior_weight, self.max_wait_s)

    def explain(self) -> list[tuple[str, float]]:
        """Features and weights, the largest first; a positive weight moves jobs back in the queue."""
        pairs = zip(FEATURES, self.weights.tolist(), strict=True)
        return sorted(pairs, key=lambda pair: -abs(pair[1]))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the agent to a JSON file; `load_linear_agent` restores it exactly."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "weights": dict(zip(FEATURES, self.weights.tolist(), strict=True)),
            "prior_weight": self.prior_weight,
            "fallback_policy": self.fallback_policy,
            "max_wait_s": None if np.isinf(self.max_wait_s) else self.max_wait_s,
            "provenance": dict(self.provenance),
            "user_history": self.user_history.to_dict(),
        }
        target = Path(path)
        try:
            write_text(target, _json(data) + "\n", parents=True)
        except OSError as problem:
            raise InputError(f"cannot write the agent to {target}: {problem.strerror or problem}") from None
        return target


def load_linear_agent(path: str | PathLike[str]) -> LinearAgent:
    """The agent in a file. A damaged file, or one of another program, raises an InputError with the reason."""
    return linear_agent_from_dict(read_agent_document(path), Path(path))


def linear_agent_from_dict(data: Mapping[str, Any], source: Path) -> LinearAgent:
    """The agent of a file's content; InputError if it is damaged."""
    if data.get("format") != FORMAT:
        raise InputError(
            f"{source} contains no agent: its format is {data.get('format')!r:.60}, not {FORMAT!r}; "
            "name the agent.json that kilowait train wrote"
        )
    check_agent_fields(data, VERSION, _FIELDS, source, optional=_OPTIONAL)
    values = weights_in_order(data["weights"], FEATURES, source)
    try:
        return LinearAgent(
            values,
            data["name"],
            data["provenance"],
            UserHistory.from_dict(data["user_history"]),
            float(data["prior_weight"]),
            data["fallback_policy"],
            np.inf if data.get("max_wait_s") is None else float(data["max_wait_s"]),
        )
    except (InputError, UnknownNameError) as problem:
        raise InputError(f"{source}: {problem}") from None


def _json(data: Mapping[str, Any]) -> str:
    """Indented JSON, but the user history on one line a user, to keep the file short."""
    user_history = data["user_history"]
    text = json.dumps({**data, "user_history": None}, indent=2, allow_nan=False)
    users = ",\n".join(
        f"      {json.dumps(name)}: {json.dumps(rows, allow_nan=False)}" for name, rows in user_history["users"].items()
    )
    all_users = json.dumps(user_history["all_users"], allow_nan=False)
    block = f'{{\n    "all_users": {all_users},\n    "users": {{\n{users}\n    }}\n  }}'
    return text.replace('"user_history": null', f'"user_history": {block}')
