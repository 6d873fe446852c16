"""Boosted trees by LightGBM, one number a model: the mean, the middle, a quantile, or one that is rather too long.

They learn what the forest learns, ln(value) less the anchor, from the same features. The plain random forest is here
too: the same trees as the forest's, whose leaves keep a mean and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.predict.forest import LARGEST, ForestSettings, tree_parameters
from kilowait.predict.lightgbm import booster_of, library

__all__ = ["LOSSES", "BoostedTrees", "BoostingSettings", "Loss", "boost", "plain_forest"]

Floats = npt.NDArray[np.float64]

LOSSES = {
    "mean": "least squares of ln: the geometric mean",
    "median": "least absolute differences of ln",
    "quantile": "quantile:Q, what the value is at most with probability Q",
    "asymmetric": "asymmetric:K, least squares of ln in which too small costs K times as much as too large",
}
"""What is made small, and how it is written."""


@dataclass(frozen=True)
class Loss:
    """One of `LOSSES`, with its number."""

    name: str
    number: float | None = None

    @classmethod
    def of(cls, text: str) -> Loss:
        """As people write it.

        >>> Loss.of("quantile:0.9"), Loss.of("mean")
        (Loss(name='quantile', number=0.9), Loss(name='mean', number=None))
        """
        name, colon, number = text.partition(":")
        if name not in LOSSES:
            raise UnknownNameError("loss", name, LOSSES)
        wants = name in ("quantile", "asymmetric")
        try:
            value = float(number) if colon else None
        except ValueError:
            value = None
        good = value is not None and (0 < value < 1 if name == "quantile" else 0 < value < np.inf)
        if (wants and not good) or (not wants and colon):
            raise InputError(
                f"the loss is {text!r}; write {'quantile:0.9 or asymmetric:3' if wants else name}"
            )
        return cls(name, value)


@dataclass(frozen=True)
class BoostingSettings:
    """How trees are grown, one upon the other."""

    trees: int = 150
    leaves: int = 31
    """At most, a tree."""
    leaf_jobs: int = 10
    """At least, a leaf."""
    rate: float = 0.05
    """Part of what a tree says that is added."""
    sample: float = 0.7
    """Part of the jobs a tree is grown from."""
    features: float = 0.5
    """Part of the features a tree looks at."""
    bins: int = 63
    """Values a feature is sorted into."""


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Trees that say one number a job."""

    booster: Any

    def difference(self, features: Floats, *, threads: int = 1) -> Floats:
        """(n,) ln(value) less the anchor, of each row of features."""
        if len(features) == 0:
            return np.zeros(0)
        return np.asarray(self.booster.predict(features, num_threads=threads), np.float64)

    def contributions(self, features: Floats, *, threads: int = 1) -> Floats:
        """(n, features + 1) what each feature adds to it (SHAP values), and the mean last."""
        found = np.asarray(self.booster.predict(features, pred_contrib=True, num_threads=threads), np.float64)
        # LightGBM adds trees up, also where it averages them.
        averaged = "\naverage_output\n" in self.booster.model_to_string(num_iteration=1)
        return found / self.booster.num_trees() if averaged else found

    def save(self, folder: Path) -> None:
        """Write trees.txt, LightGBM's own form; nothing in it can run."""
        (folder / "trees.txt").write_text(self.booster.model_to_string(), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> BoostedTrees:
        """What `save` wrote."""
        path = Path(folder) / "trees.txt"
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as problem:
            raise InputError(
                f"{path} cannot be read: {problem}; fit it again with kilowait predict fit"
            ) from None
        return cls(booster_of(text, path))


def boost(
    features: Floats,
    difference: Floats,
    loss: Loss,
    settings: BoostingSettings | None = None,
    *,
    seed: int,
    threads: int = 1,
) -> BoostedTrees:
    """Trees boosted on rows of features and ln(value) less the anchor.

    The same arguments give the same trees on any number of threads.
    """
    how = settings or BoostingSettings()
    objective: Any = {
        "mean": "l2",
        "median": "l1",
        "quantile": "quantile",
        "asymmetric": _asymmetric(loss.number or 1.0),
    }[loss.name]
    parameters = {
        **tree_parameters(how.leaves, how.leaf_jobs, how.sample, how.features, how.bins, seed, threads),
        "objective": objective,
        "learning_rate": how.rate,
    }
    if loss.name == "quantile":
        parameters["alpha"] = loss.number
    return BoostedTrees(_trained(features, difference, parameters, how.trees))


def plain_forest(
    features: Floats,
    difference: Floats,
    settings: ForestSettings | None = None,
    *,
    seed: int,
    threads: int = 1,
) -> BoostedTrees:
    """A random forest that says the mean of ln(value) less the anchor: the usual baseline."""
    how = settings or ForestSettings()
    parameters = {
        **tree_parameters(how.leaves, how.leaf_jobs, how.sample, how.features, how.bins, seed, threads),
        "objective": "l2",
        "boosting": "rf",
        "feature_fraction_bynode": 0.7,
    }
    return BoostedTrees(_trained(features, difference, parameters, how.trees))


def _trained(features: Floats, difference: Floats, parameters: dict[str, Any], trees: int) -> Any:
    lgb = library()
    data = lgb.Dataset(features, np.clip(difference, -LARGEST, LARGEST), params={"verbosity": -1})
    return lgb.train(parameters, data, trees)


def _asymmetric(cost: float) -> Callable[[Floats, Any], tuple[Floats, Floats]]:
    """Slope and curvature of (said - true)^2 / 2, `cost` times as much where too little was said."""

    def objective(said: Floats, data: Any) -> tuple[Floats, Floats]:
        error = said - data.get_label()
        weight = np.where(error < 0, cost, 1.0)
        return weight * error, weight

    return objective
