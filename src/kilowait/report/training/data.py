"""What the folder of an agent tells, read back: its training, the verdicts on it, what it looks at, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from kilowait.evaluation.comparison import WORDS, PairwiseResult
from kilowait.evaluation.storage.folder import known
from kilowait.report.format import number
from kilowait.units import format_span

__all__ = ["AgentEvaluation", "TrainingData", "WHOLE", "case_words", "job_words", "signed"]

WHOLE = "the machine, the queue and the time"
SLIGHT = 0.001
FEW = 3
"""Numbers that are named in a sentence."""


@dataclass(frozen=True)
class TrainingData:
    """How an agent was trained."""

    name: str
    objective: str
    history: Sequence[Mapping[str, Any]] = ()
    """Of a search, each generation: number, training, validation (None: not validated), relative to a rule. Of a
    network, each update: number, steps, mean_return, metric, losses, entropy, validation."""
    weights: Sequence[Sequence[Any]] = ()
    """Of a search: feature, weight, meaning."""
    judged: Mapping[str, Any] = field(default_factory=dict)
    """Agent and rules on later jobs, as `kilowait compare` tells it."""
    explained: Mapping[str, Any] = field(default_factory=dict)
    """What it looks at."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    plain: str | None = None
    """The rule that the agent is, where a search found nothing better."""
    front: Mapping[str, Any] = field(default_factory=dict)
    """Of an agent that weighs terms as it is told: what it reaches under each preference."""

    @property
    def updates(self) -> bool:
        """Whether a network was trained, update by update."""
        return any("steps" in row for row in self.history)


class AgentEvaluation:
    """The verdicts on an agent."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        """`told` as it stands in results.json."""
        self.told = told
        self.metric = str(told["metric"])
        self.rows = sorted((row for row in told["rows"] if row["kind"] != "clairvoyant"), key=self.value)
        wanted = [one.name for one in fields(PairwiseResult)]
        self._pairs: list[PairwiseResult] = []
        for pair in told["judgement"]["pairs"]:
            values: dict[str, Any] = known({name: pair[name] for name in wanted})
            self._pairs.append(PairwiseResult(**values))

    def value(self, row: Mapping[str, Any], metric: str | None = None) -> float:
        """A metric of a contender; NaN where it has none."""
        return known(row["metrics"]).get(metric or self.metric, math.nan)

    def reach(self, row: Mapping[str, Any], metric: str | None = None) -> tuple[float, float]:
        """The interval of its mean."""
        told = known(row["intervals"].get(metric or self.metric, {}))
        return told.get("low", math.nan), told.get("high", math.nan)

    @property
    def words(self) -> str:
        """The metric they are judged by."""
        words = WORDS.get(self.metric, self.metric)
        return words if words.startswith(("mean", "median")) else f"mean {words}"

    @property
    def agent(self) -> str | None:
        """The label of the agent."""
        return next((str(row["label"]) for row in self.rows if row["kind"] == "agent"), None)

    @property
    def rule(self) -> str | None:
        """The best rule."""
        return next((str(row["label"]) for row in self.rows if row["kind"] == "rule"), None)

    def pair(self, ours: str, theirs: str) -> PairwiseResult | None:
        """Two contenders, seen by the first."""
        for pair in self._pairs:
            if (pair.ours, pair.theirs) == (ours, theirs):
                return pair
            if (pair.theirs, pair.ours) == (ours, theirs):
                return pair.swapped()
        return None

    def sentences(self) -> list[str]:
        """Whether the agent beats the best rule, and by how much."""
        agent, rule = self.agent, self.rule
        pair = None if agent is None or rule is None else self.pair(agent, rule)
        if pair is None:
            return [str(sentence) for sentence in self.told.get("sentences", ())[:1]]
        verdict = {
            "better": f"The agent beats the best rule, {rule}.",
            "worse": f"The agent does not beat the best rule, {rule}, which is better: use {rule}.",
            "same": f"The agent does what the best rule, {rule}, does.",
            "undecided": f"Whether the agent beats the best rule, {rule}, is undecided.",
        }[pair.verdict]
        gap = known(self.told.get("gap_closed") or {}).get(str(agent), math.nan)
        gained = f"{100 * gap:.0f} %" if gap > 0 else "nothing"
        closed = [f"Of what {rule} would gain from knowing all run times in advance, it gains {gained}."]
        return [verdict, pair.sentence(), *(closed if math.isfinite(gap) else [])]


def signed(value: float) -> str:
    """With its sign.

    >>> signed(0.25), signed(-3.0), signed(0.0)
    ('+0.250', '−3.00', '0')
    """
    return "0" if value == 0 else f"{'−' if value < 0 else '+'}{number(abs(value))}"


def job_words(facts: Mapping[str, Any]) -> str:
    """A job in words.

    >>> job_words({"nodes": 4.0, "estimate_s": 7200.0, "wait_s": 60.0})
    'of 4 nodes, estimated at 2 h 0 min, that had waited 1 min'
    """
    said = []
    for name, word in (("nodes", "node"), ("gpus", "GPU")):
        if facts.get(name) is not None:
            said.append(f"of {facts[name]:,g} {word}{'' if facts[name] == 1 else 's'}")
    if facts.get("estimate_s") is not None:
        said.append(f"estimated at {format_span(float(facts['estimate_s']))}")
    if facts.get("wait_s") is not None:
        waited = float(facts["wait_s"])
        said.append("that had just come" if waited < 1 else f"that had waited {format_span(waited)}")
    return ", ".join(said) or "about which nothing is told"


def case_words(case: Mapping[str, Any], score: str) -> list[str]:
    """One choice in sentences."""
    other = case["other"]
    moment = ", at a usual moment," if any(part["of"] == "whole" for part in case["parts"]) else ","
    ahead = f"one {job_words(other)}" if other else "choosing nobody"
    said = [
        f"Of {int(case['choices']):,} jobs that could go next it chose one {job_words(case['chosen'])}; the next best "
        f"was {ahead}.",
        f"The chosen job is {_lead(float(case['margin']))} ahead ({score}). Had it been like the mean of the others"
        f"{moment} that would have been {signed(float(case['usual']))}.",
    ]
    parts = sorted(case["parts"], key=lambda part: -abs(float(part["moved"])))
    spoke = [part for part in parts if float(part["moved"]) > 0][:FEW]
    against = [part for part in parts if float(part["moved"]) < 0][:FEW]
    for words, named in (("for", spoke), ("against", against)):
        if named:
            told = ", ".join(f"{part['name']} ({signed(float(part['moved']))})" for part in named)
            said.append(f"What spoke {words} it most: {told}.")
    return said


def _lead(margin: float) -> str:
    return number(margin) if margin >= SLIGHT else f"less than {SLIGHT}"
