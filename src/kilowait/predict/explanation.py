"""Explanations of single predictions: the anchor, the SHAP contribution of each feature, and feature values as text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kilowait.predict.dataset import Dataset
from kilowait.predict.features import KINDS, TARGET_KINDS, all_job_keys, feature_meaning
from kilowait.predict.job_history import PastEvents
from kilowait.predict.predictor import Prediction, Predictor
from kilowait.units import format_duration


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
    chosen, dataset = predictor.suited_to(dataset)
    is_unmetered, predictor = chosen is not predictor, chosen
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
        anchor_text=_unmetered_anchor_text(dataset) if is_unmetered else _anchor_text(dataset, row),
        start=start,
        parts=tuple(parts),
    )


def _unmetered_anchor_text(dataset: Dataset) -> str:
    """Text that says what the anchor is in a log without measurements."""
    time_text = " times the anchor of its run time" if dataset.target.name == "energy" else ""
    return f"a fixed power of every node{time_text}: no job of this log was measured"


def _anchor_text(dataset: Dataset, row: int) -> str:
    """Text that says which jobs the anchor is the median of."""
    keys, target = all_job_keys(dataset.jobs), dataset.target
    kind_texts = {**KINDS, **TARGET_KINDS}
    for kind in target.anchor_kinds:
        if kind in keys:
            count = int(PastEvents(keys[kind], target.known_s, dataset.jobs["submit_s"]).count[row])
            if count:
                source = f"the median of the last {min(count, 5)}" if count > 1 else "the only earlier job"
                return f"{source} {kind_texts[kind]}"
    if target.name == "runtime" and math.isfinite(float(dataset.features.request[row])):
        return "a default from the request: no earlier job of the user has ended"
    return "a default: no earlier job with a known value"


# -- feature values as text -----------------------------------------------------------------------


_BY_NAME: dict[str, Callable[[float], str]] = {
    "request": lambda value: _duration(math.exp(value)),
    "anchor": lambda value: _duration(math.exp(value)),
    "anchor_share": lambda value: f"{100 * math.exp(value):.3g} % of the request",
    "nodes": lambda value: _count(math.exp(value), "node"),
    "area": lambda value: f"{math.exp(value) / 3600:.3g} node-hours requested",
    "round": lambda value: {1.0: "whole hours", 0.5: "whole ten minutes"}.get(value, "neither"),
    "hour": lambda value: f"{int(value):02d}:{int(value % 1 * 60):02d}",
    "weekday": lambda value: f"day {value:.0f}",
    "cores": lambda value: _count(math.expm1(value), "core"),
    "memory": lambda value: f"{math.expm1(value):,.0f} MB",
    "same_request": lambda value: "yes" if value else "no",
    "same_size": lambda value: "yes" if value else "no",
    "utilization": lambda value: f"{100 * value:.3g} %",
    "backlog": lambda value: f"{math.expm1(value):.3g} h for the full machine",
    "target_anchor": lambda value: f"{math.exp(value):.4g}",
    "queued": lambda value: _count(math.expm1(value), "job"),
    "queued_size": lambda value: _count(math.expm1(value), "job"),
    "longest_wait": lambda value: _duration(math.expm1(value)),
    "remaining": lambda value: f"{math.expm1(value):.3g} h for the full machine",
}
_BY_STATISTIC: dict[str, Callable[[float], str]] = {
    "count": lambda value: _count(math.expm1(value), "job"),
    **dict.fromkeys(("last", "second", "third", "median", "mean"), lambda value: f"{math.exp(value):.3g} × the anchor"),
    "spread": lambda value: f"a factor of {math.exp(value):.3g}",
    **dict.fromkeys(("since", "gap"), lambda value: _duration(math.expm1(value))),
    "elapsed": lambda value: "not running" if value < 0 else _duration(math.expm1(value)),
    "success": lambda value: f"{100 * value:.3g} %",
    **dict.fromkeys(("running", "waiting"), lambda value: _count(value, "job")),
}


def feature_value_text(name: str, value: float) -> str:
    """Text of a feature value, in readable units.

    >>> (
    ...     feature_value_text("request", math.log(3600.0)),
    ...     feature_value_text("user_last", 0.0),
    ...     feature_value_text("user_success", math.nan),
    ... )
    ('1 h 0 min', '1 × the anchor', 'not known')
    """
    feature_meaning(name)  # an unknown name is an error whatever the value
    if not math.isfinite(value):
        return "not known"
    statistic = name.rpartition("_")[2]
    formatter = _BY_NAME.get(name) or _BY_STATISTIC.get(statistic)
    return f"{value:.3g}" if formatter is None else formatter(value)


def _count(value: float, noun: str) -> str:
    number = round(value)
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    return format_duration(round(seconds, 3))  # exp(ln(x)) loses the last digit
