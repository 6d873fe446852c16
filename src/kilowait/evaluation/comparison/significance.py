"""Who is better, and how sure that is: every pair of contenders on the same windows, in numbers and in words.

A contender is called better only if two unlike witnesses agree: the ranks of the differences (Wilcoxon's test, with
Holm's correction for asking about every pair), which one freak window cannot sway, and the bootstrap interval of
the ratio of the means, which says that the means, and not only the ranks, are apart.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison.bootstrap import DRAWS, WindowBootstrap, iqm
from kilowait.evaluation.comparison.hypothesis_tests import holm, signed_rank, wins
from kilowait.evaluation.comparison.pairwise import PairwiseResult, counted
from kilowait.rng import stream

__all__ = ["FEW", "ComparisonResult", "PolicyMean", "PolicyScores", "pairwise_tests"]

Floats = npt.NDArray[np.float64]

FEW = 20
"""Fewer windows than this are said to be few."""

OVERLAPPING = 1.2
"""A job counted in more windows than this, on average, makes neighbours depend on one another: below it, two seeds of
a random order are told apart no more often than on windows that share no job (2.5 % of 200 trials at 1.14,
4.5 % at 1.28, where blocks gave 3.0 %; the limit was set after seeing these)."""


@dataclass(frozen=True, eq=False)
class PolicyScores:
    """One metric of several contenders on the same windows.

    >>> PolicyScores("mean_wait_s", ("saf", "sjf"), [[1, 2, 3], [2, 3, 4]], overlap=2.5).block
    3
    """

    metric: str
    """Such as mean_bsld."""
    contenders: tuple[str, ...]
    """Labels, each once."""
    values: Floats
    """Contender by window, windows in the order of time; in the metric's own unit."""
    better: str = "less"
    """Whether less or more of it is better."""
    overlap: float = 1.0
    """In how many windows a job is counted, on average."""
    unit: str = "window"
    """What a value is of: a window, or a batch of the jobs of one long run."""

    def __post_init__(self) -> None:
        contenders = tuple(self.contenders)
        values = np.array(self.values, dtype=np.float64)
        if not contenders or len(set(contenders)) < len(contenders):
            raise InputError(f"contenders {', '.join(contenders) or '(none)'}; give at least one, each once")
        if values.ndim != 2 or len(values) != len(contenders):
            raise InputError(
                f"values of shape {values.shape} for {len(contenders)} contender(s); give each a row, with a "
                "value a window"
            )
        if values.shape[1] == 0:
            raise InputError(f"{self.metric} of 0 windows; give at least one")
        if not np.isfinite(values).all():
            who, window = np.argwhere(~np.isfinite(values))[0].tolist()
            raise InputError(
                f"{self.metric} of {contenders[who]} in window {window} (from 0) is {values[who, window]}; leave "
                "that window out for all contenders"
            )
        if self.better not in ("less", "more"):
            raise InputError(f"better is {self.better!r}; say whether less or more {self.metric} is better")
        if not (math.isfinite(self.overlap) and self.overlap > 0):
            raise InputError(
                f"an overlap of {self.overlap}; give a number above 0, 1 where no windows overlap"
            )
        values.flags.writeable = False
        object.__setattr__(self, "contenders", contenders)
        object.__setattr__(self, "values", values)

    @property
    def block(self) -> int:
        """How many neighbouring windows hold the same job."""
        return 1 if self.overlap <= OVERLAPPING else math.ceil(self.overlap)


@dataclass(frozen=True)
class PolicyMean:
    """A contender by itself, with intervals of its mean and interquartile mean over windows."""

    contender: str
    mean: float
    low: float
    high: float
    iqm: float
    iqm_low: float
    iqm_high: float


@dataclass(frozen=True)
class ComparisonResult:
    """All contenders by one metric."""

    metric: str
    better: str
    windows: int
    level: float
    means: tuple[PolicyMean, ...]
    """In the contenders' order."""
    pairs: tuple[PairwiseResult, ...]
    """Every two of them, the one with the better mean as ours; where the means are equal, the first given."""
    unit: str = "window"
    notes: tuple[str, ...] = ()
    """What a reader should know before track_expected_ends it."""

    @property
    def best(self) -> str:
        """Who has the best mean, whether or not that is sure."""
        return self.ranked()[0].contender

    def ranked(self) -> tuple[PolicyMean, ...]:
        """Best mean first."""
        sign = _sign(self.better)
        return tuple(sorted(self.means, key=lambda mean: sign * mean.mean))

    def pair(self, ours: str, theirs: str) -> PairwiseResult:
        """Two contenders, seen by the first."""
        labels = [mean.contender for mean in self.means]
        for label in (ours, theirs):
            if label not in labels:
                raise UnknownNameError("contender", label, labels)
        for pair in self.pairs:
            if (pair.ours, pair.theirs) == (ours, theirs):
                return pair
            if (pair.theirs, pair.ours) == (ours, theirs):
                return pair.swapped()
        raise InputError(f"{ours} against itself; name two contenders")

    def to_dict(self) -> dict[str, Any]:
        """Plain data; each pair with its sentence."""
        return {
            **asdict(self),
            "means": [asdict(mean) for mean in self.means],
            "pairs": [{**asdict(pair), "sentence": pair.sentence()} for pair in self.pairs],
            "notes": list(self.notes),
        }


