"""A contest: several contenders on the same windows of one log; what reports and verdicts are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.evaluation.comparison.significance import ComparisonResult, PolicyScores, pairwise_tests
from kilowait.evaluation.comparison.windows import Windows
from kilowait.evaluation.fairness import fairness
from kilowait.evaluation.gpu.cluster import is_placed, placed_machine
from kilowait.evaluation.job_measures import started
from kilowait.evaluation.metrics import Metrics, metrics
from kilowait.jobs import ExecutionLog

__all__ = [
    "BATCHES",
    "METRIC_DIRECTION",
    "KINDS",
    "PolicyConfig",
    "Comparison",
    "PowerCurve",
    "EnergyResults",
    "SignalCurve",
]

Floats = npt.NDArray[np.float64]
KINDS = ("rule", "agent", "clairvoyant")
BATCHES = 30
"""Batches of consecutive jobs a run over the whole log is cut into, to say how sure its means are."""
BATCHES_ALIKE = 2.0
"""Neighbouring batches taken as one where independence matters: a queue has a long memory."""
_BY_BATCH = ("mean_wait_s", "mean_turnaround_s", "mean_bsld")
METRIC_DIRECTION: dict[str, str] = {
    "mean_wait_s": "less",
    "median_wait_s": "less",
    "p95_wait_s": "less",
    "max_wait_s": "less",
    "mean_turnaround_s": "less",
    "mean_bsld": "less",
    "utilization": "more",
    "makespan_s": "less",
    "energy_kwh": "less",
    "facility_kwh": "less",
    "co2_kg": "less",
    "cost": "less",
    "peak_kw": "less",
}
"""The metrics contenders are judged by, and whether more or less of each is better."""


@dataclass(frozen=True)
class PolicyConfig:
    """Who schedules: a rule, an agent, or a rule that knows the true run times."""

    policy: str
    backfill: str | int
    kind: str = "rule"
    name: str | None = None
    """What to call it; by default as it was written."""
    levers: str = "none"
    """What it pulls besides the order of jobs: sleep, levels, holds, a budget."""
    node_level: bool = False
    """Whether its jobs are placed on single nodes, where there is no backfilling by reservation. A contest on such a
    machine says so of all its contenders."""

    @property
    def label(self) -> str:
        """For people; what is usual on the machine is not said.

        >>> PolicyConfig("saf", "easy").label, PolicyConfig("saf", "none", "clairvoyant").label
        ('saf', 'saf, no backfill, perfect estimates')
        >>> [PolicyConfig("las", backfill, node_level=True).label for backfill in ("none", "skip")]
        ['las', 'las, skip']
        """
        parts = [self.policy if self.name is None else self.name]
        if self.node_level:
            parts += [] if self.backfill == "none" else [str(self.backfill)]
        elif self.backfill != "easy":
            parts.append(f"{'no' if self.backfill == 'none' else self.backfill} backfill")
        if self.levers != "none":
            parts.append(self.levers)
        if self.kind == "clairvoyant":
            parts.append("perfect estimates")
        return ", ".join(parts)


@dataclass(frozen=True)
class PowerCurve:
    """Power over the window that is drawn, means of bins."""

    edge_s: tuple[float, ...]
    """On the log's clock; one more than there are bins."""
    it_w: tuple[float, ...]
    facility_w: tuple[float, ...]


@dataclass(frozen=True)
class SignalCurve:
    """What power was like meanwhile: carbon intensity, price, temperature, as steps."""

    name: str
    unit: str
    words: str
    """Where from, average or marginal, direct or life-cycle."""
    edge_s: tuple[float, ...]
    value: tuple[float, ...]


