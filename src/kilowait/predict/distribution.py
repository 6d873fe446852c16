"""Predicted distributions as weights of fixed bins around an anchor, with quantiles, means and other point estimates.

A bin is a range of ln(time) less the anchor: 0 is the anchor itself, -0.69 half of it. Near 0 bins are 2 % wide,
further away wider. One distribution gives the median, the most accurate value, the mean, upper bounds and the expected
inverse run time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["BIN_COUNT", "Distribution", "bin_of"]

Floats = npt.NDArray[np.float64]

_POSITIVE_EDGES = 0.01 + np.concatenate([[0.0], np.cumsum(0.02 * 1.12 ** np.arange(38))])
_EDGES = np.concatenate([-_POSITIVE_EDGES[::-1], _POSITIVE_EDGES])
BIN_CENTERS: Floats = np.concatenate([[_EDGES[0] - 0.5], (_EDGES[1:] + _EDGES[:-1]) / 2, [_EDGES[-1] + 0.5]])
"""Centers of the bins: ln(time) less the anchor."""
BIN_COUNT = len(BIN_CENTERS)
_ACCURACY = np.exp(-np.abs(BIN_CENTERS[:, None] - BIN_CENTERS[None, :]))
"""Accuracy of one bin's time if the other's is true: the shorter over the longer."""


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
