"""Significance of the differences between policies: paired tests of all pairs on the same windows.

Each policy has one value per window, for the same windows in the same order. If windows overlap, tests use only
every block-th window, so that no two of them share a job.

A policy is significantly better only if two methods agree: the Wilcoxon signed-rank test with Holm correction for all
pairs, which is robust to outlier windows, and the bootstrap interval of the ratio of the means, which tests the
means and not only the ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison.bootstrap import RESAMPLES, WindowBootstrap, check_block, iqm, paired
from kilowait.evaluation.comparison.conclusions import MIN_WINDOWS
from kilowait.evaluation.comparison.pairwise import PairwiseResult, counted
from kilowait.rng import stream
from kilowait.series import Floats

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


MAX_OVERLAP = 1.2
"""If a job is evaluated in more windows than this on average, windows are treated as dependent and grouped in blocks.
Below it, two seeds of a random order differ significantly no more often than on disjoint windows (2.5 % of 200 trials
at 1.14, 4.5 % at 1.28, where blocks gave 3.0 %; the limit was chosen from these results)."""


@dataclass(frozen=True, eq=False)
class PolicyScores:
    """Values of one metric of several policies on the same windows.

    >>> PolicyScores("mean_wait_s", ("saf", "sjf"), [[1, 2, 3], [2, 3, 4]], overlap=2.5).block
    3
    """

    metric: str
    """Metric name, such as mean_bsld."""
    policies: tuple[str, ...]
    """Unique labels of the policies."""
    values: Floats
    """Policy by window, windows in the order of time; in the unit of the metric."""
    better: str = "less"
    """Whether less or more of it is better."""
    overlap: float = 1.0
    """Mean number of windows in which a job is evaluated."""
    unit: str = "window"
    """What one value covers: a window, or a batch of the jobs of one long run."""

    def __post_init__(self) -> None:
        labels = tuple(self.policies)
        values = np.array(self.values, dtype=np.float64)
        if not labels or len(set(labels)) < len(labels):
            raise InputError(f"policies {', '.join(labels) or '(none)'}; give at least one, each once")
        if values.ndim != 2 or len(values) != len(labels):
            raise InputError(
                f"values of shape {values.shape} for {len(labels)} policies; give one row per policy with one "
                "value per window"
            )
        if values.shape[1] == 0:
            raise InputError(f"{self.metric} of 0 windows; give at least one")
        if not np.isfinite(values).all():
            policy, window = np.argwhere(~np.isfinite(values))[0].tolist()
            raise InputError(
                f"{self.metric} of {labels[policy]} in window {window} (from 0) is {values[policy, window]}; "
                "leave that window out for all policies"
            )
        if self.better not in ("less", "more"):
            raise InputError(f"better is {self.better!r}; give 'less' or 'more', whichever {self.metric} is better")
        if not (math.isfinite(self.overlap) and self.overlap > 0):
            raise InputError(f"an overlap of {self.overlap}; give a number above 0, 1 where no windows overlap")
        values.flags.writeable = False
        object.__setattr__(self, "policies", labels)
        object.__setattr__(self, "values", values)

    @property
    def block(self) -> int:
        """Block length: number of neighbouring windows treated as dependent."""
        return 1 if self.overlap <= MAX_OVERLAP else math.ceil(self.overlap)


@dataclass(frozen=True)
class PolicyMean:
    """Mean and interquartile mean of a policy over windows, with confidence intervals."""

    policy: str
    mean: float
    low: float
    high: float
    iqm: float
    iqm_low: float
    iqm_high: float


@dataclass(frozen=True)
class ComparisonResult:
    """Means and pairwise significance tests of all policies for one metric."""

    metric: str
    better: str
    windows: int
    level: float
    means: tuple[PolicyMean, ...]
    """In the order of the policies."""
    pairs: tuple[PairwiseResult, ...]
    """All pairs, with the policy with the better mean as ours; if the means are equal, the first given."""
    unit: str = "window"
    notes: tuple[str, ...] = ()
    """Limitations of the result, such as few or overlapping windows."""

    @property
    def best(self) -> str:
        """The policy with the best mean, whether or not the difference is significant."""
        return self.ranked()[0].policy

    def ranked(self) -> tuple[PolicyMean, ...]:
        """Best mean first."""
        sign = _sign(self.better)
        return tuple(sorted(self.means, key=lambda mean: sign * mean.mean))

    def pair(self, ours: str, theirs: str) -> PairwiseResult:
        """The result for two policies, with `ours` first."""
        labels = [mean.policy for mean in self.means]
        for label in (ours, theirs):
            if label not in labels:
                raise UnknownNameError("policy", label, labels)
        for pair in self.pairs:
            if (pair.ours, pair.theirs) == (ours, theirs):
                return pair
            if (pair.theirs, pair.ours) == (ours, theirs):
                return pair.swapped()
        raise InputError(f"{ours} cannot be compared with itself; name two policies")

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data; each pair includes its sentence."""
        return {
            **asdict(self),
            "means": [asdict(mean) for mean in self.means],
            "pairs": [{**asdict(pair), "sentence": pair.sentence()} for pair in self.pairs],
            "notes": list(self.notes),
        }


