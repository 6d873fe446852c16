"""Counts over users, with noise: each user adds no more than one to a count, whatever they did.

A user who is there or not changes the list of all the counts by no more than the square root of how many counts there
are (in the Euclidean norm); Gaussian noise of so many times that hides it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Count", "noisy_counts", "shares", "smooth"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FEW = 8
"""Jobs or sessions of a user that are counted, picked at random; each counts as one of so many."""
KERNEL = np.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16


@dataclass(frozen=True)
class Count:
    """One thing to count: kinds, each of some user's."""

    kind: Ints
    """From 0 on."""
    user: Ints
    kinds: int
    most: int = FEW
    """Entries of a user that are counted, each as one of so many."""


def noisy_counts(
    counts: dict[str, Count], noise: float, rng: np.random.Generator
) -> tuple[dict[str, Floats], float]:
    """How many users did what, a part of a user for a part of their jobs, each with noise; and the noise's deviation.

    Args:
        counts: what to count.
        noise: deviation of the noise, in the most that one user can change.
        rng: a secret one.
    """
    deviation = noise * np.sqrt(len(counts))
    return {
        name: _bounded(count, rng) + rng.normal(0.0, deviation, count.kinds) for name, count in counts.items()
    }, float(deviation)


def _bounded(count: Count, rng: np.random.Generator) -> Floats:
    """Users by kind: of no user more than `most` entries, so that nobody adds more than one in all."""
    mixed = rng.permutation(len(count.user))
    order = mixed[np.argsort(count.user[mixed], kind="stable")]
    user = count.user[order]
    place = np.arange(len(user)) - np.searchsorted(user, user)
    taken = order[place < count.most]
    return np.bincount(count.kind[taken], minlength=count.kinds) / count.most


def shares(noisy: Floats, least: float) -> Floats:
    """Probabilities from noisy counts: what is at most `least` may be noise and counts for nothing, unless all may.

    >>> shares(np.array([40.0, -3.0, 2.0, 10.0]), 4.0).tolist()
    [0.8, 0.0, 0.0, 0.2]
    """
    sure = np.where(noisy > least, noisy, 0.0)
    if not sure.sum() > 0:
        sure = np.maximum(noisy, 0.0) + 1e-9
    probabilities: Floats = sure / sure.sum()
    return probabilities


def smooth(noisy: Floats, *, around: bool = False) -> Floats:
    """Counts of bins that follow one another, each mixed with its neighbours: less noise, and less detail.

    Args:
        noisy: the counts.
        around: the last one is beside the first, as hours are.

    >>> smooth(np.array([0.0, 0, 16, 0, 0])).tolist()
    [1.0, 4.0, 6.0, 4.0, 1.0]
    """
    padded = np.pad(noisy, 2, mode="wrap" if around else "edge")
    mixed: Floats = np.convolve(padded, KERNEL, mode="valid")
    return mixed
