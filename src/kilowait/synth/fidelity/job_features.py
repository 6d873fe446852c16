"""Numeric job features for comparing workloads, and a classifier that distinguishes generated from real jobs by them.

Features are the request, the submission time, and the relation to the user's previous job.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from kilowait.errors import InputError, MissingExtraError
from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.log_schema import DAY_S, Floats, Ints, unix_zero_s

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


# -- classifier two-sample test -------------------------------------------------------------------


FOLDS = 5
MAX_ROWS = 25_000
"""Maximum jobs of each workload for the classifier."""
TREE_PARAMETERS = {
    "objective": "binary",
    "learning_rate": 0.1,
    "num_leaves": 31,
    "num_threads": 1,
    "deterministic": True,
}
ROUNDS = 100


@dataclass(frozen=True)
class ClassifierResult:
    """Result of the classifier test."""

    auc: float
    """Area under the ROC curve over five folds; 0.5: indistinguishable, 1: perfectly distinguishable."""
    feature_importance: Mapping[str, float]
    """Feature importance: share of gain by column, largest first; sums to 1."""


def classifier_test(real: JobTable, synthetic: JobTable, *, seed: int = 0, history: bool = False) -> ClassifierResult:
    """Classify generated and real jobs with LightGBM, in five folds.

    The AUC is well below 0.5 if both workloads contain the same jobs. Features are the columns of a job, hour and
    weekday, the time since the last submission, and whether the job repeats the request of its user's previous job;
    with `history` also the time since that job and the change of run time.
    """
    try:
        import lightgbm
    except ImportError:
        raise MissingExtraError("lightgbm", "predict") from None
    rng = stream(seed, "synth.classifier")
    real_columns, synthetic_columns = common_columns(
        job_rows(real.sorted(), history=history), job_rows(synthetic.sorted(), history=history)
    )
    if not real_columns:
        raise InputError("the two workloads have no column in common_columns")
    count = min(len(real), len(synthetic), MAX_ROWS)
    rows = np.concatenate(
        [
            np.column_stack([*columns.values()])[sample_rows(len(jobs), count, rng)]
            for jobs, columns in ((real, real_columns), (synthetic, synthetic_columns))
        ]
    )
    truth = np.repeat([0.0, 1.0], count)
    fold = rng.permutation(np.arange(2 * count) % FOLDS)
    predicted = np.empty(2 * count)
    gain = np.zeros(len(real_columns))
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = lightgbm.Dataset(rows[train], truth[train], params={"verbose": -1})
            trees = lightgbm.train({**TREE_PARAMETERS, "seed": seed, "verbose": -1}, data, ROUNDS)
            predicted[test] = trees.predict(rows[test], num_threads=1)
        gain += trees.feature_importance("gain")
    share_of_gain = dict(zip(real_columns, (gain / max(float(gain.sum()), 1e-300)).tolist(), strict=True))
    feature_importance = dict(sorted(share_of_gain.items(), key=lambda part: -part[1]))
    return ClassifierResult(_auc(predicted[truth == 1], predicted[truth == 0]), feature_importance)


def _auc(above: Floats, below: Floats) -> float:
    """Probability that one of `above` is larger than one of `below`; ties count half."""
    ranks = rankdata(np.concatenate([above, below]))[: len(above)]
    return float((ranks.sum() - len(above) * (len(above) + 1) / 2) / (len(above) * len(below)))
