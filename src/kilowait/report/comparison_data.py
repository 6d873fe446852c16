"""What a report says: who was compared on what, who is better by how much, and what it costs.

Every number is the evaluation's; here they are only chosen and put side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.evaluation.breakdown import ClassRow, by_class, joined_classes
from kilowait.evaluation.comparison import Comparison, ComparisonResult, PairwiseResult
from kilowait.evaluation.job_measures import started
from kilowait.jobs import ExecutionLog
from kilowait.report.format import number, short_name
from kilowait.units import format_span

__all__ = ["SHOWN", "JobClass", "ComparisonData", "LeadMetric", "pairs_against"]

Floats = npt.NDArray[np.float64]
SHOWN = 6
"""Contenders that are drawn; more lines cannot be told apart. Tables have them all."""
BOUND_S = 10.0


@dataclass(frozen=True)
class JobClass:
    """One class of jobs under each contender that is drawn."""

    label: str
    jobs: int
    hours: float
    """Node-hours; on placed nodes GPU-hours."""
    mean_wait_s: tuple[float, ...]
    mean_bsld: tuple[float, ...]


@dataclass(frozen=True)
class LeadMetric:
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


SLOWDOWN = LeadMetric("mean_bsld", "mean bounded slowdown", "bounded slowdown", False)
COMPLETION = LeadMetric("mean_turnaround_s", "mean completion time (JCT)", "completion time", True)
"""On placed nodes a job runs faster or slower by where it lies, which its slowdown does not show."""


@dataclass(frozen=True, eq=False)
class ComparisonData:
    """A contest, judged."""

    contest: Comparison
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
    def lead(self) -> LeadMetric:
        """What contenders are ranked by."""
        return COMPLETION if self.placed else SLOWDOWN

    @property
    def busy_words(self) -> str:
        """What `utilization` is the share of."""
        return "GPUs held" if self.placed else "nodes busy"

    @cached_property
    def judged(self) -> ComparisonResult | None:
        """Rules and agents by what the page leads with; None where one of them started no job in some window."""
        return self._judged(self.lead.metric)

    @cached_property
    def wait(self) -> ComparisonResult | None:
        """By mean wait."""
        return self._judged("mean_wait_s")

    def _judged(self, metric: str) -> ComparisonResult | None:
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

    def log(self, contender: int) -> ExecutionLog:
        """What happened in the typical window."""
        return self.contest.logs(contender, self.typical)

    @cached_property
    def spread(self) -> tuple[tuple[Floats, Floats], ...]:
        """Of each contender that is drawn, and all counted jobs that started: waits (seconds), and bounded slowdowns or
        completion times (seconds), whichever the page leads with."""
        found = []
        for contender in self.shown:
            parts = [
                started(self.contest.logs(contender, number), BOUND_S, window.evaluated)
                for number, window in enumerate(self.contest.windows)
            ]
            found.append(
                (
                    np.concatenate([part.wait_s for part in parts]),
                    np.concatenate([part.turnaround_s if self.lead.timed else part.bsld for part in parts]),
                )
            )
        return tuple(found)

    def by_class(self, kind: str, *, most: int = 1000) -> list[JobClass]:
        """Classes of jobs over all windows, at most so many (see `kilowait.evaluation.by_class`)."""
        columns = [self._class_rows(contender, kind) for contender in self.shown]
        labels = list(dict.fromkeys(label for column in columns for label in column))
        if kind == "user":
            labels.sort(key=lambda label: -self._hours(columns[0][label]) if label in columns[0] else 0.0)
        first = {label: next(c[label] for c in columns if label in c) for label in labels}
        return [
            JobClass(
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
            by_class(self.contest.logs(contender, number), kind, counted=window.evaluated)
            for number, window in enumerate(self.contest.windows)
        ]
        return {row.label: row for row in joined_classes(windows, kind)}


def pairs_against(found: ComparisonData, reference: str) -> Mapping[str, PairwiseResult]:
    """Every other contender against one, by label."""
    judged = found.judged
    if judged is None:
        return {}
    return {
        mean.contender: judged.pair(mean.contender, reference)
        for mean in judged.means
        if mean.contender != reference
    }
