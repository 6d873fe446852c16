"""The tables of GPUs as HTML: contenders side by side, by type of GPU, by priority of job."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from kilowait.report.format import count, number, share
from kilowait.report.gpu.data import GpuData, Row, sentences
from kilowait.report.html import (
    best_of,
    marked_cell,
    table,
    text,
)
from kilowait.units import format_span

__all__ = ["gpu_table", "gpu_words", "priority_table", "preemption_table", "type_table"]

Cell = Callable[[float], str]
Column = tuple[str, str, Cell]
"""Key, heading, how a value is written."""
Figure = tuple[str, str, str, Cell]
"""The same with what is better before the last: less, more, or nothing of the kind."""


def gpu_words(held: GpuData) -> str:
    """What one sees, in sentences."""
    return "".join(f"<p>{text(said)}</p>" for said in sentences(held))


def gpu_table(held: GpuData) -> str:
    """Every contender: completion times, queueing, makespan, how the GPUs were used."""
    groups: list[tuple[str, list[Figure]]] = [
        (
            "completion time (JCT)",
            [
                ("mean_jct_s", "mean", "less", format_span),
                ("median_jct_s", "half below", "less", format_span),
                ("p95_jct_s", "95 % below", "less", format_span),
            ],
        ),
        (
            "queueing",
            [
                ("mean_queueing_s", "mean", "less", format_span),
                ("p95_queueing_s", "95 % below", "less", format_span),
            ],
        ),
        ("", [("makespan_s", "makespan", "less", format_span)]),
        (
            "GPUs",
            [
                ("gpu_utilization", "held", "more", share),
                ("flops_utilization", "by FLOPS", "more", share),
                ("mean_fragmentation", "fragments", "less", share),
            ],
        ),
    ]
    if held.any("unfinished_jobs"):
        groups.append(("", [("unfinished_jobs", "jobs not finished", "less", count)]))
    made = _contenders(held, f"GPUs on {text(held.found.trace)}", groups)
    return f'{made}<p class="note">{text(_note(held))}</p>'


def preemption_table(held: GpuData) -> str:
    """What preemption and moves cost, and how fair the schedule is; nothing where neither is known."""
    groups: list[tuple[str, list[Figure]]] = []
    if held.any("preemptions", "migrations"):
        moved: list[Figure] = [("preemptions", "preemptions", "", count)]
        if held.any("migrations"):
            moved.append(("migrations", "moves", "", count))
        if held.known("lost_gpu_hours"):
            moved.append(("lost_gpu_hours", "GPU-hours of work lost", "less", number))
        groups.append(("jobs put out", moved))
    if held.known("mean_rho"):
        fair: list[Figure] = [
            ("mean_rho", "mean rho", "less", number),
            ("max_rho", "largest rho", "less", number),
            ("unfair_share", "jobs above 1.05", "less", share),
        ]
        groups.append(("finish-time fairness", fair))
    if not groups:
        return ""
    made = _contenders(
        held, "Preemption and fairness" if len(groups) > 1 else text(groups[0][0].capitalize()), groups
    )
    if not held.known("mean_rho"):
        return made
    said = "Rho: completion time over that with a fair share of the cluster alone; above 1 a job fared worse than so."
    return f'{made}<p class="note">{said}</p>'


def _contenders(held: GpuData, caption: str, groups: Sequence[tuple[str, list[Figure]]]) -> str:
    """A row for each contender, best first; the best of each column marked."""
    columns = [column for _, members in groups for column in members]
    best = {
        key: best_of(_values(held, key), held.found.real, better) if better else set()
        for key, _, better, _ in columns
    }
    rows = [
        [
            escape(held.contest.labels[who]),
            *(
                marked_cell(cell(held.table[who][key]) if _is(held, who, key) else "–", who in best[key])
                for key, _, _, cell in columns
            ),
        ]
        for who in held.order
    ]
    each = "" if held.contest.batched else f", means of {len(held.contest.windows)} windows"
    return table(
        f"{caption}{each}",
        ["contender", *(text(words) for _, words, _, _ in columns)],
        rows,
        groups=[("", 1), *((text(name), len(members)) for name, members in groups)],
        faint=range(len(held.found.real), len(rows)),
    )


def _note(held: GpuData) -> str:
    note = (
        "Queueing: all the time without a place, before the first start and between. Held, by FLOPS (each GPU "
        "weighted by its rate) and fragments: while jobs arrive, from the first submission to the last; what is over "
        "the whole makespan, as kilowait simulate prints it, is mostly lower. Fragments: GPUs that are free where "
        "the usual jobs of this log do not fit. "
    )
    unknown = min((row["flops_known_share"] for row in held.table.values()), default=1.0)
    if unknown < 1:
        note += f"Rates are known of {share(unknown)} of the GPUs. "
    return note.strip()


def type_table(held: GpuData) -> str:
    """Types of GPU, contenders side by side."""
    moved = any(row["migrations"] for rows in held.types.values() for row in rows)
    put_out = any(row["preemptions"] for rows in held.types.values() for row in rows)
    shared = any(row["shared"] > 0 for rows in held.types.values() for row in rows)
    columns: list[Column] = [("jobs", "jobs", count), ("utilization", "held", share)]
    if len(held.types) == 1:  # of several the table would be too wide
        columns.insert(1, ("gpu_hours", "GPU-hours", number))
    columns += [("shared", "shared", share)] if shared else []
    columns += [("preemptions", "preempted", count)] if put_out else []
    columns += [("migrations", "moved", count)] if moved else []
    own: list[Column] = [("nodes", "nodes", count), ("gpus", "GPUs", count)]
    made = _by(held, held.types, "type", "GPU type", "By type of GPU", own, columns)
    said = "Held: while jobs arrive." + (
        " Shared: of the time in which a GPU had a job, the part in which it had two or more."
        if shared
        else ""
    )
    return f'{made}<p class="note">{text(said)}</p>'


def priority_table(held: GpuData) -> str:
    """Priorities of jobs, contenders side by side; nothing where all have the same."""
    names = {row["priority"] for rows in held.priorities.values() for row in rows}
    if len(names) < 2:
        return ""
    columns: list[Column] = [
        ("mean_jct_s", "mean JCT", format_span),
        ("mean_queueing_s", "mean queueing", format_span),
    ]
    if len(held.priorities) == 1:
        columns.insert(1, ("p95_jct_s", "95 % below", format_span))
        columns.append(("gpu_hours", "GPU-hours", number))
    if any(row["preemptions"] for rows in held.priorities.values() for row in rows):
        columns.append(("preemptions", "preempted", count))
    own: list[Column] = [("jobs", "jobs", count)]
    return _by(
        held, held.priorities, "priority", "priority", "By priority, the most important first", own, columns
    )


def _by(
    held: GpuData,
    given: dict[int, list[Row]],
    key: str,
    head: str,
    caption: str,
    own: Sequence[Column],
    columns: Sequence[Column],
) -> str:
    """A table whose first columns are the same for all; the others stand once for each contender."""
    first = next(iter(given.values()))
    lines = []
    for place, row in enumerate(first):
        name = row[key] if isinstance(row[key], str) else f"{row[key]:g}"
        cells = [escape(name), *(text(cell(row[column])) for column, _, cell in own)]
        for rows in given.values():
            cells += [text(_told(rows[place][column], cell)) for column, _, cell in columns]
        lines.append(cells)
    groups = [("", 1 + len(own)), *((escape(held.contest.labels[who]), len(columns)) for who in given)]
    names = [head, *(words for _, words, _ in own), *([words for _, words, _ in columns] * len(given))]
    return table(caption, [text(name) for name in names], lines, groups=groups)


def _told(value: float, cell: Cell) -> str:
    return "–" if math.isnan(value) else cell(value)


def _is(held: GpuData, who: int, key: str) -> bool:
    return not math.isnan(held.table[who][key])


def _values(held: GpuData, key: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(
        [held.table[who][key] if who in held.table else math.nan for who in range(len(held.contest.labels))]
    )
