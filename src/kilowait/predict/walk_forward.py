"""Walk-forward predictions: models are refitted on a schedule on jobs with known values and predict the following jobs.

The model that predicts a job uses no job that ended after the model's date, and its features use no event after the
job's submission. So the whole log can be predicted and replayed without data leakage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.predict.baselines import predict_baseline
from kilowait.predict.dataset import Dataset, make_dataset
from kilowait.predict.features import Features
from kilowait.predict.forest import (
    BIN_COUNT,
    Distribution,
    ForestSettings,
    bin_of,
    fit_boosting,
    fit_forest,
    fit_random_forest,
)
from kilowait.predict.job_history import Floats, JobHistory
from kilowait.predict.models import PredictionModel, TreeSettings, check_model

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
    dataset: Dataset,
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
        dataset: jobs in order of submission, their features and target. A fit uses only the jobs whose value was known
            by its date.
        fit_model: fits a model.
        width: number of outputs of the model per job.
        schedule: when to refit, on how many jobs.
        since: first row that needs a prediction; fits only for earlier rows are skipped, which changes no later one.
        threads: number of parallel fits; it does not change the result.
        progress: called after every fit.
    """
    schedule = schedule or RefitSchedule()
    jobs, values_of, difference = len(dataset), dataset.features.values, dataset.difference
    submit_s, known_s = dataset.jobs["submit_s"], dataset.target.known_s
    values = np.zeros((jobs, width), np.float32)
    fit = np.full(jobs, -1, np.int64)
    by_known_time = np.argsort(known_s, kind="stable")
    by_known_time = by_known_time[np.isfinite(difference[by_known_time])]
    plan = [period for period in _plan(submit_s, known_s[by_known_time], schedule) if period[1] > since]

    def fit_and_predict(period: tuple[int, int, int]) -> npt.NDArray[Any]:
        begin, end, known = period
        rows = by_known_time[max(0, known - schedule.jobs) : known]
        return fit_model(values_of[rows], difference[rows])(values_of[begin:end])

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


# -- distributions --------------------------------------------------------------------------------


MIN_JOBS = 100
"""Minimum number of predictions with known truth for calibration."""
PLANNED, OVERRUN = 0.6, 0.97
"""Quantile levels that reservations use: first, and after the first is overrun. The choice of the first has little
effect (docs/scheduling-with-predictions.md)."""


@dataclass(frozen=True, eq=False)
class RuntimePredictions:
    """Predicted distribution of every job's run time."""

    distribution: Distribution
    walk_forward: WalkForwardResult
    features: Features
    truth_level: Floats
    """(n,) quantile level of each true value."""

    def quantile(self, level: float) -> Floats:
        """Calibrated quantile of each run time at `level`, seconds.

        For jobs predicted earlier whose truth was known when a model was fitted, the quantile level of the truth is
        known. The level that covers a share `level` of them is used (distributional conformal prediction).
        """
        levels = np.full(len(self.distribution), level)
        for number, known_rows in enumerate(self.walk_forward.known):
            predicted = known_rows[self.walk_forward.fit[known_rows] >= 0]
            if len(predicted) >= MIN_JOBS:
                rank = min(1.0, level * (len(predicted) + 1) / len(predicted))
                levels[self.walk_forward.fit == number] = np.quantile(self.truth_level[predicted], rank)
        quantiles = self.distribution.quantile(levels)
        # Before the first fit there is no calibration: the user's limit is a safe bound.
        limit_s = self.distribution.max_s
        return np.where((self.walk_forward.fit < 0) & np.isfinite(limit_s), limit_s, quantiles)

    def columns(self) -> dict[str, Floats]:
        """The predictions as columns of a job table, seconds.

        ``estimate_s``, which priority policies use, is the geometric mean; ``planned_s`` and ``overrun_planned_s``,
        which reservations use, are calibrated quantiles; ``expected_inverse_runtime`` is the weight of a second of
        waiting; ``limit_s`` is the user's request.
        """
        limit_s = self.distribution.max_s
        return {
            "estimate_s": self.distribution.geometric_mean(),
            "planned_s": self.quantile(PLANNED),
            "overrun_planned_s": self.quantile(OVERRUN),
            "expected_inverse_runtime": self.distribution.expected_inverse_runtime(),
            "limit_s": np.where(np.isfinite(limit_s), limit_s, np.nan),
        }


