"""Random forest whose leaves store distributions: one model for median, mean, quantiles and expected inverse run time.

LightGBM grows the trees (its mode `rf`, squared error of ln(time) less the anchor). Every leaf then stores a histogram
of the training times that fall into it; the prediction for a job is the mean over the trees. A mean over a leaf seldom
equals an earlier run time; here a repeated run time is the bin at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files.array_file import read_arrays
from kilowait.predict.distribution import BIN_COUNT, bin_of
from kilowait.predict.lightgbm import booster_of, lightgbm_module
from kilowait.predict.tree_text import leaves_per_tree, validated_trees

__all__ = ["Forest", "ForestSettings", "fit_forest", "tree_parameters"]

Floats = npt.NDArray[np.float64]
TREES_FILE, LEAVES_FILE = "trees.txt", "leaves.npz"
REMEDY = "fit it again with kilowait predict fit"
MAX_DIFFERENCE = 6.0
"""Differences of logarithms are clipped to this while trees are grown."""
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
class Forest:
    """Trees, and the histograms of their leaves."""

    booster: Any
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

    def contributions(self, features: Floats, *, threads: int = 1) -> Floats:
        """(n, features + 1) SHAP values for ln(time) less the anchor, and the mean in the last column."""
        values = self.booster.predict(features, pred_contrib=True, num_threads=threads)
        return np.asarray(values, np.float64) / len(
            self.first
        )  # LightGBM sums over trees, also where it averages predictions

    def save(self, folder: Path) -> None:
        """Write trees.txt (LightGBM's text format) and leaves.npz, which contain no executable code."""
        (folder / TREES_FILE).write_text(self.booster.model_to_string(), encoding="utf-8")
        np.savez_compressed(folder / LEAVES_FILE, leaves=self.leaves, first=self.first)

    @classmethod
    def parse(cls, files: Mapping[str, bytes], folder: Path) -> Forest:
        """The forest in the contents of the files that `save` wrote; InputError if they are damaged.

        Args:
            files: contents by name of file.
            folder: the folder of the files, for errors.
        """
        trees = validated_trees(files[TREES_FILE].decode("utf-8", "replace"), folder / TREES_FILE)
        counts = np.array(trees.leaves, np.int64)
        path = folder / LEAVES_FILE
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


def tree_parameters(
    leaves: int, leaf_jobs: int, sample: float, features: float, bins: int, seed: int, threads: int
) -> dict[str, Any]:
    """LightGBM parameters; results do not depend on the number of threads."""
    return {
        "num_leaves": leaves,
        "min_data_in_leaf": leaf_jobs,
        "bagging_fraction": sample,
        "bagging_freq": 1,
        "feature_fraction": features,
        "max_bin": bins,
        "min_data_in_bin": 1,
        "seed": seed,
        "num_threads": threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }


def fit_forest(
    features: Floats, difference: Floats, settings: ForestSettings | None = None, *, seed: int, threads: int = 1
) -> Forest:
    """Fit a forest on rows of features and ln(time) less the anchor.

    The same arguments give the same forest on any number of threads.
    """
    params = settings or ForestSettings()
    lgb = lightgbm_module()
    parameters = {
        **tree_parameters(params.leaves, params.leaf_jobs, params.sample, params.features, params.bins, seed, threads),
        "objective": "l2",
        "boosting": "rf",
        "feature_fraction_bynode": 0.7,
    }
    data = lgb.Dataset(features, np.clip(difference, -MAX_DIFFERENCE, MAX_DIFFERENCE), params={"verbosity": -1})
    booster = lgb.train(parameters, data, params.trees)
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
