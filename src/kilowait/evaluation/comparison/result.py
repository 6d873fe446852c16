"""Comparison of several policies on the same windows of one log: logs, metrics, energy, statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.toml import is_node_level, node_level_cluster
from kilowait.errors import InputError, MissingExtraError, UnknownNameError
from kilowait.evaluation.comparison.significance import ComparisonResult, PolicyScores, pairwise_tests
from kilowait.evaluation.comparison.windows import Windows
from kilowait.evaluation.job_measures import started_jobs
from kilowait.evaluation.metric_definitions import better_of, combine_windows
from kilowait.evaluation.metrics import Metrics, fairness, metrics
from kilowait.jobs import ExecutionLog
from kilowait.series import Floats

KINDS = ("rule", "agent", "clairvoyant")
BATCHES = 30
"""Number of batches of consecutive jobs (batch means) into which a single run is divided for intervals and tests."""
BATCH_OVERLAP = 2.0
"""Overlap assumed between neighbouring batches, because their waits are correlated through the queue."""
_BY_BATCH = ("mean_wait_s", "mean_turnaround_s", "mean_bsld")


@dataclass(frozen=True)
class PolicyConfig:
    """A policy configuration: a priority policy, an agent, or a priority policy with perfect estimates."""

    policy: str
    backfill: str | int
    kind: str = "rule"
    name: str | None = None
    """Displayed name; by default the policy as it was given."""
    power_controls: str = "none"
    """Power controls: node sleep, DVFS, load shifting, a power budget."""
    node_level: bool = False
    """Whether the cluster is node-level (GPU), where there is no backfilling with reservations. A `Comparison` on such
    a cluster sets this for all its policies."""

    @property
    def label(self) -> str:
        """Displayed label; the defaults of the cluster are left out.

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
        if self.power_controls != "none":
            parts.append(self.power_controls)
        if self.kind == "clairvoyant":
            parts.append("perfect estimates")
        return ", ".join(parts)


@dataclass(frozen=True)
class PowerCurve:
    """Power over the plotted window, means of bins."""

    edge_s: tuple[float, ...]
    """Bin edges in the time of the log, one more than bins."""
    it_w: tuple[float, ...]
    facility_w: tuple[float, ...]


@dataclass(frozen=True)
class SignalCurve:
    """Carbon intensity, price or temperature over the plotted window, as a step function."""

    name: str
    unit: str
    description: str
    """Description: source, average or marginal, direct or life-cycle."""
    edge_s: tuple[float, ...]
    value: tuple[float, ...]


