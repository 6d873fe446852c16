"""Known values of a column: a stored subset, and the nearest value to a number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Ints", "rank_subsample", "nearest"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KEPT = 20_000
"""Maximum number of stored values of a column, evenly spaced by rank."""


def rank_subsample(ascending: Floats) -> Floats:
    """All of some ascending values, or `KEPT` of them."""
    count = len(ascending)
    chosen: Floats = ascending[np.linspace(0, count - 1, min(count, KEPT)).round().astype(np.int64)]
    return chosen


def nearest(numbers: Floats, known: Floats) -> Floats:
    """The nearest of ascending known values (at least one) to each number.

    >>> nearest(np.array([0.0, 29.0, 31.0, 99.0]), np.array([1.0, 60.0])).tolist()
    [1.0, 1.0, 60.0, 60.0]
    """
    place = np.searchsorted(known, numbers)
    low, high = known[np.maximum(place - 1, 0)], known[np.minimum(place, len(known) - 1)]
    return np.where(numbers - low <= high - numbers, low, high)
