"""How far a mean could be off, found by drawing the windows again with replacement.

One value a window, the same windows in the same order for everybody (the bootstrap; Efron and Tibshirani 1993).
Intervals are BCa: corrected for bias and for skewness, of which waits have much. Windows that overlap are not
independent; they are drawn in blocks of neighbours (the circular block bootstrap; Politis and Romano 1992). Written by
hand because SciPy has no blocks, and because one set of draws serves every pair of a judgement; a test holds it
against SciPy.
"""

from __future__ import annotations

import math
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError

__all__ = ["DRAWS", "WindowBootstrap", "Interval", "iqm", "iqm_interval", "mean_interval", "ratio_interval"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DRAWS = 2000
"""How often the windows are drawn again."""


FEWEST_DRAWS = 100
"""Below this the ends of an interval are a matter of luck."""


ROUNDING = 1e-12
"""Relative differences below this come from the order of additions."""


class Interval(NamedTuple):
    """Where a value may truly lie; NaN twice where there is too little to say."""

    low: float
    high: float


class WindowBootstrap:
    """The windows, drawn again `draws` times: made once, then asked for as many intervals as one likes.

    Args:
        windows: how many there are.
        random: where the draws come from.
        level: how sure the intervals are to be.
        block: neighbours drawn together; 1 for windows that do not overlap. With blocks the intervals are plain
            percentiles, and undefined (NaN) where fewer than two blocks fit side by side.
        draws: more give the ends of the intervals more digits.

    >>> again = WindowBootstrap(3, random=np.random.default_rng(0))
    >>> again.ratio(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    Interval(low=0.5, high=0.5)
    """

    def __init__(
        self,
        windows: int,
        *,
        random: np.random.Generator,
        level: float = 0.95,
        block: int = 1,
        draws: int = DRAWS,
    ) -> None:
        if windows < 1:
            raise InputError(f"{windows} windows to compare on; give at least one")
        check_block(block)
        if not 0 < level < 1:
            raise InputError(f"the level is {level}; it must lie between 0 and 1, such as 0.95")
        if draws < FEWEST_DRAWS:
            raise InputError(f"{draws} draws are too few for an interval; take at least {FEWEST_DRAWS}")
        self.windows, self.level, self.block = windows, level, block
        starts = random.integers(0, windows, (draws, math.ceil(windows / block)))
        rows = (starts[:, :, None] + np.arange(block)) % windows  # the last window's neighbour is the first
        self.rows: Ints = rows.reshape(draws, -1)[:, :windows]
        """Windows drawn, a draw a row."""

    @cached_property
    def weights(self) -> Floats:
        """Share of each window in each draw: a product with it gives all the means at once."""
        draws = len(self.rows)
        flat = self.rows + np.arange(draws)[:, None] * self.windows
        counts = np.bincount(flat.ravel(), minlength=draws * self.windows)
        return counts.reshape(draws, self.windows) / self.windows

    def mean(self, values: npt.ArrayLike) -> Interval:
        """Of the mean."""
        value = self._checked(values)
        return self._interval(float(value.mean()), self.weights @ value, _means_without_one(value))

    def iqm(self, values: npt.ArrayLike) -> Interval:
        """Of the interquartile mean."""
        value = self._checked(values)
        return self._interval(iqm(value), _iqm(value[self.rows]), _iqm(_all_without_one(value)))

    def ratio(self, ours: npt.ArrayLike, theirs: npt.ArrayLike) -> Interval:
        """Of mean(ours) / mean(theirs), the pairs drawn together.

        NaN where theirs could be 0 or less on average: there is no ratio to it then.
        """
        above, below = self._checked(ours), self._checked(theirs)
        drawn, left_out = self.weights @ below, _means_without_one(below)
        if not (drawn.min() > 0 and left_out.min() > 0):
            return Interval(math.nan, math.nan)
        return self._interval(
            float(above.mean()) / float(below.mean()),
            self.weights @ above / drawn,
            _means_without_one(above) / left_out,
        )

    def _checked(self, values: npt.ArrayLike) -> Floats:
        value = finite(values)
        if len(value) != self.windows:
            raise InputError(
                f"{len(value)} values for {self.windows} windows; give every contender the same windows"
            )
        return value

    def _interval(self, found: float, drawn: Floats, left_out: Floats) -> Interval:
        """From what was found, found in each draw, and found with each window left out."""
        if self.windows // self.block < 2:
            return Interval(math.nan, math.nan)
        rounding = ROUNDING * abs(found)
        if np.ptp(drawn) <= rounding:
            return Interval(found, found)
        tail = (1 - self.level) / 2
        shares = (tail, 1 - tail)
        if self.block == 1:
            shares = _bca(shares, found, drawn, left_out, rounding) or shares
        low, high = np.quantile(drawn, shares).tolist()
        return Interval(low, high)


def mean_interval(
    values: npt.ArrayLike,
    *,
    random: np.random.Generator,
    level: float = 0.95,
    block: int = 1,
    draws: int = DRAWS,
) -> Interval:
    """The bootstrap interval of the mean; for the arguments see `Bootstrap`.

    >>> mean_interval([2.0, 2.0, 2.0], random=np.random.default_rng(0))
    Interval(low=2.0, high=2.0)
    """
    value = finite(values)
    return WindowBootstrap(len(value), random=random, level=level, block=block, draws=draws).mean(value)


def iqm(values: npt.ArrayLike) -> float:
    """The interquartile mean: of what is left when a quarter of the values is cut off at each end.

    As in `scipy.stats.trim_mean`, parts of a value are not cut off: of 5 values, 1 goes at each end.

    >>> iqm([1, 3, 4, 100])
    3.5
    """
    return float(_iqm(finite(values)))


def iqm_interval(
    values: npt.ArrayLike,
    *,
    random: np.random.Generator,
    level: float = 0.95,
    block: int = 1,
    draws: int = DRAWS,
) -> Interval:
    """The bootstrap interval of the interquartile mean; for the arguments see `Bootstrap`.

    >>> iqm_interval([2.0, 2.0, 2.0], random=np.random.default_rng(0))
    Interval(low=2.0, high=2.0)
    """
    value = finite(values)
    return WindowBootstrap(len(value), random=random, level=level, block=block, draws=draws).iqm(value)


def ratio_interval(
    ours: npt.ArrayLike,
    theirs: npt.ArrayLike,
    *,
    random: np.random.Generator,
    level: float = 0.95,
    block: int = 1,
    draws: int = DRAWS,
) -> Interval:
    """The bootstrap interval of mean(ours) / mean(theirs), pairs drawn together; see `Bootstrap`.

    >>> ratio_interval([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], random=np.random.default_rng(0))
    Interval(low=0.5, high=0.5)
    """
    above, below = paired(ours, theirs)
    return WindowBootstrap(len(above), random=random, level=level, block=block, draws=draws).ratio(
        above, below
    )


def _bca(
    shares: tuple[float, float], found: float, drawn: Floats, left_out: Floats, rounding: float
) -> tuple[float, float] | None:
    """Which quantiles of the draws to take instead; None where the correction is not defined."""
    normal = NormalDist()
    below = np.count_nonzero(drawn < found - rounding)
    equal = np.count_nonzero(np.abs(drawn - found) <= rounding)
    share = (below + equal / 2) / len(drawn)
    pull = left_out.mean() - left_out
    most = float(np.abs(pull).max())
    if not 0 < share < 1 or most == 0:
        return None
    pull /= most
    bias = normal.inv_cdf(share)
    skewness = float(np.sum(pull**3)) / (6 * float(np.sum(pull**2)) ** 1.5)
    corrected = []
    for wanted in shares:
        z = bias + normal.inv_cdf(wanted)
        if skewness * z >= 1:
            return None
        corrected.append(normal.cdf(bias + z / (1 - skewness * z)))
    return corrected[0], corrected[1]


def _means_without_one(values: Floats) -> Floats:
    """The mean with each window left out in turn."""
    means: Floats = values if len(values) == 1 else (values.sum() - values) / (len(values) - 1)
    return means


def _all_without_one(values: Floats) -> Floats:
    """The values with each window left out in turn, a row each."""
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
    """Raise unless `block` neighbouring windows can be taken together."""
    if block < 1:
        raise InputError(f"blocks of {block} windows; take 1 for windows that do not overlap, or more")


def paired(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Values of two contenders, a window each; an InputError where they cannot be paired."""
    above, below = finite(ours), finite(theirs)
    if len(above) != len(below):
        raise InputError(
            f"{len(above)} values against {len(below)}; give one of each for every window, in the same order"
        )
    return above, below


def finite(values: npt.ArrayLike) -> Floats:
    """Values of windows; an InputError where there are none, or one is not a number."""
    value = np.asarray(values, dtype=np.float64)
    if value.ndim != 1:
        raise InputError(f"values of shape {value.shape}; give a list of numbers, one a window")
    if len(value) == 0:
        raise InputError("0 windows to compare on; give at least one")
    wrong = np.flatnonzero(~np.isfinite(value))
    if len(wrong):
        raise InputError(
            f"the value of window {wrong[0]} (from 0) is {value[wrong[0]]}; leave out windows that have no value, "
            "for every contender alike"
        )
    return value
