"""Why run times were predicted as they were: what counts on the whole, and single jobs one by one.

A contribution (SHAP value) is what a feature adds to ln(time) less the anchor, so e to its power is a factor. A job is
explained by the very forest that predicted it, grown again from the same jobs: it had not seen the job.
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
from kilowait.predict.feature_text import value_words
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
"""Jobs whose contributions are averaged, and drawn one by one, at most."""
DRAWN = 12
"""Features that are drawn job by job."""
WEIGHTIEST = 8
"""Contributions that are told of a job."""


@dataclass(frozen=True, eq=False)
class ForestData:
    """What the forests learned from; so that one of them can be grown again."""

    jobs: JobTable
    world: KnownTimes
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
        """The jobs that the forest which predicted a job was grown from."""
        submit_s = self.jobs["submit_s"]
        passed = (submit_s[row] - submit_s[0]) // self.online.every_s
        date_s = submit_s[0] + passed * self.online.every_s
        by_end = np.argsort(self.world.end_s, kind="stable")
        known = int(np.searchsorted(self.world.end_s[by_end], date_s))
        return by_end[max(0, known - self.online.jobs) : known]

    def grown(self, rows: Ints) -> Forest:
        """The forest of these jobs."""
        values = self.found.features.values
        return fit_forest(values[rows], self.difference[rows], self.settings, seed=self.seed)


def importance(forests: ForestData, asked: Ints) -> dict[str, Any]:
    """Mean absolute contributions over some of the jobs that were asked of, by the forest of the first of them.

    ``rows`` has every feature, weightiest first; ``swarm`` the first of them job by job: where its value lies among the
    others, from 0 (smallest) to 1 (largest), and what it added.
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
    """A typical job, the two that were predicted worst, and those that were named, by row."""
    error = np.log(told_s[asked]) - np.log(truth_s[asked])
    size = np.abs(error)
    picked = [
        ("a typical job", int(asked[np.argmin(np.abs(size - np.median(size)))])),
        ("the job that was most underestimated", int(asked[np.argmin(error)])),
        ("the job that was most overestimated", int(asked[np.argmax(error)])),
        *(("a job that was asked about", row) for row in named),
    ]
    return [_explained(forests, which, row) for which, row in picked]


def _explained(forests: ForestData, which: str, row: int) -> dict[str, Any]:
    jobs, found, features = forests.jobs, forests.found, forests.found.features
    number = int(jobs["job_id"][row])
    if found.told.fit[row] < 0:
        raise InputError(
            f"job {number} was submitted before the first forest was grown, so it was predicted as jobs like it "
            "before: there is nothing to explain; name a later one"
        )
    learned = forests.learned_from(row)
    forest = forests.grown(learned)
    values = features.values[row]
    *moved, start = forest.contributions(values[None])[0].tolist()
    first = sorted(range(len(moved)), key=lambda at: -abs(moved[at]))[:WEIGHTIEST]
    usual = [_median(features.values[learned, at]) for at in first]
    # The job once more for each of them, with the usual value in its place.
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
                "words": value_words(features.names[at], float(values[at])),
                "moved": moved[at],
                "usual": value_words(features.names[at], middle),
                "if_usual_s": float(changed),
            }
            for at, middle, changed in zip(first, usual, changed_s.tolist(), strict=True)
        ],
        "rest": sum(moved) - sum(moved[at] for at in first),
    }


def _ranks(values: Floats) -> Floats:
    """Where each value lies among the others, 0 to 1, equal ones alike; NaN where it is not known."""
    known = np.sort(values[np.isfinite(values)])
    if len(known) == 0:
        return np.full(len(values), np.nan)
    below, upto = (np.searchsorted(known, values, side=side) for side in ("left", "right"))
    return np.where(np.isfinite(values), (below + upto) / (2.0 * len(known)), np.nan)


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
