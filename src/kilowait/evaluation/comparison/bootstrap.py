"""Bootstrap confidence intervals of means, interquartile means and ratios over windows.

Windows are resampled with replacement (Efron and Tibshirani 1993); each policy has one value per window, for the same
windows in the same order. Intervals are BCa: corrected for bias and skewness, which is large for waits. Overlapping
windows are not independent; they are resampled in blocks of neighbours (the circular block bootstrap; Politis and
Romano 1992). SciPy has no block bootstrap and does not share one set of resamples between all pairs of a comparison,
hence this implementation; a test compares it with SciPy.
"""

from __future__ import annotations

import math
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.series import Floats, Ints

RESAMPLES = 2000
"""Default number of bootstrap resamples."""


MIN_DRAWS = 100
"""With fewer resamples the ends of an interval are too noisy."""


ROUNDING = 1e-12
"""Relative differences below this come from the order of additions."""


class Interval(NamedTuple):
    """A confidence interval; (NaN, NaN) if there are too few windows."""

    low: float
    high: float


class WindowBootstrap:
    """One set of bootstrap resamples of the windows, used for any number of intervals.

    Args:
        windows: number of windows.
        random: random generator of the resampling.
        level: confidence level of the intervals.
        block: neighbouring windows resampled together; 1 for windows that do not overlap. With blocks the intervals
            are plain percentile intervals, and undefined (NaN) if fewer than two blocks fit.
        draws: number of resamples; more give more precise interval ends.

    >>> bootstrap = WindowBootstrap(3, random=np.random.default_rng(0))
    >>> bootstrap.ratio(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    Interval(low=0.5, high=0.5)
    """

    def __init__(
        self, windows: int, *, random: np.random.Generator, level: float = 0.95, block: int = 1, draws: int = RESAMPLES
    ) -> None:
        if windows < 1:
            raise InputError(f"{windows} windows to compare on; give at least one")
        check_block(block)
        if not 0 < level < 1:
            raise InputError(f"the level is {level}; it must be between 0 and 1, such as 0.95")
        if draws < MIN_DRAWS:
            raise InputError(f"{draws} draws are too few for an interval; use at least {MIN_DRAWS}")
        self.windows, self.level, self.block = windows, level, block
        starts = random.integers(0, windows, (draws, math.ceil(windows / block)))
        rows = (starts[:, :, None] + np.arange(block)) % windows  # the last window's neighbour is the first
        self.rows: Ints = rows.reshape(draws, -1)[:, :windows]
        """Resampled window numbers, one resample per row."""

    @cached_property
    def weights(self) -> Floats:
        """Weight of each window in each resample: the product with the values gives the means of all resamples."""
        draws = len(self.rows)
        flat = self.rows + np.arange(draws)[:, None] * self.windows
        counts = np.bincount(flat.ravel(), minlength=draws * self.windows)
        return counts.reshape(draws, self.windows) / self.windows

    def mean(self, values: npt.ArrayLike) -> Interval:
        """Interval of the mean."""
        value = self._checked(values)
        return self._interval(float(value.mean()), self.weights @ value, _means_without_one(value))

    def iqm(self, values: npt.ArrayLike) -> Interval:
        """Interval of the interquartile mean."""
        value = self._checked(values)
        return self._interval(iqm(value), _iqm(value[self.rows]), _iqm(_all_without_one(value)))

    def ratio(self, ours: npt.ArrayLike, theirs: npt.ArrayLike) -> Interval:
        """Interval of mean(ours) / mean(theirs), with pairs resampled together.

        NaN if the mean of theirs is 0 or less in any resample: the ratio is undefined then.
        """
        above, below = self._checked(ours), self._checked(theirs)
        resampled, left_out = self.weights @ below, _means_without_one(below)
        if not (resampled.min() > 0 and left_out.min() > 0):
            return Interval(math.nan, math.nan)
        return self._interval(
            float(above.mean()) / float(below.mean()),
            self.weights @ above / resampled,
            _means_without_one(above) / left_out,
        )

    def _checked(self, values: npt.ArrayLike) -> Floats:
        value = finite(values)
        if len(value) != self.windows:
            raise InputError(
                f"{len(value)} values for {self.windows} windows; give one value per window, for the same windows"
            )
        return value

    def _interval(self, estimate: float, resampled: Floats, left_out: Floats) -> Interval:
        """Interval from the estimate, its values in the resamples, and its values with each window left out."""
        if self.windows // self.block < 2:
            return Interval(math.nan, math.nan)
        rounding = ROUNDING * abs(estimate)
        if np.ptp(resampled) <= rounding:
            return Interval(estimate, estimate)
        tail = (1 - self.level) / 2
        shares = (tail, 1 - tail)
        if self.block == 1:
            shares = _bca(shares, estimate, resampled, left_out, rounding) or shares
        low, high = np.quantile(resampled, shares).tolist()
        return Interval(low, high)


