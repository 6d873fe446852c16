"""User history: statistics of ended jobs by estimate, user and class, which an agent carries into its next run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.agents.linear_batch.score import (
    BUCKETS,
    COUNT,
    HEADER,
    MOMENTS,
    replay_ended_jobs,
)
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["UserHistory", "user_histories", "parameters_for"]

Floats = npt.NDArray[np.float64]

KEPT = 3
"""Statistics of a class that are kept after a run: weight, ln(share used), inverse run time."""


@dataclass(frozen=True, eq=False)
class UserHistory:
    """Statistics by estimate and by user; see `kilowait.agents.linear_batch.score`."""

    usual: Floats = field(default_factory=lambda: np.zeros((BUCKETS, KEPT)))
    """(64, 3) for each bucket of estimates: weight, sum of ln(share used), sum of inverse run times."""
    users: Mapping[str, Floats] = field(default_factory=dict)
    """(65, 3) by user name: all jobs of the user, then by bucket."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; classes without jobs are left out."""
        return {
            "usual": _rows(self.usual),
            "users": {name: _rows(numbers) for name, numbers in sorted(self.users.items())},
        }

    @classmethod
    def from_dict(cls, data: Any) -> UserHistory:
        """The inverse of `to_dict`."""
        if (
            not isinstance(data, dict)
            or set(data) != {"usual", "users"}
            or not isinstance(data["users"], dict)
        ):
            raise InputError("its user history does not consist of usual and users: train it again")
        users = {name: _table(rows, BUCKETS + 1) for name, rows in data["users"].items()}
        return cls(_table(data["usual"], BUCKETS), users)


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
    >>> {cut: memory.users["ann"][0, 0].item() for cut, memory in user_histories(jobs, [1, 2]).items()}
    {1: 1.0, 2: 1.85}
    """
    ordered = jobs.sorted()
    names, user = _users(ordered)
    estimate, ran = _times(ordered)
    end = ordered["submit_s"] + ran  # the order of ends, as far as it is known without a schedule
    parameters = _layout(np.zeros(COUNT), 1, np.inf, UserHistory(), names, np.zeros(0))
    found: dict[int, UserHistory] = {}
    done = 0
    for cut in sorted({min(max(cut, 0), len(ordered)) for cut in cuts}):
        order = done + np.argsort(end[done:cut], kind="stable")
        replay_ended_jobs(order, user, estimate, ran, parameters)
        done = cut
        found[cut] = _memory(parameters, names)
    return found


def parameters_for(
    weights: Floats, jobs: JobTable, nodes: int, memory: UserHistory, trust: float, max_wait_s: float = np.inf
) -> Floats:
    """Initial parameters of the compiled score for a run of these jobs: weights, machine, history, users.

    `trust`, 0 to 1: weight of the stored history relative to jobs of this run. `max_wait_s`: jobs that have waited
    longer go first.
    """
    names, user = _users(jobs.sorted())
    discounted = UserHistory(
        memory.usual, {name: trust * memory.users[name] for name in names if name in memory.users}
    )
    return _layout(weights, nodes, max_wait_s, discounted, names, user)


def _users(jobs: JobTable) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Names of the users of these jobs, and the user number of each job; -1: unknown."""
    codes = jobs.column("user")
    present, place = np.unique(codes, return_inverse=True)
    labels = jobs.labels.get("user")
    known = present >= 0
    names = [str(code) if labels is None else labels[code] for code in present[known].tolist()]
    return names, np.where(codes < 0, -1, place - np.count_nonzero(~known)).astype(np.int64)


def _times(jobs: JobTable) -> tuple[Floats, Floats]:
    requested_s = jobs["estimate_s"]
    if "limit_s" in jobs:  # then the estimate may be a prediction
        requested_s = np.where(np.isnan(jobs["limit_s"]), requested_s, jobs["limit_s"])
    return np.maximum(requested_s, 1.0).astype(np.float64), np.array(jobs["runtime_s"], np.float64)


def _layout(
    weights: Floats,
    nodes: int,
    max_wait_s: float,
    memory: UserHistory,
    names: list[str],
    user: npt.NDArray[Any],
) -> Floats:
    """The parameters in one array, in the layout of `linear_batch.score`."""
    count = len(names)
    known = np.zeros((BUCKETS + count + count * BUCKETS, MOMENTS))
    known[:BUCKETS, :KEPT] = memory.usual
    for place, name in enumerate(names):
        if name in memory.users:
            first = BUCKETS + count + place * BUCKETS
            known[BUCKETS + place, :KEPT] = memory.users[name][0]
            known[first : first + BUCKETS, :KEPT] = memory.users[name][1:]
    return np.concatenate([weights, [nodes, count, max_wait_s], known.ravel(), user])


def _memory(parameters: Floats, names: list[str]) -> UserHistory:
    """The user history in the parameters: the inverse of `_layout`."""
    count = len(names)
    size = BUCKETS + count + count * BUCKETS
    known = parameters[HEADER : HEADER + size * MOMENTS].reshape(size, MOMENTS)[:, :KEPT]
    by_class = known[BUCKETS + count :].reshape(count, BUCKETS, KEPT)
    users = {
        name: np.concatenate([known[BUCKETS + place][None], by_class[place]])
        for place, name in enumerate(names)
        if known[BUCKETS + place, 0] > 0
    }
    return UserHistory(known[:BUCKETS].copy(), users)


def _rows(numbers: Floats) -> dict[str, list[float]]:
    return {str(row): numbers[row].tolist() for row in np.flatnonzero(numbers[:, 0]).tolist()}


def _table(rows: Any, length: int) -> Floats:
    table = np.zeros((length, KEPT))
    try:
        for row, values in rows.items():
            table[int(row)] = np.reshape(values, KEPT)
    except (AttributeError, TypeError, ValueError, IndexError):
        raise InputError(
            f"its user history holds {rows!r:.80}, not rows of {KEPT} numbers: train it again"
        ) from None
    if not np.isfinite(table).all() or (table[:, 0] < 0).any():
        raise InputError(
            "its user history holds numbers that are not finite, or weights below 0: train it again"
        )
    return table
