"""Data of an agent's folder for the report: training, evaluation, and explained decisions as sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from kilowait.evaluation.comparison import METRIC_NAMES, PairwiseResult
from kilowait.evaluation.storage.folder import null_to_nan
from kilowait.report.format import number
from kilowait.units import format_duration

__all__ = ["AgentEvaluation", "TrainingData", "STATE", "decision_sentences", "signed"]

STATE = "the machine, the queue and the time"
SMALL_MARGIN = 0.001
MAX_FEATURES = 3
"""The maximum number of features named in a sentence."""


@dataclass(frozen=True)
class TrainingData:
    """The training, evaluation and explanations of an agent."""

    name: str
    objective: str
    history: Sequence[Mapping[str, Any]] = ()
    """CMA-ES, for each generation: number, training, validation (None: not validated), relative to a policy. Networks,
    for each update: number, steps, mean_return, metric, losses, entropy, validation."""
    weights: Sequence[Sequence[Any]] = ()
    """CMA-ES: feature, weight, meaning."""
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """Agent and other policies on later jobs, in the format of `kilowait compare`."""
    explained: Mapping[str, Any] = field(default_factory=dict)
    """Feature attribution and explained decisions."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    fallback_policy: str | None = None
    """The policy that the agent is identical to, where CMA-ES found nothing better."""
    pareto_front: Mapping[str, Any] = field(default_factory=dict)
    """Preference-conditioned agents: the results under each preference."""

    @property
    def has_updates(self) -> bool:
        """Whether the history contains the updates of a network."""
        return any("steps" in row for row in self.history)


class AgentEvaluation:
    """The evaluation of an agent against other policies."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        """`results` is the evaluation in results.json."""
        self.results = results
        self.metric = str(results["metric"])
        self.rows = sorted((row for row in results["rows"] if row["kind"] != "clairvoyant"), key=self.value)
        names = [column.name for column in fields(PairwiseResult)]
        self._pairs: list[PairwiseResult] = []
        for pair in results["judgement"]["pairs"]:
            values: dict[str, Any] = null_to_nan({name: pair[name] for name in names})
            self._pairs.append(PairwiseResult(**values))

    def value(self, row: Mapping[str, Any], metric: str | None = None) -> float:
        """A metric of a policy; NaN where it is undefined."""
        return null_to_nan(row["metrics"]).get(metric or self.metric, math.nan)

    def interval(self, row: Mapping[str, Any], metric: str | None = None) -> tuple[float, float]:
        """The confidence interval of the mean of a metric."""
        interval = null_to_nan(row["intervals"].get(metric or self.metric, {}))
        return interval.get("low", math.nan), interval.get("high", math.nan)

    @property
    def metric_label(self) -> str:
        """The name of the evaluation metric for display."""
        name = METRIC_NAMES.get(self.metric, self.metric)
        return name if name.startswith(("mean", "median")) else f"mean {name}"

    @property
    def agent(self) -> str | None:
        """The label of the agent; None without one."""
        return next((str(row["label"]) for row in self.rows if row["kind"] == "agent"), None)

    @property
    def best_policy(self) -> str | None:
        """The label of the best priority policy; None without one."""
        return next((str(row["label"]) for row in self.rows if row["kind"] == "rule"), None)

    def pair(self, ours: str, theirs: str) -> PairwiseResult | None:
        """The pairwise result of two policies, from the view of the first."""
        for pair in self._pairs:
            if (pair.ours, pair.theirs) == (ours, theirs):
                return pair
            if (pair.theirs, pair.ours) == (ours, theirs):
                return pair.swapped()
        return None

    def sentences(self) -> list[str]:
        """Sentences on the difference between the agent and the best priority policy."""
        agent, best_policy = self.agent, self.best_policy
        pair = None if agent is None or best_policy is None else self.pair(agent, best_policy)
        if pair is None:
            return [str(sentence) for sentence in self.results.get("sentences", ())[:1]]
        sentence = {
            "better": f"The agent is significantly better than the best priority policy, {best_policy}.",
            "worse": (
                f"The agent is significantly worse than the best priority policy, {best_policy}: use {best_policy}."
            ),
            "same": f"The agent behaves like the best priority policy, {best_policy}.",
            "undecided": (
                f"The difference between the agent and the best priority policy, {best_policy}, is not significant."
            ),
        }[pair.verdict]
        gap = null_to_nan(self.results.get("gap_closed") or {}).get(str(agent), math.nan)
        gained = f"{100 * gap:.0f} %" if gap > 0 else "nothing"
        closed = [
            f"The agent achieves {gained} of the gain that {best_policy} would have from perfect run-time estimates."
        ]
        return [sentence, pair.sentence(), *(closed if math.isfinite(gap) else [])]


def signed(value: float) -> str:
    """A number with its sign.

    >>> signed(0.25), signed(-3.0), signed(0.0)
    ('+0.250', '−3.00', '0')
    """
    return "0" if value == 0 else f"{'−' if value < 0 else '+'}{number(abs(value))}"


def job_description(facts: Mapping[str, Any]) -> str:
    """The description of a job.

    >>> job_description({"nodes": 4.0, "estimate_s": 7200.0, "wait_s": 60.0})
    'of 4 nodes, estimated at 2 h 0 min, that had waited 1 min'
    """
    parts = []
    for name, word in (("nodes", "node"), ("gpus", "GPU")):
        if facts.get(name) is not None:
            parts.append(f"of {facts[name]:,g} {word}{'' if facts[name] == 1 else 's'}")
    if facts.get("estimate_s") is not None:
        parts.append(f"estimated at {format_duration(float(facts['estimate_s']))}")
    if facts.get("wait_s") is not None:
        waited = float(facts["wait_s"])
        parts.append("that had just been submitted" if waited < 1 else f"that had waited {format_duration(waited)}")
    return ", ".join(parts) or "without known features"


def decision_sentences(case: Mapping[str, Any], score: str) -> list[str]:
    """The explanation of one decision in sentences."""
    other = case["other"]
    condition = ", in an average state," if any(part["of"] == "whole" for part in case["parts"]) else ","
    second_best = f"one {job_description(other)}" if other else "starting no job"
    sentences = [
        f"Of {int(case['choices']):,} eligible jobs the agent chose one {job_description(case['chosen'])}; the "
        "second best "
        f"was {second_best}.",
        f"The margin of the chosen job is {_margin_text(float(case['margin']))} ({score}). For the mean of the "
        "other jobs"
        f"{condition} the margin would have been {signed(float(case['usual']))}.",
    ]
    parts = sorted(case["parts"], key=lambda part: -abs(float(part["moved"])))
    in_favour = [part for part in parts if float(part["moved"]) > 0][:MAX_FEATURES]
    against = [part for part in parts if float(part["moved"]) < 0][:MAX_FEATURES]
    for words, named in (("for", in_favour), ("against", against)):
        if named:
            features = ", ".join(f"{part['name']} ({signed(float(part['moved']))})" for part in named)
            sentences.append(f"Main features {words} it: {features}.")
    return sentences


def _margin_text(margin: float) -> str:
    return number(margin) if margin >= SMALL_MARGIN else f"less than {SMALL_MARGIN}"
