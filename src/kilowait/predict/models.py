"""Prediction models by name (baselines, forest, boosted trees), and their walk-forward predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.predict.baselines import BASELINES, predict_baseline
from kilowait.predict.boosting import LOSSES, BoostingSettings, Loss, fit_boosting, fit_random_forest
from kilowait.predict.dataset import Dataset
from kilowait.predict.forest import ForestSettings
from kilowait.predict.runtime_predictions import RuntimePredictions, predict_distributions
from kilowait.predict.targets import Target
from kilowait.predict.walk_forward import FitFunction, Refit, RefitSchedule, walk_forward

__all__ = ["MODEL_FAMILIES", "DEFAULT_MODELS", "PredictionModel", "ModelPredictions", "predictions_of_models"]

Floats = npt.NDArray[np.float64]

POINT_ESTIMATES = {
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
METHOD = {"accurate": "most_accurate", "median": "median", "geomean": "geometric_mean", "mean": "mean"}
"""Method of `Distribution` that computes each point estimate."""
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
    """Of the forest: one of `POINT_ESTIMATES`."""
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
            if (point_estimate or "accurate") not in POINT_ESTIMATES:
                raise UnknownNameError("point estimate of the forest", point_estimate, POINT_ESTIMATES)
            level = Loss.of(rest).number if point_estimate == "quantile" else None
            if number and point_estimate != "quantile":
                raise InputError(f"the model is {text!r}; write forest:{point_estimate}")
            return cls(text, family, point_estimate or "accurate", level)
        raise UnknownNameError("model", text, (*BASELINES, *MODEL_FAMILIES))


@dataclass(frozen=True, eq=False)
class ModelPredictions:
    """Predictions of a model for every job, in the target's unit."""

    model: PredictionModel
    values: Floats
    distributions: RuntimePredictions | None = None
    """Distributions; only of the forest."""


def predictions_of_models(
    models: Sequence[PredictionModel],
    dataset: Dataset,
    *,
    seed: int = 0,
    online: RefitSchedule | None = None,
    forest: ForestSettings | None = None,
    boosting: BoostingSettings | None = None,
    since: int = 0,
    threads: int = 1,
    progress: Callable[[PredictionModel, Refit], None] | None = None,
) -> Iterator[ModelPredictions]:
    """Yield the predictions of each model for every job, from what was known at its submission.

    Several point estimates of the forest share one computation. `since` is the first row that needs a prediction.
    """
    for model in models:
        check_model(model, dataset.target)
    distributions: RuntimePredictions | None = None
    for model in models:

        def report_refit(refit: Refit, model: PredictionModel = model) -> None:
            if progress is not None:
                progress(model, refit)

        if model.family == "baseline":
            yield ModelPredictions(model, predict_baseline(model.text, dataset.jobs, dataset.target))
        elif model.family == "forest":
            distributions = distributions or predict_distributions(
                dataset, seed=seed, online=online, forest=forest, since=since, threads=threads, progress=report_refit
            )
            yield ModelPredictions(model, point_estimates(model, distributions), distributions)
        else:
            refits = walk_forward(
                dataset.features,
                dataset.difference,
                dataset.jobs["submit_s"],
                dataset.target.known_s,
                fit_function(model, seed=seed, forest=forest, boosting=boosting),
                1,
                online,
                since=since,
                threads=threads,
                progress=report_refit,
            )
            values = np.exp(dataset.features.anchor + refits.values[:, 0])
            yield ModelPredictions(model, np.minimum(values, dataset.target.max_value))


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


def fit_function(
    model: PredictionModel, *, seed: int, forest: ForestSettings | None, boosting: BoostingSettings | None
) -> FitFunction:
    """Fit function of a model that predicts one number."""

    def fit(values: Floats, targets: Floats) -> Callable[[Floats], Floats]:
        if model.loss is None:
            fitted = fit_random_forest(values, targets, forest, seed=seed)
        else:
            fitted = fit_boosting(values, targets, model.loss, boosting, seed=seed)
        return lambda rows: fitted.difference(rows)[:, None]

    return fit


def point_estimates(model: PredictionModel, distributions: RuntimePredictions) -> Floats:
    """Point estimates of the forest's distributions."""
    if model.level is not None:
        return distributions.quantile(model.level)
    estimates: Floats = getattr(distributions.distribution, METHOD[model.point_estimate])()
    return estimates
