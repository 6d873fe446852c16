"""Prediction errors: accuracy, log error, absolute error, underprediction rate and coverage, overall or by job class.

No single metric suffices. Long jobs dominate the mean absolute error; accuracy and the log error weight a job of a
minute like one of a day; underprediction harms schedulers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.job_history import Floats, Ints, PastEvents, group_keys

METRICS = {
    "accuracy": "mean of the smaller of prediction and truth over the larger; 1 is perfect",
    "log_rmse": "root of the mean square of ln(1 + prediction) - ln(1 + truth)",
    "mae": "mean absolute error, in the unit",
    "underprediction_rate": "share of jobs whose prediction was too small",
}
"""Metrics that are means over jobs, so that weeks can be resampled."""
JOB_CLASSES = {
    "size": "nodes, in steps of 4",
    "length": "true run time",
    "user-jobs": "jobs the user had submitted before",
}
"""Classifications of jobs."""
_LENGTH_EDGES_S = np.array([60.0, 600.0, 3600.0, 21600.0, 86400.0])
_LENGTHS = ("< 1 min", "1-10 min", "10-60 min", "1-6 h", "6-24 h", ">= 24 h")
_USER_JOBS_EDGES = np.array([1, 10, 100, 1000])
_USER_JOBS = ("none", "1-9", "10-99", "100-999", ">= 1,000")
_SIZE_TOPS = [4**power for power in range(32)]


@dataclass(frozen=True)
class PredictionScores:
    """Errors of predictions over jobs whose truth is known; NaN where there are none."""

    jobs: int
    accuracy: float
    log_rmse: float
    mae: float
    median_ae: float
    underprediction_rate: float
    mape: float
    """Mean absolute percentage error, as a share. Do not rank by it: a few jobs that failed within a second make it
    thousands of per cent, and it rewards underprediction."""


def losses(predicted: Floats, truth: Floats) -> dict[str, Floats]:
    """Loss of each job for each of `METRICS`; log_rmse is the square root of its mean.

    >>> loss = losses(np.array([60.0]), np.array([120.0]))
    >>> {name: float(value[0].round(3)) for name, value in loss.items()}
    {'accuracy': 0.5, 'log_rmse': 0.469, 'mae': 60.0, 'underprediction_rate': 1.0}
    """
    larger = np.maximum(predicted, truth)
    accuracy = np.minimum(predicted, truth) / np.where(larger > 0, larger, 1.0)
    return {
        "accuracy": np.where(larger > 0, accuracy, 1.0),
        "log_rmse": (np.log1p(predicted) - np.log1p(truth)) ** 2,
        "mae": np.abs(predicted - truth),
        "underprediction_rate": (predicted < truth).astype(np.float64),
    }


def score(predicted: npt.ArrayLike, truth: npt.ArrayLike) -> PredictionScores:
    """Errors of predictions against the truth; jobs whose truth is NaN are left out.

    >>> scores = score([60, 60], [120, 60])
    >>> scores.accuracy, scores.mae, scores.underprediction_rate
    (0.75, 30.0, 0.5)
    """
    predicted, true = np.asarray(predicted, np.float64), np.asarray(truth, np.float64)
    if predicted.shape != true.shape or predicted.ndim != 1:
        raise InputError(f"predictions of shape {predicted.shape} for truths of {true.shape}; give one for each job")
    predicted, true = predicted[np.isfinite(true)], true[np.isfinite(true)]
    not_finite = int((~np.isfinite(predicted)).sum())
    if not_finite:
        raise InputError(
            f"{not_finite:,} of {len(predicted):,} predictions are not finite numbers; leave these jobs out"
        )
    if len(predicted) == 0:
        return PredictionScores(0, *[float("nan")] * 6)
    means = {name: float(value.mean()) for name, value in losses(predicted, true).items()}
    error, positive = np.abs(predicted - true), true > 0
    return PredictionScores(
        jobs=len(predicted),
        accuracy=means["accuracy"],
        log_rmse=means["log_rmse"] ** 0.5,
        mae=means["mae"],
        median_ae=float(np.median(error)),
        underprediction_rate=means["underprediction_rate"],
        mape=float((error[positive] / true[positive]).mean()) if positive.any() else float("nan"),
    )


def coverage(bound: Floats, truth: Floats) -> float:
    """Share of jobs at or below their bound; for a quantile it should equal the level.

    >>> coverage(np.array([60.0, 60.0]), np.array([59.0, 61.0]))
    0.5
    """
    known = np.isfinite(truth)
    return float((truth <= bound)[known].mean()) if known.any() else float("nan")


def job_class_codes(jobs: JobTable, kind: str) -> tuple[Ints, tuple[str, ...]]:
    """The class of each job, from 0, and the names of the classes; see `JOB_CLASSES`.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 5], runtime_s=[60, 30], nodes=[4, 1])
    >>> code, names = job_class_codes(jobs, "length")
    >>> [names[number] for number in code]
    ['1-10 min', '< 1 min']
    """
    if kind == "size":
        names = ("1", *(f"{low + 1}-{top}" for low, top in pairwise(_SIZE_TOPS)), f"> {_SIZE_TOPS[-1]}")
        return np.searchsorted(_SIZE_TOPS, jobs.size, side="left").astype(np.int64), names
    if kind == "length":
        return np.searchsorted(_LENGTH_EDGES_S, jobs["runtime_s"], side="right").astype(np.int64), _LENGTHS
    if kind == "user-jobs":
        before = PastEvents(group_keys(jobs.column("user")), jobs["submit_s"], jobs["submit_s"]).count
        return np.searchsorted(_USER_JOBS_EDGES, before, side="right").astype(np.int64), _USER_JOBS
    raise UnknownNameError("class of jobs", kind, JOB_CLASSES)


def scores_by_class(
    jobs: JobTable, kind: str, predicted: Floats, truth: Floats, rows: npt.NDArray[np.bool_] | None = None
) -> Iterator[tuple[str, PredictionScores]]:
    """Scores of each class that has jobs; of the jobs where `rows` is true, or of all."""
    code, names = job_class_codes(jobs, kind)
    counted = np.isfinite(truth) if rows is None else rows & np.isfinite(truth)
    for number, name in enumerate(names):
        in_class = counted & (code == number)
        if in_class.any():
            yield name, score(predicted[in_class], truth[in_class])
