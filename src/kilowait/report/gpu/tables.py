"""HTML tables of GPU metrics: by policy, by GPU type and by job priority."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from kilowait.report.format import count, number, share
from kilowait.report.gpu.data import GpuData, Row, sentences
from kilowait.report.html import best_of, marked_cell, table, text
from kilowait.units import format_duration

__all__ = ["gpu_table", "gpu_sentences", "priority_table", "preemption_table", "type_table"]

Cell = Callable[[float], str]
Column = tuple[str, str, Cell]
"""Key, heading, and function that formats a value."""
Metric = tuple[str, str, str, Cell]
"""Key, heading, which values are better (less, more, or empty), and function that formats a value."""


def gpu_sentences(gpu_data: GpuData) -> str:
    """The summary sentences as HTML."""
    return "".join(f"<p>{text(sentence)}</p>" for sentence in sentences(gpu_data))


def gpu_table(gpu_data: GpuData) -> str:
    """Completion times, queueing, makespan and GPU usage of every policy."""
    groups: list[tuple[str, list[Metric]]] = [
        (
            "completion time (JCT)",
            [
                ("mean_jct_s", "mean", "less", format_duration),
                ("median_jct_s", "median", "less", format_duration),
                ("p95_jct_s", "95th percentile", "less", format_duration),
            ],
        ),
        (
            "queueing",
            [
                ("mean_queueing_s", "mean", "less", format_duration),
                ("p95_queueing_s", "95th percentile", "less", format_duration),
            ],
        ),
        ("", [("makespan_s", "makespan", "less", format_duration)]),
        (
            "GPUs",
            [
                ("gpu_utilization", "allocated", "more", share),
                ("flops_utilization", "by FLOPS", "more", share),
                ("mean_fragmentation", "fragmentation", "less", share),
            ],
        ),
    ]
    if gpu_data.any_positive("unfinished_jobs"):
        groups.append(("", [("unfinished_jobs", "unfinished jobs", "less", count)]))
    html_table = _policy_table(gpu_data, f"GPUs on {text(gpu_data.data.trace)}", groups)
    return f'{html_table}<p class="note">{text(_note(gpu_data))}</p>'


def preemption_table(gpu_data: GpuData) -> str:
    """Preemptions, migrations, lost work and finish-time fairness; empty where none is known."""
    groups: list[tuple[str, list[Metric]]] = []
    if gpu_data.any_positive("preemptions", "migrations"):
        preemption: list[Metric] = [("preemptions", "preemptions", "", count)]
        if gpu_data.any_positive("migrations"):
            preemption.append(("migrations", "migrations", "", count))
        if gpu_data.is_known("lost_gpu_hours"):
            preemption.append(("lost_gpu_hours", "lost GPU-hours", "less", number))
        groups.append(("preemption", preemption))
    if gpu_data.is_known("mean_rho"):
        fairness: list[Metric] = [
            ("mean_rho", "mean rho", "less", number),
            ("max_rho", "largest rho", "less", number),
            ("unfair_share", "jobs above 1.05", "less", share),
        ]
        groups.append(("finish-time fairness", fairness))
    if not groups:
        return ""
    html_table = _policy_table(
        gpu_data, "Preemption and fairness" if len(groups) > 1 else text(groups[0][0].capitalize()), groups
    )
    if not gpu_data.is_known("mean_rho"):
        return html_table
    note = (
        "Rho: completion time relative to that alone on a fair share of the cluster; above 1, sharing slowed the job."
    )
    return f'{html_table}<p class="note">{note}</p>'


def _policy_table(gpu_data: GpuData, caption: str, groups: Sequence[tuple[str, list[Metric]]]) -> str:
    """A table with a row for each policy, best first; the best value of each column is marked."""
    columns = [column for _, members in groups for column in members]
    best = {
        key: best_of(_values(gpu_data, key), gpu_data.data.real, better) if better else set()
        for key, _, better, _ in columns
    }
    rows = [
        [
            escape(gpu_data.comparison.labels[policy]),
            *(
                marked_cell(
                    cell(gpu_data.table[policy][key]) if _is_known(gpu_data, policy, key) else "–", policy in best[key]
                )
                for key, _, _, cell in columns
            ),
        ]
        for policy in gpu_data.order
    ]
    suffix = "" if gpu_data.comparison.batched else f", means of {len(gpu_data.comparison.windows)} windows"
    return table(
        f"{caption}{suffix}",
        ["policy", *(text(label) for _, label, _, _ in columns)],
        rows,
        groups=[("", 1), *((text(name), len(members)) for name, members in groups)],
        faint=range(len(gpu_data.data.real), len(rows)),
    )


def _note(gpu_data: GpuData) -> str:
    note = (
        "Queueing: all the time without an allocation, before the first start and after preemptions. Allocated, "
        "by FLOPS "
        "(GPUs weighted by their FLOPS) and fragmentation are measured while jobs arrive, from the first submission to "
        "the last; over the whole makespan, as kilowait simulate prints them, they are mostly lower. "
        "Fragmentation: GPUs "
        "that are free but unusable for the typical jobs of this log. "
    )
    known_share = min((row["flops_known_share"] for row in gpu_data.table.values()), default=1.0)
    if known_share < 1:
        note += f"FLOPS are known for {share(known_share)} of the GPUs. "
    return note.strip()


def type_table(gpu_data: GpuData) -> str:
    """Metrics by GPU type with a group of columns for each policy."""
    preemption = any(row["migrations"] for rows in gpu_data.types.values() for row in rows)
    preempted = any(row["preemptions"] for rows in gpu_data.types.values() for row in rows)
    shared = any(row["shared"] > 0 for rows in gpu_data.types.values() for row in rows)
    columns: list[Column] = [("jobs", "jobs", count), ("utilization", "allocated", share)]
    if len(gpu_data.types) == 1:  # with several policies the table would be too wide
        columns.insert(1, ("gpu_hours", "GPU-hours", number))
    columns += [("shared", "shared", share)] if shared else []
    columns += [("preemptions", "preempted", count)] if preempted else []
    columns += [("migrations", "migrated", count)] if preemption else []
    common: list[Column] = [("nodes", "nodes", count), ("gpus", "GPUs", count)]
    html_table = _breakdown_table(gpu_data, gpu_data.types, "type", "GPU type", "By GPU type", common, columns)
    note = "Allocated: while jobs arrive." + (
        " Shared: share of the time in use in which a GPU ran two or more jobs." if shared else ""
    )
    return f'{html_table}<p class="note">{text(note)}</p>'


def priority_table(gpu_data: GpuData) -> str:
    """Metrics by job priority with a group of columns for each policy; empty where all priorities are equal."""
    priorities = {row["priority"] for rows in gpu_data.priorities.values() for row in rows}
    if len(priorities) < 2:
        return ""
    columns: list[Column] = [
        ("mean_jct_s", "mean JCT", format_duration),
        ("mean_queueing_s", "mean queueing", format_duration),
    ]
    if len(gpu_data.priorities) == 1:
        columns.insert(1, ("p95_jct_s", "95th percentile", format_duration))
        columns.append(("gpu_hours", "GPU-hours", number))
    if any(row["preemptions"] for rows in gpu_data.priorities.values() for row in rows):
        columns.append(("preemptions", "preempted", count))
    common: list[Column] = [("jobs", "jobs", count)]
    return _breakdown_table(
        gpu_data, gpu_data.priorities, "priority", "priority", "By job priority, highest first", common, columns
    )


def _breakdown_table(
    gpu_data: GpuData,
    rows_by_policy: dict[int, list[Row]],
    key: str,
    head: str,
    caption: str,
    common: Sequence[Column],
    columns: Sequence[Column],
) -> str:
    """A table with the common columns `common` first, then `columns` once for each policy."""
    first = next(iter(rows_by_policy.values()))
    lines = []
    for row_number, row in enumerate(first):
        name = row[key] if isinstance(row[key], str) else f"{row[key]:g}"
        cells = [escape(name), *(text(cell(row[column])) for column, _, cell in common)]
        for rows in rows_by_policy.values():
            cells += [text(_formatted(rows[row_number][column], cell)) for column, _, cell in columns]
        lines.append(cells)
    groups = [
        ("", 1 + len(common)),
        *((escape(gpu_data.comparison.labels[policy]), len(columns)) for policy in rows_by_policy),
    ]
    names = [head, *(label for _, label, _ in common), *([label for _, label, _ in columns] * len(rows_by_policy))]
    return table(caption, [text(name) for name in names], lines, groups=groups)


def _formatted(value: float, cell: Cell) -> str:
    return "–" if math.isnan(value) else cell(value)


def _is_known(gpu_data: GpuData, policy: int, key: str) -> bool:
    return not math.isnan(gpu_data.table[policy][key])


def _values(gpu_data: GpuData, key: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(
        [
            gpu_data.table[policy][key] if policy in gpu_data.table else math.nan
            for policy in range(len(gpu_data.comparison.labels))
        ]
    )
