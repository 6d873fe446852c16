"""Walk-forward predictions: models are refitted on a schedule on jobs with known values and predict the following jobs.

The model that predicts a job uses no job that ended after the model's date, and its features use no event after the
job's submission. So the whole log can be predicted and replayed without data leakage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.predict.features import Features

__all__ = ["RefitSchedule", "Refit", "WalkForwardResult", "walk_forward"]

Floats = npt.NDArray[np.float64]

PredictFunction = Callable[[Floats], npt.NDArray[Any]]
"""(n, features) in, (n, width) out."""
FitFunction = Callable[[Floats, Floats], PredictFunction]
"""Fit function: rows of features and ln(value) less the anchor to a predict function."""


@dataclass(frozen=True)
class RefitSchedule:
    """When a predictor is refitted, and on how many jobs."""

    every_s: float = 7 * 86400.0
    """Interval between fits, seconds."""
    jobs: int = 12_000
    """Maximum number of training jobs of a fit, the latest ones."""
    min_jobs: int = 200
    """Minimum number of jobs with known values before the first fit; until then the anchor is the prediction."""
    calibration_jobs: int = 2_000
    """Maximum number of jobs used to calibrate quantile levels, the latest ones."""

    def __post_init__(self) -> None:
        if not (self.every_s > 0 and self.jobs >= self.min_jobs >= 2 and self.calibration_jobs >= 1):
            raise InputError(
                f"refits every {self.every_s:g} s on {self.min_jobs} to {self.jobs} jobs, calibrated on "
                f"{self.calibration_jobs}; "
                "the interval must be above 0, the minimum at least 2 jobs and not above the maximum"
            )


@dataclass(frozen=True)
class Refit:
    """Progress report of one fit."""

    number: int
    total: int
    jobs: int
    """Number of training jobs."""


@dataclass(frozen=True, eq=False)
class WalkForwardResult:
    """Walk-forward predictions for all jobs."""

    values: npt.NDArray[Any]
    """(n, width); rows of jobs before the first fit are 0."""
    fit: npt.NDArray[np.int64]
    """(n,) index of the fit that predicted the job, -1: before the first fit."""
    known: tuple[npt.NDArray[np.int64], ...]
    """Of each fit: the jobs whose truth was known by its date, the latest last."""


def walk_forward(
    features: Features,
    difference: Floats,
    submit_s: Floats,
    known_s: Floats,
    fit_model: FitFunction,
    width: int,
    schedule: RefitSchedule | None = None,
    *,
    since: int = 0,
    threads: int = 1,
    progress: Callable[[Refit], None] | None = None,
) -> WalkForwardResult:
    """Predict every job with the latest model fitted before its submission.

    Args:
        features: features of the jobs, in order of submission.
        difference: ln(value) less the anchor; NaN: not known, not used for training. A fit uses only the jobs whose
            value was known by its date.
        submit_s: submission times of the jobs, seconds.
        known_s: when each value becomes known, seconds.
        fit_model: fits a model.
        width: number of outputs of the model per job.
        schedule: when to refit, on how many jobs.
        since: first row that needs a prediction; fits only for earlier rows are skipped, which changes no later one.
        threads: number of parallel fits; it does not change the result.
        progress: called after every fit.
    """
    schedule = schedule or RefitSchedule()
    jobs = len(features)
    values = np.zeros((jobs, width), np.float32)
    fit = np.full(jobs, -1, np.int64)
    by_known_time = np.argsort(known_s, kind="stable")
    by_known_time = by_known_time[np.isfinite(difference[by_known_time])]
    plan = [period for period in _plan(submit_s, known_s[by_known_time], schedule) if period[1] > since]

    def fit_and_predict(period: tuple[int, int, int]) -> npt.NDArray[Any]:
        begin, end, known = period
        rows = by_known_time[max(0, known - schedule.jobs) : known]
        return fit_model(features.values[rows], difference[rows])(features.values[begin:end])

    with ThreadPoolExecutor(threads) as pool:
        for number, ((begin, end, known), predicted) in enumerate(
            zip(plan, pool.map(fit_and_predict, plan), strict=True)
        ):
            values[begin:end] = predicted
            fit[begin:end] = number
            if progress is not None:
                progress(Refit(number + 1, len(plan), min(known, schedule.jobs)))
    return WalkForwardResult(
        values, fit, tuple(by_known_time[max(0, known - schedule.calibration_jobs) : known] for _, _, known in plan)
    )


def _plan(submit_s: Floats, ends: Floats, schedule: RefitSchedule) -> Iterator[tuple[int, int, int]]:
    """For every fit: the rows it predicts (begin, end), and the number of values known by its date."""
    if len(submit_s) == 0:
        return
    date = submit_s[0] + schedule.every_s
    while date <= submit_s[-1]:
        begin, end = np.searchsorted(submit_s, [date, date + schedule.every_s])
        known = int(np.searchsorted(ends, date))
        if known >= schedule.min_jobs and end > begin:
            yield int(begin), int(end), known
        date += schedule.every_s
