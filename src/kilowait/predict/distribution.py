"""Distributions of a time, as weights of fixed bins around an anchor; and the numbers one wants of them.

A bin is a difference of logarithms from the anchor: "as long as always", "half as long". Near 0 bins are 2 % wide,
further away wider. One distribution answers every question: the middle, the likeliest, the mean, a safe bound, how
quick.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BINS", "CENTRES", "Distribution", "bin_of"]

Floats = npt.NDArray[np.float64]

_HALF = 0.01 + np.concatenate([[0.0], np.cumsum(0.02 * 1.12 ** np.arange(38))])
_EDGES = np.concatenate([-_HALF[::-1], _HALF])
CENTRES: Floats = np.concatenate([[_EDGES[0] - 0.5], (_EDGES[1:] + _EDGES[:-1]) / 2, [_EDGES[-1] + 0.5]])
"""Of the bins: ln(time) less the anchor."""
BINS = len(CENTRES)
_NEAR = np.exp(-np.abs(CENTRES[:, None] - CENTRES[None, :]))
"""How accurate one bin's time is if the other's is the truth: the shorter over the longer."""


def bin_of(difference: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The bin of a difference of logarithms.

    >>> CENTRES[bin_of([0.0, -0.69])].round(2).tolist()
    [0.0, -0.71]
    """
    return np.searchsorted(_EDGES, np.asarray(difference, np.float64)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Distribution:
    """Of n times. Results are in seconds, and at most `most_s`."""

    weights: npt.NDArray[np.floating]
    """(n, BINS), each row of sum 1."""
    anchor: Floats
    """(n,) ln seconds."""
    most_s: Floats
    """(n,) what no time is beyond, seconds: the user's limit; inf where there is none."""

    def __len__(self) -> int:
        return len(self.anchor)

    def _time(self, bins: npt.NDArray[np.int64]) -> Floats:
        return np.minimum(np.exp(self.anchor + CENTRES[bins]), self.most_s)

    def _times(self) -> Floats:
        return np.minimum(np.exp(self.anchor[:, None] + CENTRES), self.most_s[:, None])

    def quantile(self, level: float | Floats) -> Floats:
        """What the time is at most, with a probability of `level`, 0 to 1: one, or one for each.

        >>> even = Distribution(np.full((1, BINS), 1 / BINS), np.log([60.0]), np.array([np.inf]))
        >>> even.quantile(0.5).round().tolist(), even.most_accurate().round().tolist()
        ([60.0], [60.0])
        """
        cumulated = np.cumsum(self.weights, axis=1, dtype=np.float64)
        wanted = np.broadcast_to(np.asarray(level, np.float64), len(self))[:, None]
        # The last bin is reached whatever rounding made of the sum.
        at = np.minimum((cumulated < wanted - 1e-9).sum(axis=1), BINS - 1)
        return self._time(at)

    def median(self) -> Floats:
        """As often below as above."""
        return self.quantile(0.5)

    def most_accurate(self) -> Floats:
        """The time with the highest expected accuracy, the shorter of guess and truth over the longer."""
        return self._time((self.weights @ _NEAR).argmax(axis=1))

    def mean(self) -> Floats:
        """The expected time."""
        return np.asarray((self.weights * self._times()).sum(axis=1), np.float64)

    def geometric_mean(self) -> Floats:
        """The geometric mean: least squares of logarithms."""
        logarithms = np.log(np.maximum(self._times(), 1e-9))
        return np.asarray(np.exp((self.weights * logarithms).sum(axis=1)), np.float64)

    def expected_inverse_runtime(self) -> Floats:
        """Expected 10 s / time, at most 1: what a second of waiting weighs in a bounded slowdown, times 10."""
        found = (self.weights * (10.0 / np.maximum(self._times(), 10.0))).sum(axis=1)
        return np.minimum(np.asarray(found, np.float64), 1.0)  # weights are rounded

    def place_of(self, time_s: Floats) -> Floats:
        """The level at which each time lies, 0 to 1, the middle of its own bin's part."""
        cumulated = np.cumsum(self.weights, axis=1, dtype=np.float64)
        at = bin_of(np.log(np.maximum(time_s, 1e-9)) - self.anchor)
        rows = np.arange(len(self))
        return cumulated[rows, at] - 0.5 * self.weights[rows, at]
