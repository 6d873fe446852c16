"""A model fitted once, on what was known by a date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.predict.boosting import BoostedTrees, BoostingSettings, boost, plain_forest
from kilowait.predict.dataset import Dataset
from kilowait.predict.distribution import Distribution
from kilowait.predict.forest import Forest, ForestSettings, grow
from kilowait.predict.models import METHOD, PredictionModel

__all__ = ["FEWEST", "FittedModel", "Settings", "fit_by", "usual_settings"]

Floats = npt.NDArray[np.float64]
Settings: TypeAlias = ForestSettings | BoostingSettings

FEWEST = 50
"""Jobs a model learns from at least."""


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A model that has learned."""

    model: PredictionModel
    trees: Forest | BoostedTrees
    jobs: int
    """It learned from."""

    def distribution(self, values: Floats, anchor: Floats, most: Floats) -> Distribution:
        """Of each row of features; of the forest alone."""
        if not isinstance(self.trees, Forest):
            raise InputError(f"{self.model.text} says one number and no distribution; take forest")
        return Distribution(self.trees.weights(values), anchor, most)

    def answer(self, values: Floats, anchor: Floats, most: Floats) -> Floats:
        """What is said of each row of features, in the target's unit; quantiles as the leaves have them.

        Args:
            values: (n, features) rows.
            anchor: (n,) of these rows, ln(value).
            most: (n,) what the value cannot be beyond.
        """
        if isinstance(self.trees, BoostedTrees):
            return np.minimum(np.exp(anchor + self.trees.difference(values)), most)
        found = self.distribution(values, anchor, most)
        if self.model.level is not None:
            return found.quantile(self.model.level)
        said: Floats = getattr(found, METHOD[self.model.way])()
        return said


def usual_settings(model: PredictionModel) -> Settings:
    """The settings of a model that learns, where nobody says otherwise."""
    return BoostingSettings() if model.family == "boosting" else ForestSettings()


def fit_by(
    case: Dataset,
    model: PredictionModel,
    until_s: float,
    settings: Settings | None = None,
    *,
    seed: int = 0,
    threads: int = 1,
) -> FittedModel:
    """The model fitted on all jobs whose value was known by `until_s`, seconds on the log's clock."""
    difference = case.difference
    rows = np.flatnonzero(np.isfinite(difference) & (case.target.known_s <= until_s))
    if len(rows) < FEWEST:
        raise InputError(
            f"the {case.target.name} of {len(rows):,} jobs is known by then, and a model learns from {FEWEST} at "
            "least; take a longer log"
        )
    values, came = case.features.values[rows], difference[rows]
    how = settings or usual_settings(model)
    if model.loss is not None and isinstance(how, BoostingSettings):
        return FittedModel(model, boost(values, came, model.loss, how, seed=seed, threads=threads), len(rows))
    if model.family == "forest" and isinstance(how, ForestSettings):
        return FittedModel(model, grow(values, came, how, seed=seed, threads=threads), len(rows))
    if model.family == "random-forest" and isinstance(how, ForestSettings):
        return FittedModel(model, plain_forest(values, came, how, seed=seed, threads=threads), len(rows))
    raise InputError(f"{model.text} does not learn with {type(how).__name__}; take forest or boosting:LOSS")
