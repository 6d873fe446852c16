"""Why a predictor says what it says of one job: where it starts from, and what each feature adds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kilowait.predict.dataset import Dataset
from kilowait.predict.features import KINDS
from kilowait.predict.past_events import PastEvents
from kilowait.predict.predictor import Prediction, Predictor
from kilowait.predict.target_features import OTHER_KINDS, kinds_of, meaning

__all__ = ["Explanation", "FeatureEffect", "explain"]


@dataclass(frozen=True)
class FeatureEffect:
    """One feature of one job."""

    name: str
    meaning: str
    value: float
    """NaN: not known."""
    factor: float
    """It multiplies the geometric mean of what is expected by this: exp of its SHAP value."""


@dataclass(frozen=True)
class Explanation:
    """Of one job, in the target's unit."""

    job_id: int
    forecast: Prediction
    """Of this job alone."""
    truth: float
    """NaN: not known."""
    anchor: float
    """What the differences are told from."""
    anchored: str
    """Where that comes from, in words."""
    start: float
    """Factor of the mean of all jobs it learned from, before any feature is looked at."""
    parts: tuple[FeatureEffect, ...]
    """The weightiest first; empty for simple predictions."""


def explain(predictor: Predictor, case: Dataset, row: int) -> Explanation:
    """What is said of the job of a row, and why.

    The anchor times `start` times the factors of all parts is the geometric mean of what is expected (of boosted trees:
    the prediction), before it is held to the user's request.
    """
    everything = predictor.predict(case)
    one = slice(row, row + 1)
    forecast = Prediction(
        everything.value[one], everything.low[one], everything.middle[one], everything.high[one]
    )
    parts: list[FeatureEffect] = []
    start = 1.0
    if predictor.trees is not None:
        values = predictor.rows(case)[one]
        adds = predictor.trees.contributions(values)[0]
        start = math.exp(adds[-1])
        for at in np.argsort(-np.abs(adds[:-1]), kind="stable"):
            name = predictor.card.features[at]
            parts.append(FeatureEffect(name, meaning(name), float(values[0, at]), math.exp(adds[at])))
    return Explanation(
        job_id=int(case.jobs["job_id"][row]),
        forecast=forecast,
        truth=float(case.target.values[row]),
        anchor=math.exp(case.features.anchor[row]),
        anchored=_anchored(case, row),
        start=start,
        parts=tuple(parts),
    )


def _anchored(case: Dataset, row: int) -> str:
    """Which jobs the anchor is the middle of."""
    keys, target = kinds_of(case.jobs), case.target
    words = {**KINDS, **OTHER_KINDS}
    for kind in target.nearest:
        if kind in keys:
            count = int(PastEvents(keys[kind], target.known_s, case.jobs["submit_s"]).count[row])
            if count:
                which = f"the middle of the last {min(count, 5)}" if count > 1 else "the only one before"
                return f"{which} {words[kind]}"
    if target.name == "runtime" and math.isfinite(float(case.features.request[row])):
        return "a guess from the request: no job of the user has ended before"
    return "a guess: nothing is known of jobs before"
