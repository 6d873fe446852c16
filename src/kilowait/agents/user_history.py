"""User history: statistics of ended jobs by estimate, user and class, which an agent carries into its next run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.linear_batch.score import (
    ESTIMATE_BUCKETS,
    FEATURE_COUNT,
    STATISTICS_OFFSET,
    STATISTICS_PER_CLASS,
    replay_ended_jobs,
)
from kilowait.errors import InputError
from kilowait.files.fields import Items, Number, Record, Values, check_fields
from kilowait.jobs import JobTable

__all__ = ["USER_HISTORY_FIELDS", "UserHistory", "user_histories", "parameters_for"]

Floats = npt.NDArray[np.float64]

STATISTICS = 3
"""Statistics of a class that are stored after a run: weight, ln(share used), inverse run time."""
MAX_USERS = 200_000
MAX_STATISTIC = 1e12
_ROWS = Values(Items(Number(), minimum=STATISTICS, maximum=STATISTICS))
USER_HISTORY_FIELDS = Record({"all_users": _ROWS, "users": Values(_ROWS)})
"""Fields of a user history in a file."""


@dataclass(frozen=True, eq=False)
class UserHistory:
    """Statistics by estimate and by user; see `kilowait.agents.linear_batch.score`."""

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
    """The parameters in one array, in the layout of `linear_batch.score`."""
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