def pairwise_tests(
    scores: PolicyScores, *, seed: int, level: float = 0.95, draws: int = DRAWS
) -> ComparisonResult:
    """Every contender's mean, and every two contenders against one another.

    Args:
        scores: the values.
        seed: same seed, same intervals.
        level: how sure to be: of intervals, and 1 - level is what a corrected p must stay below.
        draws: of the bootstrap.

    >>> values = [[3, 2, 4, 3, 5, 2, 3, 4], [4, 4, 5, 5, 6, 3, 5, 6]]
    >>> found = pairwise_tests(PolicyScores("mean_bsld", ("saf", "sjf"), values), seed=0)
    >>> found.best, found.pair("saf", "sjf").verdict, found.pair("sjf", "saf").verdict
    ('saf', 'better', 'worse')
    """
    values, block = scores.values, scores.block
    windows = values.shape[1]
    random = stream(seed, "evaluation.bootstrap")
    again = WindowBootstrap(windows, random=random, level=level, block=block, draws=draws)
    means = tuple(
        PolicyMean(label, float(row.mean()), *again.mean(row), iqm(row), *again.iqm(row))
        for label, row in zip(scores.contenders, values, strict=True)
    )
    sign = _sign(scores.better)
    both = []
    for first, second in combinations(range(len(means)), 2):
        worse = sign * means[first].mean > sign * means[second].mean
        both.append((second, first) if worse else (first, second))
    tests = [signed_rank(sign * values[ours], sign * values[theirs], block=block) for ours, theirs in both]
    corrected = holm([test.p for test in tests]).tolist()
    pairs = []
    for (ours, theirs), test, p_holm in zip(both, tests, corrected, strict=True):
        above, below = means[ours], means[theirs]
        difference = again.mean(values[ours] - values[theirs])
        low, high = again.ratio(values[ours], values[theirs])
        no_ratio = below.mean <= 0 or (math.isnan(low) and not math.isnan(difference.low))
        pair = PairwiseResult(
            ours=above.contender,
            theirs=below.contender,
            ours_mean=above.mean,
            theirs_mean=below.mean,
            ratio=math.nan if no_ratio else above.mean / below.mean,
            low=low,
            high=high,
            difference=above.mean - below.mean,
            difference_low=difference.low,
            difference_high=difference.high,
            **wins(sign * values[ours], sign * values[theirs])._asdict(),
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
    return ComparisonResult(
        scores.metric, scores.better, windows, level, means, tuple(pairs), scores.unit, notes
    )


def _sign(better: str) -> float:
    """What values are multiplied with so that less is better."""
    return 1.0 if better == "less" else -1.0


def _verdict(pair: PairwiseResult) -> str:
    """Of the one with the better mean: the ranks must be sure, speak for it too, and the means be apart."""
    if pair.ties == pair.windows:
        return "same"
    return "better" if pair.p_holm < 1 - pair.level and pair.effect > 0 and pair.significant else "undecided"


def _notes(scores: PolicyScores, pairs: int, level: float) -> tuple[str, ...]:
    windows = scores.values.shape[1]
    tested = math.ceil(windows / scores.block)
    notes = []
    if scores.block > 1 and scores.unit == "batch":
        notes.append(
            f"one run, cut into {counted(windows, scores.unit)} of consecutive jobs: neighbours depend on one another, "
            f"so tests look at {tested}; compare on windows to be surer"
        )
    elif scores.block > 1:
        notes.append(
            f"windows overlap, a job is counted in {scores.overlap:.2g} of them on average: tests look at {tested} of "
            f"{windows}, and intervals, from blocks of {scores.block}, are still a little too narrow"
        )
    if tested == 1:
        notes.append(f"1 {scores.unit} is no comparison: there is no interval and no test; take at least 20")
    elif tested < FEW and scores.unit == "window":
        # The smallest p of a signed-rank test is 2 / 2^windows, and Holm multiplies it with the number of pairs.
        needed = 2 + math.floor(math.log2(max(pairs, 1) / (1 - level)))
        hope = "intervals are rough and only large differences can be told"
        if pairs and tested < needed:
            hope = f"not even winning all of them would be sure among {pairs} pair{'' if pairs == 1 else 's'}"
        notes.append(f"{counted(tested, scores.unit)} are few: {hope}; take at least {FEW}")
    return tuple(notes)
