"""The two charts one can move about in: their data packed for the browser, and the HTML around them.

Columns travel as byte planes, deflated, in base64; `assets/packed.js` takes them apart again.
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
from kilowait.evaluation.job_measures import started
from kilowait.evaluation.timeline import timeline
from kilowait.jobs import ExecutionLog
from kilowait.jobs.columns import ColumnArray
from kilowait.report.comparison_data import BOUND_S, ComparisonData
from kilowait.report.figures import line_numbers
from kilowait.report.gantt import GanttRows, lanes, outages
from kilowait.report.html import text
from kilowait.report.load_over_time import load_over_time
from kilowait.units import format_span

__all__ = [
    "block",
    "chart",
    "clock_words",
    "data",
    "gantt_chart",
    "gantt_runs",
    "rows_of",
    "size_classes",
    "tick",
    "time_chart",
    "unix_of",
]

Columns = Mapping[str, npt.NDArray[Any]]
_RISING = frozenset({"id", "submit", "job", "start"})
"""Columns that mostly rise a little from row to row: their differences are small numbers."""
BINS = 6000
"""Bins of the chart over time."""
GANTT_SEGMENTS = 1_200_000
"""Segments in one Gantt chart, all its schedules together: beyond that a page opens slowly."""
_BUTTONS = (
    ("in", "Zoom in", "+"),
    ("out", "Zoom out", "−"),
    ("left", "Earlier", "←"),
    ("right", "Later", "→"),
)
_OUT = "Hatched, from the top: as many nodes as were out or reserved; which ones nobody knows, jobs may lie over them. "
_ROW_BUTTONS = (("taller", "Fewer nodes", "↕"), ("flatter", "More nodes", "≡"))


def time_chart(found: ComparisonData, name: str) -> str:
    """Backlog and busy nodes, or GPUs where they are given out singly, interactive."""
    unit = "GPUs" if found.placed else "nodes"
    logs = [found.log(who) for who in found.shown]
    zero_s = Ticks(logs).zero_s
    numbers = line_numbers(found)
    series, blocks, ticks = [], [], []
    for place, (who, log) in enumerate(zip(found.shown, logs, strict=True)):
        packed = time_columns(log, zero_s, found.contest.machine)
        if packed is None:
            continue
        reach, columns = packed
        label, line = found.contest.labels[who], numbers[who]
        series.append({"label": label, "block": f"{name}-{place}", "line": line, **reach})
        blocks.append(block(f"{name}-{place}", columns))
        ticks.append(tick(label, line))
    if not series:
        return "<p>No job started, so there is nothing to draw over time.</p>"
    bin_s = max((line["to"] - line["from"]) / line["bins"] for line in series)
    setup = {
        "zero": zero_s,
        "unix": unix_of(found, zero_s),
        "series": series,
        "panels": [
            {"key": "jobs", "title": "jobs waiting"},
            {"key": "nodes", "title": f"{unit} they ask for"},
            {"key": "busy", "title": found.busy_words, "unit": " %", "top": 100},
        ],
        "told": f"{{jobs}} jobs waiting for {{nodes}} {unit}, {{busy}} % {found.busy_words.partition(' ')[2]}",
    }
    names = ", ".join(line["label"] for line in series)
    return chart(
        name,
        "time",
        f"Jobs waiting, {unit} they ask for and {found.busy_words} over time, a line each for {names}",
        "".join(ticks),
        "",
        "Point at a time, or press N and P to move along.",
        f"Means over {format_span(bin_s)}, and over more where many of them lie close; with one or two lines, the "
        f"veil is their range. {clock_words(found)} Drag across a stretch, turn the wheel, pinch or use + and − to "
        "zoom; arrows move, 0 shows all.",
        setup,
        blocks,
    )


def gantt_runs(found: ComparisonData) -> tuple[int, ...]:
    """Contenders whose schedules are drawn node by node: those one wants to see first, as many as fit."""
    segments = max(len(found.log(found.wanted[0])), 1)
    most = max(GANTT_SEGMENTS // segments, 1)
    return tuple(sorted(found.wanted[: min(most, len(found.shown))]))


def rows_of(found: ComparisonData, who: int) -> GanttRows:
    """Rows for one schedule, with the sizes of the groups where the machine's description gives them."""
    log = found.log(who)
    sizes = {row.get("name"): int(row.get("nodes", 0)) for row in found.contest.cluster.get("group", ())}
    known = [sizes.get(group, 0) for group in log.groups] if len(log.groups) > 1 else None
    return lanes(log, known)


