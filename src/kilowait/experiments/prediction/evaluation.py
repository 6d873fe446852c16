"""Compare prediction models on one log by walk-forward predictions, evaluated on the later jobs.

Jobs of one week are correlated: confidence intervals come from resampling whole weeks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison.bootstrap import Interval, WindowBootstrap
from kilowait.experiments.settings import default_backfill
from kilowait.jobs import JobTable
from kilowait.policies import simulate
from kilowait.predict.dataset import Dataset
from kilowait.predict.job_history import JobHistory, from_log, from_run
from kilowait.predict.models import PredictionModel, TreeSettings
from kilowait.predict.scores import METRICS, PredictionScores, coverage, losses, score, scores_by_class
from kilowait.predict.walk_forward import ModelPredictions, Refit, RefitSchedule, predictions_of_models
from kilowait.rng import stream

Floats = npt.NDArray[np.float64]

WEEK_S = 7 * 86400.0
MAX_UNKNOWN_WAITS = 0.01
"""Maximum share of jobs with an unknown wait time that are left out."""
LEVELS = (0.5, 0.9, 0.97)
"""Levels of the quantiles whose coverage is reported."""
HISTORY_SOURCES = {
    "auto": "log if it has wait times, else simulated",
    "log": "start and end times of the log",
    "simulated": "start and end times of a simulation: FCFS with EASY backfilling",
}
"""Sources of the start and end times of jobs (the history)."""


@dataclass(frozen=True)
class PredictorRow:
    """Result of one model."""

    model: str
    scores: PredictionScores
    intervals: Mapping[str, Interval]
    """95 % confidence intervals, by metric."""
    ratio: Mapping[str, tuple[float, Interval]]
    """Ratio of accuracy and of log_rmse to the best baseline's by that metric; empty for baselines."""
    seconds: float
    """Time to fit and predict; models that share their fits have the same."""
    classes: Mapping[str, Mapping[str, PredictionScores]]
    """Scores by classification and class, where requested."""


@dataclass(frozen=True)
class PredictorComparison:
    """Results of all models on one log."""

    target: str
    unit: str
    labels: str
    history: str
    jobs: int
    evaluated_jobs: int
    """Number of evaluated jobs: later ones with a known true value."""
    weeks: int
    rows: tuple[PredictorRow, ...]
    coverage: Mapping[float, tuple[float, float]]
    """Coverage of the forest's quantiles by level, on the evaluated jobs: with true values, and with values limited to
    the user's request, which no quantile exceeds; empty without a forest."""

    def row(self, model: str) -> PredictorRow:
        """The result of a model by name."""
        return next(row for row in self.rows if row.model == model)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def history_of(jobs: JobTable, cluster: Cluster, kind: str = "auto") -> tuple[JobTable, JobHistory, tuple[str, ...]]:
    """The jobs, their start and end times, and notes for the user.

    Args:
        jobs: by (submit_s, job_id).
        cluster: the machine.
        kind: one of `HISTORY_SOURCES`.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[1])
    >>> history_of(jobs, Cluster.from_nodes(4))[1].name
    'simulated: fcfs, backfill easy'
    """
    if kind not in HISTORY_SOURCES:
        raise UnknownNameError("history source", kind, HISTORY_SOURCES)
    unknown = np.isnan(jobs.column("wait_s"))
    few_unknown = unknown.mean() <= MAX_UNKNOWN_WAITS if len(jobs) else False
    if kind == "log" or (kind == "auto" and few_unknown):
        if few_unknown and unknown.any():
            known_jobs = jobs[~unknown]
            note = f"the log has no wait time for {int(unknown.sum()):,} of {len(jobs):,} jobs: left out"
            return known_jobs, from_log(known_jobs), (note,)
        return jobs, from_log(jobs), ()
    notes = ("the log has no wait times: start and end times come from a simulation",) if kind == "auto" else ()
    log = simulate(jobs, cluster, "fcfs", default_backfill(cluster.node_level), dependencies=False, on_oversized="drop")
    return jobs, from_run(log), notes