@dataclass(frozen=True)
class EnergyResults:
    """Energy results of the runs of a comparison."""

    metrics: tuple[tuple[Mapping[str, float], ...], ...]
    """Policy by window: energy_kwh, facility_kwh, co2_kg, cost, peak_kw, pue, ..."""
    states: tuple[Mapping[str, float], ...]
    """Per policy: kWh by node state (jobs, idle, asleep, shutting_down, waking, fixed), over all windows."""
    curves: tuple[PowerCurve, ...] = ()
    """Per policy, in window number `plotted_window`."""
    plotted_window: int = 0
    """Number of the plotted window."""
    signals: tuple[SignalCurve, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs of the same windows under several policies, as `kilowait.compare` returns them.

    >>> import kilowait as kw
    >>> jobs, cluster = kw.lublin(400, nodes=16, load=0.9, seed=1), kw.Cluster.from_nodes(16)
    >>> comparison = kw.compare(jobs, cluster, ["fcfs", "saf"], windows=4, window_jobs=100)
    >>> comparison.labels, comparison.values("mean_wait_s").shape
    (('fcfs', 'saf'), (2, 4))
    >>> comparison.significance("mean_bsld", seed=0).best
    'saf'
    """

    trace: str
    """Name of the trace, as it was given."""
    size: int
    """Size of the machine, in units of `unit`."""
    windows: Windows
    policies: tuple[PolicyConfig, ...]
    logs: Callable[[int, int], ExecutionLog]
    """Execution log of policy number c in window number w, both from 0."""
    cleaning_report: Mapping[str, Any] | None = None
    """Cleaning report of the log as plain data; None if the jobs were not read from a file."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """The machine, as in a cluster file."""
    notes: Sequence[str] = ()
    energy: EnergyResults | None = None
    """Energy results, if a power model was given."""
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By label: GPU metrics computed with the GPU speeds of the run, means over windows; only for node-level clusters,
    and only if they were stored with the runs."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By label: the errors of policies without results, whose runs would not end. The notes contain them, too."""

    def __post_init__(self) -> None:
        if is_node_level(self.cluster):
            node_level_policies = tuple(replace(policy, node_level=True) for policy in self.policies)
            object.__setattr__(self, "policies", node_level_policies)
        labels = [policy.label for policy in self.policies]
        if not labels or len(set(labels)) < len(labels):
            raise InputError(f"policies {', '.join(labels) or '(none)'}; give at least one, each once")
        # Folders written before labels left out a common backfilling have metrics by the longer label.
        by_label = {
            label: self.gpus.get(label, self.gpus.get(long)) for label, long in zip(self.labels, labels, strict=True)
        }
        object.__setattr__(self, "gpus", {label: row for label, row in by_label.items() if row is not None})

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Labels of the policies; a backfilling that all policies of a node-level cluster share is left out."""
        if self.common_backfill is None:
            return tuple(policy.label for policy in self.policies)
        return tuple(replace(policy, backfill="none").label for policy in self.policies)

    @property
    def unit(self) -> str:
        """What the machine's size and utilization count: ``"node"``, ``"core"`` or ``"processor"``."""
        return self.windows.jobs.unit

    @property
    def common_backfill(self) -> str | None:
        """The backfilling that all policies of a node-level cluster share, such as skip; None if they share none."""
        backfill = {policy.backfill for policy in self.policies if policy.node_level}
        return str(*backfill) if len(backfill) == 1 and backfill != {"none"} else None

    @property
    def fcfs(self) -> int | None:
        """Number of FCFS without power controls, with EASY backfilling if there is; None if it was not run."""
        numbers = {
            config.backfill: number
            for number, config in enumerate(self.policies)
            if (config.policy, config.kind, config.power_controls) == ("fcfs", "rule", "none")
        }
        return numbers.get("easy", numbers.get("none", next(iter(numbers.values()), None)))

    @property
    def longest_wait_s(self) -> dict[str, float]:
        """The longest wait over all windows of every policy and agent, by label, seconds."""
        longest = zip(self.policies, self.labels, self.over_windows("max_wait_s").tolist(), strict=True)
        return {label: wait_s for config, label, wait_s in longest if config.kind != "clairvoyant"}

    @property
    def fcfs_label(self) -> str | None:
        """The label of `fcfs`."""
        return None if self.fcfs is None else self.labels[self.fcfs]

    @cached_property
    def machine(self) -> Cluster | None:
        """The cluster if it is node-level; None if it is not, or is unknown."""
        return node_level_cluster(self.cluster)

    @property
    def batched(self) -> bool:
        """Whether there is only one window, so that intervals are computed from batches of its jobs."""
        return len(self.windows) == 1

    @cached_property
    def table(self) -> tuple[tuple[Metrics, ...], ...]:
        """Metrics, fairness and energy metrics of every policy in every window."""
        rows = []
        for policy in range(len(self.policies)):
            row = []
            for number, window in enumerate(self.windows):
                log, counted = self.logs(policy, number), window.evaluated
                found = metrics(log, horizon=window.horizon, counted=counted, cluster=self.machine)
                energy_metrics = {} if self.energy is None else self.energy.metrics[policy][number]
                row.append({**found, **fairness(log, counted=counted), **energy_metrics})
            rows.append(tuple(row))
        return tuple(rows)

    def values(self, metric: str) -> Floats:
        """Values of a metric, policy by window."""
        if metric not in self.table[0][0]:
            raise UnknownNameError("metric", metric, self.table[0][0])
        return np.array([[float(found[metric]) for found in row] for row in self.table])

    def to_dict(self) -> dict[str, Any]:
        """Plain data: one record for each policy and window, with all metrics."""
        return {
            "trace": self.trace,
            "size": self.size,
            "unit": self.unit,
            "records": [
                {"policy": label, "window": window, **{name: float(value) for name, value in found.items()}}
                for label, row in zip(self.labels, self.table, strict=True)
                for window, found in enumerate(row)
            ],
        }

    def to_pandas(self) -> Any:
        """A data frame with a row for each policy and window and a column for each metric (extra ``pandas``)."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise MissingExtraError("pandas", "pandas") from None
        return pd.DataFrame(self.to_dict()["records"])

    def to_latex(self, metrics: Sequence[str] = ("mean_bsld", "mean_wait_s", "utilization")) -> str:
        """A LaTeX table (booktabs) of metrics over windows, one row for each policy."""
        values = [self.over_windows(metric) for metric in metrics]
        names = " & ".join(("policy", *metrics)).replace("_", r"\_")
        rows = [
            f"{label} & {' & '.join(f'{value[place]:.4g}' for value in values)} ".replace("_", r"\_") + r"\\"
            for place, label in enumerate(self.labels)
        ]
        begin, end = r"\begin{tabular}{l" + "r" * len(metrics) + "}", r"\end{tabular}"
        return "\n".join((begin, r"\toprule", names + r" \\", r"\midrule", *rows, r"\bottomrule", end)) + "\n"

    def over_windows(self, metric: str) -> Floats:
        """The metric over all windows, per policy, as tables show it: a mean, a maximum or a sum.

        `kilowait.evaluation.metric_definitions` defines which; windows in which a policy has no value are left out.
        """
        return np.array([combine_windows(metric, row) for row in self.values(metric)])

    def means(self, metric: str) -> Floats:
        """Mean over windows, per policy, as significance tests compare it; NaN if a window has no value."""
        means: Floats = self.values(metric).mean(axis=1)
        return means

    def scores(self, metric: str, kinds: Sequence[str] = ("rule", "agent")) -> PolicyScores:
        """Values for `pairwise_tests`: one per policy of these kinds and window; batches replace a single window.

        A batch is a group of consecutive jobs of the run; its value is their mean. Only mean waits, turnarounds and
        slowdowns can be computed by batch. Consecutive batches are not independent.
        """
        chosen = [place for place, policy in enumerate(self.policies) if policy.kind in kinds]
        labels = tuple(self.labels[place] for place in chosen)
        better = better_of(metric)
        if self.batched and metric in _BY_BATCH:
            return PolicyScores(metric, labels, self._batches(metric)[chosen], better, BATCH_OVERLAP, "batch")
        return PolicyScores(metric, labels, self.values(metric)[chosen], better, self.windows.overlap)

    def _batches(self, metric: str) -> Floats:
        """Means over batches of consecutive jobs, policy by batch; batches without a started job are left out."""
        window = self.windows[0]
        count = min(BATCHES, window.size)
        edges = np.linspace(window.warmup, len(window.jobs), count + 1).astype(np.int64)
        rows = []
        for policy in range(len(self.policies)):
            ran = started_jobs(self.logs(policy, 0), 10.0, window.evaluated)
            value = {"mean_wait_s": ran.wait_s, "mean_turnaround_s": ran.turnaround_s, "mean_bsld": ran.bsld}[metric]
            batch = np.searchsorted(edges, ran.row, side="right") - 1
            rows.append((np.bincount(batch, value, count), np.bincount(batch, minlength=count)))
        total, jobs = (np.array(side) for side in zip(*rows, strict=True))
        complete = jobs.all(axis=0)
        means: Floats = total[:, complete] / jobs[:, complete]
        return means

    def significance(self, metric: str, *, seed: int) -> ComparisonResult:
        """Significance tests between all pairs of priority policies and agents for one metric."""
        return pairwise_tests(self.scores(metric), seed=seed)

    def clairvoyant(self, policy: PolicyConfig) -> PolicyConfig | None:
        """The same priority policy with perfect estimates, if it is part of the comparison."""
        perfect = replace(policy, kind="clairvoyant")
        return perfect if policy.kind == "rule" and perfect in self.policies else None

    def gap_closed(self, metric: str) -> Mapping[str, float]:
        """(best policy - policy) / (best policy - that policy with perfect estimates), by label.

        The best policy is the best priority policy (no agent). The gap closed is 0 for it, 1 for a policy as good as
        it would be with perfect estimates, below 0 for a worse policy, and NaN if perfect estimates gain nothing.
        Empty if the comparison has no clairvoyant policy.
        """
        mean = dict(zip(self.policies, self.means(metric).tolist(), strict=True))
        rules = [policy for policy in self.policies if policy.kind == "rule"]
        if not rules:
            return {}
        sign = 1.0 if better_of(metric) == "less" else -1.0
        best = min(rules, key=lambda policy: sign * mean[policy])
        perfect = self.clairvoyant(best)
        if perfect is None:
            return {}
        gap = mean[best] - mean[perfect]
        return {
            label: (mean[best] - mean[policy]) / gap if sign * gap > 0 else float("nan")
            for policy, label in zip(self.policies, self.labels, strict=True)
        }