def size_classes(found: ComparisonData) -> list[tuple[int, str]]:
    """Classes of sizes among the jobs drawn: the most nodes of each, and its name."""
    labels = [row.label for row in by_class(found.log(found.shown[0]), "size")]
    return [(int(label.rpartition("-")[2].lstrip("> ")), label) for label in labels]


def gantt_chart(found: ComparisonData, name: str, given: Mapping[int, GanttRows]) -> str:
    """Every job as a rectangle, interactive; `given` has the rows of each schedule."""
    logs = {who: found.log(who) for who in given}
    first = next(iter(logs.values()))
    if not len(first):
        return "<p>No job started, so there is nothing to draw.</p>"
    ticks = Ticks(list(logs.values()))
    blocks = [block(f"{name}-jobs", jobs_columns(first, ticks))]
    runs = []
    for who, log in logs.items():
        blocks.append(block(f"{name}-{who}", run_columns(log, given[who], ticks, BOUND_S)))
        runs.append({"label": found.contest.labels[who], "block": f"{name}-{who}"})
    table_of = first.jobs_table
    users, of = np.unique(table_of.column("user"), return_inverse=True)
    work = np.bincount(of, weights=table_of["nodes"] * table_of["runtime_s"])
    top = users[np.argsort(-work, kind="stable")[:7]].tolist()
    most = max(given.values(), key=lambda rows: rows.rows)
    setup = {
        "zero": ticks.zero_s,
        "unix": unix_of(found, ticks.zero_s),
        "tick": ticks.round_interval_s,
        "length": ticks.last_s - ticks.zero_s,
        "rows": most.rows,
        "groups": [list(pair) for pair in zip(first.groups, most.group_rows, strict=True)],
        "warmup": found.contest.windows[found.typical].warmup,
        "jobs": f"{name}-jobs",
        "runs": runs,
        "sizes": size_classes(found),
        "users": list(table_of.labels.get("user", ())),
        "topUsers": top,
    }
    out = outages(first)
    if out:
        setup["outages"] = [
            [from_s - ticks.zero_s, to_s - ticks.zero_s, nodes] for from_s, to_s, nodes in out
        ]
    options = "".join(
        f'<option value="{place}">{escape(run["label"])}</option>' for place, run in enumerate(runs)
    )
    choices = (
        f"<label>Schedule <select>{options}</select></label>"
        '<label>Colour <select><option value="size">by size</option><option value="user">by user</option>'
        '<option value="wait">by wait</option></select></label>'
    )
    rows = (
        "Jobs share nodes here, so rows are lanes, not nodes. "
        if most.shared
        else "Which nodes a job had is worked out afterwards, side by side where there was room. "
    )
    if first.pieces is not None:
        rows = "Jobs hold single GPUs here, and several jobs may share a node: rows are lanes, not nodes. "
    pale = "Pale: jobs that only warm the machine up. " if setup["warmup"] else ""
    pale += _OUT if out else ""
    return chart(
        name,
        "gantt",
        f"Gantt chart of {len(first):,} stretches of running on {most.rows:,} rows",
        choices,
        "".join(
            f'<button type="button" data-do="{do}" aria-label="{words}" title="{words}">{sign}</button>'
            for do, words, sign in _ROW_BUTTONS
        ),
        "Point at a job, or press N and P to go from job to job.",
        f"{rows}{pale}{clock_words(found)} Drag across a stretch, turn the wheel, pinch or use + and − to zoom in "
        "time; Shift and the wheel, or ] and [, to zoom on nodes; arrows or Shift and drag move, 0 shows all.",
        setup,
        blocks,
    )