def evaluate_predictors(
    dataset: Dataset,
    models: Sequence[PredictionModel],
    *,
    test_fraction: float = 0.3,
    classes: Sequence[str] = (),
    seed: int = 0,
    online: RefitSchedule | None = None,
    threads: int = 1,
    progress: Callable[[PredictionModel, Refit], None] | None = None,
    settings: TreeSettings | None = None,
) -> PredictorComparison:
    """Evaluate models on the last jobs of the log, each predicted from what was known at its submission.

    Args:
        dataset: the jobs, their features and the target.
        models: the models to compare.
        test_fraction: fraction of the jobs that is evaluated, taken from the end.
        classes: classifications of jobs with separate scores.
        seed: of the models and of the resampling of weeks.
        online: refit schedule.
        threads: number of parallel fits.
        progress: called after every fit.
        settings: hyperparameters of the models.
    """
    if not 0 < test_fraction <= 1:
        raise InputError(f"the test fraction is {test_fraction:g}; it must be above 0 and at most 1")
    schedule = online or RefitSchedule()
    first = len(dataset) - round(len(dataset) * test_fraction)
    truth = dataset.target.values
    rows = (np.arange(len(dataset)) >= first) & np.isfinite(truth)
    if not rows.any():
        raise InputError(
            f"of {len(dataset):,} jobs none of the last {100 * test_fraction:g} % has a known "
            f"{dataset.target.name}; use a longer log"
        )
    model_predictions = predictions_of_models(
        models,
        dataset,
        seed=seed,
        online=schedule,
        since=max(0, first - 2 * schedule.calibration_jobs),  # calibration needs earlier predictions
        threads=threads,
        progress=progress,
        settings=settings,
    )
    results = _timed(model_predictions)
    weeks = _Weeks(dataset.jobs["submit_s"][rows], seed)
    sums = {predicted.model.text: weeks.sums(losses(predicted.values[rows], truth[rows])) for predicted, _ in results}
    baseline_sums = [sums[predicted.model.text] for predicted, _ in results if predicted.model.family == "baseline"]
    forest = next((predicted.distributions for predicted, _ in results if predicted.distributions is not None), None)
    return PredictorComparison(
        target=dataset.target.name,
        unit=dataset.target.unit,
        labels=dataset.target.labels,
        history=dataset.times.name,
        jobs=len(dataset),
        evaluated_jobs=int(rows.sum()),
        weeks=weeks.count,
        rows=tuple(
            PredictorRow(
                predicted.model.text,
                score(predicted.values[rows], truth[rows]),
                weeks.intervals(sums[predicted.model.text]),
                {} if predicted.model.family == "baseline" else weeks.ratios(sums[predicted.model.text], baseline_sums),
                seconds,
                {kind: dict(scores_by_class(dataset.jobs, kind, predicted.values, truth, rows)) for kind in classes},
            )
            for predicted, seconds in results
        ),
        coverage={}
        if forest is None
        else {level: _coverage(forest.quantile(level), dataset, rows) for level in LEVELS},
    )


def _timed(model_predictions: Iterable[ModelPredictions]) -> list[tuple[ModelPredictions, float]]:
    """The predictions of every model with the seconds they took; point estimates of the forest share one fit."""
    results: list[tuple[ModelPredictions, float]] = []
    start = perf_counter()
    for predicted in model_predictions:
        seconds = perf_counter() - start
        if predicted.distributions is not None:
            seconds = next(
                (seconds for other, seconds in results if other.distributions is predicted.distributions), seconds
            )
        results.append((predicted, seconds))
        start = perf_counter()
    return results


def _coverage(bound: Floats, dataset: Dataset, rows: npt.NDArray[np.bool_]) -> tuple[float, float]:
    truth = dataset.target.values[rows]
    return coverage(bound[rows], truth), coverage(bound[rows], np.minimum(truth, dataset.target.max_value[rows]))


class _Weeks:
    """Bootstrap over the weeks of the jobs."""

    def __init__(self, submit_s: Floats, seed: int) -> None:
        week = ((submit_s - submit_s[0]) // WEEK_S).astype(np.int64)
        _, self._week = np.unique(week, return_inverse=True)
        self._jobs = np.bincount(self._week).astype(np.float64)
        self.count = len(self._jobs)
        self._bootstrap = WindowBootstrap(self.count, random=stream(seed, "experiments.foresight"))

    def sums(self, by_measure: Mapping[str, Floats]) -> dict[str, Floats]:
        """Sum of each metric over each week."""
        return {name: np.bincount(self._week, values).astype(np.float64) for name, values in by_measure.items()}

    def intervals(self, sums: Mapping[str, Floats]) -> dict[str, Interval]:
        """Confidence interval of each metric."""
        return {name: self._ratio(name, sums[name], self._jobs)[1] for name in METRICS}

    def ratios(
        self, sums: Mapping[str, Floats], others: Sequence[Mapping[str, Floats]]
    ) -> dict[str, tuple[float, Interval]]:
        """Ratio of accuracy and log_rmse to the best of others by that metric."""
        ratios = {}
        for name, sign in (("accuracy", -1.0), ("log_rmse", 1.0)):
            if others:
                best = min(
                    (sums_of_model[name] for sums_of_model in others), key=lambda values: sign * float(values.sum())
                )
                ratios[name] = self._ratio(name, sums[name], best)
        return ratios

    def _ratio(self, name: str, ours: Floats, theirs: Floats) -> tuple[float, Interval]:
        """Ratio of the sums of a metric, with its interval; NaN where the denominator is 0."""
        denominator = float(theirs.sum())
        ratio, interval = (
            float(ours.sum()) / denominator if denominator else math.nan,
            self._bootstrap.ratio(ours, theirs),
        )
        if name != "log_rmse":
            return ratio, interval
        return math.sqrt(ratio), Interval(math.sqrt(interval.low), math.sqrt(interval.high))
