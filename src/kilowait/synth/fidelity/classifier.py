"""Classifier two-sample test: a classifier that distinguishes generated from real jobs, and its feature importance."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from kilowait.errors import InputError, MissingExtraError
from kilowait.jobs import JobTable
from kilowait.rng import stream
from kilowait.synth.fidelity.job_features import common_columns, job_rows, sample_rows

__all__ = ["ClassifierResult", "classifier_test", "classifier_auc"]

Floats = npt.NDArray[np.float64]

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


def classifier_auc(real: JobTable, synthetic: JobTable, *, seed: int = 0, history: bool = False) -> float:
    """The AUC alone; see `classifier_test`."""
    return classifier_test(real, synthetic, seed=seed, history=history).auc


def _auc(above: Floats, below: Floats) -> float:
    """Probability that one of `above` is larger than one of `below`; ties count half."""
    ranks = rankdata(np.concatenate([above, below]))[: len(above)]
    return float((ranks.sum() - len(above) * (len(above) + 1) / 2) / (len(above) * len(below)))
