"""Interactive charts (time series and Gantt chart): chart data packed for the browser, and the surrounding HTML.

Columns are split into byte planes, deflated and encoded in base64; `assets/packed.js` decodes them.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.evaluation.breakdown import by_class
from kilowait.evaluation.job_measures import started_jobs
from kilowait.evaluation.timeline import timeline
from kilowait.jobs import ExecutionLog
from kilowait.jobs.columns import ColumnArray
from kilowait.report.comparison_data import BOUND_S, ComparisonData
from kilowait.report.drawn_schedule import drawn_jobs, drawn_log, user_names
from kilowait.report.figures import colour_numbers
from kilowait.report.gantt import GanttRows, assign_rows, outages
from kilowait.report.html import text
from kilowait.report.load_over_time import load_over_time
from kilowait.units import format_duration

__all__ = [
    "packed_columns_script",
    "chart",
    "time_axis_note",
    "json_script",
    "gantt_chart",
    "gantt_log",
    "gantt_runs",
    "gantt_rows",
    "size_classes",
    "line_checkbox",
    "time_chart",
    "unix_of",
]

Columns = Mapping[str, npt.NDArray[Any]]
_RISING = frozenset({"id", "submit", "job", "start"})
"""Mostly ascending columns, stored as differences, which are small numbers and compress well."""
BINS = 6000
"""Maximum number of bins of a time-series chart."""
GANTT_SEGMENTS = 1_200_000
"""Maximum number of segments in one Gantt chart, over all its schedules; with more, a page opens slowly."""
_BUTTONS = (("in", "Zoom in", "+"), ("out", "Zoom out", "−"), ("left", "Earlier", "←"), ("right", "Later", "→"))
_OUTAGE_NOTE = (
    "Hatched, from the top: the number of nodes that were unavailable or reserved; which nodes is unknown, so jobs may "
    "overlap the hatching. "
)
_ROW_BUTTONS = (("taller", "Fewer nodes", "↕"), ("flatter", "More nodes", "≡"))


def time_chart(data: ComparisonData, name: str) -> str:
    """Interactive chart of backlog and busy nodes, or of GPUs on node-level clusters, over time."""
    unit = "GPUs" if data.node_level else "nodes"
    logs = [data.log(policy) for policy in data.shown]
    zero_s = TickScale(logs).zero_s
    numbers = colour_numbers(data)
    series, blocks, ticks = [], [], []
    for number, (policy, log) in enumerate(zip(data.shown, logs, strict=True)):
        packed = time_columns(log, zero_s, data.comparison.machine)
        if packed is None:
            continue
        time_range, columns = packed
        label, line = data.comparison.labels[policy], numbers[policy]
        series.append({"label": label, "block": f"{name}-{number}", "line": line, **time_range})
        blocks.append(packed_columns_script(f"{name}-{number}", columns))
        ticks.append(line_checkbox(label, line))
    if not series:
        return "<p>No job started, so there is no chart over time.</p>"
    bin_s = max((line["to"] - line["from"]) / line["bins"] for line in series)
    setup = {
        "zero": zero_s,
        "unix": unix_of(data, zero_s),
        "series": series,
        "panels": [
            {"key": "jobs", "title": "jobs waiting"},
            {"key": "nodes", "title": f"{unit} requested by waiting jobs"},
            {"key": "busy", "title": data.utilization_label, "unit": " %", "top": 100},
        ],
        "readout": f"{{jobs}} jobs waiting for {{nodes}} {unit}, {{busy}} % {data.utilization_label.partition(' ')[2]}",
    }
    names = ", ".join(line["label"] for line in series)
    return chart(
        name,
        "time",
        f"Jobs waiting, {unit} they request and {data.utilization_label} over time, one line each for {names}",
        "".join(ticks),
        "",
        "Point at a time, or press N and P to move the cursor.",
        f"Means over {format_duration(bin_s)}, and over longer bins when zoomed out; with one or two lines, the shaded "
        f"area is their range. {time_axis_note(data)} Drag to select a time span, turn the wheel, pinch or use + "
        "and − to "
        "zoom; arrow keys move, 0 shows all.",
        setup,
        blocks,
    )


def gantt_runs(data: ComparisonData) -> tuple[int, ...]:
    """Policies whose schedules are in the Gantt chart: the most important ones, as many as `GANTT_SEGMENTS` allows."""
    segments = max(len(data.log(data.by_importance[0])), 1)
    largest = max(GANTT_SEGMENTS // segments, 1)
    return tuple(sorted(data.by_importance[: min(largest, len(data.shown))]))


def gantt_log(data: ComparisonData, policy: int) -> ExecutionLog:
    """The log of a schedule, or the part of it that is drawn if it is too large."""
    return drawn_log(data.log(policy), GANTT_SEGMENTS)


def gantt_rows(data: ComparisonData, policy: int) -> GanttRows:
    """Gantt rows of one schedule, with the node-group sizes of the cluster description where it gives them.

    They are rows of the segments of `gantt_log`.
    """
    log = gantt_log(data, policy)
    sizes = {row.get("name"): int(row.get("nodes", 0)) for row in data.comparison.cluster.get("group", ())}
    known = [sizes.get(group, 0) for group in log.groups] if len(log.groups) > 1 else None
    return assign_rows(log, known)


def size_classes(data: ComparisonData) -> list[tuple[int, str]]:
    """Size classes of the drawn jobs: the maximum number of nodes of each, and its label."""
    labels = [row.label for row in by_class(data.log(data.shown[0]), "size")]
    return [(int(label.rpartition("-")[2].lstrip("> ")), label) for label in labels]


def gantt_chart(data: ComparisonData, name: str, rows_by_policy: Mapping[int, GanttRows]) -> str:
    """Interactive Gantt chart with every job as a rectangle; `rows_by_policy` is by `gantt_rows`."""
    logs = {policy: gantt_log(data, policy) for policy in rows_by_policy}
    complete, first = data.log(next(iter(logs))), next(iter(logs.values()))
    jobs = drawn_jobs(complete, GANTT_SEGMENTS)
    warmup = data.comparison.windows[data.typical].warmup
    if not len(first):
        return "<p>No job started, so there is no Gantt chart.</p>"
    ticks = TickScale(list(logs.values()))
    blocks = [packed_columns_script(f"{name}-jobs", jobs_columns(first, ticks))]
    runs = []
    for policy, log in logs.items():
        blocks.append(
            packed_columns_script(f"{name}-{policy}", run_columns(log, rows_by_policy[policy], ticks, BOUND_S))
        )
        runs.append({"label": data.comparison.labels[policy], "block": f"{name}-{policy}"})
    table_of = first.jobs_table
    users, user_of_job = np.unique(table_of.column("user"), return_inverse=True)
    work = np.bincount(user_of_job, weights=table_of["nodes"] * table_of["runtime_s"])
    users = users[np.argsort(-work, kind="stable")]
    largest = max(rows_by_policy.values(), key=lambda rows: rows.rows)
    setup = {
        "zero": ticks.zero_s,
        "unix": unix_of(data, ticks.zero_s),
        "tick": ticks.round_interval_s,
        "length": ticks.last_s - ticks.zero_s,
        "rows": largest.rows,
        "groups": [list(pair) for pair in zip(first.groups, largest.group_rows, strict=True)],
        "warmup": warmup if jobs is None else int(np.searchsorted(jobs, warmup)),
        "jobs": f"{name}-jobs",
        "runs": runs,
        "sizes": size_classes(data),
        "users": user_names(table_of.labels.get("user", ()), users.tolist()),
        "topUsers": users[:7].tolist(),
    }
    outage_list = outages(first)
    if outage_list:
        setup["outages"] = [[from_s - ticks.zero_s, to_s - ticks.zero_s, nodes] for from_s, to_s, nodes in outage_list]
    options = "".join(f'<option value="{number}">{escape(run["label"])}</option>' for number, run in enumerate(runs))
    choices = (
        f"<label>Schedule <select>{options}</select></label>"
        '<label>Colour <select><option value="size">by size</option><option value="user">by user</option>'
        '<option value="wait">by wait</option></select></label>'
    )
    row_note = (
        "Jobs share nodes, so rows are not individual nodes. "
        if largest.shared
        else "Logs do not contain which nodes a job used: the allocation shown is computed, contiguous where possible. "
    )
    if first.pieces is not None:
        row_note = "Jobs use individual GPUs, and several jobs may share a node, so rows are not individual nodes. "
    notes = "Pale: warm-up jobs, which are not counted. " if setup["warmup"] else ""
    if jobs is not None:
        notes += (
            f"Only {len(jobs):,} of {len(complete.jobs_table):,} jobs are drawn, "
            "the part of the schedule with the longest waits. "
        )
    notes += _OUTAGE_NOTE if outage_list else ""
    return chart(
        name,
        "gantt",
        f"Gantt chart of {len(first):,} run segments on {largest.rows:,} rows",
        choices,
        "".join(
            f'<button type="button" data-do="{action}" aria-label="{label}" title="{label}">{symbol}</button>'
            for action, label, symbol in _ROW_BUTTONS
        ),
        "Point at a job, or press N and P for the next or previous job.",
        f"{row_note}{notes}{time_axis_note(data)} Drag to select a time span, turn the wheel, pinch or use + and − "
        "to zoom in "
        "time; Shift and the wheel, or ] and [, zoom on nodes; arrow keys or Shift and drag move, 0 shows all.",
        setup,
        blocks,
    )


def chart(
    name: str,
    kind: str,
    alt: str,
    choices: str,
    extra_buttons: str,
    hint: str,
    caption: str,
    setup: Mapping[str, Any],
    blocks: Sequence[str],
    started_as: str = "chart",
    height_rem: float | None = None,
) -> str:
    """The HTML of a chart: controls above the canvas, read-out and caption below it, the data at the end.

    `started_as` is the data attribute by which a script finds its charts; `height_rem` is the height of the canvas
    where it differs from the default of its kind.
    """
    height = "" if height_rem is None else f' style="height: {height_rem:g}rem"'
    buttons = "".join(
        f'<button type="button" data-do="{action}" aria-label="{label}" title="{label}">{symbol}</button>'
        for action, label, symbol in _BUTTONS
    )
    return (
        f'<figure class="chart" data-{started_as}="{kind}" id="{name}">'
        '<div class="tools" role="group" aria-label="Controls">'
        f'<div class="choices">{choices}</div><div class="buttons">{buttons}{extra_buttons}'
        '<button type="button" data-do="reset">All</button></div></div>'
        f'<canvas class="{kind}" tabindex="0" role="application" aria-label="{escape(alt)}"{height} '
        f'aria-describedby="{name}-help"></canvas><div class="legend"></div>'
        f'<output aria-live="polite" aria-atomic="true">{text(hint)}</output>'
        f'<figcaption id="{name}-help">{text(caption)}</figcaption>{json_script(setup)}{"".join(blocks)}'
        '<p class="note waiting">Drawing the chart (requires JavaScript).</p></figure>'
    )


def line_checkbox(label: str, line: int) -> str:
    """A check box that shows or hides a line, with a sample of the line."""
    return (
        '<label class="series"><input type="checkbox" checked><svg viewBox="0 0 28 8" aria-hidden="true">'
        f'<path class="dash{line}" d="M1 4H27" stroke="var(--line{line})"/></svg>{escape(label)}</label>'
    )


def unix_of(data: ComparisonData, zero_s: float) -> float | None:
    """Unix time of a second of log time; None where the log has no start date."""
    start = data.comparison.windows.jobs.meta.get("unix_start_s")
    return None if start is None else float(start) + zero_s


def time_axis_note(data: ComparisonData, window: int | None = None) -> str:
    """A note on the time axis and the window that is drawn; `drawn` is its number where it is not the typical one."""
    windows = len(data.comparison.windows)
    dated = data.comparison.windows.jobs.meta.get("unix_start_s") is not None
    clock = "Dates are UTC." if dated else "Days are counted from the start of the log."
    if windows == 1:
        return clock
    if window is not None:
        return f"{clock} This is window {window + 1} of {windows}."
    return (
        f"{clock} This is window {data.typical + 1} of {windows}, the typical one: its {data.lead.label} under "
        f"{data.comparison.labels[0]} is the median of all windows."
    )


# -- packing ----------------------------------------------------------------------------------------


def packed_columns_script(name: str, columns: Columns) -> str:
    """The packed columns as a script element that browsers do not run, with the id `name`.

    >>> print(packed_columns_script("x", {"nodes": np.array([1, 2], np.int32)})[:88])
    <script type="text/plain" id="x" data-columns="[[&quot;nodes&quot;,&quot;i&quot;,2,0]]">
    """
    listed, planes = [], []
    for key, column in columns.items():
        rising = key in _RISING and column.dtype == np.int32 and len(column) > 0
        # int32 differences may wrap around; the cumulative sum in the browser wraps back.
        values = np.diff(column, prepend=np.int32(0)) if rising else column
        kind = {"i4": "i", "f4": "f", "f8": "g"}[values.dtype.str[1:]]
        listed.append([key, kind, len(values), int(rising)])
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        planes.append(little.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes())
    packed = base64.b64encode(zlib.compress(b"".join(planes))).decode("ascii")
    head = escape(json.dumps(listed, separators=(",", ":")))
    return f'<script type="text/plain" id="{escape(name)}" data-columns="{head}">{packed}</script>'


def json_script(value: Any) -> str:
    """JSON as a script element, escaped so that it cannot end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return f'<script type="application/json">{text.replace("<", chr(92) + "u003c")}</script>'