def chart(
    name: str,
    kind: str,
    alt: str,
    choices: str,
    more: str,
    hint: str,
    caption: str,
    setup: Mapping[str, Any],
    blocks: Sequence[str],
    started_as: str = "chart",
    height_rem: float | None = None,
) -> str:
    """The HTML around a canvas: tools above it, what is told and the caption below, the data at the end.

    `started_as` is the attribute by which a script finds the charts that it starts; `height_rem` the height of the
    canvas, where it is not that of its kind.
    """
    height = "" if height_rem is None else f' style="height: {height_rem:g}rem"'
    buttons = "".join(
        f'<button type="button" data-do="{do}" aria-label="{words}" title="{words}">{sign}</button>'
        for do, words, sign in _BUTTONS
    )
    return (
        f'<figure class="chart" data-{started_as}="{kind}" id="{name}">'
        '<div class="tools" role="group" aria-label="Controls">'
        f'<div class="choices">{choices}</div><div class="buttons">{buttons}{more}'
        '<button type="button" data-do="reset">All</button></div></div>'
        f'<canvas class="{kind}" tabindex="0" role="application" aria-label="{escape(alt)}"{height} '
        f'aria-describedby="{name}-help"></canvas><div class="legend"></div>'
        f'<output aria-live="polite" aria-atomic="true">{text(hint)}</output>'
        f'<figcaption id="{name}-help">{text(caption)}</figcaption>{data(setup)}{"".join(blocks)}'
        '<p class="note waiting">Drawing the chart, for which the browser must run scripts.</p></figure>'
    )


def tick(label: str, line: int) -> str:
    """A box that switches a line on and off, with a piece of that line."""
    return (
        '<label class="series"><input type="checkbox" checked><svg viewBox="0 0 28 8" aria-hidden="true">'
        f'<path class="dash{line}" d="M1 4H27" stroke="var(--line{line})"/></svg>{escape(label)}</label>'
    )


def unix_of(found: ComparisonData, zero_s: float) -> float | None:
    """The moment of a second of the log's clock, since 1970; None where the log does not say."""
    start = found.contest.windows.jobs.meta.get("unix_start_s")
    return None if start is None else float(start) + zero_s


def clock_words(found: ComparisonData, drawn: int | None = None) -> str:
    """Which window is drawn (where it is not the typical one, its number), and on what clock."""
    windows = len(found.contest.windows)
    dated = found.contest.windows.jobs.meta.get("unix_start_s") is not None
    clock = "Dates are UTC." if dated else "Days are counted on the log’s own clock."
    if windows == 1:
        return clock
    if drawn is not None:
        return f"{clock} This is window {drawn + 1} of {windows}."
    return (
        f"{clock} This is window {found.typical + 1} of {windows}, the typical one: its {found.lead.words} under "
        f"{found.contest.labels[0]} is the median."
    )


# -- packing ----------------------------------------------------------------------------------------


def block(name: str, columns: Columns) -> str:
    """The columns as a script element that no browser runs, with the id `name`.

    >>> print(block("x", {"nodes": np.array([1, 2], np.int32)})[:88])
    <script type="text/plain" id="x" data-columns="[[&quot;nodes&quot;,&quot;i&quot;,2,0]]">
    """
    listed, planes = [], []
    for key, column in columns.items():
        rising = key in _RISING and column.dtype == np.int32 and len(column) > 0
        # Differences wrap around, and adding them up wraps back.
        values = np.diff(column, prepend=np.int32(0)) if rising else column
        kind = {"i4": "i", "f4": "f", "f8": "g"}[values.dtype.str[1:]]
        listed.append([key, kind, len(values), int(rising)])
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        planes.append(little.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes())
    packed = base64.b64encode(zlib.compress(b"".join(planes))).decode("ascii")
    head = escape(json.dumps(listed, separators=(",", ":")))
    return f'<script type="text/plain" id="{escape(name)}" data-columns="{head}">{packed}</script>'


