"""Walk-forward run-time predictions for all jobs of a log, each from what was known at its submission."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.jobs import JobTable
from kilowait.predict.dataset import Dataset, make_dataset
from kilowait.predict.distribution import BIN_COUNT, Distribution, bin_of
from kilowait.predict.features import Features
from kilowait.predict.forest import ForestSettings, fit_forest
from kilowait.predict.job_history import JobHistory
from kilowait.predict.walk_forward import Refit, RefitSchedule, WalkForwardResult, walk_forward

__all__ = ["RuntimePredictions", "predict_runtimes", "predict_distributions"]

Floats = npt.NDArray[np.float64]

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
    result = walk_forward(
        features,
        dataset.difference,
        dataset.jobs["submit_s"],
        target.known_s,
        fit,
        BIN_COUNT,
        online,
        since=since,
        threads=threads,
        progress=progress,
    )
    result.values[result.fit < 0, int(bin_of(0.0))] = 1.0  # before the first fit: the anchor
    distribution = Distribution(result.values, features.anchor, target.max_value)
    return RuntimePredictions(distribution, result, features, distribution.level_of(target.values))