class TickScale:
    """Times as int32 numbers of ticks since `zero_s`; a tick is 1 s if all times are whole, else minimal."""

    def __init__(self, logs: list[ExecutionLog]) -> None:
        table = logs[0].jobs_table
        times = [table["submit_s"], *(log.start_s for log in logs), *(log.end_s for log in logs)]
        self.zero_s = min((float(part.min()) for part in times if len(part)), default=0.0)
        self.last_s = max((float(part.max()) for part in times if len(part)), default=0.0)
        longest = max(self.last_s - self.zero_s, float(table["runtime_s"].max(initial=0.0)), 1.0)
        whole = all(bool((part == np.floor(part)).all()) for part in [*times, table["runtime_s"]])
        self.round_interval_s = 1.0 if whole else 0.001
        while longest / self.round_interval_s >= 2**31 - 1:
            self.round_interval_s *= 10.0

    def of(self, seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """Durations in ticks."""
        return np.rint(np.nan_to_num(seconds) / self.round_interval_s).astype(np.int32)

    def at(self, seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """Points in time in ticks since `zero_s`."""
        return self.of(seconds - self.zero_s)


def jobs_columns(log: ExecutionLog, ticks: TickScale) -> dict[str, ColumnArray]:
    """The columns that all policies share: id, user, nodes, submission and run time of every job."""
    table = log.jobs_table
    return {
        "id": _narrow(table["job_id"]),
        "user": table.column("user").astype(np.int32),
        "nodes": _narrow(table["nodes"]),
        "submit": ticks.at(table["submit_s"]),
        "runtime": ticks.of(table["runtime_s"]),
    }


def run_columns(
    log: ExecutionLog, rows_by_policy: GanttRows, ticks: TickScale, bound_s: float
) -> dict[str, ColumnArray]:
    """The segments and rectangles of one policy, by start, stored as differences to the shared columns.

    For each segment: `job` (row), `start`, `over` (duration minus the job's run time), `late` (start minus submission
    minus the job's wait), `bsld` of its job, `more` (pieces beyond the first). For each piece: `row`, and `less` (the
    job's nodes minus those of the piece).
    """
    shared = jobs_columns(log, ticks)
    order = np.argsort(log.start_s, kind="stable")  # logs are in decision order
    rank = np.empty(len(log), np.int64)
    rank[order] = np.arange(len(log))
    piece_order = np.argsort(rank[rows_by_policy.segment], kind="stable")
    job = log.job[order].astype(np.int32)
    start = ticks.at(log.start_s[order])
    job_measures = started_jobs(log, bound_s)
    bsld = np.full(len(log.jobs_table), np.nan)
    bsld[job_measures.row] = job_measures.bsld
    joined = ticks.at(log.eligible_s)[job]
    pieces = np.bincount(rows_by_policy.segment, minlength=len(log))
    return {
        "job": job,
        "start": start,
        "over": ticks.at(log.end_s[order]) - start - shared["runtime"][job],
        "late": joined - shared["submit"][job] + start - ticks.at(log.jobs()["start_s"])[job],
        "bsld": bsld[job].astype(np.float32),
        "more": (pieces[order] - 1).astype(np.int32),
        "row": rows_by_policy.first[piece_order].astype(np.int32),
        "less": (log.jobs_table["nodes"][log.job[rows_by_policy.segment]] - rows_by_policy.count)[piece_order].astype(
            np.int32
        ),
    }


def time_columns(
    log: ExecutionLog, zero_s: float, machine: Cluster | None = None
) -> tuple[dict[str, Any], dict[str, ColumnArray]] | None:
    """Time range and binned columns of backlog and busy nodes (GPUs on node-level clusters); None for an empty log."""
    load_steps = timeline(log)
    if len(load_steps) < 2:
        return None
    load = load_over_time(load_steps, log, machine, BINS)
    columns = {"jobs": load.jobs, "nodes": load.requested, "busy": load.busy}
    edge = load.edge_s
    time_range = {"from": float(edge[0]) - zero_s, "to": float(edge[-1]) - zero_s, "bins": len(edge) - 1}
    return time_range, {name: values.astype(np.float32) for name, values in columns.items()}


def _narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Integers as int32, or as float64 where they do not fit."""
    if len(values) and (values.max() >= 2**31 or values.min() < -(2**31)):
        return values.astype(np.float64)
    return values.astype(np.int32)