def iqm(values: npt.ArrayLike) -> float:
    """The interquartile mean: the mean without the smallest and the largest quarter of the values.

    As in `scipy.stats.trim_mean`, the number of trimmed values is rounded down: of 5 values, 1 at each end.

    >>> iqm([1, 3, 4, 100])
    3.5
    """
    return float(_iqm(finite(values)))


def ratio_interval(
    ours: npt.ArrayLike,
    theirs: npt.ArrayLike,
    *,
    random: np.random.Generator,
    level: float = 0.95,
    block: int = 1,
    draws: int = RESAMPLES,
) -> Interval:
    """The bootstrap interval of mean(ours) / mean(theirs), pairs resampled together; see `WindowBootstrap`.

    >>> ratio_interval([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], random=np.random.default_rng(0))
    Interval(low=0.5, high=0.5)
    """
    above, below = paired(ours, theirs)
    return WindowBootstrap(len(above), random=random, level=level, block=block, draws=draws).ratio(above, below)


def _bca(
    shares: tuple[float, float], estimate: float, resampled: Floats, left_out: Floats, rounding: float
) -> tuple[float, float] | None:
    """BCa-corrected quantile levels of the resamples; None if the correction is not defined."""
    normal = NormalDist()
    below = np.count_nonzero(resampled < estimate - rounding)
    equal = np.count_nonzero(np.abs(resampled - estimate) <= rounding)
    share = (below + equal / 2) / len(resampled)
    influence = left_out.mean() - left_out
    largest = float(np.abs(influence).max())
    if not 0 < share < 1 or largest == 0:
        return None
    influence /= largest
    bias = normal.inv_cdf(share)
    acceleration = float(np.sum(influence**3)) / (6 * float(np.sum(influence**2)) ** 1.5)
    corrected = []
    for level in shares:
        z = bias + normal.inv_cdf(level)
        if acceleration * z >= 1:
            return None
        corrected.append(normal.cdf(bias + z / (1 - acceleration * z)))
    return corrected[0], corrected[1]


def _means_without_one(values: Floats) -> Floats:
    """The mean with each window left out in turn."""
    means: Floats = values if len(values) == 1 else (values.sum() - values) / (len(values) - 1)
    return means


def _all_without_one(values: Floats) -> Floats:
    """The values with each window left out in turn, one row per window."""
    count = len(values)
    if count == 1:
        return values[None, :]
    others: Floats = np.broadcast_to(values, (count, count))[~np.eye(count, dtype=bool)]
    return others.reshape(count, count - 1)


def _iqm(values: Floats) -> Floats:
    """The interquartile mean along the last axis."""
    count = values.shape[-1]
    cut = count // 4
    middle: Floats = np.sort(values, axis=-1)[..., cut : count - cut].mean(axis=-1)
    return middle


def check_block(block: int) -> None:
    """Raise an InputError unless `block` is a valid block length."""
    if block < 1:
        raise InputError(f"blocks of {block} windows; use 1 for windows that do not overlap, or more")


def paired(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Values of two policies, one per window; an InputError if they cannot be paired."""
    above, below = finite(ours), finite(theirs)
    if len(above) != len(below):
        raise InputError(
            f"{len(above)} values against {len(below)}; give one of each for every window, in the same order"
        )
    return above, below


def finite(values: npt.ArrayLike) -> Floats:
    """Values of windows as an array; an InputError if there are none, or one is not finite."""
    value = np.asarray(values, dtype=np.float64)
    if value.ndim != 1:
        raise InputError(f"values of shape {value.shape}; give a list of numbers, one per window")
    if len(value) == 0:
        raise InputError("0 windows to compare on; give at least one")
    wrong = np.flatnonzero(~np.isfinite(value))
    if len(wrong):
        raise InputError(
            f"the value of window {wrong[0]} (from 0) is {value[wrong[0]]}; leave out windows without a value, "
            "for all policies"
        )
    return value
