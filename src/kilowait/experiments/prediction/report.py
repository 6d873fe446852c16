"""Accuracy of run-time predictions for a log, as plain data for the report page.

Every job is predicted from data known at its submission (`predict_runtimes`). Metrics are of the last part of the log
(`TEST_FRACTION`), drift is over the full log. The data contain counts, means and a few single jobs, not the log.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.storage import results_writer, save_folder
from kilowait.experiments.predictors import PREDICTORS, first_replay, last_two
from kilowait.jobs import JobTable
from kilowait.predict.explanation import feature_value_text
from kilowait.predict.features import feature_meaning
from kilowait.predict.forest import Distribution, Forest, ForestSettings, fit_forest
from kilowait.predict.job_history import JobHistory, request_s
from kilowait.predict.scores import losses
from kilowait.predict.walk_forward import RefitSchedule, RuntimePredictions, predict_runtimes
from kilowait.rng import stream

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TEST_FRACTION = 0.3
"""Fraction of the jobs, taken from the end, that is evaluated."""
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
HALF_BIN = float(np.exp(0.01))
"""A predicted quantile is the center of a bin of 2 % width: values within the bin count as covered."""
WEEK_S, MONTH_S = 7 * 86400.0, 30 * 86400.0
MAX_WEEKS = 60
"""Number of weeks above which drift is reported by months of 30 days."""
PER_DECADE = 6
"""Cells per decade of the 2-D histogram of predicted and true run times."""
PREDICTOR_DESCRIPTIONS = {
    "forest": "the forest's most accurate value",
    "last2": "the mean of the user's last two jobs",
    "anchor": "the median of earlier similar jobs (the anchor)",
    "request": "the user's request",
}


def prediction_report(
    jobs: JobTable,
    cluster: Cluster,
    *,
    trace: str = "log",
    ids: Sequence[int] = (),
    seed: int = 0,
    online: RefitSchedule | None = None,
    forest: ForestSettings | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Report data of the predicted run times of a log: for ``predictions`` in results.json.

    Args:
        jobs: the log.
        cluster: the machine of the replay that gives the end times of jobs.
        trace: name of the log.
        ids: additional jobs to explain.
        seed: of the forests and of sampling.
        online: refit schedule.
        forest: hyperparameters of the forest.
        progress: called with a text of the current activity.
    """
    report = progress if progress is not None else _no_progress
    ordered, schedule = jobs.sorted(), online or RefitSchedule()
    rows_of_ids = _rows_of(ordered, ids)  # raises errors before the long computation
    report("replaying the log for the end times of jobs ...")
    times = first_replay(ordered, cluster)
    threads = min(2, os.cpu_count() or 1)
    predictions = predict_runtimes(
        ordered,
        times,
        cluster.size,
        seed=seed,
        online=schedule,
        forest=forest,
        threads=threads,
        progress=lambda fit: report(f"fitting forest {fit.number} of {fit.total} ..."),
    )
    test_rows, predicted_rows = _test_rows(predictions, schedule)
    truth_s = np.maximum(ordered["runtime_s"], 1.0)
    predicted_s = {
        "forest": predictions.distribution.most_accurate(),
        "last2": last_two(ordered, times)["estimate_s"],
        "anchor": np.exp(predictions.features.anchor),
        "request": request_s(ordered),
    }
    report("computing SHAP values ...")
    forests = ForestData(ordered, times, predictions, schedule, forest, seed)
    submit_s = ordered["submit_s"]
    return {
        "trace": trace,
        "model": {
            "name": "forest",
            "description": PREDICTORS["forest"],
            "forest": asdict(forest or ForestSettings()),
            "refits": asdict(schedule),
            "fits": int(predictions.walk_forward.fit.max()) + 1,
        },
        "history": times.name,
        "jobs": len(ordered),
        "span_s": float(submit_s[-1] - submit_s[0]),
        "test_jobs": len(test_rows),
        "scores": _scores(predicted_s, truth_s, test_rows),
        "calibration": _calibration(predictions, truth_s, test_rows),
        "classes": {
            kind: _scores_by_class(labels, test_rows, predicted_s, truth_s)
            for kind, labels in _classes(ordered, predictions, predicted_s["request"]).items()
        },
        "drift": _drift(ordered, predicted_s, truth_s),
        "histogram": _true_predicted_histogram(test_rows, predicted_s, truth_s),
        "importance": feature_importance_of(forests, predicted_rows),
        "explained": explained_jobs(forests, predicted_rows, predicted_s["forest"], truth_s, rows_of_ids),
    }


def save_prediction_report(
    path: str | PathLike[str],
    report: Mapping[str, Any],
    *,
    scenario: Mapping[str, Any],
    manifest: Mapping[str, Any],
    force: bool = False,
) -> Path:
    """Write scenario.toml and results.json into a new folder, of kind predictions."""
    fill = results_writer(scenario, {"predictions": report})
    return save_folder(path, fill, kind="predictions", manifest=manifest, force=force)


