"""Comparison of two policies on the same windows (ratio, difference, tests, a sentence), and Pareto dominance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kilowait.evaluation.metric_definitions import METRIC_DEFINITIONS


@dataclass(frozen=True)
class PairwiseResult:
    """Comparison of two policies (`ours` and `theirs`) on the same windows."""

    ours: str
    theirs: str
    ours_mean: float
    theirs_mean: float
    ratio: float
    """ours_mean / theirs_mean; NaN, with its interval, if theirs is 0 or less, also in a bootstrap sample."""
    low: float
    high: float
    difference: float
    """ours_mean - theirs_mean, in the metric's unit."""
    difference_low: float
    difference_high: float
    wins: int
    """Windows in which ours is better."""
    ties: int
    losses: int
    windows: int
    p: float
    """p-value of the signed-rank test."""
    p_holm: float
    """p-value after Holm correction for all pairs of the comparison."""
    effect: float
    """Rank-biserial correlation: 1 if ours is better in every window, -1 if it is worse in every window."""
    verdict: str
    """Significance result for ours: better, worse, same or undecided."""
    metric: str
    better: str
    level: float
    unit: str = "window"
    """What one value covers: a window or a batch."""

    @property
    def significant(self) -> bool:
        """Whether the interval of the ratio (if undefined, of the difference) excludes equality."""
        value, low, high, equal = self._estimate
        return (value > equal and low > equal) or (value < equal and high < equal)

    def swapped(self) -> PairwiseResult:
        """The same result with ours and theirs exchanged."""
        ratio = low = high = math.nan
        if self.ratio > 0 and not self.low <= 0:
            ratio, low, high = 1 / self.ratio, 1 / self.high, 1 / self.low
        return replace(
            self,
            ours=self.theirs,
            theirs=self.ours,
            ours_mean=self.theirs_mean,
            theirs_mean=self.ours_mean,
            ratio=ratio,
            low=low,
            high=high,
            difference=-self.difference,
            difference_low=-self.difference_high,
            difference_high=-self.difference_low,
            wins=self.losses,
            losses=self.wins,
            effect=-self.effect,
            verdict={"better": "worse", "worse": "better"}.get(self.verdict, self.verdict),
        )

    def sentence(self) -> str:
        """The result as a sentence."""
        ours, theirs = self.ours, self.theirs
        definition = METRIC_DEFINITIONS.get(self.metric)
        metric = self.metric if definition is None else definition.name_of_mean(self.windows)
        if self.verdict == "same":
            windows = f"the only {self.unit}" if self.windows == 1 else f"all {counted(self.windows, self.unit)}"
            return f"{ours} and {theirs} have the same {metric} in {windows}."
        value, low, high, _ = self._estimate
        interval = f"{100 * self.level:g} % interval"
        wins = f"wins {self.wins} of {counted(self.windows, self.unit)}" + (
            f" and ties {self.ties}" if self.ties else ""
        )
        if self.verdict == "undecided":
            bounds = "no interval" if math.isnan(low) else f"{interval} {self._change(low)} to {self._change(high)}"
            conflict = ""
            if self.significant:
                # Either the ranks are significant, but in favour of the policy with the worse mean, or they are not.
                favored = ours if self.effect > 0 else theirs
                conflict = (
                    f", but the signed-rank test favors {favored}"
                    if self.p_holm < 1 - self.level
                    else f", but p = {_number(self.p_holm)} after Holm correction"
                )
            return (
                f"The difference between {ours} and {theirs} in {metric} is not significant "
                f"({self._change(value)} on average, {bounds}; {ours} {wins}{conflict})."
            )
        if self.ratio > 2:
            ends = f"{_number(low)}–{_number(high)} times"
            return f"{ours} has {_number(value)} times the {metric} of {theirs} ({interval} {ends}; {wins})."
        smaller, larger = (low, high) if self._direction(value) == "higher" else (high, low)
        ends = f"{self._size(smaller)}–{self._size(larger)}{self._unit}"
        return f"{ours} has {self._change(value)} {metric} than {theirs} ({interval} {ends}; {wins})."

    @property
    def _estimate(self) -> tuple[float, float, float, float]:
        """Ratio (if undefined, difference), its interval, and its value if both policies were equal."""
        if math.isnan(self.ratio):
            return self.difference, self.difference_low, self.difference_high, 0.0
        return self.ratio, self.low, self.high, 1.0

    @property
    def _unit(self) -> str:
        return " %" if not math.isnan(self.ratio) else " s" if self.metric.endswith("_s") else ""

    def _size(self, value: float) -> str:
        return _number(abs(value)) if math.isnan(self.ratio) else _percent(100 * abs(value - 1))

    def _direction(self, value: float) -> str:
        return "lower" if value < self._estimate[3] else "higher"

    def _change(self, value: float) -> str:
        """A ratio or difference in words, with its direction."""
        if value == self._estimate[3]:
            return "equal"
        if not math.isnan(self.ratio) and value > 2:
            return f"{_number(value)} times as high"
        return f"{self._size(value)}{self._unit} {self._direction(value)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def _percent(value: float) -> str:
    """Percentage with few digits; never rounded to 0 or 100."""
    if value < 2:
        return "under 0.001" if 0 < value < 0.001 else f"{value:.2g}"
    return f"{math.floor(10 * value) / 10:g}" if 99 < value < 100 else f"{value:.0f}"


def counted(count: int, unit: str) -> str:
    """A count with its noun.

    >>> counted(1, "window"), counted(30, "batch")
    ('1 window', '30 batches')
    """
    return f"{count} {unit}{'' if count == 1 else 'es' if unit.endswith('ch') else 's'}"


def pareto_front(costs: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Boolean mask of the non-dominated points; all costs are minimised.

    `costs` has the shape (points, costs). A point is dominated if another one is at most as large in all costs and
    smaller in at least one.

    >>> pareto_front([[1, 3], [2, 2], [2, 4], [2, 2]]).tolist()
    [True, True, False, True]
    """
    points = np.asarray(costs, np.float64)
    no_worse = (points[:, None] <= points[None]).all(axis=-1)
    better = (points[:, None] < points[None]).any(axis=-1)
    return np.asarray(~(no_worse & better).any(axis=0))
