"""How far two sets of numbers are apart, and the curves that show it; column by column, of two workloads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import wasserstein_distance

from kilowait.jobs import JobTable
from kilowait.synth.job_features import numbers_of

__all__ = ["Distance", "Shares", "column_distances", "column_shares", "distance", "shares"]

Floats = npt.NDArray[np.float64]

POINTS = 160
"""Values at which the curves of two distributions are kept."""


@dataclass(frozen=True)
class Distance:
    """How far the values of one column are from the real ones."""

    column: str
    ks: float
    """Largest difference of the two distribution functions; 0: none, 1: nothing in common."""
    wasserstein: float
    """Mean distance by which values would have to be moved, in the column's unit."""
    wasserstein_share: float
    """The same over the real column's standard deviation."""


@dataclass(frozen=True)
class Shares:
    """Two distribution functions at the same values: which part of the numbers is no larger."""

    at: tuple[float, ...]
    """Rising."""
    real: tuple[float, ...]
    made: tuple[float, ...]
    widest: float
    """The value at which the two are farthest apart."""


def distance(name: str, real: Floats, made: Floats) -> Distance:
    """Of two sets of numbers, neither of them empty.

    >>> distance("wait_s", np.array([0.0, 10.0]), np.array([10.0, 20.0]))
    Distance(column='wait_s', ks=0.5, wasserstein=10.0, wasserstein_share=2.0)
    """
    moved = float(wasserstein_distance(real, made))
    spread = float(real.std())
    share = moved / spread if spread > 0 else float(moved > 0)
    return Distance(name, float(np.abs(np.subtract(*_below(real, made)[1:])).max()), moved, share)


def shares(real: Floats, made: Floats, *, points: int = POINTS) -> Shares:
    """The distribution functions of two sets of numbers, at `points` quantiles of both together at most.

    Where they are farthest apart is always among them, so the widest gap of the curves is the
    Kolmogorov-Smirnov distance.

    >>> shares(np.array([1.0, 2.0]), np.array([2.0, 2.0]))
    Shares(at=(1.0, 2.0), real=(0.5, 1.0), made=(0.0, 1.0), widest=1.0)
    """
    every, one, other = _below(real, made)
    widest = int(np.abs(one - other).argmax())
    kept = np.unique([*np.linspace(0, len(every) - 1, points).round().astype(np.int64), widest])
    _, first = np.unique(every[kept], return_index=True)
    rows = kept[first]
    at, below_real, below_made = (tuple(part[rows].tolist()) for part in (every, one, other))
    return Shares(at, below_real, below_made, float(every[widest]))


def _below(real: Floats, made: Floats) -> tuple[Floats, Floats, Floats]:
    """All values in order, and which part of each set is no larger."""
    every = np.sort(np.concatenate([real, made]))
    one, other = (np.searchsorted(np.sort(part), every, side="right") / len(part) for part in (real, made))
    return every, one, other


def column_distances(real: JobTable, made: JobTable) -> tuple[Distance, ...]:
    """Distances of all numeric columns both have; unknown values are left out.

    >>> from kilowait.synth import lublin
    >>> [distance.ks for distance in column_distances(lublin(200, 64), lublin(200, 64))]
    [0.0, 0.0, 0.0, 0.0, 0.0]
    """
    return tuple(distance(name, *both) for name, both in _compared(real, made).items())


def column_shares(real: JobTable, made: JobTable) -> dict[str, Shares]:
    """The curves of the same columns."""
    return {name: shares(*both) for name, both in _compared(real, made).items()}


def _compared(real: JobTable, made: JobTable) -> dict[str, tuple[Floats, Floats]]:
    """The known values of the numeric columns of which both workloads know some."""
    one, other = numbers_of(real.sorted()), numbers_of(made.sorted())
    found = {}
    for name in one:
        if name in other:
            left, right = (values[np.isfinite(values)] for values in (one[name], other[name]))
            if len(left) and len(right):
                found[name] = (left, right)
    return found
