"""Linear agent for batch systems: a job's score is a weighted sum of twelve features; the smallest score goes first.

Features are scaled by fixed units (hours, the size of the machine), never by statistics of a log: there is no data
leakage from the test jobs, and the agent transfers to other machines. Four features are statistics of ended jobs: those
of its stored user history, and those that end during the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.io import LinearWeights, check_agent_fields, read_agent_document, weights_in_order, write_agent
from kilowait.agents.linear_batch_score import (
    ESTIMATE_BUCKETS,
    FEATURE_COUNT,
    FEATURES,
    STATISTICS_OFFSET,
    STATISTICS_PER_CLASS,
    compiled_agent_score,
    replay_ended_jobs,
)
from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import RunInputs, run_priority_policy
from kilowait.errors import InputError, UnknownNameError
from kilowait.files.fields import Either, Items, Null, Number, Record, Text, Values, check_fields
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import POLICIES, resolve

Floats = npt.NDArray[np.float64]

STATISTICS = 3
"""Statistics of a class that are stored after a run: weight, ln(share used), inverse run time."""
MAX_USERS = 200_000
MAX_STATISTIC = 1e12
_ROWS = Values(Items(Number(), minimum=STATISTICS, maximum=STATISTICS))
USER_HISTORY_FIELDS = Record({"all_users": _ROWS, "users": Values(_ROWS)})
"""Fields of a user history in a file."""
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
class UserHistory:
    """Statistics by estimate and by user; see `kilowait.agents.linear_batch_score`."""

    all_users: Floats = field(default_factory=lambda: np.zeros((ESTIMATE_BUCKETS, STATISTICS)))
    """(64, 3) for each bucket of estimates: weight, sum of ln(share used), sum of inverse run times."""
    users: Mapping[str, Floats] = field(default_factory=dict)
    """(65, 3) by user name: all jobs of the user, then by bucket."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; classes without jobs are left out."""
        return {
            "all_users": _rows(self.all_users),
            "users": {name: _rows(numbers) for name, numbers in sorted(self.users.items())},
        }

    @classmethod
    def from_dict(cls, data: Any) -> UserHistory:
        """The inverse of `to_dict`."""
        check_fields(data, USER_HISTORY_FIELDS, "its user history", remedy="train it again")
        if len(data["users"]) > MAX_USERS:
            raise InputError(f"its user history has {len(data['users']):,} users; at most {MAX_USERS:,} are read")
        users = {name: _table(rows, ESTIMATE_BUCKETS + 1) for name, rows in data["users"].items()}
        return cls(_table(data["all_users"], ESTIMATE_BUCKETS), users)


@dataclass(frozen=True, eq=False)
class LinearAgent(LinearWeights):
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

    weight_names = tuple(FEATURES)

    def __post_init__(self) -> None:
        self.check_weights()
        if not 0.0 <= self.prior_weight <= 1.0:
            raise InputError(f"the weight of the stored user history is {self.prior_weight}; give a number from 0 to 1")
        if not self.max_wait_s >= 0:
            raise InputError(f"the longest wait is {self.max_wait_s} s; give 0 or more")
        if self.fallback_policy is not None and self.fallback_policy not in POLICIES:
            raise UnknownNameError("policy", self.fallback_policy, POLICIES)

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
        return parameters_for(self.weights, jobs, cluster.size, self.user_history, self.prior_weight, self.max_wait_s)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the agent to a JSON file; `load_linear_agent` restores it exactly."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "weights": self.weights_by_name(),
            "prior_weight": self.prior_weight,
            "fallback_policy": self.fallback_policy,
            "max_wait_s": None if np.isinf(self.max_wait_s) else self.max_wait_s,
            "provenance": dict(self.provenance),
            "user_history": self.user_history.to_dict(),
        }
        return write_agent(path, data, text=_json(data))


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
    values = weights_in_order(data["weights"], LinearAgent.weight_names, source)
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


def user_histories(jobs: JobTable, cuts: Iterable[int]) -> dict[int, UserHistory]:
    """User history after the first n jobs by submission, for each n in `cuts`; all of them count as ended.

    >>> jobs = JobTable(
    ...     job_id=[1, 2],
    ...     submit_s=[0, 9],
    ...     runtime_s=[60, 60],
    ...     estimate_s=[600, 600],
    ...     nodes=[1, 1],
    ...     user=[0, 0],
    ...     labels={"user": ("ann",)},
    ... )
    >>> {cut: user_history.users["ann"][0, 0].item() for cut, user_history in user_histories(jobs, [1, 2]).items()}
    {1: 1.0, 2: 1.85}
    """
    ordered = jobs.sorted()
    names, user = _users(ordered)
    estimate, ran = _requested_and_run_s(ordered)
    end = ordered["submit_s"] + ran  # the order of ends, as far as it is known without a schedule
    parameters = _layout(np.zeros(FEATURE_COUNT), 1, np.inf, UserHistory(), names, np.zeros(0))
    histories: dict[int, UserHistory] = {}
    done = 0
    for cut in sorted({min(max(cut, 0), len(ordered)) for cut in cuts}):
        order = done + np.argsort(end[done:cut], kind="stable")
        replay_ended_jobs(order, user, estimate, ran, parameters)
        done = cut
        histories[cut] = _user_history(parameters, names)
    return histories


