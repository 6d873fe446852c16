"""Distances between distributions (Kolmogorov-Smirnov, Wasserstein) and their curves, and correlations of columns."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata, wasserstein_distance

from kilowait.jobs import JobTable
from kilowait.synth.fidelity.job_features import numeric_columns
from kilowait.synth.log_schema import Floats

POINTS = 160
"""Number of points of the stored curves."""


@dataclass(frozen=True)
class Distance:
    """Distance of one column's distribution to the real one."""

    column: str
    ks: float
    """Kolmogorov-Smirnov distance: maximum difference of the distribution functions; 0: equal, 1: disjoint."""
    wasserstein: float
    """Wasserstein distance, in the column's unit."""
    wasserstein_share: float
    """The same over the real column's standard deviation."""


@dataclass(frozen=True)
class EmpiricalDistributions:
    """Two empirical distribution functions at the same values."""

    at: tuple[float, ...]
    """Rising."""
    real: tuple[float, ...]
    synthetic: tuple[float, ...]
    widest: float
    """The value with the largest difference."""


def distance(name: str, real: Floats, synthetic: Floats) -> Distance:
    """Distance of two non-empty sets of numbers.

    >>> distance("wait_s", np.array([0.0, 10.0]), np.array([10.0, 20.0]))
    Distance(column='wait_s', ks=0.5, wasserstein=10.0, wasserstein_share=2.0)
    """
    wasserstein = float(wasserstein_distance(real, synthetic))
    deviation = float(real.std())
    share = wasserstein / deviation if deviation > 0 else float(wasserstein > 0)
    return Distance(name, float(np.abs(np.subtract(*_below(real, synthetic)[1:])).max()), wasserstein, share)


def empirical_distributions(real: Floats, synthetic: Floats, *, points: int = POINTS) -> EmpiricalDistributions:
    """The distribution functions of two sets of numbers, at `points` quantiles of both together at most.

    The value with the largest difference is always included, so the largest gap of the curves is the
    Kolmogorov-Smirnov distance.

    >>> empirical_distributions(np.array([1.0, 2.0]), np.array([2.0, 2.0]))
    EmpiricalDistributions(at=(1.0, 2.0), real=(0.5, 1.0), synthetic=(0.0, 1.0), widest=1.0)
    """
    values, one, other = _below(real, synthetic)
    widest = int(np.abs(one - other).argmax())
    stored = np.unique([*np.linspace(0, len(values) - 1, points).round().astype(np.int64), widest])
    _, first = np.unique(values[stored], return_index=True)
    rows = stored[first]
    at, below_real, below_synthetic = (tuple(part[rows].tolist()) for part in (values, one, other))
    return EmpiricalDistributions(at, below_real, below_synthetic, float(values[widest]))


def _below(real: Floats, synthetic: Floats) -> tuple[Floats, Floats, Floats]:
    """All values sorted, and the share of each set that is at most each value."""
    values = np.sort(np.concatenate([real, synthetic]))
    one, other = (np.searchsorted(np.sort(part), values, side="right") / len(part) for part in (real, synthetic))
    return values, one, other


def column_distances(real: JobTable, synthetic: JobTable) -> tuple[Distance, ...]:
    """Distances of all numeric columns that both have; unknown values are left out.

    >>> from kilowait.synth import lublin
    >>> [distance.ks for distance in column_distances(lublin(200, 64), lublin(200, 64))]
    [0.0, 0.0, 0.0, 0.0, 0.0]
    """
    return tuple(distance(name, *both) for name, both in _compared(real, synthetic).items())


def column_shares(real: JobTable, synthetic: JobTable) -> dict[str, EmpiricalDistributions]:
    """Distribution functions of the same columns."""
    return {name: empirical_distributions(*both) for name, both in _compared(real, synthetic).items()}


def _compared(real: JobTable, synthetic: JobTable) -> dict[str, tuple[Floats, Floats]]:
    """The known values of the numeric columns that have some in both workloads."""
    one, other = numeric_columns(real.sorted()), numeric_columns(synthetic.sorted())
    compared = {}
    for name in one:
        if name in other:
            left, right = (values[np.isfinite(values)] for values in (one[name], other[name]))
            if len(left) and len(right):
                compared[name] = (left, right)
    return compared


# -- correlations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnPair:
    """Correlation of two columns in both workloads."""

    kind: str
    """pearson (of logarithms), spearman (of ranks) or cramer (Cramér's V, of categories)."""
    one: str
    other: str
    real: float
    synthetic: float

    @property
    def difference(self) -> float:
        """Generated minus real."""
        return self.synthetic - self.real


def correlations(real: JobTable, synthetic: JobTable) -> tuple[ColumnPair, ...]:
    """Correlations of numeric columns (of logarithms, and of ranks) and of categories, real and generated."""
    real, synthetic = real.sorted(), synthetic.sorted()
    pairs = []
    one, other = numeric_columns(real), numeric_columns(synthetic)
    names = [name for name in one if name in other and name != "hour"]
    for first, second in combinations(names, 2):
        for kind, measure in (("pearson", _pearson), ("spearman", _spearman)):
            pairs.append(
                ColumnPair(kind, first, second, measure(one[first], one[second]), measure(other[first], other[second]))
            )
    named = ("user", "account", "queue", "status", "nodes", "estimate_s")
    kinds = [name for name in named if name in real and name in synthetic]
    for first, second in combinations(kinds, 2):
        both = [_cramer(table[first], table[second]) for table in (real, synthetic)]
        pairs.append(ColumnPair("cramer", first, second, *both))
    return tuple(pairs)


def correlation(one: Floats, other: Floats) -> float:
    """Pearson correlation of the pairs where both are known; 0 where one is constant.

    >>> round(correlation(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, np.nan])), 9)
    1.0
    """
    known = np.isfinite(one) & np.isfinite(other)
    left, right = one[known], other[known]
    if len(left) < 2 or not (np.ptp(left) > 0 and np.ptp(right) > 0):
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])


def _pearson(one: Floats, other: Floats) -> float:
    return correlation(np.log1p(one), np.log1p(other))


def _spearman(one: Floats, other: Floats) -> float:
    known = np.isfinite(one) & np.isfinite(other)
    return correlation(rankdata(one[known]), rankdata(other[known]))


def _cramer(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Cramér's V: 0 for independent columns, 1 where one determines the other."""
    rows, row = np.unique(one, return_inverse=True)
    columns, column = np.unique(other, return_inverse=True)
    least = min(len(rows), len(columns)) - 1
    if least < 1:
        return 0.0
    cells, counts = np.unique(row * len(columns) + column, return_counts=True)
    expected = np.bincount(row)[cells // len(columns)] * np.bincount(column)[cells % len(columns)]
    squares = float((counts.astype(np.float64) ** 2 / expected).sum()) - 1.0
    return float(np.sqrt(max(squares, 0.0) / least))
