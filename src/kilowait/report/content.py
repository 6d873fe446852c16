"""What a report says: who was compared on what, who is better by how much, and what it costs.

Every number is the evaluation's; here they are only chosen, put side by side and put into words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.evaluation.breakdown import ClassRow, by_class, joined_classes
from kilowait.evaluation.judging import Contest, Judgement, Pair
from kilowait.evaluation.measures import started
from kilowait.jobs import SegmentLog
from kilowait.units import format_span

__all__ = [
    "SHOWN",
    "Class",
    "Findings",
    "Lead",
    "capital",
    "count",
    "doubts",
    "listed",
    "number",
    "pairs_against",
    "share",
    "short_name",
    "summary",
]

Floats = npt.NDArray[np.float64]
SHOWN = 6
"""Contenders that are drawn; more lines cannot be told apart. Tables have them all."""
BOUND_S = 10.0
_ENDINGS = re.compile(r"(\.(swf|csv|psv|txt|parquet|json|gz|bz2|xz|zst|zip))+$")


@dataclass(frozen=True)
class Class:
    """One class of jobs under each contender that is drawn."""

    label: str
    jobs: int
    hours: float
    """Node-hours; on placed nodes GPU-hours."""
    mean_wait_s: tuple[float, ...]
    mean_bsld: tuple[float, ...]


@dataclass(frozen=True)
class Lead:
    """What a page leads with, and contenders are ranked by."""

    metric: str
    words: str
    of_job: str
    """What it is the mean of."""
    timed: bool
    """Whether that is a span of time, in seconds."""

    @property
    def told(self) -> Callable[[float], str]:
        """A value for people."""
        return format_span if self.timed else number


SLOWDOWN = Lead("mean_bsld", "mean bounded slowdown", "bounded slowdown", False)
COMPLETION = Lead("mean_turnaround_s", "mean completion time (JCT)", "completion time", True)
"""On placed nodes a job runs faster or slower by where it lies, which its slowdown does not show."""


@dataclass(frozen=True, eq=False)
class Findings:
    """A contest, judged."""

    contest: Contest
    seed: int
    bounds: Mapping[str, float] = field(default_factory=dict)
    """By metric: what no schedule can go below, where that is known."""

    @property
    def trace(self) -> str:
        """Its name without folders and the endings of files."""
        return short_name(self.contest.trace)

    @property
    def placed(self) -> bool:
        """Whether jobs are placed on single nodes and GPUs."""
        return self.contest.machine is not None

    @property
    def lead(self) -> Lead:
        """What contenders are ranked by."""
        return COMPLETION if self.placed else SLOWDOWN

    @property
    def busy_words(self) -> str:
        """What `utilization` is the share of."""
        return "GPUs held" if self.placed else "nodes busy"

    @cached_property
    def judged(self) -> Judgement | None:
        """Rules and agents by what the page leads with; None where one of them started no job in some window."""
        return self._judged(self.lead.metric)

    @cached_property
    def wait(self) -> Judgement | None:
        """By mean wait."""
        return self._judged("mean_wait_s")

    def _judged(self, metric: str) -> Judgement | None:
        try:
            return self.contest.judge(metric, seed=self.seed)
        except InputError:  # a mean that does not exist
            return None

    @cached_property
    def ranked(self) -> tuple[int, ...]:
        """Contenders by what the page leads with, best first; those without it last."""
        means = self.contest.means(self.lead.metric).tolist()
        return tuple(sorted(range(len(means)), key=lambda who: (math.isnan(means[who]), means[who])))

    def of_kind(self, kind: str) -> tuple[int, ...]:
        """Contenders that are rules, agents or clairvoyant, best first."""
        return tuple(who for who in self.ranked if self.contest.contenders[who].kind == kind)

    @property
    def real(self) -> tuple[int, ...]:
        """Contenders one could use, best first: without those that know the run times."""
        return tuple(who for who in self.ranked if self.contest.contenders[who].kind != "clairvoyant")

    @property
    def reference(self) -> int:
        """Whom the others are held against: the best rule; where there is none, the best of all."""
        rules = self.of_kind("rule")
        return rules[0] if rules else self.ranked[0]

    @property
    def plain(self) -> int | None:
        """First come, first served with EASY, which most machines run; None where it was not run."""
        wanted = [("fcfs", "easy"), ("fcfs", "none")]
        rules = {
            (c.policy, c.backfill): who
            for who, c in enumerate(self.contest.contenders)
            if c.kind == "rule" and c.levers == "none"
        }
        return next((rules[pair] for pair in wanted if pair in rules), None)

    @cached_property
    def wanted(self) -> tuple[int, ...]:
        """Those one wants to see first: agents, the best rule, fcfs, who draws least, perfect estimates; then all."""
        first = [*self.of_kind("agent"), self.reference, *([] if self.plain is None else [self.plain])]
        if self.contest.energy is not None and self.real:  # what is saved, and against whom
            energy = self.contest.means("energy_kwh")
            first += [min(self.real), min(self.real, key=lambda who: (float(energy[who]), who))]
        twin = self.twin(self.reference)
        return tuple(dict.fromkeys([*first, *([] if twin is None else [twin]), *(self.real or self.ranked)]))

    def twin(self, who: int) -> int | None:
        """The same rule with perfect estimates, where it takes part."""
        found = self.contest.clairvoyant(self.contest.contenders[who])
        return None if found is None else self.contest.contenders.index(found)

    @cached_property
    def shown(self) -> tuple[int, ...]:
        """Contenders that are drawn, in the order in which they were given."""
        return tuple(sorted(self.wanted[:SHOWN]))

    @property
    def levered(self) -> bool:
        """Whether levers are pulled; names are long then, and figures make room for them."""
        return any(contender.levers != "none" for contender in self.contest.contenders)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What contenders are called in figures: by their levers where they differ in nothing else."""
        kinds = {replace(contender, levers="none") for contender in self.contest.contenders}
        if len(kinds) > 1 or len(self.contest.labels) == 1:
            return self.contest.labels
        return tuple("no lever" if c.levers == "none" else c.levers for c in self.contest.contenders)

    @cached_property
    def typical(self) -> int:
        """The window whose mean under the first contender is the median."""
        values = self.contest.values(self.lead.metric)[0]
        return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])

    def log(self, contender: int) -> SegmentLog:
        """What happened in the typical window."""
        return self.contest.logs(contender, self.typical)

    @cached_property
    def spread(self) -> tuple[tuple[Floats, Floats], ...]:
        """Of each contender that is drawn, and all counted jobs that started: waits (seconds), and bounded slowdowns or
        completion times (seconds), whichever the page leads with."""
        found = []
        for contender in self.shown:
            parts = [
                started(self.contest.logs(contender, number), BOUND_S, window.counted)
                for number, window in enumerate(self.contest.windows)
            ]
            found.append(
                (
                    np.concatenate([part.wait_s for part in parts]),
                    np.concatenate([part.turnaround_s if self.lead.timed else part.bsld for part in parts]),
                )
            )
        return tuple(found)

    def by_class(self, kind: str, *, most: int = 1000) -> list[Class]:
        """Classes of jobs over all windows, at most so many (see `kilowait.evaluation.by_class`)."""
        columns = [self._class_rows(contender, kind) for contender in self.shown]
        labels = list(dict.fromkeys(label for column in columns for label in column))
        if kind == "user":
            labels.sort(key=lambda label: -self._hours(columns[0][label]) if label in columns[0] else 0.0)
        first = {label: next(c[label] for c in columns if label in c) for label in labels}
        return [
            Class(
                label,
                first[label].jobs,
                self._hours(first[label]),
                tuple(c[label].mean_wait_s if label in c else math.nan for c in columns),
                tuple(c[label].mean_bsld if label in c else math.nan for c in columns),
            )
            for label in labels[:most]
        ]

    def _hours(self, row: ClassRow) -> float:
        return row.gpu_h if self.placed else row.node_h

    def _class_rows(self, contender: int, kind: str) -> dict[str, ClassRow]:
        windows = [
            by_class(self.contest.logs(contender, number), kind, counted=window.counted)
            for number, window in enumerate(self.contest.windows)
        ]
        return {row.label: row for row in joined_classes(windows, kind)}