def prediction_errors(predicted_s: Floats, truth_s: Floats) -> dict[str, float | int]:
    """Accuracy of predictions, over the jobs that have a prediction.

    ``accuracy`` is the mean ratio of the shorter to the longer of predicted and true time, ``log_rmse`` the root mean
    squared error of ln(1 + s), ``mae_s`` the mean absolute error in seconds, ``underprediction_rate`` the share of jobs
    whose prediction is too short.

    >>> prediction_errors(np.array([50.0, 200.0, np.nan]), np.array([100.0, 100.0, 1.0]))["accuracy"]
    0.5
    """
    known = np.isfinite(predicted_s)
    if not known.any():
        return {"jobs": 0, **dict.fromkeys(("accuracy", "log_rmse", "mae_s", "underprediction_rate"), float("nan"))}
    means = {name: float(values.mean()) for name, values in losses(predicted_s[known], truth_s[known]).items()}
    return {
        "jobs": int(np.count_nonzero(known)),
        "accuracy": means["accuracy"],
        "log_rmse": math.sqrt(means["log_rmse"]),
        "mae_s": means["mae"],
        "underprediction_rate": means["underprediction_rate"],
    }


def _test_rows(predictions: RuntimePredictions, schedule: RefitSchedule) -> tuple[Ints, Ints]:
    """The rows that are evaluated, and those of them that a forest predicted."""
    count = len(predictions.walk_forward.fit)
    test_rows = np.arange(round(count * (1 - TEST_FRACTION)), count)
    predicted_rows = test_rows[predictions.walk_forward.fit[test_rows] >= 0]
    if len(predicted_rows) == 0:
        raise InputError(
            f"no forest was fitted on these {count:,} jobs: it needs {schedule.min_jobs:,} that have ended, and "
            f"{schedule.every_s / 86400:g} days; use more jobs, or a longer log"
        )
    return test_rows, predicted_rows


def _scores(predicted_s: Mapping[str, Floats], truth_s: Floats, rows: Ints) -> list[dict[str, Any]]:
    return [
        {"name": name, "description": description, **prediction_errors(predicted_s[name][rows], truth_s[rows])}
        for name, description in PREDICTOR_DESCRIPTIONS.items()
    ]


def _rows_of(jobs: JobTable, ids: Sequence[int]) -> list[int]:
    all_ids = jobs["job_id"]
    rows = []
    for job_id in dict.fromkeys(ids):
        matches = np.flatnonzero(all_ids == job_id)
        if len(matches) == 0:
            between = f"; its jobs are {all_ids.min()} to {all_ids.max()}" if len(all_ids) else ""
            raise InputError(f"there is no job {job_id} in this log{between}: use one of these")
        rows.append(int(matches[0]))
    return rows


def _calibration(predictions: RuntimePredictions, truth_s: Floats, rows: Ints) -> list[dict[str, float]]:
    return [
        {
            "level": level,
            "plain": _coverage(predictions.distribution.quantile(level), truth_s, rows),
            "calibrated": _coverage(predictions.quantile(level), truth_s, rows),
        }
        for level in LEVELS
    ]


def _coverage(bound_s: Floats, truth_s: Floats, rows: Ints) -> float:
    return float((truth_s[rows] <= bound_s[rows] * HALF_BIN).mean())


Labelled = tuple[Ints, Sequence[str]]


def _classes(jobs: JobTable, predictions: RuntimePredictions, requested_s: Floats) -> dict[str, Labelled]:
    """Class of every job by size, by request, and by the number of the user's jobs that have ended."""
    powers = np.ceil(np.log2(np.maximum(jobs.size, 1)) / 2).astype(np.int64)  # 1, 2-4, 5-16, 17-64, ...
    sizes = ["1", *(f"{4**power // 4 + 1:,}-{4**power:,}" for power in range(1, int(powers.max()) + 1))]
    lengths = ("at most 10 min", "10-60 min", "1-6 h", "6-24 h", "over 24 h", "no request")
    length = np.searchsorted([600.0, 3600.0, 21600.0, 86400.0], requested_s)
    ended = np.expm1(predictions.features.values[:, predictions.features.names.index("user_count")])
    volume = np.searchsorted([0.5, 9.5, 99.5, 999.5], ended)
    volumes = ("none", "1-9", "10-99", "100-999", "1,000 and more")
    return {
        "size": (powers, sizes),
        "request": (np.where(np.isnan(requested_s), len(lengths) - 1, length), lengths),
        "user": (volume, volumes),
    }


