"""Gradient-boosted trees (LightGBM) for point predictions: mean, median, quantile or asymmetric loss.

They learn ln(value) less the anchor, as the distribution forest does, from the same features. The plain random forest
is here too: the same trees, whose leaves store only a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.predict.forest import RANDOM_FOREST, TREES_FILE, ForestSettings, Trees, grow_trees
from kilowait.predict.tree_text import booster_of, validated_trees

Floats = npt.NDArray[np.float64]

LOSSES = {
    "mean": "squared error of ln: the geometric mean",
    "median": "absolute error of ln",
    "quantile": "quantile:Q, the value is at most this with probability Q",
    "asymmetric": "asymmetric:K, squared error of ln in which underprediction costs K times as much as overprediction",
}
"""Loss functions by name, with the syntax of their parameters."""


@dataclass(frozen=True)
class Loss:
    """One of `LOSSES`, with its parameter."""

    name: str
    number: float | None = None

    @classmethod
    def of(cls, text: str) -> Loss:
        """Parse the text form of a loss.

        >>> Loss.of("quantile:0.9"), Loss.of("mean")
        (Loss(name='quantile', number=0.9), Loss(name='mean', number=None))
        """
        name, colon, number = text.partition(":")
        if name not in LOSSES:
            raise UnknownNameError("loss", name, LOSSES)
        needs_number = name in ("quantile", "asymmetric")
        try:
            value = float(number) if colon else None
        except ValueError:
            value = None
        valid = value is not None and (0 < value < 1 if name == "quantile" else 0 < value < np.inf)
        if (needs_number and not valid) or (not needs_number and colon):
            raise InputError(f"the loss is {text!r}; write {'quantile:0.9 or asymmetric:3' if needs_number else name}")
        return cls(name, value)


@dataclass(frozen=True)
class BoostingSettings:
    """Hyperparameters of gradient-boosted trees."""

    trees: int = 150
    leaves: int = 31
    """Maximum number of leaves per tree."""
    leaf_jobs: int = 10
    """Minimum number of jobs per leaf."""
    rate: float = 0.05
    """Learning rate: fraction of each tree's output that is added."""
    sample: float = 0.7
    """Fraction of the jobs that each tree is fitted on."""
    features: float = 0.5
    """Fraction of the features that each tree uses."""
    bins: int = 63
    """Maximum number of histogram bins per feature."""


@dataclass(frozen=True, eq=False)
class BoostedTrees(Trees):
    """Fitted trees that predict one number per job."""

    def difference(self, features: Floats, *, threads: int = 1) -> Floats:
        """(n,) ln(value) less the anchor, of each row of features."""
        if len(features) == 0:
            return np.zeros(0)
        return np.asarray(self.booster.predict(features, num_threads=threads), np.float64)

    @classmethod
    def parse(cls, files: Mapping[str, bytes], folder: Path) -> BoostedTrees:
        """The trees in the contents of the files that `save` wrote; InputError if they are damaged.

        Args:
            files: contents by name of file.
            folder: the folder of the files, for errors.
        """
        text = files[TREES_FILE].decode("utf-8", "replace")
        return cls(booster_of(validated_trees(text, folder / TREES_FILE)))


def fit_boosting(
    features: Floats,
    difference: Floats,
    loss: Loss,
    settings: BoostingSettings | None = None,
    *,
    seed: int,
    threads: int = 1,
) -> BoostedTrees:
    """Fit boosted trees on rows of features and ln(value) less the anchor.

    The same arguments give the same trees on any number of threads.
    """
    params = settings or BoostingSettings()
    objective: Any = {
        "mean": "l2",
        "median": "l1",
        "quantile": "quantile",
        "asymmetric": _asymmetric(loss.number or 1.0),
    }[loss.name]
    parameters = {"objective": objective, "learning_rate": params.rate}
    if loss.name == "quantile":
        parameters["alpha"] = loss.number
    return BoostedTrees(grow_trees(features, difference, params, parameters, seed=seed, threads=threads))


def fit_random_forest(
    features: Floats, difference: Floats, settings: ForestSettings | None = None, *, seed: int, threads: int = 1
) -> BoostedTrees:
    """Fit a random forest that predicts the mean of ln(value) less the anchor, a common baseline."""
    params = settings or ForestSettings()
    return BoostedTrees(grow_trees(features, difference, params, RANDOM_FOREST, seed=seed, threads=threads))


def _asymmetric(cost: float) -> Callable[[Floats, Any], tuple[Floats, Floats]]:
    """Gradient and Hessian of (predicted - true)^2 / 2, multiplied by `cost` where the prediction is too small."""

    def objective(predicted: Floats, data: Any) -> tuple[Floats, Floats]:
        error = predicted - data.get_label()
        weight = np.where(error < 0, cost, 1.0)
        return weight * error, weight

    return objective
