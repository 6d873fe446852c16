"""Fit a model once, on the values known by a date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.predict.boosting import BoostedTrees, BoostingSettings, fit_boosting, fit_random_forest
from kilowait.predict.dataset import Dataset
from kilowait.predict.distribution import Distribution
from kilowait.predict.forest import Forest, ForestSettings, fit_forest
from kilowait.predict.models import METHOD, PredictionModel

__all__ = ["FittedModel", "ModelSettings", "default_settings", "fit_until"]

Floats = npt.NDArray[np.float64]
ModelSettings: TypeAlias = ForestSettings | BoostingSettings

MIN_JOBS = 50
"""Minimum number of training jobs."""


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
        predicted: Floats = getattr(distribution, METHOD[self.model.point_estimate])()
        return predicted


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
    if model.loss is not None and isinstance(params, BoostingSettings):
        return FittedModel(
            model, fit_boosting(values, targets, model.loss, params, seed=seed, threads=threads), len(rows)
        )
    if model.family == "forest" and isinstance(params, ForestSettings):
        return FittedModel(model, fit_forest(values, targets, params, seed=seed, threads=threads), len(rows))
    if model.family == "random-forest" and isinstance(params, ForestSettings):
        return FittedModel(model, fit_random_forest(values, targets, params, seed=seed, threads=threads), len(rows))
    raise InputError(f"{model.text} cannot be fitted with {type(params).__name__}; use forest or boosting:LOSS")
