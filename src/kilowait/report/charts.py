"""Interactive charts as plain data: a JSON document, packed columns, and the texts and controls around the chart.

Columns are split into byte planes, deflated and encoded in base64; `assets/packed.js` decodes them.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.evaluation.comparison import SignalCurve
from kilowait.jobs import ExecutionLog
from kilowait.report.data.comparison import ComparisonData, Floats, load_over_time
from kilowait.report.data.energy import BACKGROUND_SIGNALS, EnergyData, display_name
from kilowait.report.data.gpu import GpuData
from kilowait.report.format import scaled
from kilowait.units import format_duration

_RISING = frozenset({"id", "submit", "job", "start"})
"""Mostly ascending columns, stored as differences, which are small numbers and compress well."""
BINS = 6000
"""Maximum number of bins of a time-series chart."""
GPU_PANEL_REM = 7.0
"""Height of a panel of the GPU chart, rem."""
_READ = "Point at a time, or press N and P to move the cursor."
_ZOOM = "Drag to select a time span, turn the wheel, pinch or use + and − to zoom; arrow keys move, 0 shows all."


@dataclass
class Chart:
    """One chart; a script draws it from the document and the columns."""

    name: str
    """Its id within the page."""
    kind: str
    alt: str = ""
    hint: str = ""
    """What the read-out shows at first."""
    caption: str = ""
    document: dict[str, Any] = field(default_factory=dict)
    """The settings of the script; plain JSON. Its `block` entries name columns."""
    columns: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Packed columns by name, see `pack`."""
    lines: list[tuple[str, int]] = field(default_factory=list)
    """Labels and colour numbers of the lines that can be hidden."""
    choices: list[tuple[str, str, list[tuple[str, str]]]] = field(default_factory=list)
    """Selections: label, name, and the value and label of every option."""
    script: str = "chart"
    """The script that draws it."""
    filter_caption: str = ""
    """Caption of the table of the jobs that a filter chooses."""
    filter_columns: tuple[str, ...] = ()
    """Names of the metrics of that table."""
    height_rem: float | None = None
    """Height of the canvas where it differs from the default of its kind."""

    def add_line(
        self, data: ComparisonData, policy: int, time_range: tuple[float, float, int], columns: Mapping[str, Floats]
    ) -> None:
        """Add the line of a policy; `time_range` is its first and last time in the chart and the number of bins."""
        block, line = f"{self.name}-{policy}", data.colour_numbers[policy]
        begin, end, bins = time_range
        label = data.comparison.labels[policy]
        series = {"label": label, "block": block, "line": line, "from": begin, "to": end, "bins": bins}
        self.document["series"].append(series)
        self.columns[block] = pack({name: values.astype(np.float32) for name, values in columns.items()})
        self.lines.append((label, line))

    @property
    def line_names(self) -> str:
        """The labels of the lines."""
        return ", ".join(label for label, _ in self.lines)

    @property
    def bin_text(self) -> str:
        """The length of the longest bin."""
        return format_duration(max((line["to"] - line["from"]) / line["bins"] for line in self.document["series"]))


