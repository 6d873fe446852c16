"""A random forest whose leaves keep distributions: one model for the middle, the mean, safe bounds and
expected_inverse_runtime.

LightGBM grows the trees (its mode `rf`, least squares on ln(time) less the anchor); every leaf then keeps how often
each bin of the times that fell into it occurred, and what a job is told is the mean over the trees. To copy "as
always" is hard for a tree; here it is the bin at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.predict.distribution import BINS, bin_of
from kilowait.predict.lightgbm import booster_of, library

__all__ = ["Forest", "ForestSettings", "grow", "tree_parameters"]

Floats = npt.NDArray[np.float64]
LARGEST = 6.0
"""Differences of logarithms beyond this count as this while trees are grown."""


@dataclass(frozen=True)
class ForestSettings:
    """How the trees are grown."""

    trees: int = 40
    leaves: int = 511
    """At most, a tree."""
    leaf_jobs: int = 2
    """At least, a leaf."""
    sample: float = 0.6
    """Part of the jobs a tree is grown from."""
    features: float = 0.33
    """Part of the features a tree looks at."""
    bins: int = 63
    """Values a feature is sorted into."""


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees, and what fell into their leaves."""

    booster: Any
    leaves: npt.NDArray[np.float32]
    """(leaves of all trees, BINS), each row of sum 1."""
    first: npt.NDArray[np.int64]
    """(trees,) where the leaves of each tree begin."""

    def weights(self, features: Floats, *, threads: int = 1) -> npt.NDArray[np.float32]:
        """(n, BINS) the distribution of each row of features."""
        total = np.zeros((len(features), BINS), np.float32)
        if len(features) == 0:
            return total
        leaf = self.booster.predict(features, pred_leaf=True, num_threads=threads).reshape(len(features), -1)
        for tree, first in enumerate(self.first):
            total += self.leaves[first + leaf[:, tree]]
        return total / np.float32(len(self.first))

    def contributions(self, features: Floats, *, threads: int = 1) -> Floats:
        """(n, features + 1) what each feature adds to ln(time) less the anchor (SHAP values), and the mean last."""
        found = self.booster.predict(features, pred_contrib=True, num_threads=threads)
        return np.asarray(found, np.float64) / len(
            self.first
        )  # LightGBM adds trees up, also where it averages

    def save(self, folder: Path) -> None:
        """Write trees.txt (LightGBM's own form) and leaves.npz; nothing in them can run."""
        (folder / "trees.txt").write_text(self.booster.model_to_string(), encoding="utf-8")
        np.savez_compressed(folder / "leaves.npz", leaves=self.leaves, first=self.first)

    @classmethod
    def load(cls, folder: Path) -> Forest:
        """The forest that `save` wrote."""
        try:
            booster = booster_of((folder / "trees.txt").read_text(encoding="utf-8"), folder / "trees.txt")
            with np.load(folder / "leaves.npz", allow_pickle=False) as kept:
                leaves, first = kept["leaves"], kept["first"]
        except (OSError, ValueError, KeyError) as problem:
            raise InputError(
                f"{folder} holds no forest: {problem}; fit it again with kilowait predict fit"
            ) from None
        if leaves.ndim != 2 or leaves.shape[1] != BINS or len(first) != booster.num_trees():
            raise InputError(
                f"{folder} holds leaves {leaves.shape} of {len(first)} trees; {booster.num_trees()} trees and "
                f"{BINS} bins are wanted: fit it again with kilowait predict fit"
            )
        return cls(booster, leaves, first)


def tree_parameters(
    leaves: int, leaf_jobs: int, sample: float, features: float, bins: int, seed: int, threads: int
) -> dict[str, Any]:
    """LightGBM's names for how trees are grown, alike on any number of threads."""
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


def grow(
    features: Floats,
    difference: Floats,
    settings: ForestSettings | None = None,
    *,
    seed: int,
    threads: int = 1,
) -> Forest:
    """A forest grown on rows of features and ln(time) less the anchor.

    The same arguments give the same forest on any number of threads.
    """
    how = settings or ForestSettings()
    lgb = library()
    parameters = {
        **tree_parameters(how.leaves, how.leaf_jobs, how.sample, how.features, how.bins, seed, threads),
        "objective": "l2",
        "boosting": "rf",
        "feature_fraction_bynode": 0.7,
    }
    data = lgb.Dataset(features, np.clip(difference, -LARGEST, LARGEST), params={"verbosity": -1})
    booster = lgb.train(parameters, data, how.trees)
    leaf = booster.predict(features, pred_leaf=True, num_threads=threads).reshape(len(features), -1)
    counts = leaf.max(axis=0).astype(np.int64) + 1
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = bin_of(difference)
    cells = [
        np.bincount(leaf[:, tree] * BINS + place, minlength=int(count) * BINS).reshape(-1, BINS)
        for tree, count in enumerate(counts)
    ]
    kept = np.concatenate(cells).astype(np.float32)
    kept /= np.maximum(kept.sum(axis=1, keepdims=True), 1.0)
    return Forest(booster, kept, first)
