"""Explanations of run-time predictions: global feature importance (SHAP), and single jobs.

A contribution (SHAP value) is added to ln(time) less the anchor, so its exponential is a factor. A job is explained by
the forest that predicted it, refitted on the same jobs: the job is not in its training data.
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
from kilowait.predict.features import meaning
from kilowait.predict.forest import Forest, ForestSettings, fit_forest
from kilowait.predict.known_times import KnownTimes, request_s
from kilowait.predict.runtime import RuntimePredictions
from kilowait.predict.walk_forward import RefitSchedule
from kilowait.rng import stream

__all__ = ["ForestData", "explained_jobs", "importance"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SAMPLE, SWARM = 2_000, 300
"""Maximum number of jobs whose contributions are averaged, and plotted individually."""
DRAWN = 12
"""Number of features plotted job by job."""
WEIGHTIEST = 8
"""Number of contributions reported per job."""


@dataclass(frozen=True, eq=False)
class ForestData:
    """Training data of the forests, to refit one of them."""

    jobs: JobTable
    history: KnownTimes
    found: RuntimePredictions
    online: RefitSchedule
    settings: ForestSettings | None
    seed: int

    @cached_property
    def difference(self) -> Floats:
        """(n,) ln(run time) less the anchor."""
        took: Floats = np.log(np.maximum(self.jobs["runtime_s"], 1.0))
        return took - self.found.features.anchor

    def learned_from(self, row: int) -> Ints:
        """Training rows of the forest that predicted a job."""
        submit_s = self.jobs["submit_s"]
        passed = (submit_s[row] - submit_s[0]) // self.online.every_s
        date_s = submit_s[0] + passed * self.online.every_s
        by_end = np.argsort(self.history.end_s, kind="stable")
        known = int(np.searchsorted(self.history.end_s[by_end], date_s))
        return by_end[max(0, known - self.online.jobs) : known]

    def grown(self, rows: Ints) -> Forest:
        """Fit the forest on these rows."""
        values = self.found.features.values
        return fit_forest(values[rows], self.difference[rows], self.settings, seed=self.seed)


def importance(forests: ForestData, asked: Ints) -> dict[str, Any]:
    """Mean absolute contributions over a sample of the predicted jobs, by the forest of the first of them.

    ``rows`` has every feature, most important first; ``swarm`` has the first of them job by job: the rank of its value,
    from 0 (smallest) to 1 (largest), and its contribution.
    """
    random = stream(forests.seed, "experiments.foretold")
    sample = random.choice(asked, min(SAMPLE, len(asked)), replace=False)
    learned = forests.learned_from(int(asked[0]))
    features = forests.found.features
    moved = forests.grown(learned).contributions(features.values[sample])[:, :-1]
    mean = np.abs(moved).mean(axis=0)
    order = np.argsort(-mean, kind="stable")
    return {
        "jobs": len(sample),
        "learned_from": len(learned),
        "rows": [
            {"name": features.names[at], "meaning": meaning(features.names[at]), "mean": float(mean[at])}
            for at in order.tolist()
        ],
        "swarm": [
            {
                "name": features.names[at],
                "rank": _ranks(features.values[sample, at])[:SWARM].round(3).tolist(),
                "moved": moved[:SWARM, at].round(4).tolist(),
            }
            for at in order[:DRAWN].tolist()
        ],
    }


def explained_jobs(
    forests: ForestData, asked: Ints, told_s: Floats, truth_s: Floats, named: Sequence[int]
) -> list[dict[str, Any]]:
    """Explain a typical job, the two worst predictions, and the named jobs, by row."""
    error = np.log(told_s[asked]) - np.log(truth_s[asked])
    size = np.abs(error)
    picked = [
        ("a typical job", int(asked[np.argmin(np.abs(size - np.median(size)))])),
        ("the most underpredicted job", int(asked[np.argmin(error)])),
        ("the most overpredicted job", int(asked[np.argmax(error)])),
        *(("a requested job", row) for row in named),
    ]
    return [_explained(forests, which, row) for which, row in picked]


def _explained(forests: ForestData, which: str, row: int) -> dict[str, Any]:
    jobs, found, features = forests.jobs, forests.found, forests.found.features
    number = int(jobs["job_id"][row])
    if found.walk_forward.fit[row] < 0:
        raise InputError(
            f"job {number} was submitted before the first forest was fitted, so its prediction is the anchor: "
            "there is nothing to explain; choose a later one"
        )
    learned = forests.learned_from(row)
    forest = forests.grown(learned)
    values = features.values[row]
    *moved, start = forest.contributions(values[None])[0].tolist()
    first = sorted(range(len(moved)), key=lambda at: -abs(moved[at]))[:WEIGHTIEST]
    usual = [_median(features.values[learned, at]) for at in first]
    # One copy of the job per feature, with that feature's median value.
    others = np.repeat(values[None], len(first), axis=0)
    others[np.arange(len(first)), first] = usual
    anchor, max_s = found.distribution.anchor[row], found.distribution.max_s[row]
    count = len(first)
    changed_s = Distribution(
        forest.weights(others), np.full(count, anchor), np.full(count, max_s)
    ).geometric_mean()
    own = Distribution(found.distribution.weights[[row]], np.array([anchor]), np.array([max_s]))
    return {
        "which": which,
        "job_id": number,
        "nodes": int(jobs["nodes"][row]),
        "true_s": float(max(jobs["runtime_s"][row], 1.0)),
        "request_s": float(request_s(jobs)[row]),
        "anchor_s": float(np.exp(anchor)),
        "likely_s": float(own.most_accurate()[0]),
        "centre_s": float(own.geometric_mean()[0]),
        "quantiles_s": {f"{level:g}": float(found.quantile(level)[row]) for level in (0.1, 0.5, 0.9)},
        "start": start,
        "parts": [
            {
                "name": features.names[at],
                "meaning": meaning(features.names[at]),
                "value": float(values[at]),
                "words": feature_value_text(features.names[at], float(values[at])),
                "moved": moved[at],
                "usual": feature_value_text(features.names[at], middle),
                "if_usual_s": float(changed),
            }
            for at, middle, changed in zip(first, usual, changed_s.tolist(), strict=True)
        ],
        "rest": sum(moved) - sum(moved[at] for at in first),
    }


def _ranks(values: Floats) -> Floats:
    """Rank of each value, 0 to 1, with mean ranks for ties; NaN where it is not known."""
    known = np.sort(values[np.isfinite(values)])
    if len(known) == 0:
        return np.full(len(values), np.nan)
    below, upto = (np.searchsorted(known, values, side=side) for side in ("left", "right"))
    return np.where(np.isfinite(values), (below + upto) / (2.0 * len(known)), np.nan)


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
