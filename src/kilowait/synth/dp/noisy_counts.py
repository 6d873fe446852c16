"""Noisy counts over users (Gaussian mechanism): each user contributes at most one to a count.

Adding or removing a user changes the vector of all counts by at most the square root of the number of counts in the
Euclidean norm (the sensitivity); the Gaussian noise is a multiple of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Count", "noisy_counts", "shares", "smooth"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_ENTRIES = 8
"""Maximum number of a user's jobs or sessions that are counted, selected at random, with equal weights."""
KERNEL = np.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16


@dataclass(frozen=True)
class Count:
    """One count: the category and the user of each entry."""

    category: Ints
    """Categories from 0 on."""
    user: Ints
    categories: int
    max_entries: int = MAX_ENTRIES
    """Maximum number of entries per user, with equal weights."""


def noisy_counts(counts: dict[str, Count], noise: float, rng: np.random.Generator) -> tuple[dict[str, Floats], float]:
    """Noisy number of users per category (fractional by entries), and the standard deviation of the noise.

    Args:
        counts: what to count.
        noise: standard deviation of the noise over the sensitivity.
        rng: secret random generator.
    """
    deviation = noise * np.sqrt(len(counts))
    return {
        name: _bounded(count, rng) + rng.normal(0.0, deviation, count.categories) for name, count in counts.items()
    }, float(deviation)


def _bounded(count: Count, rng: np.random.Generator) -> Floats:
    """Users by category: at most `max_entries` entries per user, so that no user adds more than one in total."""
    shuffled = rng.permutation(len(count.user))
    order = shuffled[np.argsort(count.user[shuffled], kind="stable")]
    user = count.user[order]
    rank_in_user = np.arange(len(user)) - np.searchsorted(user, user)
    used = order[rank_in_user < count.max_entries]
    return np.bincount(count.category[used], minlength=count.categories) / count.max_entries


def shares(noisy: Floats, threshold: float) -> Floats:
    """Probabilities from noisy counts: counts of at most `threshold` are set to 0, unless all are.

    >>> shares(np.array([40.0, -3.0, 2.0, 10.0]), 4.0).tolist()
    [0.8, 0.0, 0.0, 0.2]
    """
    above_threshold = np.where(noisy > threshold, noisy, 0.0)
    if not above_threshold.sum() > 0:
        above_threshold = np.maximum(noisy, 0.0) + 1e-9
    probabilities: Floats = above_threshold / above_threshold.sum()
    return probabilities


def smooth(noisy: Floats, *, cyclic: bool = False) -> Floats:
    """Smooth the counts of ordered bins with their neighbors: less noise and less detail.

    Args:
        noisy: the counts.
        cyclic: cyclic bins, such as hours.

    >>> smooth(np.array([0.0, 0, 16, 0, 0])).tolist()
    [1.0, 4.0, 6.0, 4.0, 1.0]
    """
    padded = np.pad(noisy, 2, mode="wrap" if cyclic else "edge")
    smoothed: Floats = np.convolve(padded, KERNEL, mode="valid")
    return smoothed