def data(value: Any) -> str:
    """Plain data as a script element; nothing in it can end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return f'<script type="application/json">{text.replace("<", chr(92) + "u003c")}</script>'


class Ticks:
    """Times as whole numbers of ticks since `zero_s`: seconds where they are whole, else as fine as 32 bits allow."""

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
        """A span in ticks."""
        return np.rint(np.nan_to_num(seconds) / self.round_interval_s).astype(np.int32)

    def at(self, seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
        """An instant in ticks since zero."""
        return self.of(seconds - self.zero_s)


def jobs_columns(log: ExecutionLog, ticks: Ticks) -> dict[str, ColumnArray]:
    """What all contenders share: id, user, nodes, submission and run time of every job of the table."""
    table = log.jobs_table
    return {
        "id": _narrow(table["job_id"]),
        "user": table.column("user").astype(np.int32),
        "nodes": _narrow(table["nodes"]),
        "submit": ticks.at(table["submit_s"]),
        "runtime": ticks.of(table["runtime_s"]),
    }


def run_columns(log: ExecutionLog, given: GanttRows, ticks: Ticks, bound_s: float) -> dict[str, ColumnArray]:
    """One contender's segments and rectangles, by start. What the shared columns give is kept as the difference.

    Of each segment: `job` (row), `start`, `over` (run less the job's run time), `late` (start less submission, less
    the job's wait), `bsld` of its job, `more` (pieces beyond the first); of each piece: `row`, and `less` (the job's
    nodes less those of the piece).
    """
    shared = jobs_columns(log, ticks)
    order = np.argsort(log.start_s, kind="stable")  # a log has them as they were decided
    rank = np.empty(len(log), np.int64)
    rank[order] = np.arange(len(log))
    piece = np.argsort(rank[given.segment], kind="stable")
    job = log.job[order].astype(np.int32)
    start = ticks.at(log.start_s[order])
    ran = started(log, bound_s)
    bsld = np.full(len(log.jobs_table), np.nan)
    bsld[ran.row] = ran.bsld
    joined = ticks.at(log.eligible_s)[job]
    pieces = np.bincount(given.segment, minlength=len(log))
    return {
        "job": job,
        "start": start,
        "over": ticks.at(log.end_s[order]) - start - shared["runtime"][job],
        "late": joined - shared["submit"][job] + start - ticks.at(log.jobs()["start_s"])[job],
        "bsld": bsld[job].astype(np.float32),
        "more": (pieces[order] - 1).astype(np.int32),
        "row": given.first[piece].astype(np.int32),
        "less": (log.jobs_table["nodes"][log.job[given.segment]] - given.count)[piece].astype(np.int32),
    }


def time_columns(
    log: ExecutionLog, zero_s: float, machine: Cluster | None = None
) -> tuple[dict[str, Any], dict[str, ColumnArray]] | None:
    """Backlog and busy nodes (of a machine whose nodes are placed: GPUs) in equal bins, and from when to when; None
    where nothing happened."""
    steps = timeline(log)
    if len(steps) < 2:
        return None
    over = load_over_time(steps, log, machine, BINS)
    columns = {"jobs": over.jobs, "nodes": over.asked, "busy": over.busy}
    edge = over.edge_s
    reach = {"from": float(edge[0]) - zero_s, "to": float(edge[-1]) - zero_s, "bins": len(edge) - 1}
    return reach, {name: values.astype(np.float32) for name, values in columns.items()}


def _narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Whole numbers in 32 bits, or as doubles where they are larger."""
    if len(values) and (values.max() >= 2**31 or values.min() < -(2**31)):
        return values.astype(np.float64)
    return values.astype(np.int32)
