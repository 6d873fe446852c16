"""Explanations of single predictions: the anchor, and the SHAP contribution of each feature."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kilowait.predict.dataset import Dataset
from kilowait.predict.features import KINDS
from kilowait.predict.past_events import PastEvents
from kilowait.predict.predictor import Prediction, Predictor
from kilowait.predict.target_features import OTHER_KINDS, all_job_keys, feature_meaning

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True)
class FeatureEffect:
    """Effect of one feature on the prediction for one job."""

    name: str
    meaning: str
    value: float
    """NaN: not known."""
    factor: float
    """Factor on the predicted geometric mean: exp of the feature's SHAP value."""


@dataclass(frozen=True)
class Explanation:
    """Explanation of the prediction for one job, in the target's unit."""

    job_id: int
    prediction: Prediction
    """Prediction for this job."""
    truth: float
    """NaN: not known."""
    anchor: float
    """Reference value that the model's output multiplies."""
    anchor_text: str
    """Text that says where the anchor comes from."""
    start: float
    """Factor for the mean of all training jobs, before any feature contributes."""
    parts: tuple[FeatureEffect, ...]
    """Sorted by size of the effect, largest first; empty for baselines."""


def explain(predictor: Predictor, dataset: Dataset, row: int) -> Explanation:
    """Predict the job of a row and explain the prediction.

    The anchor times `start` times the factors of all parts is the predicted geometric mean (of boosted trees: the
    prediction), before it is limited to the user's request.
    """
    predictions = predictor.predict(dataset)
    one = slice(row, row + 1)
    prediction = Prediction(
        predictions.value[one], predictions.low[one], predictions.median[one], predictions.high[one]
    )
    parts: list[FeatureEffect] = []
    start = 1.0
    if predictor.trees is not None:
        values = predictor.rows(dataset)[one]
        contributions = predictor.trees.contributions(values)[0]
        start = math.exp(contributions[-1])
        for column in np.argsort(-np.abs(contributions[:-1]), kind="stable"):
            name = predictor.card.features[column]
            parts.append(
                FeatureEffect(name, feature_meaning(name), float(values[0, column]), math.exp(contributions[column]))
            )
    return Explanation(
        job_id=int(dataset.jobs["job_id"][row]),
        prediction=prediction,
        truth=float(dataset.target.values[row]),
        anchor=math.exp(dataset.features.anchor[row]),
        anchor_text=_anchor_text(dataset, row),
        start=start,
        parts=tuple(parts),
    )


def _anchor_text(dataset: Dataset, row: int) -> str:
    """Text that says which jobs the anchor is the median of."""
    keys, target = all_job_keys(dataset.jobs), dataset.target
    kind_texts = {**KINDS, **OTHER_KINDS}
    for kind in target.anchor_kinds:
        if kind in keys:
            count = int(PastEvents(keys[kind], target.known_s, dataset.jobs["submit_s"]).count[row])
            if count:
                source = f"the median of the last {min(count, 5)}" if count > 1 else "the only earlier job"
                return f"{source} {kind_texts[kind]}"
    if target.name == "runtime" and math.isfinite(float(dataset.features.request[row])):
        return "a default from the request: no earlier job of the user has ended"
    return "a default: no earlier job with a known value"