def _scores_by_class(
    labels: Labelled, rows: Ints, predicted_s: Mapping[str, Floats], truth_s: Floats
) -> list[dict[str, float | str]]:
    classes = []
    for number, label in enumerate(labels[1]):
        class_rows = rows[labels[0][rows] == number]
        if len(class_rows):
            predicted = prediction_errors(predicted_s["forest"][class_rows], truth_s[class_rows])
            request_accuracy = prediction_errors(predicted_s["request"][class_rows], truth_s[class_rows])["accuracy"]
            metrics = {name: predicted[name] for name in ("jobs", "accuracy", "underprediction_rate")}
            classes.append({"label": label, **metrics, "request": request_accuracy})
    return classes


def _drift(jobs: JobTable, predicted_s: Mapping[str, Floats], truth_s: Floats) -> dict[str, Any]:
    """Prediction errors over time: by week or month of the full log."""
    submit_s = jobs["submit_s"]
    weeks = (submit_s[-1] - submit_s[0]) / WEEK_S
    period_s = WEEK_S if weeks <= MAX_WEEKS else MONTH_S
    period = ((submit_s - submit_s[0]) // period_s).astype(np.int64)
    rows = []
    for number in np.unique(period).tolist():
        in_period = period == number
        predicted = {
            name: prediction_errors(values[in_period], truth_s[in_period]) for name, values in predicted_s.items()
        }
        others = {name: predicted[name]["accuracy"] for name in ("last2", "request")}
        rows.append({"start_s": number * period_s, **predicted["forest"], **others})
    return {"every_s": period_s, "rows": rows}


def _true_predicted_histogram(rows: Ints, predicted_s: Mapping[str, Floats], truth_s: Floats) -> dict[str, Any]:
    """2-D histogram of true (first) and predicted (second) run times."""
    largest = max(float(np.nanmax(predicted_s[name][rows], initial=1.0)) for name in ("forest", "request"))
    largest = max(largest, float(truth_s[rows].max()))
    cells = int(np.floor(np.log10(largest) * PER_DECADE)) + 1
    edges_s = 10.0 ** (np.arange(cells + 1) / PER_DECADE)
    histogram: dict[str, Any] = {"edges_s": edges_s.tolist(), "cells": {}}
    for name in ("forest", "request"):
        known_rows = rows[np.isfinite(predicted_s[name][rows])]
        true_bin, predicted_bin = (
            np.clip(np.searchsorted(edges_s, values[known_rows], side="right") - 1, 0, cells - 1)
            for values in (truth_s, predicted_s[name])
        )
        cell, count = np.unique(true_bin * cells + predicted_bin, return_counts=True)
        histogram["cells"][name] = [
            [number // cells, number % cells, jobs] for number, jobs in zip(cell.tolist(), count.tolist(), strict=True)
        ]
    return histogram


def _no_progress(_: str) -> None:
    pass


SAMPLE, PLOTTED_JOBS = 2_000, 300
"""Maximum number of jobs whose contributions are averaged, and of jobs that are plotted individually."""
PLOTTED_FEATURES = 12
"""Number of features whose contributions are plotted for individual jobs."""
REPORTED_CONTRIBUTIONS = 8
"""Number of contributions reported for an explained job."""


@dataclass(frozen=True, eq=False)
class ForestData:
    """Training data of the forests of a walk-forward prediction, with which each forest can be refitted."""

    jobs: JobTable
    history: JobHistory
    predictions: RuntimePredictions
    schedule: RefitSchedule
    settings: ForestSettings | None
    seed: int

    @cached_property
    def difference(self) -> Floats:
        """(n,) ln(run time) minus the anchor."""
        log_runtime: Floats = np.log(np.maximum(self.jobs["runtime_s"], 1.0))
        return log_runtime - self.predictions.features.anchor

    def training_rows(self, row: int) -> Ints:
        """Training rows of the forest that predicted a job."""
        submit_s = self.jobs["submit_s"]
        elapsed_s = (submit_s[row] - submit_s[0]) // self.schedule.every_s
        date_s = submit_s[0] + elapsed_s * self.schedule.every_s
        by_end = np.argsort(self.history.end_s, kind="stable")
        known = int(np.searchsorted(self.history.end_s[by_end], date_s))
        return by_end[max(0, known - self.schedule.jobs) : known]

    def fit_forest_on(self, rows: Ints) -> Forest:
        """Fit the forest on these rows."""
        values = self.predictions.features.values
        return fit_forest(values[rows], self.difference[rows], self.settings, seed=self.seed)


def feature_importance_of(forests: ForestData, rows: Ints) -> dict[str, Any]:
    """Mean absolute contributions over a sample of the jobs in `rows`, for the forest that predicted the first of them.

    ``rows`` lists every feature, most important first. ``beeswarm`` has individual jobs for the most important
    features: the rank of the feature's value, from 0 (smallest) to 1 (largest), and its contribution.
    """
    random = stream(forests.seed, "experiments.foretold")
    sample = random.choice(rows, min(SAMPLE, len(rows)), replace=False)
    training_rows = forests.training_rows(int(rows[0]))
    features = forests.predictions.features
    contributions = forests.fit_forest_on(training_rows).contributions(features.values[sample])[:, :-1]
    mean = np.abs(contributions).mean(axis=0)
    order = np.argsort(-mean, kind="stable")
    return {
        "jobs": len(sample),
        "training_jobs": len(training_rows),
        "rows": [
            {
                "name": features.names[column],
                "meaning": feature_meaning(features.names[column]),
                "mean": float(mean[column]),
            }
            for column in order.tolist()
        ],
        "beeswarm": [
            {
                "name": features.names[column],
                "rank": _ranks(features.values[sample, column])[:PLOTTED_JOBS].round(3).tolist(),
                "contributions": contributions[:PLOTTED_JOBS, column].round(4).tolist(),
            }
            for column in order[:PLOTTED_FEATURES].tolist()
        ],
    }


def explained_jobs(
    forests: ForestData, rows: Ints, predicted_s: Floats, truth_s: Floats, requested: Sequence[int]
) -> list[dict[str, Any]]:
    """Explanations of a typical job, the two worst predictions, and the jobs in the `requested` rows."""
    error = np.log(predicted_s[rows]) - np.log(truth_s[rows])
    size = np.abs(error)
    chosen = [
        ("a typical job", int(rows[np.argmin(np.abs(size - np.median(size)))])),
        ("the most underpredicted job", int(rows[np.argmin(error)])),
        ("the most overpredicted job", int(rows[np.argmax(error)])),
        *(("a requested job", row) for row in requested),
    ]
    return [_explained(forests, role, row) for role, row in chosen]


def _explained(forests: ForestData, role: str, row: int) -> dict[str, Any]:
    jobs, predictions, features = forests.jobs, forests.predictions, forests.predictions.features
    number = int(jobs["job_id"][row])
    if predictions.walk_forward.fit[row] < 0:
        raise InputError(
            f"job {number} was submitted before the first forest was fitted, so its prediction is the anchor, "
            "which has no contributions; choose a later job"
        )
    training_rows = forests.training_rows(row)
    forest = forests.fit_forest_on(training_rows)
    values = features.values[row]
    *contributions, base = forest.contributions(values[None])[0].tolist()
    largest = sorted(range(len(contributions)), key=lambda column: -abs(contributions[column]))[:REPORTED_CONTRIBUTIONS]
    medians = [_median(features.values[training_rows, column]) for column in largest]
    # One copy of the job per feature, in which that feature has its median value.
    with_medians = np.repeat(values[None], len(largest), axis=0)
    with_medians[np.arange(len(largest)), largest] = medians
    anchor, max_s = predictions.distribution.anchor[row], predictions.distribution.max_s[row]
    count = len(largest)
    changed_s = Distribution(
        forest.weights(with_medians), np.full(count, anchor), np.full(count, max_s)
    ).geometric_mean()
    own_distribution = Distribution(predictions.distribution.weights[[row]], np.array([anchor]), np.array([max_s]))
    return {
        "role": role,
        "job_id": number,
        "nodes": int(jobs["nodes"][row]),
        "true_s": float(max(jobs["runtime_s"][row], 1.0)),
        "request_s": float(request_s(jobs)[row]),
        "anchor_s": float(np.exp(anchor)),
        "most_accurate_s": float(own_distribution.most_accurate()[0]),
        "geometric_mean_s": float(own_distribution.geometric_mean()[0]),
        "quantiles_s": {f"{level:g}": float(predictions.quantile(level)[row]) for level in (0.1, 0.5, 0.9)},
        "base": base,
        "contributions": [
            {
                "name": features.names[column],
                "meaning": feature_meaning(features.names[column]),
                "value": float(values[column]),
                "value_text": feature_value_text(features.names[column], float(values[column])),
                "contribution": contributions[column],
                "median_text": feature_value_text(features.names[column], median),
                "predicted_with_median_s": float(value_s),
            }
            for column, median, value_s in zip(largest, medians, changed_s.tolist(), strict=True)
        ],
        "other_contributions": sum(contributions) - sum(contributions[column] for column in largest),
    }


def _ranks(values: Floats) -> Floats:
    """Rank of each value, 0 to 1, with mean ranks for ties; NaN for unknown values."""
    known = np.sort(values[np.isfinite(values)])
    if len(known) == 0:
        return np.full(len(values), np.nan)
    below, at_or_below = (np.searchsorted(known, values, side=side) for side in ("left", "right"))
    return np.where(np.isfinite(values), (below + at_or_below) / (2.0 * len(known)), np.nan)


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