# -- words -----------------------------------------------------------------------------------------


def number(value: float) -> str:
    """For people: three digits that count, thousands separated.

    >>> [number(v) for v in (1234.5, 43.21, 25.0, 0.98765, 0.0, float("nan"))]
    ['1,234', '43.2', '25.0', '0.988', '0', '–']
    """
    if not math.isfinite(value):
        return "–"
    if value == 0 or abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def count(value: float) -> str:
    """A number of things, or the mean of such numbers.

    >>> count(1240.0), count(2.5)
    ('1,240', '2.5')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def share(value: float) -> str:
    """A share in per cent.

    >>> share(0.8761), share(0.0004), share(float("nan"))
    ('87.6 %', '0.04 %', '–')
    """
    if not math.isfinite(value):
        return "–"
    return f"{100 * value:.1f} %" if value == 0 or value >= 0.001 else f"{100 * value:.2g} %"


def summary(found: Findings) -> list[str]:
    """The findings in sentences, most important first; what is not decided is said to be so."""
    contest = found.contest
    sentences = [_what(found)]
    if len(found.real) > 1 and found.judged is not None:
        sentences += _winner(found, found.judged)
        sentences += _agents(found, found.judged)
        sentences += _price(found)
    elif len(contest.contenders) == 1:
        sentences.append(_alone(found))
    return sentences


def doubts(found: Findings) -> list[str]:
    """What a reader should know before believing it."""
    said = [_sentence(note) for note in found.contest.notes]
    if len(found.real) < 2:
        return said
    if found.judged is None:
        return [*said, "In some window a contender started no job, so means cannot be compared."]
    if not found.contest.batched:
        return said + [_sentence(note) for note in found.judged.notes]
    return [
        *said,
        f"There is one run of each contender. {found.judged.windows} batches of its consecutive jobs stand in for "
        "windows of their own; a backlog that outlasts a few batches makes the intervals too narrow. Windows drawn "
        "from the log, with a warm-up each, would tell more surely.",
    ]


def _what(found: Findings) -> str:
    contest, windows = found.contest, found.contest.windows
    jobs = len(windows.jobs)
    several, knowing = len(found.real), len(found.of_kind("clairvoyant"))
    who = f"{several} ways to schedule were compared" if several > 1 else "One schedule was made"
    who += f", and {knowing} of them with perfect estimates too," if knowing else ""
    machine = f"{contest.nodes:,} node{'' if contest.nodes == 1 else 's'}"
    if contest.machine is not None:
        machine += f" with {sum(group.nodes * group.gpus for group in contest.machine.groups):,} GPUs"
    cut = "" if contest.batched else f" ({windows.words})"
    return f"{who} on {found.trace}: {jobs:,} jobs on {machine}{cut}."


def _alone(found: Findings) -> str:
    """The only run."""
    names = ("mean_bsld", "mean_wait_s", "mean_turnaround_s", "utilization")
    means = {name: float(found.contest.means(name)[0]) for name in names}
    wait, busy = format_span(means["mean_wait_s"]), share(means["utilization"])
    if found.placed:
        return (
            f"Under {found.contest.labels[0]} jobs take {format_span(means['mean_turnaround_s'])} on average from "
            f"submission to their end (JCT), {wait} of it waiting, and {busy} of the GPUs are held while jobs arrive."
        )
    return (
        f"Under {found.contest.labels[0]} jobs wait {wait} on average, their mean bounded slowdown is "
        f"{number(means['mean_bsld'])}, and {busy} of the nodes are busy."
    )


def _winner(found: Findings, judged: Judgement) -> list[str]:
    """Best against the next, and against first come, first served."""
    labels = found.contest.labels
    best, second = labels[found.real[0]], labels[found.real[1]]
    mean = next(m for m in judged.means if m.contender == best)
    told = found.lead.told
    sure = f" (95 % interval {told(mean.low)} to {told(mean.high)})" if math.isfinite(mean.low) else ""
    said = [f"The lowest {found.lead.words} is that of {best}: {told(mean.mean)}{sure}."]
    against = [second]
    if found.plain is not None and labels[found.plain] not in (best, second):
        against.append(labels[found.plain])
    pairs = [judged.pair(best, other) for other in against]
    return said + [pair.sentence(found.lead.words) for pair in pairs]


def _agents(found: Findings, judged: Judgement) -> list[str]:
    """Whether each agent beats the best rule, and how much of what could be gained it gained."""
    labels, rules = found.contest.labels, found.of_kind("rule")
    if not rules:
        return []
    rule, said = labels[rules[0]], []
    gap = found.contest.gap_closed(found.lead.metric)
    for who in found.of_kind("agent"):
        agent = labels[who]
        pair = judged.pair(agent, rule)
        called = "agent" if agent == "agent" else f"agent {agent}"
        words = {
            "better": f"The {called} beats the best rule, {rule}.",
            "worse": f"The {called} does not beat the best rule, {rule}, which is better: use {rule}.",
            "same": f"The {called} does what the best rule, {rule}, does.",
            "undecided": f"Whether the {called} beats the best rule, {rule}, is undecided.",
        }[pair.verdict]
        said.append(words)
        if {agent, rule} != {labels[other] for other in found.real[:2]}:  # else the sentence is there already
            said.append(pair.sentence(found.lead.words))
        closed = gap.get(agent, math.nan)
        if math.isfinite(closed):
            gained = f"{100 * closed:.0f} %" if closed > 0 else "nothing"
            said.append(
                f"Of what {rule} would gain from knowing all run times in advance, {agent} gains {gained}."
            )
    return said


def _price(found: Findings) -> list[str]:
    """What the better mean costs others, held against first come, first served."""
    contest = found.contest
    first, other = found.real[0], found.plain
    if other is None or other == first:
        return []
    best, plain = contest.labels[first], contest.labels[other]
    costs, gains = [], []
    for metric, words, told in (
        ("mean_wait_s", "mean wait", format_span),
        ("max_wait_s", "longest wait", format_span),
        ("share_wait_over_bound", "share of jobs that wait over a day", share),
        ("starved_jobs", "number of starved jobs", count),
    ):
        values = contest.values(metric)
        merged = values.max(axis=1) if metric.startswith("max") else values.mean(axis=1)
        ours, theirs = float(merged[first]), float(merged[other])
        if not (math.isfinite(ours) and math.isfinite(theirs)):
            continue
        if ours > theirs * 1.001 and told(ours) != told(theirs):
            costs.append(f"the {words} rises from {told(theirs)} to {told(ours)}")
        elif metric == "mean_wait_s" and ours < theirs * 0.999:
            gains.append(f"the {words} falls from {told(theirs)} to {told(ours)}")
    said = []
    if gains:
        said.append(f"Under {best} instead of {plain} {listed(gains)}.")
    if costs:
        said.append(f"It has a price: under {best} instead of {plain} {listed(costs)}.")
    elif gains:
        said.append("Neither the longest wait nor the number of jobs left waiting grows.")
    return said


def listed(parts: Sequence[str]) -> str:
    """With commas, and an *and* before the last.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _sentence(note: str) -> str:
    return f"{capital(note)}{'' if note.endswith('.') else '.'}"


def short_name(trace: str) -> str:
    """A trace without folders and the endings of files.

    >>> short_name("logs/KTH-SP2-1996-2.1-cln.swf.gz")
    'KTH-SP2-1996-2.1-cln'
    """
    return _ENDINGS.sub("", PurePath(trace).name) or trace


def capital(text: str) -> str:
    """As a sentence begins."""
    return text[:1].upper() + text[1:]


def pairs_against(found: Findings, reference: str) -> Mapping[str, Pair]:
    """Every other contender against one, by label."""
    judged = found.judged
    if judged is None:
        return {}
    return {
        mean.contender: judged.pair(mean.contender, reference)
        for mean in judged.means
        if mean.contender != reference
    }