def parameters_for(
    weights: Floats,
    jobs: JobTable,
    nodes: int,
    user_history: UserHistory,
    prior_weight: float,
    max_wait_s: float = np.inf,
) -> Floats:
    """Initial parameters of the compiled score for a run of these jobs: weights, machine, history, users.

    `prior_weight`, 0 to 1: weight of the stored history relative to jobs of this run. `max_wait_s`: jobs that have
    waited longer go first.
    """
    names, user = _users(jobs.sorted())
    discounted = UserHistory(
        user_history.all_users,
        {name: prior_weight * user_history.users[name] for name in names if name in user_history.users},
    )
    return _layout(weights, nodes, max_wait_s, discounted, names, user)


def _users(jobs: JobTable) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Names of the users of these jobs, and the user number of each job; -1: unknown."""
    codes = jobs.column("user")
    user_codes, index = np.unique(codes, return_inverse=True)
    labels = jobs.labels.get("user")
    is_known = user_codes >= 0
    names = [str(code) if labels is None else labels[code] for code in user_codes[is_known].tolist()]
    return names, np.where(codes < 0, -1, index - np.count_nonzero(~is_known)).astype(np.int64)


def _requested_and_run_s(jobs: JobTable) -> tuple[Floats, Floats]:
    requested_s = jobs["estimate_s"]
    if "limit_s" in jobs:  # then the estimate may be a prediction
        requested_s = np.where(np.isnan(jobs["limit_s"]), requested_s, jobs["limit_s"])
    return np.maximum(requested_s, 1.0).astype(np.float64), np.array(jobs["runtime_s"], np.float64)


def _layout(
    weights: Floats, nodes: int, max_wait_s: float, user_history: UserHistory, names: list[str], user: npt.NDArray[Any]
) -> Floats:
    """The parameters in one array, in the layout of `linear_batch_score`."""
    count = len(names)
    statistics = np.zeros((ESTIMATE_BUCKETS + count + count * ESTIMATE_BUCKETS, STATISTICS_PER_CLASS))
    statistics[:ESTIMATE_BUCKETS, :STATISTICS] = user_history.all_users
    for index, name in enumerate(names):
        if name in user_history.users:
            first = ESTIMATE_BUCKETS + count + index * ESTIMATE_BUCKETS
            statistics[ESTIMATE_BUCKETS + index, :STATISTICS] = user_history.users[name][0]
            statistics[first : first + ESTIMATE_BUCKETS, :STATISTICS] = user_history.users[name][1:]
    return np.concatenate([weights, [nodes, count, max_wait_s], statistics.ravel(), user])


def _user_history(parameters: Floats, names: list[str]) -> UserHistory:
    """The user history in the parameters: the inverse of `_layout`."""
    count = len(names)
    size = ESTIMATE_BUCKETS + count + count * ESTIMATE_BUCKETS
    statistics = parameters[STATISTICS_OFFSET : STATISTICS_OFFSET + size * STATISTICS_PER_CLASS].reshape(
        size, STATISTICS_PER_CLASS
    )[:, :STATISTICS]
    by_class = statistics[ESTIMATE_BUCKETS + count :].reshape(count, ESTIMATE_BUCKETS, STATISTICS)
    users = {
        name: np.concatenate([statistics[ESTIMATE_BUCKETS + index][None], by_class[index]])
        for index, name in enumerate(names)
        if statistics[ESTIMATE_BUCKETS + index, 0] > 0
    }
    return UserHistory(statistics[:ESTIMATE_BUCKETS].copy(), users)


def _rows(numbers: Floats) -> dict[str, list[float]]:
    return {str(row): numbers[row].tolist() for row in np.flatnonzero(numbers[:, 0]).tolist()}


def _table(rows: Mapping[str, list[float]], length: int) -> Floats:
    table = np.zeros((length, STATISTICS))
    for row, values in rows.items():
        if not (row.isascii() and row.isdecimal() and len(row) <= 4 and int(row) < length):
            raise InputError(f"its user history has the row {row!r:.60}; rows are 0 to {length - 1}: train it again")
        table[int(row)] = values
    if not (np.abs(table) <= MAX_STATISTIC).all() or (table[:, 0] < 0).any() or (table[:, 2] < 0).any():
        raise InputError(
            f"its user history contains numbers beyond {MAX_STATISTIC:g}, or weights or inverse run times below 0: "
            "train it again"
        )
    return table
