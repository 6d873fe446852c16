"""Data of one comparison: ranking, significance tests, typical window, job classes and load over time.

All metrics are computed by `kilowait.evaluation`; this module selects and arranges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.breakdown import ClassRow, by_class, combine_classes
from kilowait.evaluation.comparison import Comparison, ComparisonResult, PairwiseResult, Window
from kilowait.evaluation.job_measures import started_jobs
from kilowait.evaluation.metric_definitions import metric_name
from kilowait.evaluation.timeline import gpu_backlog, gpu_timeline, timeline
from kilowait.jobs import ExecutionLog
from kilowait.jobs.columns import LABEL_COLUMNS
from kilowait.report.format import number, short_name
from kilowait.units import format_duration

Floats = npt.NDArray[np.float64]
SHOWN = 6
"""The maximum number of policies in a figure, so that lines stay distinguishable. Tables have all policies."""
BOUND_S = 10.0
USERS = 20
"""Users in the table of users, at most."""
COLOURS = 7
AGENT, CLAIRVOYANT = 5, 6
"""Numbers of the colours reserved for agents and for policies with perfect estimates, of `COLOURS` colours."""


@dataclass(frozen=True)
class JobClass:
    """One class of jobs, with its metrics under each policy that is drawn."""

    label: str
    jobs: int
    hours: float
    """Node-hours; on node-level (GPU) clusters, GPU-hours."""
    mean_wait_s: tuple[float, ...]
    mean_bsld: tuple[float, ...]


@dataclass(frozen=True)
class LeadMetric:
    """The main metric of a page, by which policies are ranked."""

    metric: str
    label: str
    of_job: str
    """The per-job quantity that the metric averages."""
    timed: bool
    """Whether the metric is a duration in seconds."""

    @property
    def format(self) -> Callable[[float], str]:
        """The function that formats a value for display."""
        return format_duration if self.timed else number


SLOWDOWN = LeadMetric("mean_bsld", metric_name("mean_bsld"), "bounded slowdown", False)
COMPLETION = LeadMetric("mean_turnaround_s", metric_name("mean_turnaround_s"), "completion time", True)
"""On node-level clusters run times depend on the placement, which the slowdown does not show."""


@dataclass(frozen=True, eq=False)
class ComparisonData:
    """One comparison with its ranking and significance tests."""

    comparison: Comparison
    seed: int
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Lower bound of each metric over all schedules, where it is known."""

    @property
    def trace(self) -> str:
        """The name of the log without folders and file suffixes."""
        return short_name(self.comparison.trace)

    @property
    def node_level(self) -> bool:
        """Whether the cluster is node-level: jobs have individual nodes and GPUs."""
        return self.comparison.machine is not None

    @property
    def lead(self) -> LeadMetric:
        """The metric by which policies are ranked."""
        return COMPLETION if self.node_level else SLOWDOWN

    @property
    def utilization_label(self) -> str:
        """The name of `utilization`."""
        return metric_name("utilization", node_level=self.node_level)

    @property
    def busy_label(self) -> str:
        """What is busy at a point in time, as text."""
        return "GPUs allocated" if self.node_level else f"{self.comparison.unit}s busy"

    @cached_property
    def significance(self) -> ComparisonResult | None:
        """Comparison of policies and agents by the lead metric; None where a window of one has no started job."""
        return self._compare(self.lead.metric)

    @cached_property
    def wait(self) -> ComparisonResult | None:
        """Comparison of policies and agents by mean wait; None where a window of one has no started job."""
        return self._compare("mean_wait_s")

    def _compare(self, metric: str) -> ComparisonResult | None:
        try:
            return self.comparison.significance(metric, seed=self.seed)
        except InputError:  # the mean of a window without started jobs
            return None

    @cached_property
    def ranked(self) -> tuple[int, ...]:
        """Policies by lead metric, best first; those for which it is undefined last."""
        means = self.comparison.means(self.lead.metric).tolist()
        return tuple(sorted(range(len(means)), key=lambda policy: (math.isnan(means[policy]), means[policy])))

    def of_kind(self, kind: str) -> tuple[int, ...]:
        """Policies of one kind (rule, agent or clairvoyant), best first."""
        return tuple(policy for policy in self.ranked if self.comparison.policies[policy].kind == kind)

    @property
    def real(self) -> tuple[int, ...]:
        """Policies usable in practice, best first: all but those with perfect run-time estimates."""
        return tuple(policy for policy in self.ranked if self.comparison.policies[policy].kind != "clairvoyant")

    @property
    def reference(self) -> int:
        """The baseline of the comparison: the best priority policy; where there is none, the best of all policies."""
        rules = self.of_kind("rule")
        return rules[0] if rules else self.ranked[0]

    @property
    def fcfs(self) -> int | None:
        """FCFS without power controls; None where it was not run."""
        return self.comparison.fcfs

    @cached_property
    def by_importance(self) -> tuple[int, ...]:
        """Policies by importance for figures.

        Agents, the best priority policy, FCFS, the lowest energy, perfect estimates, then all others.
        """
        first = [*self.of_kind("agent"), self.reference, *([] if self.fcfs is None else [self.fcfs])]
        if self.comparison.energy is not None and self.real:
            # The energy baseline and the policy with the lowest energy.
            energy = self.comparison.means("energy_kwh")
            first += [min(self.real), min(self.real, key=lambda policy: (float(energy[policy]), policy))]
        clairvoyant = self.clairvoyant(self.reference)
        first += [] if clairvoyant is None else [clairvoyant]
        return tuple(dict.fromkeys([*first, *(self.real or self.ranked)]))

    def clairvoyant(self, policy: int) -> int | None:
        """The same policy with perfect estimates; None where it was not run."""
        data = self.comparison.clairvoyant(self.comparison.policies[policy])
        return None if data is None else self.comparison.policies.index(data)

    @cached_property
    def shown(self) -> tuple[int, ...]:
        """Policies that are drawn in figures, in input order."""
        return tuple(sorted(self.by_importance[:SHOWN]))

    @cached_property
    def colour_numbers(self) -> dict[int, int]:
        """Colour number of each drawn policy; agents and policies with perfect estimates have reserved colours."""
        kinds = [self.comparison.policies[policy].kind for policy in self.shown]
        reserved = {"agent": AGENT, "clairvoyant": CLAIRVOYANT}
        numbers: dict[int, int] = {}
        for policy, kind in zip(self.shown, kinds, strict=True):
            preferred = reserved.get(kind)
            taken = set(numbers.values())
            reserved_now = {reserved[other] for other in kinds if other in reserved}
            free = [line for line in range(COLOURS) if line not in taken | reserved_now]
            numbers[policy] = preferred if preferred is not None and preferred not in taken else free[0]
        return numbers

    @property
    def shown_labels(self) -> list[str]:
        """Labels of the policies that are drawn in figures."""
        return [self.comparison.labels[policy] for policy in self.shown]

    @property
    def has_power_controls(self) -> bool:
        """Whether power controls are used; policy names are long then, and figures reserve space for them."""
        return any(policy.power_controls != "none" for policy in self.comparison.policies)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Policy names in figures: only the power controls where policies differ in nothing else."""
        kinds = {replace(policy, power_controls="none") for policy in self.comparison.policies}
        if len(kinds) > 1 or len(self.comparison.labels) == 1:
            return self.comparison.labels
        return tuple(
            "no power control" if c.power_controls == "none" else c.power_controls for c in self.comparison.policies
        )

    @cached_property
    def typical(self) -> int:
        """The window whose mean lead metric under the first policy is the median."""
        values = self.comparison.values(self.lead.metric)[0]
        return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])

    def log(self, policy: int) -> ExecutionLog:
        """The execution log of a policy in the typical window."""
        return self.comparison.logs(policy, self.typical)

    def windows(self, policy: int) -> Iterator[tuple[ExecutionLog, Window]]:
        """The execution log of a policy in every window, and the window."""
        return ((self.comparison.logs(policy, number), each) for number, each in enumerate(self.comparison.windows))

    @property
    def size_kind(self) -> str:
        """The kind of job class by size: nodes, or GPUs on node-level clusters."""
        return "gpus" if self.node_level else "size"

    @cached_property
    def classes(self) -> dict[str, list[JobClass]]:
        """The job classes of the page: by size, run time, queue and user."""
        return {kind: self.by_class(kind, limit=USERS) for kind in (self.size_kind, "runtime", "queue", "user")}

    @cached_property
    def distributions(self) -> tuple[tuple[Floats, Floats], ...]:
        """For each policy that is drawn: waits (seconds) and bounded slowdowns or completion times (seconds).

        Of all counted jobs that started, over all windows; the second quantity depends on the lead metric.
        """
        data = []
        for policy in self.shown:
            parts = [started_jobs(log, BOUND_S, window.evaluated) for log, window in self.windows(policy)]
            lead = [part.turnaround_s if self.lead.timed else part.bsld for part in parts]
            data.append((np.concatenate([part.wait_s for part in parts]), np.concatenate(lead)))
        return tuple(data)

    def by_class(self, kind: str, *, limit: int = 1000) -> list[JobClass]:
        """The first `limit` job classes over all windows (see `kilowait.evaluation.by_class`)."""
        columns = [{row.label: row for row in self.class_rows(policy, kind)} for policy in self.shown]
        labels = list(dict.fromkeys(label for column in columns for label in column))
        if kind in LABEL_COLUMNS:
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
            for label in labels[:limit]
        ]

    def _hours(self, row: ClassRow) -> float:
        return row.gpu_h if self.node_level else row.allocated_h

    def class_rows(self, policy: int, kind: str) -> list[ClassRow]:
        """All job classes of a policy over all windows."""
        if (policy, kind) not in self._class_rows:
            windows = [by_class(log, kind, counted=window.evaluated) for log, window in self.windows(policy)]
            self._class_rows[policy, kind] = combine_classes(windows, kind)
        return self._class_rows[policy, kind]

    @cached_property
    def _class_rows(self) -> dict[tuple[int, str], list[ClassRow]]:
        return {}


def pairs_against(data: ComparisonData, reference: str) -> Mapping[str, PairwiseResult]:
    """Pairwise results of every other policy against the reference, by label."""
    significance = data.significance
    if significance is None:
        return {}
    return {
        mean.policy: significance.pair(mean.policy, reference)
        for mean in significance.means
        if mean.policy != reference
    }


def nan_last(value: float) -> float:
    """The key that sorts NaN after all numbers."""
    return math.inf if math.isnan(value) else value


@dataclass(frozen=True, eq=False)
class LoadOverTime:
    """Mean backlog and utilization in bins of equal length."""

    edge_s: Floats
    """Bin edges, seconds; one more than there are bins."""
    jobs: Floats
    """Jobs waiting."""
    requested: Floats
    """Nodes, or GPUs, that the waiting jobs request."""
    busy: Floats
    """Nodes busy, or GPUs allocated, per cent."""


def load_over_time(log: ExecutionLog, machine: Cluster | None, max_bins: int) -> LoadOverTime | None:
    """Backlog and utilization of a log in at most `max_bins` bins; in GPUs where a node-level cluster is given.

    None for a log without a duration.
    """
    steps = timeline(log)
    if len(steps) < 2:
        return None
    bins = steps.sampled(min(max_bins, 4 * len(steps)))
    gpus = 0 if machine is None else sum(group.nodes * group.gpus for group in machine.groups)
    if machine is None or gpus == 0 or log.pieces is None:
        busy = 100.0 * bins.busy_nodes / np.maximum(bins.capacity_nodes, 1.0)
        return LoadOverTime(bins.edge_s, bins.waiting_jobs, bins.waiting_nodes, busy)
    edge = bins.edge_s
    horizon_s = (float(edge[0]), float(edge[-1]))
    allocated = [used.mean(edge[:-1], edge[1:]) for used in gpu_timeline(log, machine, horizon_s=horizon_s).values()]
    requested = gpu_backlog(log, machine, horizon_s=horizon_s).mean(edge[:-1], edge[1:])
    return LoadOverTime(edge, bins.waiting_jobs, requested, 100.0 * np.sum(allocated, axis=0) / gpus)
