"""GPU metrics of each policy for the report: totals, by GPU type, by job priority, over time, and as sentences.

All metrics are computed by `kilowait.evaluation`. Metrics that need the GPU speeds of the run (fairness, lost work) are
read from the run's results; the others are computed here, over the same windows as the rest of the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.gpu import by_priority, by_type, fragmentation, gpu_metrics, gpu_timeline
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.format import count, number, share
from kilowait.series import Series

__all__ = ["GpuData", "missing_gpu_data", "sentences"]

Row = dict[str, Any]
PANELS = 7
"""Maximum number of GPU types drawn over time; the smallest types are combined."""
SPEED_METRICS = ("mean_rho", "max_rho", "unfair_share", "jain_rho", "lost_gpu_hours", "work_utilization")
"""Metrics that require the GPU speeds of the run."""


def missing_gpu_data(data: ComparisonData) -> str | None:
    """Why GPU metrics are unavailable for a node-level run; None where they are available or not applicable."""
    has_allocations = data.log(data.shown[0]).pieces is not None
    if data.node_level == has_allocations:
        return None
    if has_allocations:
        return (
            "These jobs have allocations of individual nodes, but the folder has no cluster description (its scenario "
            "has no "
            "cluster), so there are no GPU metrics. Repeat the run with this version of kilowait."
        )
    return (
        "This cluster allocates individual GPUs, but the folder has no job allocations (pieces.parquet is missing), so "
        "there are no GPU metrics. Repeat the run with this version of kilowait."
    )


@dataclass(frozen=True, eq=False)
class GpuSeries:
    """GPU allocation and fragmentation of one policy in the window that is drawn, as step functions from 0 to 1."""

    allocated: dict[str, Series]
    """Allocated share by GPU type, the most frequent type first."""
    fragmentation: Series


class GpuData:
    """GPU metrics of a comparison."""

    def __init__(self, data: ComparisonData, machine: Cluster) -> None:
        self.data, self.comparison, self.machine = data, data.comparison, machine

    @classmethod
    def of(cls, data: ComparisonData) -> GpuData | None:
        """The GPU data; None without node-level placement or GPUs, or if data is missing (`missing_gpu_data`)."""
        machine = data.comparison.machine
        if machine is None or not any(group.nodes * group.gpus for group in machine.groups):
            return None
        return None if missing_gpu_data(data) is not None else cls(data, machine)

    @property
    def order(self) -> tuple[int, ...]:
        """Policies in the order of the comparison table, best first."""
        return (*self.data.real, *self.data.of_kind("clairvoyant"))

    @cached_property
    def table(self) -> dict[int, dict[str, float]]:
        """GPU metrics of every policy, means over the windows that have them; NaN where unknown."""
        metrics = {}
        for policy in self.order:
            rows = [
                gpu_metrics(
                    self.comparison.logs(policy, number),
                    self.machine,
                    counted=window.evaluated,
                    horizon_s=window.horizon,
                )
                for number, window in enumerate(self.comparison.windows)
            ]
            merged = {name: _mean([row[name] for row in rows]) for name in rows[0]}
            saved = self.comparison.gpus.get(self.comparison.labels[policy], {})
            metrics[policy] = merged | {name: saved.get(name, math.nan) for name in SPEED_METRICS}
        return metrics

    def any_positive(self, *names: str) -> bool:
        """Whether one of the metrics is positive for any policy."""
        return any(row[name] > 0 for row in self.table.values() for name in names)

    def is_known(self, name: str) -> bool:
        """Whether the metric is known for any policy."""
        return any(not math.isnan(row[name]) for row in self.table.values())

    @cached_property
    def types(self) -> dict[int, list[Row]]:
        """For each policy that is drawn: rows of `by_type`; counts are summed over windows, shares averaged."""
        return {
            policy: _merged(
                [
                    by_type(self.comparison.logs(policy, number), self.machine, horizon_s=window.horizon)
                    for number, window in enumerate(self.comparison.windows)
                ],
                key="type",
                summed=("jobs", "gpu_hours", "preemptions", "migrations"),
            )
            for policy in self.data.shown
        }

    @cached_property
    def priorities(self) -> dict[int, list[Row]]:
        """For each policy that is drawn: rows of `by_priority`, highest priority first.

        Counts are summed over windows, times averaged.
        """
        return {
            policy: _merged(
                [
                    by_priority(self.comparison.logs(policy, number), counted=window.evaluated)
                    for number, window in enumerate(self.comparison.windows)
                ],
                key="priority",
                summed=("jobs", "finished", "preemptions", "gpu_hours"),
            )
            for policy in self.data.shown
        }

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Number of GPUs by drawn type, the most frequent first; the smallest types are combined."""
        gpus: dict[str, int] = {}
        for group in self.machine.groups:
            if group.nodes * group.gpus:
                gpus[group.gpu_type] = gpus.get(group.gpu_type, 0) + group.nodes * group.gpus
        ordered = dict(sorted(gpus.items(), key=lambda pair: -pair[1]))
        if len(ordered) <= PANELS:
            return ordered
        first = dict(list(ordered.items())[: PANELS - 1])
        return first | {f"{len(ordered) - len(first)} other types": sum(ordered.values()) - sum(first.values())}

    @cached_property
    def lines(self) -> dict[int, GpuSeries]:
        """Series of each policy that is drawn, except policies under which no job ran."""
        lines = {}
        for policy in self.data.shown:
            log = self.data.log(policy)
            try:
                used = gpu_timeline(log, self.machine)
            except InputError:  # no job ran for a positive time
                continue
            allocated = {
                name: _share([used[gpu_type] for gpu_type in self._members(name)], gpus)
                for name, gpus in self.sizes.items()
            }
            lines[policy] = GpuSeries(allocated, fragmentation(log, self.machine))
        return lines

    def _members(self, name: str) -> list[str]:
        types = {group.gpu_type for group in self.machine.groups if group.nodes * group.gpus}
        return [name] if name in types else sorted(types - set(self.sizes))


