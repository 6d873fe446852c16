"""Correlations of column pairs in the real and in the generated workload."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from kilowait.jobs import JobTable
from kilowait.synth.fidelity.job_features import numeric_columns

__all__ = ["ColumnPair", "correlation", "correlations"]

Floats = npt.NDArray[np.float64]


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
