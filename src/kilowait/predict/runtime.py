"""Run times of all jobs of a log, each predicted from what was known at its submission: the usual recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.jobs import JobTable
from kilowait.predict.dataset import Dataset, case_of
from kilowait.predict.distribution import BINS, Distribution, bin_of
from kilowait.predict.features import Features
from kilowait.predict.forest import ForestSettings, grow
from kilowait.predict.known_times import KnownTimes
from kilowait.predict.walk_forward import (
    Refit,
    RefitSchedule,
    WalkForwardResult,
    walk_forward,
)

__all__ = ["RuntimePredictions", "predict_runtimes", "foresee_case"]

Floats = npt.NDArray[np.float64]

FEWEST = 100
"""Predictions whose truth is known before levels are calibrated."""
PLANNED, LATER = 0.6, 0.97
"""Levels that reservations are made with, first and when the first is overrun. Which first one is taken hardly
matters (docs/scheduling-with-predictions.md)."""


@dataclass(frozen=True, eq=False)
class RuntimePredictions:
    """What is expected of every job's run time."""

    distribution: Distribution
    told: WalkForwardResult
    features: Features
    place: Floats
    """(n,) level of its distribution at which the truth lay."""

    def quantile(self, level: float) -> Floats:
        """What each run time is at most with a probability of `level`, calibrated, seconds.

        Of jobs predicted before, whose truth was known when a model was fitted, it is known at which level it lay; the
        level that held for a part `level` of them is the one that is asked for (distributional conformal prediction).
        """
        levels = np.full(len(self.distribution), level)
        for fit, known in enumerate(self.told.known):
            asked = known[self.told.fit[known] >= 0]
            if len(asked) >= FEWEST:
                rank = min(1.0, level * (len(asked) + 1) / len(asked))
                levels[self.told.fit == fit] = np.quantile(self.place[asked], rank)
        found = self.distribution.quantile(levels)
        # Before the first fit nothing is known of how sure a guess is: the user's limit is safe.
        limit_s = self.distribution.most_s
        return np.where((self.told.fit < 0) & np.isfinite(limit_s), limit_s, found)

    def columns(self) -> dict[str, Floats]:
        """The predictions as columns of a job table, seconds.

        ``estimate_s``, which rules order by, is the geometric mean; ``planned_s`` and ``overrun_planned_s``, which
        reservations
        are made with, calibrated bounds; ``expected_inverse_runtime`` what a second of waiting weighs; ``limit_s``
        the user's request.
        """
        limit_s = self.distribution.most_s
        return {
            "estimate_s": self.distribution.geometric_mean(),
            "planned_s": self.quantile(PLANNED),
            "overrun_planned_s": self.quantile(LATER),
            "expected_inverse_runtime": self.distribution.expected_inverse_runtime(),
            "limit_s": np.where(np.isfinite(limit_s), limit_s, np.nan),
        }


def predict_runtimes(
    jobs: JobTable,
    world: KnownTimes,
    nodes: int,
    *,
    seed: int = 0,
    online: RefitSchedule | None = None,
    forest: ForestSettings | None = None,
    threads: int = 1,
    progress: Callable[[Refit], None] | None = None,
) -> RuntimePredictions:
    """Predict the run time of every job by a forest that is fitted anew every week.

    Args:
        jobs: by (submit_s, job_id).
        world: when they started and ended; what is learned from.
        nodes: of the machine.
        seed: of the forests.
        online: when to fit, on how many jobs.
        forest: how trees are grown.
        threads: fits at a time.
        progress: hears of every fit.
    """
    case = case_of(jobs, world, nodes)
    return foresee_case(case, seed=seed, online=online, forest=forest, threads=threads, progress=progress)


def foresee_case(
    case: Dataset,
    *,
    seed: int = 0,
    online: RefitSchedule | None = None,
    forest: ForestSettings | None = None,
    since: int = 0,
    threads: int = 1,
    progress: Callable[[Refit], None] | None = None,
) -> RuntimePredictions:
    """The same for any target; `since` is the first row that is of interest (see `through_time`)."""

    def learn(values: Floats, came: Floats) -> Callable[[Floats], npt.NDArray[np.float32]]:
        return grow(values, came, forest, seed=seed).weights

    target, features = case.target, case.features
    told = walk_forward(
        features,
        case.difference,
        case.jobs["submit_s"],
        target.known_s,
        learn,
        BINS,
        online,
        since=since,
        threads=threads,
        progress=progress,
    )
    told.values[told.fit < 0, int(bin_of(0.0))] = 1.0  # before the first fit: as always
    distribution = Distribution(told.values, features.anchor, target.most)
    return RuntimePredictions(distribution, told, features, distribution.place_of(target.values))
