"""GPU metrics of each policy: totals, by GPU type, by job priority, over time, as sentences and as tables.

All metrics are computed by `kilowait.evaluation`. Metrics that need the GPU speeds of the run (fairness, lost work) are
read from the run's results; the others are computed here, over the same windows as the rest of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from kilowait.cluster import Cluster
from kilowait.evaluation import by_priority, by_type, gpu_metrics
from kilowait.evaluation.comparison import Window
from kilowait.evaluation.comparison.freedom import difference_sentence, freedom_of_run
from kilowait.jobs import ExecutionLog
from kilowait.report.data.comparison import ComparisonData, nan_last
from kilowait.report.data.gpu_timeline import GpuTimeline
from kilowait.report.format import (
    Metric,
    NumberFormat,
    ReportColumn,
    ReportTable,
    column,
    count,
    number,
    share,
    table_of_columns,
)
from kilowait.units import format_duration

Row = dict[str, Any]
RowColumn = tuple[str, str, NumberFormat]
"""Key, heading and format."""
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
            "has no cluster), so there are no GPU metrics. Repeat the run with this version of kilowait."
        )
    return (
        "This cluster allocates individual GPUs, but the folder has no job allocations (pieces.parquet is missing), so "
        "there are no GPU metrics. Repeat the run with this version of kilowait."
    )


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
                gpu_metrics(log, self.machine, counted=window.evaluated, horizon_s=window.horizon)
                for log, window in self.data.windows(policy)
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
        return self._rows_by_policy(
            lambda log, window: by_type(log, self.machine, horizon_s=window.horizon),
            key="type",
            summed=("jobs", "gpu_hours", "preemptions", "migrations"),
        )

    @cached_property
    def priorities(self) -> dict[int, list[Row]]:
        """For each policy that is drawn: rows of `by_priority`, highest priority first.

        Counts are summed over windows, times averaged.
        """
        return self._rows_by_policy(
            lambda log, window: by_priority(log, counted=window.evaluated),
            key="priority",
            summed=("jobs", "finished", "preemptions", "gpu_hours"),
        )

    @cached_property
    def timeline(self) -> GpuTimeline:
        """Allocation and fragmentation over time."""
        return GpuTimeline(self.data, self.machine)

    def _rows_by_policy(
        self, rows_of: Callable[[ExecutionLog, Window], list[Row]], *, key: str, summed: Sequence[str]
    ) -> dict[int, list[Row]]:
        return {
            policy: _merged([rows_of(log, window) for log, window in self.data.windows(policy)], key, summed)
            for policy in self.data.shown
        }


def _merged(windows: Sequence[Sequence[Row]], key: str, summed: Sequence[str]) -> list[Row]:
    """Combine the rows of several windows: columns in `summed` are summed, all others averaged over known values."""
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
    return [
        _allocation(gpu_data),
        *_by_type(gpu_data),
        *_preemptions(gpu_data),
        *_freedom(gpu_data),
        *_fairness(gpu_data),
    ]


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
        ranked = sorted(policies, key=lambda policy: nan_last(gpu_data.table[policy][name]))
        low, high = (gpu_data.table[policy][name] for policy in (ranked[0], ranked[-1]))
        if len(policies) == 1 or share(low) == share(high):
            parts.append(f"{share(low)} {label}")
        else:
            parts.append(
                f"{share(low)} (under {_label(gpu_data, ranked[0])}) to {share(high)} (under "
                f"{_label(gpu_data, ranked[-1])}) {label}"
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
        f"({share(first['utilization'])} of the time), the least {last['type']} ({share(last['utilization'])})."
    ]


def _preemptions(gpu_data: GpuData) -> list[str]:
    """Preemptions, migrations and lost work by policy."""
    parts = []
    for policy in gpu_data.order:
        row = gpu_data.table[policy]
        if not row["preemptions"] and not row["migrations"]:
            continue
        events = [f"{count(row[name])} {name}" for name in ("preemptions", "migrations") if row[name]]
        lost = number(row["lost_gpu_hours"]) + " GPU-hours of" if row["lost_gpu_hours"] else "no"
        cost = "" if math.isnan(row["lost_gpu_hours"]) else f", {lost} work lost"
        parts.append(f"{_label(gpu_data, policy)}: {' and '.join(events)}{cost}")
    if not parts:
        return ["No job was preempted or migrated."]
    each = "" if gpu_data.comparison.batched else " per window, on average"
    load_s = gpu_data.comparison.logs(0, 0).run.get("checkpoint_load_s")
    restart = [] if load_s is None else [f"Every restart costs {format_duration(float(load_s))}."]
    return [f"Jobs were preempted or migrated{each}. {'; '.join(parts)}.", *restart]


def _freedom(gpu_data: GpuData) -> list[str]:
    """What the best policy may do and another one not, or the reverse."""
    comparison = gpu_data.comparison
    may = [freedom_of_run(comparison.logs(policy, 0).run) for policy in gpu_data.order]
    labels = [_label(gpu_data, policy) for policy in gpu_data.order]
    found = [
        difference_sentence(labels[0], may[0], label, other) for label, other in zip(labels[1:], may[1:], strict=True)
    ]
    return [sentence for sentence in found if sentence]


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


# -- tables ------------------------------------------------------------------------------------------


def gpu_table(gpu_data: GpuData) -> ReportTable:
    """Completion times, queueing, makespan and GPU usage of every policy."""
    groups: dict[str, list[Metric]] = {
        "completion time (JCT)": [
            ("mean_jct_s", "mean", "less", format_duration),
            ("median_jct_s", "median", "less", format_duration),
            ("p95_jct_s", "95th percentile", "less", format_duration),
        ],
        "queueing": [
            ("mean_queueing_s", "mean", "less", format_duration),
            ("p95_queueing_s", "95th percentile", "less", format_duration),
        ],
        "": [("makespan_s", "makespan", "less", format_duration)],
        "GPUs": [
            ("gpu_utilization", "allocated", "more", share),
            ("flops_utilization", "by FLOPS", "more", share),
            ("mean_fragmentation", "fragmentation", "less", share),
        ],
    }
    if gpu_data.any_positive("unfinished_jobs"):
        groups[" "] = [("unfinished_jobs", "unfinished jobs", "less", count)]
    note = (
        "Queueing: all the time without an allocation, before the first start and after preemptions. Allocated, "
        "by FLOPS (GPUs weighted by their FLOPS) and fragmentation are measured while jobs arrive, from the first "
        "submission to the last; over the whole makespan, as kilowait simulate prints them, they are mostly lower. "
        "Fragmentation: GPUs that are free but unusable for the typical jobs of this log."
    )
    known_share = min((row["flops_known_share"] for row in gpu_data.table.values()), default=1.0)
    if known_share < 1:
        note += f" FLOPS are known for {share(known_share)} of the GPUs."
    return _policy_table(gpu_data, f"GPUs on {gpu_data.data.trace}", groups, note)


def preemption_table(gpu_data: GpuData) -> ReportTable | None:
    """Preemptions, migrations, lost work and finish-time fairness; None where none is known."""
    groups: dict[str, list[Metric]] = {}
    if gpu_data.any_positive("preemptions", "migrations"):
        groups["preemption"] = [("preemptions", "preemptions", "", count)]
        if gpu_data.any_positive("migrations"):
            groups["preemption"].append(("migrations", "migrations", "", count))
        if gpu_data.is_known("lost_gpu_hours"):
            groups["preemption"].append(("lost_gpu_hours", "lost GPU-hours", "less", number))
    note = ""
    if gpu_data.is_known("mean_rho"):
        groups["finish-time fairness"] = [
            ("mean_rho", "mean rho", "less", number),
            ("max_rho", "largest rho", "less", number),
            ("unfair_share", "jobs above 1.05", "less", share),
        ]
        note = (
            "Rho: completion time relative to that alone on a fair share of the cluster; above 1, sharing slowed the "
            "job."
        )
    if not groups:
        return None
    caption = "Preemption and fairness" if len(groups) > 1 else next(iter(groups)).capitalize()
    return _policy_table(gpu_data, caption, groups, note)


def _policy_table(gpu_data: GpuData, caption: str, groups: dict[str, list[Metric]], note: str) -> ReportTable:
    """A table with a row for each policy, best first; the best value of each column is marked."""

    def of(key: str, label: str, better: str, cell: NumberFormat) -> ReportColumn:
        values = {policy: row[key] for policy, row in gpu_data.table.items()}
        return column(
            label,
            values,
            lambda value: _formatted(value, cell),
            better=better,
            order=gpu_data.order,
            candidates=gpu_data.data.real,
        )

    suffix = "" if gpu_data.comparison.batched else f", means of {len(gpu_data.comparison.windows)} windows"
    return table_of_columns(
        f"{caption}{suffix}",
        "policy",
        [_label(gpu_data, policy) for policy in gpu_data.order],
        [of(*metric) for metrics in groups.values() for metric in metrics],
        groups=[("", 1), *((name.strip(), len(metrics)) for name, metrics in groups.items())],
        faint=range(len(gpu_data.data.real), len(gpu_data.order)),
        folded=range(len(gpu_data.data.real), len(gpu_data.order)),
        note=note,
    )


def type_table(gpu_data: GpuData) -> ReportTable:
    """Metrics by GPU type with a group of columns for each policy."""
    rows = [row for rows in gpu_data.types.values() for row in rows]
    shared = any(row["shared"] > 0 for row in rows)
    columns: list[RowColumn] = [("jobs", "jobs", count)]
    if len(gpu_data.types) == 1:  # with several policies the table would be too wide
        columns.append(("gpu_hours", "GPU-hours", number))
    columns.append(("utilization", "allocated", share))
    columns += [("shared", "shared", share)] if shared else []
    columns += [("preemptions", "preempted", count)] if any(row["preemptions"] for row in rows) else []
    columns += [("migrations", "migrated", count)] if any(row["migrations"] for row in rows) else []
    note = "Allocated: while jobs arrive."
    if shared:
        note += " Shared: share of the time in use in which a GPU ran two or more jobs."
    first: list[RowColumn] = [("nodes", "nodes", count), ("gpus", "GPUs", count)]
    return _row_table(gpu_data, gpu_data.types, ("type", "GPU type", "By GPU type", note), first, columns)


def priority_table(gpu_data: GpuData) -> ReportTable | None:
    """Metrics by job priority with a group of columns for each policy; None where all priorities are equal."""
    rows = [row for rows in gpu_data.priorities.values() for row in rows]
    if len({row["priority"] for row in rows}) < 2:
        return None
    single = len(gpu_data.priorities) == 1
    columns: list[RowColumn] = [("mean_jct_s", "mean JCT", format_duration)]
    columns += [("p95_jct_s", "95th percentile", format_duration)] if single else []
    columns.append(("mean_queueing_s", "mean queueing", format_duration))
    columns += [("gpu_hours", "GPU-hours", number)] if single else []
    columns += [("preemptions", "preempted", count)] if any(row["preemptions"] for row in rows) else []
    names = ("priority", "priority", "By job priority, highest first", "")
    return _row_table(gpu_data, gpu_data.priorities, names, [("jobs", "jobs", count)], columns)


def _row_table(
    gpu_data: GpuData,
    rows_by_policy: dict[int, list[Row]],
    names: tuple[str, str, str, str],
    common: Sequence[RowColumn],
    columns: Sequence[RowColumn],
) -> ReportTable:
    """A table with the columns `common` first, then `columns` once for each policy.

    `names` are the key of the rows, their heading, the caption and the note.
    """
    key, head, caption, note = names
    lines = []
    for place, row in enumerate(next(iter(rows_by_policy.values()))):
        cells = [row[key] if isinstance(row[key], str) else f"{row[key]:g}"]
        cells += [cell(row[name]) for name, _, cell in common]
        cells += [_formatted(rows[place][name], cell) for rows in rows_by_policy.values() for name, _, cell in columns]
        lines.append(cells)
    groups = [("", 1 + len(common)), *((_label(gpu_data, policy), len(columns)) for policy in rows_by_policy)]
    heads = [head, *(label for _, label, _ in common), *([label for _, label, _ in columns] * len(rows_by_policy))]
    return ReportTable(caption, heads, lines, groups=groups, note=note)


def _formatted(value: float, cell: NumberFormat) -> str:
    return "–" if math.isnan(value) else cell(value)
