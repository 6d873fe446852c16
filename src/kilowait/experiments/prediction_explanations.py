"""Explanations of run-time predictions with SHAP values: feature importance over many jobs, and single jobs.

Contributions (SHAP values) add up to ln(run time) minus the anchor, so the exponential of one is a factor. A job is
explained by the forest that predicted it, refitted on the same training jobs, which do not include the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.predict.distribution import Distribution
from kilowait.predict.feature_text import feature_value_text
from kilowait.predict.features import runtime_feature_meaning
from kilowait.predict.forest import Forest, ForestSettings, fit_forest
from kilowait.predict.job_history import JobHistory, request_s
from kilowait.predict.runtime_predictions import RuntimePredictions
from kilowait.predict.walk_forward import RefitSchedule
from kilowait.rng import stream

__all__ = ["ForestData", "explained_jobs", "feature_importance_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

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
                "meaning": runtime_feature_meaning(features.names[column]),
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
                "meaning": runtime_feature_meaning(features.names[column]),
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
