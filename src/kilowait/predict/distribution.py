"""Predicted distributions as weights of fixed bins around an anchor, with quantiles, means and other point estimates.

A bin is a range of ln(time) less the anchor: 0 means "as long as the anchor", -0.69 "half as long". Near 0 bins are 2 %
wide, further away wider. One distribution gives the median, the most accurate value, the mean, upper bounds and the
expected inverse run time.
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
"""Centers of the bins: ln(time) less the anchor."""
BINS = len(CENTRES)
_NEAR = np.exp(-np.abs(CENTRES[:, None] - CENTRES[None, :]))
"""Accuracy of one bin's time if the other's is true: the shorter over the longer."""


def bin_of(difference: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The bin of a difference of logarithms.

    >>> CENTRES[bin_of([0.0, -0.69])].round(2).tolist()
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

    def _time(self, bins: npt.NDArray[np.int64]) -> Floats:
        return np.minimum(np.exp(self.anchor + CENTRES[bins]), self.max_s)

    def _times(self) -> Floats:
        return np.minimum(np.exp(self.anchor[:, None] + CENTRES), self.max_s[:, None])

    def quantile(self, level: float | Floats) -> Floats:
        """Quantiles at `level`, 0 to 1: one level for all, or one per row.

        >>> even = Distribution(np.full((1, BINS), 1 / BINS), np.log([60.0]), np.array([np.inf]))
        >>> even.quantile(0.5).round().tolist(), even.most_accurate().round().tolist()
        ([60.0], [60.0])
        """
        cumulated = np.cumsum(self.weights, axis=1, dtype=np.float64)
        wanted = np.broadcast_to(np.asarray(level, np.float64), len(self))[:, None]
        # Rounding may leave the sum below the level: the last bin is the limit.
        at = np.minimum((cumulated < wanted - 1e-9).sum(axis=1), BINS - 1)
        return self._time(at)

    def median(self) -> Floats:
        """The median."""
        return self.quantile(0.5)

    def most_accurate(self) -> Floats:
        """The time with the highest expected accuracy, the shorter of prediction and truth over the longer."""
        return self._time((self.weights @ _NEAR).argmax(axis=1))

    def mean(self) -> Floats:
        """The expected time."""
        return np.asarray((self.weights * self._times()).sum(axis=1), np.float64)

    def geometric_mean(self) -> Floats:
        """The geometric mean, which minimizes the squared error of logarithms."""
        logarithms = np.log(np.maximum(self._times(), 1e-9))
        return np.asarray(np.exp((self.weights * logarithms).sum(axis=1)), np.float64)

    def expected_inverse_runtime(self) -> Floats:
        """Expected 10 s / time, at most 1: 10 times the weight of a second of waiting in the bounded slowdown."""
        found = (self.weights * (10.0 / np.maximum(self._times(), 10.0))).sum(axis=1)
        return np.minimum(np.asarray(found, np.float64), 1.0)  # weights are rounded

    def level_of(self, time_s: Floats) -> Floats:
        """The quantile level of each time, 0 to 1, at the center of its bin."""
        cumulated = np.cumsum(self.weights, axis=1, dtype=np.float64)
        at = bin_of(np.log(np.maximum(time_s, 1e-9)) - self.anchor)
        rows = np.arange(len(self))
        return cumulated[rows, at] - 0.5 * self.weights[rows, at]
