"""Two contenders on the same windows, in numbers and in a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["WORDS", "PairwiseResult", "counted"]

WORDS: dict[str, str] = {
    "mean_wait_s": "mean wait",
    "median_wait_s": "median wait",
    "p95_wait_s": "95th percentile of waits",
    "p99_wait_s": "99th percentile of waits",
    "max_wait_s": "longest wait",
    "mean_turnaround_s": "mean turnaround",
    "p95_turnaround_s": "95th percentile of turnarounds",
    "max_turnaround_s": "longest turnaround",
    "mean_slowdown": "mean slowdown",
    "p95_slowdown": "95th percentile of slowdowns",
    "max_slowdown": "largest slowdown",
    "mean_bsld": "bounded slowdown",
    "median_bsld": "median bounded slowdown",
    "p95_bsld": "95th percentile of bounded slowdowns",
    "p99_bsld": "99th percentile of bounded slowdowns",
    "max_bsld": "largest bounded slowdown",
    "makespan_s": "makespan",
    "energy_kwh": "energy",
    "facility_kwh": "energy of the facility",
    "co2_kg": "CO2",
    "cost": "cost of power",
    "peak_kw": "peak power",
    "utilization": "utilization",
    "throughput_per_h": "throughput",
    "mean_backlog_jobs": "number of waiting jobs",
    "mean_backlog_nodes": "number of nodes waited for",
}
"""A metric for people. One that is not here is called by its own name."""


@dataclass(frozen=True)
class PairwiseResult:
    """Two contenders on the same windows."""

    ours: str
    theirs: str
    ours_mean: float
    theirs_mean: float
    ratio: float
    """ours_mean / theirs_mean; NaN, with its interval, where theirs is or could be 0 or less."""
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
    """Of the signed-rank test."""
    p_holm: float
    """Corrected for all the pairs of the judgement."""
    effect: float
    """Rank-biserial correlation, 1 where ours is better in every window, -1 where it is worse."""
    verdict: str
    """better, worse, same or undecided, of ours."""
    metric: str
    better: str
    level: float
    unit: str = "window"
    """What a value is of."""

    @property
    def significant(self) -> bool:
        """Whether the interval of the ratio (where there is none, of the difference) rules out that both are alike."""
        found, low, high, alike = self._told
        return (found > alike and low > alike) or (found < alike and high < alike)

    def swapped(self) -> PairwiseResult:
        """The same, seen by the other."""
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

    def sentence(self, called: str | None = None) -> str:
        """In plain words; `called` is what to call the metric, where not by its usual name."""
        ours, theirs = self.ours, self.theirs
        words = WORDS.get(self.metric, self.metric) if called is None else called
        if self.verdict == "same":
            where = (
                f"the only {self.unit}" if self.windows == 1 else f"all {counted(self.windows, self.unit)}"
            )
            return f"{ours} and {theirs} give the same {words} on {where}."
        found, low, high, _ = self._told
        interval = f"{100 * self.level:g} % interval"
        won = f"wins {self.wins} of {counted(self.windows, self.unit)}" + (
            f" and ties {self.ties}" if self.ties else ""
        )
        if self.verdict == "undecided":
            sure = "no interval" if math.isnan(low) else f"{interval} {self._step(low)} to {self._step(high)}"
            doubt = ""
            if self.significant:
                sided = self.p_holm < 1 - self.level  # sure ranks, but for the one with the worse mean
                doubt = (
                    ", which the ranks deny"
                    if sided
                    else f", but p is {_number(self.p_holm)} after correction"
                )
            return (
                f"{ours} and {theirs} are not told apart in {words}: {self._step(found)} on average, {sure}, "
                f"{ours} {won}{doubt}."
            )
        if self.ratio > 2:
            ends = f"{_number(low)}–{_number(high)} times"
            return f"{ours} has {_number(found)} times the {words} of {theirs}, {interval} {ends}, {won}."
        near, far = (low, high) if self._way(found) == "higher" else (high, low)
        ends = f"{self._size(near)}–{self._size(far)}{self._unit}"
        return f"{ours} has {self._step(found)} {words} than {theirs}, {interval} {ends}, {won}."

    @property
    def _told(self) -> tuple[float, float, float, float]:
        """What is spoken of, its interval, and what it would be if both were alike."""
        if math.isnan(self.ratio):
            return self.difference, self.difference_low, self.difference_high, 0.0
        return self.ratio, self.low, self.high, 1.0

    @property
    def _unit(self) -> str:
        return " %" if not math.isnan(self.ratio) else " s" if self.metric.endswith("_s") else ""

    def _size(self, value: float) -> str:
        return _number(abs(value)) if math.isnan(self.ratio) else _percent(100 * abs(value - 1))

    def _way(self, value: float) -> str:
        return "lower" if value < self._told[3] else "higher"

    def _step(self, value: float) -> str:
        """A ratio or difference with its direction."""
        if value == self._told[3]:
            return "equal"
        if not math.isnan(self.ratio) and value > 2:
            return f"{_number(value)} times as high"
        return f"{self._size(value)}{self._unit} {self._way(value)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def _percent(value: float) -> str:
    """Short, but never 0 or 100 unless it is."""
    if value < 2:
        return "under 0.001" if 0 < value < 0.001 else f"{value:.2g}"
    return f"{math.floor(10 * value) / 10:g}" if 99 < value < 100 else f"{value:.0f}"


def counted(count: int, unit: str) -> str:
    """A count with its noun.

    >>> counted(1, "window"), counted(30, "batch")
    ('1 window', '30 batches')
    """
    return f"{count} {unit}{'' if count == 1 else 'es' if unit.endswith('ch') else 's'}"