def pack(columns: Mapping[str, npt.NDArray[Any]]) -> tuple[str, str]:
    """Columns as the JSON text of their names, kinds, lengths and encodings, and the packed values.

    >>> pack({"nodes": np.array([1, 2], np.int32)})[0]
    '[["nodes","i",2,0]]'
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
    return json.dumps(listed, separators=(",", ":")), packed


# -- time series -------------------------------------------------------------------------------------


def _time_series(name: str, kind: str, data: ComparisonData, zero_s: float) -> Chart:
    return Chart(name, kind, hint=_READ, document={"zero": zero_s, "unix": unix_of(data, zero_s), "series": []})


def _zero_s(data: ComparisonData) -> float:
    return TickScale([data.log(policy) for policy in data.shown]).zero_s


def _range_caption(chart: Chart, data: ComparisonData) -> str:
    return (
        f"Means over {chart.bin_text}, and over longer bins when zoomed out; with one or two lines, the shaded area is "
        f"their range. {time_axis_note(data)} {_ZOOM}"
    )


def time_chart(data: ComparisonData, name: str) -> Chart | None:
    """Backlog and busy nodes, or GPUs on node-level clusters, over time; None if no job started."""
    unit = "GPUs" if data.node_level else "nodes"
    zero_s = _zero_s(data)
    chart = _time_series(name, "time", data, zero_s)
    for policy in data.shown:
        load = load_over_time(data.log(policy), data.comparison.machine, BINS)
        if load is not None:
            edge = load.edge_s
            time_range = (float(edge[0]) - zero_s, float(edge[-1]) - zero_s, len(edge) - 1)
            chart.add_line(data, policy, time_range, {"jobs": load.jobs, "nodes": load.requested, "busy": load.busy})
    if not chart.lines:
        return None
    busy = data.busy_label
    chart.document |= {
        "panels": [
            {"key": "jobs", "title": "jobs waiting"},
            {"key": "nodes", "title": f"{unit} requested by waiting jobs"},
            {"key": "busy", "title": busy, "unit": " %", "top": 100},
        ],
        "readout": f"{{jobs}} jobs waiting for {{nodes}} {unit}, {{busy}} % {busy.partition(' ')[2]}",
    }
    chart.alt = f"Jobs waiting, {unit} they request and {busy} over time, one line each for {chart.line_names}"
    chart.caption = _range_caption(chart, data)
    return chart


def gpu_chart(gpu_data: GpuData, name: str) -> Chart | None:
    """A panel for each GPU type and one for fragmentation; None if no job ran."""
    data, timeline = gpu_data.data, gpu_data.timeline
    if not timeline.lines:
        return None
    zero_s = _zero_s(data)
    chart = _time_series(name, "time", data, zero_s)
    keys = {f"type{place}": gpu_type for place, gpu_type in enumerate(timeline.sizes)}
    for policy, lines in timeline.lines.items():
        series = {key: lines.allocated[gpu_type] for key, gpu_type in keys.items()} | {"fragments": lines.fragmentation}
        begin, end = float(lines.fragmentation.edge_s[0]), float(lines.fragmentation.edge_s[-1])
        bins = min(BINS, 4 * max(len(each.value) for each in series.values()))
        edge = np.linspace(begin, end, bins + 1)
        columns = {key: 100 * each.mean(edge[:-1], edge[1:]) for key, each in series.items()}
        chart.add_line(data, policy, (begin - zero_s, end - zero_s, bins), columns)
    panels: list[dict[str, Any]] = [
        {"key": key, "title": f"{gpu_type}: {timeline.sizes[gpu_type]:,} GPUs, allocated", "unit": " %", "top": 100}
        for key, gpu_type in keys.items()
    ]
    panels.append({"key": "fragments", "title": "fragmentation, of all GPUs", "unit": " %"})
    readout = [*(f"{gpu_type} {{{key}}} %" for key, gpu_type in keys.items()), "fragmentation {fragments} %"]
    chart.document |= {"panels": panels, "readout": "; ".join(readout)}
    types = ", ".join(timeline.sizes)
    chart.alt = f"Allocated GPUs over time by type ({types}), and fragmentation, one line each for {chart.line_names}"
    chart.caption = (
        "Allocated share of the GPUs of each type, fractions of GPUs included; at the bottom the share of all GPUs "
        f"that are free but unusable for the typical jobs of this log. {_range_caption(chart, data)}"
    )
    chart.height_rem = GPU_PANEL_REM * len(panels) + 3
    return chart


def power_chart(energy_data: EnergyData, name: str, synchronized_chart: str) -> Chart | None:
    """Power over time, with carbon intensity or price in the background; None if the runs have no power over time.

    It zooms together with the chart `synchronized_chart` where both show the same window.
    """
    record, data = energy_data.record, energy_data.data
    shown = [policy for policy in data.shown if policy < len(record.curves) and record.curves[policy].it_w]
    if not shown:
        return None
    same_window = record.plotted_window == data.typical
    first_s = min(record.curves[policy].edge_s[0] for policy in shown)
    end_s = max(record.curves[policy].edge_s[-1] for policy in shown)
    zero_s = _zero_s(data) if same_window else first_s
    scale = scaled([watts for policy in shown for watts in record.curves[policy].facility_w], "W")
    chart = _time_series(name, "power", data, zero_s)
    chart.script = "energy"
    for policy in shown:
        curve = record.curves[policy]
        bins = min(BINS, len(curve.it_w))
        columns = {
            key: scale.factor * binned(curve.edge_s, watts, bins)
            for key, watts in (("it", curve.it_w), ("facility", curve.facility_w))
        }
        chart.add_line(data, policy, (curve.edge_s[0] - zero_s, curve.edge_s[-1] - zero_s, bins), columns)
    signals: list[dict[str, Any]] = []
    for number, signal in enumerate(_by_importance(record.signals)):
        packed = _signal_columns(signal, zero_s, first_s, end_s)
        if packed is not None:
            block = f"{name}-signal-{number}"
            signals.append({"name": display_name(signal), "unit": signal.unit, "block": block, **packed[0]})
            chart.columns[block] = pack({"value": packed[1]})
    chart.choices.append(("Power of", "key", [("facility", "the facility"), ("it", "the nodes")]))
    if signals:
        options = [(str(number), signal["name"]) for number, signal in enumerate(signals)]
        chart.choices.append(("Background", "behind", [*options, ("-1", "none")]))
    chart.document |= {
        "signals": signals,
        "unit": scale.unit,
        "along": synchronized_chart if same_window else None,
        "panels": [{"key": "facility", "title": "power"}],
    }
    background = f", with {' or '.join(s['name'] for s in signals)} in the background" if signals else ""
    chart.alt = f"Power over time{background}, one line each for {chart.line_names}"
    axis_note = time_axis_note(data) if same_window else time_axis_note(data, record.plotted_window)
    zoom = "The chart zooms together with the backlog above. " if same_window else ""
    chart.caption = (
        f"Means over {chart.bin_text}, and over longer bins when zoomed out. "
        f"{'Grey: the signal, with its axis at the right. ' if signals else ''}{axis_note} {zoom}{_ZOOM}"
    )
    return chart


def binned(edge_s: Any, value: Any, bins: int) -> Floats:
    """Exact means of a step function over equal bins between its first and last edge.

    >>> binned([0, 1, 4], [6.0, 2.0], 2).tolist()
    [4.0, 2.0]
    """
    edge = np.asarray(edge_s, np.float64)
    values = np.asarray(value, np.float64)
    equal = np.linspace(edge[0], edge[-1], bins + 1)
    if bins == len(values) and np.allclose(edge, equal, rtol=0, atol=1e-6):
        return values
    integral = np.concatenate(([0.0], np.cumsum(values * np.diff(edge))))
    means: Floats = np.diff(np.interp(equal, edge, integral)) / np.diff(equal)
    return means


def _by_importance(signals: tuple[SignalCurve, ...]) -> list[SignalCurve]:
    def rank(signal: SignalCurve) -> int:
        return next(
            (number for number, word in enumerate(BACKGROUND_SIGNALS) if word in signal.name.lower()),
            len(BACKGROUND_SIGNALS),
        )

    return sorted(signals, key=rank)


def _signal_columns(
    signal: SignalCurve, zero_s: float, first_s: float, end_s: float
) -> tuple[dict[str, float], Any] | None:
    """The part of a signal within the time range, binned at its resolution; None where they do not overlap."""
    edge, value = np.array(signal.edge_s, np.float64), np.array(signal.value, np.float64)
    low, high = max(first_s, float(edge[0])), min(end_s, float(edge[-1]))
    if high <= low:
        return None
    inner = edge[(edge > low) & (edge < high)]
    edges = np.concatenate(([low], inner, [high]))
    values = value[np.searchsorted(edge, edges[:-1], side="right") - 1]
    step = float(np.diff(edge).min())
    bins = int(min(BINS, max(math.ceil((high - low) / step), 1)))
    time_range = {"from": low - zero_s, "to": high - zero_s, "bins": bins}
    return time_range, binned(edges, values, bins).astype(np.float32)


def unix_of(data: ComparisonData, zero_s: float) -> float | None:
    """Unix time of a second of log time; None where the log has no start date."""
    start = data.comparison.windows.jobs.meta.get("unix_start_s")
    return None if start is None else float(start) + zero_s


def time_axis_note(data: ComparisonData, window: int | None = None) -> str:
    """A note on the time axis and the window that is drawn; `window` is its number where it is not the typical one."""
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
