"""Prediction models by name (baselines, forest, boosted trees), their hyperparameters, and one fit by a date."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from kilowait.errors import InputError, UnknownNameError
from kilowait.predict.baselines import BASELINES
from kilowait.predict.dataset import Dataset
from kilowait.predict.forest import (
    LOSSES,
    BoostedTrees,
    BoostingSettings,
    Distribution,
    Forest,
    ForestSettings,
    Loss,
    fit_boosting,
    fit_forest,
    fit_random_forest,
)
from kilowait.predict.job_history import Floats
from kilowait.predict.targets import Target

ModelSettings: TypeAlias = ForestSettings | BoostingSettings

MIN_JOBS = 50
"""Minimum number of training jobs."""
POINT_ESTIMATE_TEXTS = {
    "accurate": "the value with the highest expected accuracy",
    "median": "the median",
    "geomean": "the geometric mean",
    "mean": "the mean; only for run times, which the request bounds",
    "quantile": "quantile:Q, the value is at most this with probability Q, calibrated",
}
"""Point estimates of the forest's distributions."""
MODEL_FAMILIES = {
    "forest": "a random forest whose leaves store distributions: forest or forest:ESTIMATE",
    "boosting": "gradient-boosted trees, one number: boosting:LOSS",
    "random-forest": "a random forest that predicts the mean of logarithms",
}
"""Models with fitted parameters."""
_FITTED_MODELS = ("boosting:mean", "boosting:median", "forest:accurate", "forest:median")
DEFAULT_MODELS = {
    "runtime": (
        "request",
        "last2",
        "user-median",
        "class-median",
        "recent",
        "random-forest",
        "boosting:mean",
        "boosting:median",
        "boosting:asymmetric:3",
        "forest:accurate",
        "forest:median",
        "forest:geomean",
    ),
    "wait": ("last2", "class-median", "recent", *_FITTED_MODELS),
    "power": ("rate", "last2", "class-median", "recent", *_FITTED_MODELS),
    "energy": ("rate", "last2", "class-median", "recent", *_FITTED_MODELS),
}
"""Default models of a comparison, by target."""


@dataclass(frozen=True)
class PredictionModel:
    """A model by name."""

    text: str
    family: str
    """One of `MODEL_FAMILIES`, or baseline."""
    point_estimate: str = ""
    """Of the forest: one of `POINT_ESTIMATE_TEXTS`."""
    level: float | None = None
    """Level of the forest's quantile."""
    loss: Loss | None = None
    """Loss of boosted trees."""

    @classmethod
    def of(cls, text: str) -> PredictionModel:
        """Parse the text form of a model.

        >>> (
        ...     PredictionModel.of("forest").point_estimate,
        ...     PredictionModel.of("boosting:quantile:0.9").loss.number,
        ...     PredictionModel.of("last2").family,
        ... )
        ('accurate', 0.9, 'baseline')
        """
        text = text.strip().lower()
        family, colon, rest = text.partition(":")
        if family in BASELINES and not colon:
            return cls(text, "baseline")
        if family == "boosting":
            if not rest:
                raise InputError(f"the model is {text!r}; write boosting:LOSS with one of {', '.join(LOSSES)}")
            return cls(text, family, loss=Loss.of(rest))
        if family == "random-forest" and not colon:
            return cls(text, family)
        if family == "forest":
            point_estimate, _, number = rest.partition(":")
            if (point_estimate or "accurate") not in POINT_ESTIMATE_TEXTS:
                raise UnknownNameError("point estimate of the forest", point_estimate, POINT_ESTIMATE_TEXTS)
            level = Loss.of(rest).number if point_estimate == "quantile" else None
            if number and point_estimate != "quantile":
                raise InputError(f"the model is {text!r}; write forest:{point_estimate}")
            return cls(text, family, point_estimate or "accurate", level)
        raise UnknownNameError("model", text, (*BASELINES, *MODEL_FAMILIES))


@dataclass(frozen=True)
class TreeSettings:
    """Hyperparameters of the models of a comparison."""

    forest: ForestSettings = field(default_factory=ForestSettings)
    """Of the forest, and of the random forest."""
    boosting: BoostingSettings = field(default_factory=BoostingSettings)


def check_model(model: PredictionModel, target: Target) -> None:
    """Raise if a model is unsuitable for a target.

    The forest mixes differences of jobs from their anchors. One job that waited a thousand times as long as its anchor
    gives every job a small probability of a thousand times its anchor. That hardly changes the median, but dominates
    an unbounded mean.
    """
    if model.point_estimate == "mean" and not np.isfinite(target.max_value).all():
        raise InputError(
            f"the forest's mean is unsuitable for {target.name}, which has no upper bound; use forest:accurate, "
            "forest:median or boosting:mean"
        )


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A fitted model."""

    model: PredictionModel
    trees: Forest | BoostedTrees
    jobs: int
    """Number of training jobs."""

    def distribution(self, values: Floats, anchor: Floats, max_value: Floats) -> Distribution:
        """Predicted distribution of each row of features; only for the forest."""
        if not isinstance(self.trees, Forest):
            raise InputError(f"{self.model.text} predicts one number and no distribution; use forest")
        return Distribution(self.trees.weights(values), anchor, max_value)

    def predict(self, values: Floats, anchor: Floats, max_value: Floats) -> Floats:
        """Predict each row of features, in the target's unit; quantiles are not calibrated.

        Args:
            values: (n, features) rows.
            anchor: (n,) of these rows, ln(value).
            max_value: (n,) upper bound of the value.
        """
        if isinstance(self.trees, BoostedTrees):
            return np.minimum(np.exp(anchor + self.trees.difference(values)), max_value)
        distribution = self.distribution(values, anchor, max_value)
        if self.model.level is not None:
            return distribution.quantile(self.model.level)
        return distribution.estimate(self.model.point_estimate)


def default_settings(model: PredictionModel) -> ModelSettings:
    """Default hyperparameters of a model with fitted parameters."""
    return BoostingSettings() if model.family == "boosting" else ForestSettings()


def fit_until(
    dataset: Dataset,
    model: PredictionModel,
    until_s: float,
    settings: ModelSettings | None = None,
    *,
    seed: int = 0,
    threads: int = 1,
) -> FittedModel:
    """Fit the model on all jobs whose value was known by `until_s`, seconds in log time."""
    difference = dataset.difference
    rows = np.flatnonzero(np.isfinite(difference) & (dataset.target.known_s <= until_s))
    if len(rows) < MIN_JOBS:
        raise InputError(
            f"the {dataset.target.name} is known for {len(rows):,} jobs at the time of the fit, and a model needs at "
            f"least {MIN_JOBS} training jobs; use a longer log"
        )
    values, targets = dataset.features.values[rows], difference[rows]
    params = settings or default_settings(model)
    trees: Forest | BoostedTrees
    if model.loss is not None and isinstance(params, BoostingSettings):
        trees = fit_boosting(values, targets, model.loss, params, seed=seed, threads=threads)
    elif model.family == "forest" and isinstance(params, ForestSettings):
        trees = fit_forest(values, targets, params, seed=seed, threads=threads)
    elif model.family == "random-forest" and isinstance(params, ForestSettings):
        trees = fit_random_forest(values, targets, params, seed=seed, threads=threads)
    else:
        raise InputError(f"{model.text} cannot be fitted with {type(params).__name__}; use forest or boosting:LOSS")
    return FittedModel(model, trees, len(rows))
