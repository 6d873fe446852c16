"""What a report is made of, as plain data, and what it says in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kilowait.errors import InputError
from kilowait.jobs import SegmentLog
from kilowait.units import format_span

__all__ = ["Curve", "Duel", "Report", "Result", "number", "summary"]


@dataclass(frozen=True)
class Result:
    """One policy's run over all jobs of the comparison."""

    policy: str
    backfill: str
    metrics: Mapping[str, float]
    """As `kilowait.metrics` gives them."""
    learned: bool = False

    @property
    def label(self) -> str:
        """The policy, and its backfilling where it is not EASY."""
        backfill = "no" if self.backfill == "none" else self.backfill
        return self.policy if backfill == "easy" else f"{self.policy}, {backfill} backfill"


@dataclass(frozen=True)
class Duel:
    """The agent against a rule on the same windows of unseen jobs: mean bounded slowdowns, 95 % intervals."""

    rule: str
    windows: int
    rule_mean: float
    rule_interval: tuple[float, float]
    agent_mean: float
    agent_interval: tuple[float, float]
    ratio: float
    ratio_low: float
    ratio_high: float

    @property
    def outcome(self) -> str:
        """better, worse or undecided: where the interval of the ratio lies to 1."""
        if self.ratio_high < 1:
            return "better"
        return "worse" if self.ratio_low > 1 else "undecided"


@dataclass(frozen=True)
class Curve:
    """How training went, generation by generation, relative to the start (1)."""

    generation: Sequence[int]
    training: Sequence[float]
    validation: Sequence[float]
    """NaN in generations that were not validated."""


@dataclass(frozen=True)
class Report:
    """Everything a page shows. Parts that are empty are left out of it."""

    title: str
    results: Sequence[Result]
    jobs: str = "the jobs"
    """Which jobs the results are of, in words."""
    duels: Sequence[Duel] = ()
    curve: Curve | None = None
    logs: Mapping[str, SegmentLog] = field(default_factory=dict)
    """Runs to be drawn over time, by the policy's label; a handful at most."""
    facts: Sequence[tuple[str, str]] = ()
    """What was run: names and values."""
    weights: Sequence[tuple[str, float, str]] = ()
    """Of the agent: feature, weight, meaning."""

    def __post_init__(self) -> None:
        if not self.results:
            raise InputError("a report without results; give at least one policy's metrics")
        for result in self.results:
            if "mean_bsld" not in result.metrics or "mean_wait_s" not in result.metrics:
                raise InputError(
                    f"the results of {result.policy!r} lack mean_bsld or mean_wait_s; pass what kilowait.metrics gives"
                )

    def ranked(self) -> list[Result]:
        """By mean bounded slowdown, best first; those without one last."""
        means = [float(result.metrics["mean_bsld"]) for result in self.results]
        order = sorted(range(len(means)), key=lambda place: (math.isnan(means[place]), means[place]))
        return [self.results[place] for place in order]


def number(value: float) -> str:
    """For people: three digits that count, thousands separated.

    >>> [number(v) for v in (1234.5, 43.21, 0.98765, float("nan"))]
    ['1,234', '43.2', '0.988', '-']
    """
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def summary(report: Report) -> list[str]:
    """The findings in sentences: the best rule and by how much; whether the agent wins on unseen jobs."""
    rules = [result for result in report.ranked() if not result.learned]
    sentences = []
    if rules:
        best = rules[0]
        bsld = best.metrics["mean_bsld"]
        sentences.append(
            f"Of {_count(len(rules), 'rule')}, {best.label} has the lowest mean bounded slowdown on {report.jobs}: "
            f"{number(bsld)}."
            if len(rules) > 1
            else f"{best.label} has a mean bounded slowdown of {number(bsld)} on {report.jobs}."
        )
        plain = next((result for result in rules if result.label == "fcfs"), None)
        if plain is not None and plain is not best:
            sentences.append(
                f"First come, first served with the same backfilling has {number(plain.metrics['mean_bsld'])}, "
                f"{number(plain.metrics['mean_bsld'] / bsld)} times as much."
            )
            sentences += _price(best, plain)
    if report.duels:
        sentences += _duels(report.duels)
    return sentences


def _price(best: Result, plain: Result) -> list[str]:
    """What the lower slowdown costs, where it costs something."""
    costs = []
    for key, words in (("mean_wait_s", "mean wait"), ("max_wait_s", "longest wait")):
        theirs, ours = plain.metrics.get(key, math.nan), best.metrics.get(key, math.nan)
        if ours > theirs:
            costs.append(f"the {words} is {format_span(ours)} instead of {format_span(theirs)}")
    if not costs:
        return []
    return [
        f"The price is paid by large jobs, which others overtake: under {best.label} {' and '.join(costs)}."
    ]


def _duels(duels: Sequence[Duel]) -> list[str]:
    rival = min(duels, key=lambda duel: duel.rule_mean)
    interval = (
        f"{number(rival.ratio)} (95 % interval {number(rival.ratio_low)} to {number(rival.ratio_high)})"
    )
    where = f"on {rival.windows} windows of jobs submitted after all it was trained on"
    told = {
        "better": f"The agent beats the best rule, {rival.rule}, {where}: its mean bounded slowdown is {interval} "
        f"of that of {rival.rule}.",
        "worse": f"The agent does not beat the best rule, {rival.rule}, {where}: its mean bounded slowdown is "
        f"{interval} of that of {rival.rule}. Use {rival.rule}.",
        "undecided": f"Against the best rule, {rival.rule}, the agent is not shown to be better or worse {where}: its "
        f"mean bounded slowdown is {interval} of that of {rival.rule}, and the interval holds 1.",
    }[rival.outcome]
    others = [duel for duel in duels if duel is not rival]
    if not others:
        return [told]
    parts = []
    for outcome, words in (
        ("better", "better than"),
        ("undecided", "not told apart from"),
        ("worse", "worse than"),
    ):
        names = [duel.rule for duel in others if duel.outcome == outcome]
        if names:
            parts.append(f"{words} {', '.join(names)}")
    return [told, f"Against the other rules it is {'; '.join(parts)}."]


def _count(number_of: int, noun: str) -> str:
    return f"{number_of} {noun}{'' if number_of == 1 else 's'}"
