"""Tree models: a random forest whose leaves store distributions, and gradient-boosted trees that predict one number.

The forest is one model for median, mean, quantiles and expected inverse run time. Boosted trees learn the same
difference from the same features, with a loss for the mean, the median, a quantile or asymmetric costs. The plain
random forest is a baseline: the same trees as the forest, whose leaves store only a mean.

LightGBM grows the trees (its mode `rf`, squared error of ln(time) less the anchor). Every leaf then stores a histogram
of the training times that fall into it; the prediction for a job is the mean over the trees. A mean over a leaf seldom
equals an earlier run time; here a repeated run time is the bin at 0.

A distribution is the weights of fixed bins around an anchor. A bin is a range of ln(time) less the anchor: 0 is the
anchor itself, -0.69 half of it. Near 0 bins are 2 % wide, further away wider. One distribution gives the median, the
most accurate value, the mean, upper bounds and the expected inverse run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.files.array_file import read_arrays
from kilowait.predict.job_history import Floats
from kilowait.predict.tree_text import booster_of, leaves_per_tree, lightgbm_module, validated_trees

_POSITIVE_EDGES = 0.01 + np.concatenate([[0.0], np.cumsum(0.02 * 1.12 ** np.arange(38))])
_EDGES = np.concatenate([-_POSITIVE_EDGES[::-1], _POSITIVE_EDGES])
BIN_CENTERS: Floats = np.concatenate([[_EDGES[0] - 0.5], (_EDGES[1:] + _EDGES[:-1]) / 2, [_EDGES[-1] + 0.5]])
"""Centers of the bins: ln(time) less the anchor."""
BIN_COUNT = len(BIN_CENTERS)
_ACCURACY = np.exp(-np.abs(BIN_CENTERS[:, None] - BIN_CENTERS[None, :]))
"""Accuracy of one bin's time if the other's is true: the shorter over the longer."""


POINT_ESTIMATES = {"accurate": "most_accurate", "median": "median", "geomean": "geometric_mean", "mean": "mean"}
"""Names of the point estimates of a distribution, and the methods that compute them."""


def bin_of(difference: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The bin of a difference of logarithms.

    >>> BIN_CENTERS[bin_of([0.0, -0.69])].round(2).tolist()
    [0.0, -0.71]
    """
    return np.searchsorted(_EDGES, np.asarray(difference, np.float64)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Distribution:
    """Distributions of n times. Results are in seconds, and at most `max_s`."""

    weights: npt.NDArray[np.floating]
    """(n, BINS), each row of sum 1."""
    anchor: Floats
    """(n,) ln seconds."""
    max_s: Floats
    """(n,) upper bound of each time, seconds: the user's limit; inf where there is none."""

    def __len__(self) -> int:
        return len(self.anchor)

    def _bin_time_s(self, bins: npt.NDArray[np.int64]) -> Floats:
        return np.minimum(np.exp(self.anchor + BIN_CENTERS[bins]), self.max_s)

    def _bin_times_s(self) -> Floats:
        return np.minimum(np.exp(self.anchor[:, None] + BIN_CENTERS), self.max_s[:, None])

    def quantile(self, level: float | Floats) -> Floats:
        """Quantiles at `level`, 0 to 1: one level for all, or one per row.

        >>> uniform = Distribution(np.full((1, BIN_COUNT), 1 / BIN_COUNT), np.log([60.0]), np.array([np.inf]))
        >>> uniform.quantile(0.5).round().tolist(), uniform.most_accurate().round().tolist()
        ([60.0], [60.0])
        """
        cumulated = np.cumsum(self.weights, axis=1, dtype=np.float64)
        levels = np.broadcast_to(np.asarray(level, np.float64), len(self))[:, None]
        # Rounding may leave the sum below the level: use the last bin.
        bins = np.minimum((cumulated < levels - 1e-9).sum(axis=1), BIN_COUNT - 1)
        return self._bin_time_s(bins)

    def median(self) -> Floats:
        """The median."""
        return self.quantile(0.5)

    def most_accurate(self) -> Floats:
        """The time with the highest expected accuracy, the shorter of prediction and truth over the longer."""
        return self._bin_time_s((self.weights @ _ACCURACY).argmax(axis=1))

    def mean(self) -> Floats:
        """The expected time."""
        return np.asarray((self.weights * self._bin_times_s()).sum(axis=1), np.float64)

    def geometric_mean(self) -> Floats:
        """The geometric mean, which minimizes the squared error of logarithms."""
        logarithms = np.log(np.maximum(self._bin_times_s(), 1e-9))
        return np.asarray(np.exp((self.weights * logarithms).sum(axis=1)), np.float64)

    def estimate(self, name: str) -> Floats:
        """A point estimate by its name in `POINT_ESTIMATES`."""
        values: Floats = getattr(self, POINT_ESTIMATES[name])()
        return values

    def expected_inverse_runtime(self) -> Floats:
        """Expected 10 s / time, at most 1: 10 times the weight of a second of waiting in the bounded slowdown."""
        expected = (self.weights * (10.0 / np.maximum(self._bin_times_s(), 10.0))).sum(axis=1)
        return np.minimum(np.asarray(expected, np.float64), 1.0)  # weights are rounded

    def level_of(self, time_s: Floats) -> Floats:
        """The quantile level of each time, 0 to 1, at the center of its bin."""
        cumulated = np.cumsum(self.weights, axis=1, dtype=np.float64)
        bins = bin_of(np.log(np.maximum(time_s, 1e-9)) - self.anchor)
        rows = np.arange(len(self))
        return cumulated[rows, bins] - 0.5 * self.weights[rows, bins]


# -- the forest -----------------------------------------------------------------------------------


TREES_FILE, LEAVES_FILE = "trees.txt", "leaves.npz"
REMEDY = "fit it again with kilowait predict fit"
MAX_DIFFERENCE = 6.0
"""Differences of logarithms are clipped to this while trees are grown."""
RANDOM_FOREST = {"objective": "l2", "boosting": "rf", "feature_fraction_bynode": 0.7}
"""LightGBM's parameters of a random forest."""
TOLERANCE = 1e-3
"""Tolerance of the sum of a leaf's shares, which are rounded."""


@dataclass(frozen=True)
class ForestSettings:
    """Hyperparameters of the forest."""

    trees: int = 40
    leaves: int = 511
    """Maximum number of leaves per tree."""
    leaf_jobs: int = 2
    """Minimum number of jobs per leaf."""
    sample: float = 0.6
    """Fraction of the jobs that each tree is fitted on."""
    features: float = 0.33
    """Fraction of the features that each tree uses."""
    bins: int = 63
    """Maximum number of histogram bins per feature."""


@dataclass(frozen=True, eq=False)
class Trees:
    """Trees that LightGBM has grown."""

    booster: Any

    def contributions(self, features: Floats, *, threads: int = 1) -> Floats:
        """(n, features + 1) SHAP values of ln(value) less the anchor by feature, and the mean in the last column."""
        values = np.asarray(self.booster.predict(features, pred_contrib=True, num_threads=threads), np.float64)
        # LightGBM sums SHAP values over trees, also where it averages predictions.
        averaged = "\naverage_output\n" in self.booster.model_to_string(num_iteration=1)
        return values / self.booster.num_trees() if averaged else values

    def save(self, folder: Path, prefix: str = "") -> None:
        """Write trees.txt in LightGBM's text format, which contains no executable code.

        Args:
            folder: an existing folder.
            prefix: of the names of the files.
        """
        (folder / f"{prefix}{TREES_FILE}").write_text(self.booster.model_to_string(), encoding="utf-8")


@dataclass(frozen=True, eq=False)
class Forest(Trees):
    """Trees, and the histograms of their leaves."""

    leaves: npt.NDArray[np.float32]
    """(leaves of all trees, BINS), each row of sum 1."""
    first: npt.NDArray[np.int64]
    """(trees,) index of each tree's first leaf."""

    def weights(self, features: Floats, *, threads: int = 1) -> npt.NDArray[np.float32]:
        """(n, BINS) predicted distribution of each row of features."""
        total = np.zeros((len(features), BIN_COUNT), np.float32)
        if len(features) == 0:
            return total
        leaf = self.booster.predict(features, pred_leaf=True, num_threads=threads).reshape(len(features), -1)
        for tree, first in enumerate(self.first):
            total += self.leaves[first + leaf[:, tree]]
        return total / np.float32(len(self.first))

    def save(self, folder: Path, prefix: str = "") -> None:
        """Write trees.txt and leaves.npz, which contain no executable code."""
        super().save(folder, prefix)
        np.savez_compressed(folder / f"{prefix}{LEAVES_FILE}", leaves=self.leaves, first=self.first)

    @classmethod
    def parse(cls, files: Mapping[str, bytes], folder: Path, prefix: str = "") -> Forest:
        """The forest in the contents of the files that `save` wrote; InputError if they are damaged.

        Args:
            files: contents by name of file, without the prefix.
            folder: the folder of the files, for errors.
            prefix: of the names of the files.
        """
        trees = validated_trees(files[TREES_FILE].decode("utf-8", "replace"), folder / f"{prefix}{TREES_FILE}")
        counts = np.array(trees.leaves, np.int64)
        path = folder / f"{prefix}{LEAVES_FILE}"
        try:
            arrays = read_arrays(path)
            first = arrays.whole("first", len(counts))
            leaves = arrays["leaves"]
        except InputError as problem:
            raise InputError(f"{problem}; {REMEDY}") from None
        if leaves.dtype != np.float32 or leaves.shape != (counts.sum(), BIN_COUNT):
            raise InputError(
                f"{path}: leaves holds {leaves.dtype} of shape {leaves.shape}; it must be float32 of shape "
                f"({counts.sum()}, {BIN_COUNT}); {REMEDY}"
            )
        if not np.array_equal(first, np.cumsum(counts) - counts):
            raise InputError(f"{path}: first does not follow from the leaves of the trees; {REMEDY}")
        # A leaf without training jobs has only zeros.
        total = leaves.sum(axis=1, dtype=np.float64)
        if not (np.isfinite(total) & ((np.abs(total - 1) < TOLERANCE) | (total == 0))).all() or leaves.min() < 0:
            raise InputError(f"{path}: leaves has rows that are not shares of a sum of 1; {REMEDY}")
        return cls(booster_of(trees), leaves, first.astype(np.int64))


def grow_trees(
    features: Floats,
    difference: Floats,
    settings: ForestSettings | BoostingSettings,
    parameters: Mapping[str, Any],
    *,
    seed: int,
    threads: int,
) -> Any:
    """LightGBM's trees on rows of features and ln(time) less the anchor, with its parameters besides the settings.

    Results do not depend on the number of threads.
    """
    lgb = lightgbm_module()
    all_parameters = {
        "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.leaf_jobs,
        "bagging_fraction": settings.sample,
        "bagging_freq": 1,
        "feature_fraction": settings.features,
        "max_bin": settings.bins,
        "min_data_in_bin": 1,
        "seed": seed,
        "num_threads": threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
        **parameters,
    }
    data = lgb.Dataset(features, np.clip(difference, -MAX_DIFFERENCE, MAX_DIFFERENCE), params={"verbosity": -1})
    return lgb.train(all_parameters, data, settings.trees)


def fit_forest(
    features: Floats, difference: Floats, settings: ForestSettings | None = None, *, seed: int, threads: int = 1
) -> Forest:
    """Fit a forest on rows of features and ln(time) less the anchor.

    The same arguments give the same forest on any number of threads.
    """
    booster = grow_trees(features, difference, settings or ForestSettings(), RANDOM_FOREST, seed=seed, threads=threads)
    leaf = booster.predict(features, pred_leaf=True, num_threads=threads).reshape(len(features), -1)
    counts = leaves_per_tree(booster.model_to_string())
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    bins = bin_of(difference)
    histograms = [
        np.bincount(leaf[:, tree] * BIN_COUNT + bins, minlength=int(count) * BIN_COUNT).reshape(-1, BIN_COUNT)
        for tree, count in enumerate(counts)
    ]
    arrays = np.concatenate(histograms).astype(np.float32)
    arrays /= np.maximum(arrays.sum(axis=1, keepdims=True), 1.0)
    return Forest(booster, arrays, first)


# -- boosted trees ---------------------------------------------------------------------------------


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
    def parse(cls, files: Mapping[str, bytes], folder: Path, prefix: str = "") -> BoostedTrees:
        """The trees in the contents of the files that `save` wrote; InputError if they are damaged.

        Args:
            files: contents by name of file, without the prefix.
            folder: the folder of the files, for errors.
            prefix: of the names of the files.
        """
        text = files[TREES_FILE].decode("utf-8", "replace")
        return cls(booster_of(validated_trees(text, folder / f"{prefix}{TREES_FILE}")))


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