def pairwise_tests(scores: PolicyScores, *, seed: int, level: float = 0.95, draws: int = RESAMPLES) -> ComparisonResult:
    """Mean of every policy and significance test of every pair of policies.

    Args:
        scores: the values.
        seed: seed of the bootstrap; the same seed gives the same intervals.
        level: confidence level of the intervals; 1 - level is the significance level of corrected p-values.
        draws: number of bootstrap resamples.

    >>> values = [[3, 2, 4, 3, 5, 2, 3, 4], [4, 4, 5, 5, 6, 3, 5, 6]]
    >>> found = pairwise_tests(PolicyScores("mean_bsld", ("saf", "sjf"), values), seed=0)
    >>> found.best, found.pair("saf", "sjf").verdict, found.pair("sjf", "saf").verdict
    ('saf', 'better', 'worse')
    """
    values, block = scores.values, scores.block
    windows = values.shape[1]
    random = stream(seed, "evaluation.bootstrap")
    bootstrap = WindowBootstrap(windows, random=random, level=level, block=block, draws=draws)
    means = tuple(
        PolicyMean(label, float(row.mean()), *bootstrap.mean(row), iqm(row), *bootstrap.iqm(row))
        for label, row in zip(scores.policies, values, strict=True)
    )
    sign = _sign(scores.better)
    index_pairs = []
    for first, second in combinations(range(len(means)), 2):
        worse = sign * means[first].mean > sign * means[second].mean
        index_pairs.append((second, first) if worse else (first, second))
    tests = [signed_rank(sign * values[ours], sign * values[theirs], block=block) for ours, theirs in index_pairs]
    corrected = holm([test.p for test in tests]).tolist()
    pairs = []
    for (ours, theirs), test, p_holm in zip(index_pairs, tests, corrected, strict=True):
        above, below = means[ours], means[theirs]
        difference = bootstrap.mean(values[ours] - values[theirs])
        low, high = bootstrap.ratio(values[ours], values[theirs])
        no_ratio = below.mean <= 0 or (math.isnan(low) and not math.isnan(difference.low))
        pair = PairwiseResult(
            ours=above.policy,
            theirs=below.policy,
            ours_mean=above.mean,
            theirs_mean=below.mean,
            ratio=math.nan if no_ratio else above.mean / below.mean,
            low=low,
            high=high,
            difference=above.mean - below.mean,
            difference_low=difference.low,
            difference_high=difference.high,
            **count_wins(sign * values[ours], sign * values[theirs])._asdict(),
            windows=windows,
            p=test.p,
            p_holm=p_holm,
            effect=test.effect,
            verdict="undecided",
            metric=scores.metric,
            better=scores.better,
            level=level,
            unit=scores.unit,
        )
        pairs.append(replace(pair, verdict=_verdict(pair)))
    notes = _notes(scores, len(pairs), level)
    return ComparisonResult(scores.metric, scores.better, windows, level, means, tuple(pairs), scores.unit, notes)


def _sign(better: str) -> float:
    """The sign by which values are multiplied so that less is better."""
    return 1.0 if better == "less" else -1.0


def _verdict(pair: PairwiseResult) -> str:
    """Result for the policy with the better mean: the rank test and the interval must both be significant for it."""
    if pair.ties == pair.windows:
        return "same"
    return "better" if pair.p_holm < 1 - pair.level and pair.effect > 0 and pair.significant else "undecided"


def _notes(scores: PolicyScores, pairs: int, level: float) -> tuple[str, ...]:
    windows = scores.values.shape[1]
    tested = math.ceil(windows / scores.block)
    notes = []
    if scores.block > 1 and scores.unit == "batch":
        notes.append(
            f"one run, divided into {counted(windows, scores.unit)} of consecutive jobs: neighboring batches are "
            f"correlated, so tests use {tested} of them; compare on windows for more reliable results"
        )
    elif scores.block > 1:
        notes.append(
            f"windows overlap, a job is evaluated in {scores.overlap:.2g} of them on average: tests use {tested} of "
            f"{windows}, and intervals, from blocks of {scores.block}, are still slightly too narrow"
        )
    if tested == 1:
        notes.append(f"1 {scores.unit} is too few: there is no interval and no test; use at least 20")
    elif tested < MIN_WINDOWS and scores.unit == "window":
        # The smallest p of a signed-rank test is 2 / 2^windows, and Holm multiplies it by the number of pairs.
        needed = 2 + math.floor(math.log2(max(pairs, 1) / (1 - level)))
        consequence = "intervals are rough and only large differences can be significant"
        if pairs and tested < needed:
            plural = "" if pairs == 1 else "s"
            consequence = f"not even winning all of them would be significant with {pairs} pair{plural}"
        notes.append(f"{counted(tested, scores.unit)} are few: {consequence}; use at least {MIN_WINDOWS}")
    return tuple(notes)