@dataclass(frozen=True)
class EnergyResults:
    """What the runs of a contest drew."""

    metrics: tuple[tuple[Mapping[str, float], ...], ...]
    """Contender by window: energy_kwh, facility_kwh, co2_kg, cost, peak_kw, pue, ..."""
    states: tuple[Mapping[str, float], ...]
    """Of each contender: kWh by what nodes did (jobs, idle, asleep, falling, waking, fixed), over all windows."""
    curves: tuple[PowerCurve, ...] = ()
    """Of each contender, in the window number `drawn`."""
    drawn: int = 0
    signals: tuple[SignalCurve, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Comparison:
    """The same windows under every contender."""

    trace: str
    """As it was named."""
    nodes: int
    windows: Windows
    contenders: tuple[PolicyConfig, ...]
    logs: Callable[[int, int], ExecutionLog]
    """What happened under contender number c in window number w, from 0."""
    ledger: Mapping[str, Any] | None = None
    """What was dropped and mended in reading the log; None where nothing was read."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """The machine, as in a cluster file."""
    notes: Sequence[str] = ()
    energy: EnergyResults | None = None
    """What the runs drew, where a power model was given."""
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By label: GPU metrics as they were taken with the speeds of the run, means over windows; only placed nodes have
    them, and only where the runs were written down with them."""

    def __post_init__(self) -> None:
        if is_placed(self.cluster):
            placed = tuple(replace(contender, node_level=True) for contender in self.contenders)
            object.__setattr__(self, "contenders", placed)
        labels = [contender.label for contender in self.contenders]
        if not labels or len(set(labels)) < len(labels):
            raise InputError(f"contenders {', '.join(labels) or '(none)'}; give at least one, each once")

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the contenders."""
        return tuple(contender.label for contender in self.contenders)

    @cached_property
    def machine(self) -> Cluster | None:
        """The machine where its jobs are placed on single nodes; None where they are not, or nobody says."""
        return placed_machine(self.cluster)

    @property
    def batched(self) -> bool:
        """Whether there is one window only, so that spread is taken from batches of its jobs."""
        return len(self.windows) == 1

    @cached_property
    def table(self) -> tuple[tuple[Metrics, ...], ...]:
        """Metrics, and fairness and risk, of every contender in every window."""
        rows = []
        for contender in range(len(self.contenders)):
            row = []
            for number, window in enumerate(self.windows):
                log, counted = self.logs(contender, number), window.evaluated
                found = metrics(log, horizon=window.horizon, counted=counted, cluster=self.machine)
                drew = {} if self.energy is None else self.energy.metrics[contender][number]
                row.append({**found, **fairness(log, counted=counted), **drew})
            rows.append(tuple(row))
        return tuple(rows)

    def values(self, metric: str) -> Floats:
        """A metric, contender by window."""
        if metric not in self.table[0][0]:
            raise UnknownNameError("metric", metric, self.table[0][0])
        return np.array([[float(found[metric]) for found in row] for row in self.table])

    def means(self, metric: str) -> Floats:
        """Of each contender: the mean over windows."""
        found: Floats = self.values(metric).mean(axis=1)
        return found

    def scores(self, metric: str, kinds: Sequence[str] = ("rule", "agent")) -> PolicyScores:
        """What `judge` takes: of contenders of these kinds a value a window, or a batch where there is one window.

        A batch is a stretch of consecutive jobs of the whole run; its value is their mean. Only mean waits and mean
        slowdowns can be taken by batch. Batches that follow one another are not independent.
        """
        chosen = [place for place, contender in enumerate(self.contenders) if contender.kind in kinds]
        labels = tuple(self.labels[place] for place in chosen)
        better = METRIC_DIRECTION.get(metric, "less")
        if self.batched and metric in _BY_BATCH:
            return PolicyScores(metric, labels, self._batches(metric)[chosen], better, BATCHES_ALIKE, "batch")
        return PolicyScores(metric, labels, self.values(metric)[chosen], better, self.windows.overlap)

    def _batches(self, metric: str) -> Floats:
        """Means of consecutive jobs, contender by batch; batches in which somebody started none are left out."""
        window = self.windows[0]
        count = min(BATCHES, window.size)
        edges = np.linspace(window.warmup, len(window.jobs), count + 1).astype(np.int64)
        rows = []
        for contender in range(len(self.contenders)):
            ran = started(self.logs(contender, 0), 10.0, window.evaluated)
            value = {
                "mean_wait_s": ran.wait_s,
                "mean_turnaround_s": ran.turnaround_s,
                "mean_bsld": ran.bsld,
            }[metric]
            batch = np.searchsorted(edges, ran.row, side="right") - 1
            rows.append((np.bincount(batch, value, count), np.bincount(batch, minlength=count)))
        total, jobs = (np.array(side) for side in zip(*rows, strict=True))
        held = jobs.all(axis=0)
        means: Floats = total[:, held] / jobs[:, held]
        return means

    def judge(self, metric: str, *, seed: int) -> ComparisonResult:
        """Which rule or agent is better by a metric, and how sure that is; see `clairvoyant` for the others."""
        return pairwise_tests(self.scores(metric), seed=seed)

    def clairvoyant(self, contender: PolicyConfig) -> PolicyConfig | None:
        """The same rule with perfect estimates, where it takes part."""
        twin = replace(contender, kind="clairvoyant")
        return twin if contender.kind == "rule" and twin in self.contenders else None

    def gap_closed(self, metric: str) -> Mapping[str, float]:
        """(best rule - contender) / (best rule - that rule with perfect estimates), by label.

        0 for the best rule, 1 for what is as good as that rule would be if it knew all run times, below 0 for what is
        worse than the best rule; NaN where perfect estimates gain nothing. Empty where no clairvoyant takes part.
        """
        mean = dict(zip(self.contenders, self.means(metric).tolist(), strict=True))
        rules = [contender for contender in self.contenders if contender.kind == "rule"]
        if not rules:
            return {}
        sign = 1.0 if METRIC_DIRECTION.get(metric, "less") == "less" else -1.0
        best = min(rules, key=lambda contender: sign * mean[contender])
        twin = self.clairvoyant(best)
        if twin is None:
            return {}
        room = mean[best] - mean[twin]
        return {
            contender.label: (mean[best] - mean[contender]) / room if sign * room > 0 else float("nan")
            for contender in self.contenders
        }
