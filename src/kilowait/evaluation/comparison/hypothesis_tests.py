"""Paired significance tests: Wilcoxon signed-rank test, win counts, Holm correction.

Each policy has one value per window, for the same windows in the same order. If windows overlap, tests use only
every block-th window, so that no two of them share a job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.evaluation.comparison.bootstrap import check_block, paired

__all__ = ["holm", "signed_rank", "count_wins"]

Floats = npt.NDArray[np.float64]

MAX_EXACT = 50
"""Up to this number of windows the signed-rank test is exact; above, it uses the normal approximation."""


class SignedRank(NamedTuple):
    """Result of a Wilcoxon signed-rank test."""

    p: float
    """Two-sided p-value; NaN for a single window."""
    effect: float
    """Rank-biserial correlation: 1 if ours is smaller in every window, -1 if theirs is, 0 if neither dominates."""


class WinCount(NamedTuple):
    """Number of windows in which ours is better, equal, worse."""

    wins: int
    ties: int
    losses: int


def signed_rank(ours: npt.ArrayLike, theirs: npt.ArrayLike, *, block: int = 1) -> SignedRank:
    """Wilcoxon's signed-rank test of paired values, two-sided; smaller is better.

    Windows without a difference are left out, equal differences share their ranks, and up to 50 windows the
    p-value is exact. With `block` above 1 only every block-th window is used.

    >>> signed_rank([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    SignedRank(p=0.0625, effect=1.0)
    """
    check_block(block)
    above, below = paired(ours, theirs)
    difference = (below - above)[::block]
    windows = len(difference)
    difference = difference[difference != 0]
    if len(difference) == 0:
        return SignedRank(1.0, 0.0)
    from scipy.stats import rankdata, wilcoxon

    ranks = rankdata(np.abs(difference))
    ours_smaller = float(ranks[difference > 0].sum())
    effect = 2 * ours_smaller / float(ranks.sum()) - 1
    if windows == 1:
        return SignedRank(math.nan, effect)
    if len(difference) <= MAX_EXACT:
        return SignedRank(_exact_p(ranks, ours_smaller), effect)
    return SignedRank(float(wilcoxon(difference, method="asymptotic").pvalue), effect)


def holm(p_values: Sequence[float] | Floats) -> Floats:
    """Holm's step-down correction for multiple tests; NaN stays NaN, and counts as a test.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or ((p < 0) | (p > 1)).any():
        raise InputError(f"p-values {p.tolist()}; give a list of numbers from 0 to 1")
    order = np.argsort(p)  # NaN comes last
    steps = p[order] * np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def count_wins(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> WinCount:
    """Number of windows in which ours is smaller, equal, larger.

    >>> count_wins([1, 2, 3], [2, 2, 2])
    WinCount(wins=1, ties=1, losses=1)
    """
    above, below = paired(ours, theirs)
    better, worse = int(np.count_nonzero(above < below)), int(np.count_nonzero(above > below))
    return WinCount(better, len(above) - better - worse, worse)


def _exact_p(ranks: Floats, rank_sum: float) -> float:
    """Two-sided probability of a rank sum at least this extreme if both signs are equally likely.

    Counts the sign patterns by their rank sum, rank by rank. Ties give half ranks, so all ranks are doubled.
    """
    doubled = np.rint(2 * ranks).astype(np.int64)
    patterns = np.zeros(int(doubled.sum()) + 1)
    patterns[0] = 1.0
    for rank in doubled.tolist():
        patterns[rank:] += patterns[:-rank].copy()
    smaller = min(round(2 * rank_sum), len(patterns) - 1 - round(2 * rank_sum))
    return min(1.0, 2.0 * float(patterns[: smaller + 1].sum()) / 2.0 ** len(ranks))
