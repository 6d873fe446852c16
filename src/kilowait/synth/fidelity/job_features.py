"""Numeric job features for comparing workloads: request, submission time, and relation to the user's previous job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.synth.log_schema import DAY_S, unix_zero_s

__all__ = ["check_jobs", "common_columns", "previous_job", "job_rows", "numeric_columns", "shared_codes", "sample_rows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Values = npt.NDArray[Any]

NUMBERS = ("interarrival_s", "hour", "nodes", "gpus", "estimate_s", "runtime_s", "energy_j")
"""Numeric columns to compare, where both workloads have them."""
CATEGORIES = ("queue", "status")
"""Categorical columns whose names mean the same in both workloads; user and account numbers differ."""
REPEATED = ("nodes", "estimate_s", "queue", "account", "status")
"""Columns that users repeat from job to job."""


def previous_job(jobs: JobTable) -> Ints:
    """Row of the same user's previous job, in a table in order of submission; -1 for a first job.

    >>> table = JobTable(job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[9, 9, 9], nodes=[1, 1, 1], user=[7, 8, 7])
    >>> previous_job(table).tolist()
    [-1, -1, 0]
    """
    user = jobs.column("user")
    order = np.argsort(user, kind="stable")
    same_user = user[order][1:] == user[order][:-1]
    before = np.full(len(jobs), -1, np.int64)
    before[order[1:][same_user]] = order[:-1][same_user]
    return before


def numeric_columns(jobs: JobTable) -> dict[str, Floats]:
    """The numeric columns that can be compared; jobs in order of submission."""
    submit = jobs["submit_s"]
    columns = {"interarrival_s": np.diff(submit, prepend=submit[0]), "hour": (submit + unix_zero_s(jobs)) // 3600 % 24}
    for name in NUMBERS:
        if name in jobs:
            columns[name] = jobs[name].astype(np.float64)
    return {name: columns[name] for name in NUMBERS if name in columns}


def job_rows(jobs: JobTable, *, history: bool = False) -> dict[str, Values]:
    """Features of each job for a classifier: its columns, the time, and whether it repeats the user's previous job.

    Args:
        jobs: in order of submission.
        history: add the time since the user's previous job, and the change of the run time (a harder test).
    """
    rows: dict[str, Values] = dict(numeric_columns(jobs))
    rows["weekday"] = (jobs["submit_s"] + unix_zero_s(jobs)) // DAY_S % 7
    rows["used"] = jobs["runtime_s"] / np.maximum(jobs["estimate_s"], 1.0)
    for name in CATEGORIES:
        if name in jobs:
            rows[name] = _named(jobs, name)
    before = previous_job(jobs)
    known = before >= 0
    for name in REPEATED:
        if name in jobs:
            rows[f"same_{name}"] = np.where(known, jobs[name] == jobs[name][before], -1)
    if history:
        rows["user_gap_s"] = np.where(known, jobs["submit_s"] - jobs["submit_s"][before], -1.0)
        log_runtime = np.log1p(jobs["runtime_s"])
        rows["runtime_change"] = np.where(known, log_runtime - log_runtime[before], np.nan)
    return rows


def _named(jobs: JobTable, name: str) -> Values:
    """A categorical column, by name where it has names, so that codes need not agree between tables."""
    if name not in jobs.labels:
        values: Values = jobs[name]
        return values
    named: Values = np.array([*jobs.labels[name], ""], dtype=str)[jobs[name]]
    return named


def common_columns(one: dict[str, Values], other: dict[str, Values]) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """The columns both have, as numbers with the same meaning in both."""
    left: dict[str, Floats] = {}
    right: dict[str, Floats] = {}
    for name in [name for name in one if name in other]:
        left[name], right[name] = shared_codes([one[name], other[name]])
    return left, right


def shared_codes(columns: Sequence[Values]) -> list[Floats]:
    """One column of several tables as numbers with the same meaning in all; names are encoded.

    >>> [numbers.tolist() for numbers in shared_codes([np.array(["long", "short"]), np.array(["short"])])]
    [[0.0, 1.0], [1.0]]
    """
    if any(column.dtype.kind == "U" for column in columns):
        numbers = np.unique(np.concatenate([column.astype(str) for column in columns]), return_inverse=True)[1]
        return [part.astype(np.float64) for part in np.split(numbers, np.cumsum([*map(len, columns)])[:-1])]
    return [column.astype(np.float64) for column in columns]


def sample_rows(count: int, max_rows: int, rng: np.random.Generator) -> Ints:
    """All rows, or `max_rows` of them at random."""
    return np.arange(count) if count <= max_rows else np.sort(rng.choice(count, max_rows, replace=False))


def check_jobs(tables: Sequence[JobTable], min_jobs: int) -> None:
    """Raise if there are too few jobs to compare."""
    for table in tables:
        if len(table) < min_jobs:
            raise InputError(f"{len(table)} jobs are too few to compare workloads; at least {min_jobs} are needed")