def predict_runtimes(
    jobs: JobTable,
    times: JobHistory,
    nodes: int,
    *,
    seed: int = 0,
    online: RefitSchedule | None = None,
    forest: ForestSettings | None = None,
    threads: int = 1,
    progress: Callable[[Refit], None] | None = None,
) -> RuntimePredictions:
    """Predict the run time of every job with a forest that is refitted every week.

    Args:
        jobs: by (submit_s, job_id).
        times: when they started and ended.
        nodes: of the machine.
        seed: of the forests.
        online: refit schedule.
        forest: hyperparameters of the forest.
        threads: number of parallel fits.
        progress: called after every fit.
    """
    dataset = make_dataset(jobs, times, nodes)
    return predict_distributions(dataset, seed=seed, online=online, forest=forest, threads=threads, progress=progress)


def predict_distributions(
    dataset: Dataset,
    *,
    seed: int = 0,
    online: RefitSchedule | None = None,
    forest: ForestSettings | None = None,
    since: int = 0,
    threads: int = 1,
    progress: Callable[[Refit], None] | None = None,
) -> RuntimePredictions:
    """Walk-forward predictions for any target; `since` is the first row that needs one (see `walk_forward`)."""

    def fit(values: Floats, targets: Floats) -> Callable[[Floats], npt.NDArray[np.float32]]:
        return fit_forest(values, targets, forest, seed=seed).weights

    target, features = dataset.target, dataset.features
    result = walk_forward(dataset, fit, BIN_COUNT, online, since=since, threads=threads, progress=progress)
    result.values[result.fit < 0, int(bin_of(0.0))] = 1.0  # before the first fit: the anchor
    distribution = Distribution(result.values, features.anchor, target.max_value)
    return RuntimePredictions(distribution, result, features, distribution.level_of(target.values))


# -- models ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ModelPredictions:
    """Predictions of a model for every job, in the target's unit."""

    model: PredictionModel
    values: Floats
    distributions: RuntimePredictions | None = None
    """Distributions; only of the forest."""


def predictions_of_models(
    models: Sequence[PredictionModel],
    dataset: Dataset,
    *,
    seed: int = 0,
    online: RefitSchedule | None = None,
    settings: TreeSettings | None = None,
    since: int = 0,
    threads: int = 1,
    progress: Callable[[PredictionModel, Refit], None] | None = None,
) -> Iterator[ModelPredictions]:
    """Yield the predictions of each model for every job, from what was known at its submission.

    Several point estimates of the forest share one computation. `since` is the first row that needs a prediction.
    """
    for model in models:
        check_model(model, dataset.target)
    distributions: RuntimePredictions | None = None
    trees = settings or TreeSettings()
    for model in models:

        def report(refit: Refit, model: PredictionModel = model) -> None:
            if progress is not None:
                progress(model, refit)

        if model.family == "baseline":
            yield ModelPredictions(model, predict_baseline(model.text, dataset.jobs, dataset.target))
        elif model.family == "forest":
            distributions = distributions or predict_distributions(
                dataset, seed=seed, online=online, forest=trees.forest, since=since, threads=threads, progress=report
            )
            values = (
                distributions.distribution.estimate(model.point_estimate)
                if model.level is None
                else distributions.quantile(model.level)
            )
            yield ModelPredictions(model, values, distributions)
        else:
            fit = _fit_function(model, trees, seed)
            refits = walk_forward(dataset, fit, 1, online, since=since, threads=threads, progress=report)
            values = np.exp(dataset.features.anchor + refits.values[:, 0])
            yield ModelPredictions(model, np.minimum(values, dataset.target.max_value))


def _fit_function(model: PredictionModel, settings: TreeSettings, seed: int) -> FitFunction:
    """Fit function of a model that predicts one number."""

    def fit(values: Floats, targets: Floats) -> Callable[[Floats], Floats]:
        if model.loss is None:
            fitted = fit_random_forest(values, targets, settings.forest, seed=seed)
        else:
            fitted = fit_boosting(values, targets, model.loss, settings.boosting, seed=seed)
        return lambda rows: fitted.difference(rows)[:, None]

    return fit