def _share(parts: Sequence[Series], gpus: int) -> Series:
    """The sum of several series of GPUs in use, as a share of `gpus`."""
    if len(parts) == 1:
        return Series(parts[0].edge_s, parts[0].value / gpus)
    edge = sorted({float(edge) for part in parts for edge in part.edge_s})
    return Series(edge, sum(part.at(edge[:-1]) for part in parts) / gpus)  # type: ignore[arg-type]


def _merged(windows: Sequence[Sequence[Row]], key: str, summed: Sequence[str]) -> list[Row]:
    """Combine the rows of several windows: columns in `added` are summed, all others averaged over known values."""
    parts: dict[Any, list[Row]] = {}
    for rows in windows:
        for row in rows:
            parts.setdefault(row[key], []).append(row)
    names = list(parts)
    if key == "priority":
        names.sort(reverse=True)
    return [
        {
            column: value
            if column == key
            else (sum if column in summed else _mean)([row[column] for row in parts[name]])
            for column, value in parts[name][0].items()
        }
        for name in names
    ]


def _mean(values: Sequence[float]) -> float:
    is_known = [value for value in values if not math.isnan(value)]
    return sum(is_known) / len(is_known) if is_known else math.nan


# -- sentences -----------------------------------------------------------------------------------------


def sentences(gpu_data: GpuData) -> list[str]:
    """Summary sentences on the GPUs."""
    return [_allocation(gpu_data), *_by_type(gpu_data), *_preemptions(gpu_data), *_fairness(gpu_data)]


def _label(gpu_data: GpuData, policy: int) -> str:
    return gpu_data.comparison.labels[policy]


def _allocation(gpu_data: GpuData) -> str:
    """Lowest and highest GPU allocation and fragmentation."""
    policies = [policy for policy in gpu_data.order if policy in gpu_data.data.real] or list(gpu_data.order)
    parts = []
    for name, label in (
        ("gpu_utilization", "of the GPUs are allocated while jobs arrive"),
        ("mean_fragmentation", "are free but too fragmented for the typical job"),
    ):
        ranked = sorted(policies, key=lambda policy: _nan_last(gpu_data.table[policy][name]))
        low, high = (gpu_data.table[policy][name] for policy in (ranked[0], ranked[-1]))
        if len(policies) == 1 or share(low) == share(high):
            parts.append(f"{share(low)} {label}")
        else:
            parts.append(
                f"{share(low)} (under {_label(gpu_data, ranked[0])}) to {share(high)} (under "
                f"{_label(gpu_data, ranked[-1])}) "
                f"{label}"
            )
    return f"{parts[0]}; {parts[1]}."


def _by_type(gpu_data: GpuData) -> list[str]:
    """The GPU types with the highest and lowest allocation under the best drawn policy."""
    policy = next((policy for policy in gpu_data.order if policy in gpu_data.types), None)
    if policy is None:
        return []
    rows = [row for row in gpu_data.types[policy] if row["gpus"] and not math.isnan(row["utilization"])]
    if len(rows) < 2:
        return []
    rows.sort(key=lambda row: -row["utilization"])
    first, last = rows[0], rows[-1]
    if share(first["utilization"]) == share(last["utilization"]):
        return []
    return [
        f"Under {_label(gpu_data, policy)} the most allocated GPU type is {first['type']} "
        f"({share(first['utilization'])} of the time), the "
        f"least {last['type']} ({share(last['utilization'])})."
    ]


def _preemptions(gpu_data: GpuData) -> list[str]:
    """Preemptions, migrations and lost work by policy."""
    parts = []
    for policy in gpu_data.order:
        row = gpu_data.table[policy]
        if not row["preemptions"] and not row["migrations"]:
            continue
        events = [
            f"{count(row[name])} {label}"
            for name, label in (("preemptions", "preemptions"), ("migrations", "migrations"))
            if row[name]
        ]
        lost_gpu_hours = row["lost_gpu_hours"]
        cost = (
            ""
            if math.isnan(lost_gpu_hours)
            else f", {number(lost_gpu_hours)} GPU-hours of work lost"
            if lost_gpu_hours
            else ", no work lost"
        )
        parts.append(f"{_label(gpu_data, policy)}: {' and '.join(events)}{cost}")
    if not parts:
        return ["No job was preempted or migrated."]
    each = "" if gpu_data.comparison.batched else " per window, on average"
    return [f"Jobs were preempted or migrated{each}. {'; '.join(parts)}."]


def _fairness(gpu_data: GpuData) -> list[str]:
    if not gpu_data.is_known("mean_rho"):
        return [
            "Finish-time fairness and lost work require the GPU speeds of the run, which its folder does not contain."
        ]
    parts = [
        f"{_label(gpu_data, policy)} {share(row['unfair_share'])}"
        for policy, row in gpu_data.table.items()
        if not math.isnan(row["unfair_share"])
    ]
    return [
        "Share of jobs that would have finished earlier alone on a fair share of the cluster (rho above 1.05): "
        f"{'; '.join(parts)}."
    ]


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value
