"""Interactive chart of power over time, with carbon intensity or price in the background."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np

from kilowait.evaluation.comparison import SignalCurve
from kilowait.report.comparison_data import Floats
from kilowait.report.energy.data import EnergyData, display_name, scaled
from kilowait.report.energy.figures import BACKGROUND_SIGNALS
from kilowait.report.figures import colour_numbers
from kilowait.report.interactive import (
    BINS,
    TickScale,
    chart,
    line_checkbox,
    packed_columns_script,
    time_axis_note,
    unix_of,
)
from kilowait.units import format_duration

__all__ = ["power_chart"]


def power_chart(energy_data: EnergyData, name: str, synchronized_chart: str) -> str:
    """The chart as HTML. It zooms together with the chart with the id `along` where both show the same window."""
    record, data = energy_data.record, energy_data.data
    shown = [policy for policy in data.shown if policy < len(record.curves) and record.curves[policy].it_w]
    if not shown:
        return "<p>The runs have no power over time, so there is no chart.</p>"
    numbers = colour_numbers(data)
    same_window = record.plotted_window == data.typical
    first_s = min(record.curves[policy].edge_s[0] for policy in shown)
    end_s = max(record.curves[policy].edge_s[-1] for policy in shown)
    zero_s = TickScale([data.log(policy) for policy in data.shown]).zero_s if same_window else first_s
    scale = scaled([watts for policy in shown for watts in record.curves[policy].facility_w], "W")
    series: list[dict[str, Any]] = []
    signals: list[dict[str, Any]] = []
    blocks, checkboxes = [], []
    for policy in shown:
        curve = record.curves[policy]
        bins = min(BINS, len(curve.it_w))
        columns = {
            key: (scale.factor * binned(curve.edge_s, watts, bins)).astype(np.float32)
            for key, watts in (("it", curve.it_w), ("facility", curve.facility_w))
        }
        label, element_id = data.comparison.labels[policy], f"{name}-{policy}"
        time_range = {"from": curve.edge_s[0] - zero_s, "to": curve.edge_s[-1] - zero_s, "bins": bins}
        series.append({"label": label, "block": element_id, "line": numbers[policy], **time_range})
        blocks.append(packed_columns_script(element_id, columns))
        checkboxes.append(line_checkbox(label, numbers[policy]))
    for number, signal in enumerate(_by_importance(record.signals)):
        packed = _signal(signal, zero_s, first_s, end_s)
        if packed is not None:
            element_id = f"{name}-signal-{number}"
            signals.append({"name": display_name(signal), "unit": signal.unit, "block": element_id, **packed[0]})
            blocks.append(packed_columns_script(element_id, {"value": packed[1]}))
    options = "".join(
        f'<option value="{number}">{escape(signal["name"])}</option>' for number, signal in enumerate(signals)
    )
    choices = (
        '<label>Power of <select data-choice="key"><option value="facility">the facility</option>'
        '<option value="it">the nodes</option></select></label>'
    )
    if signals:
        choices += (
            f'<label>Background <select data-choice="behind">{options}<option value="-1">none</option></select></label>'
        )
    bin_s = max((line["to"] - line["from"]) / line["bins"] for line in series)
    setup: dict[str, Any] = {
        "zero": zero_s,
        "unix": unix_of(data, zero_s),
        "series": series,
        "signals": signals,
        "unit": scale.unit,
        "along": synchronized_chart if same_window else None,
        "panels": [{"key": "facility", "title": "power"}],
    }
    names = ", ".join(line["label"] for line in series)
    background = f", with {' or '.join(s['name'] for s in signals)} in the background" if signals else ""
    axis_note = time_axis_note(data) if same_window else time_axis_note(data, record.plotted_window)
    zoom = "The chart zooms together with the backlog above. " if same_window else ""
    return chart(
        name,
        "power",
        f"Power over time{background}, one line each for {names}",
        "".join(checkboxes) + choices,
        "",
        "Point at a time, or press N and P to move the cursor.",
        f"Means over {format_duration(bin_s)}, and over longer bins when zoomed out. "
        f"{'Grey: the signal, with its axis at the right. ' if signals else ''}{axis_note} {zoom}"
        "Drag to select a time span, turn the wheel, pinch or use + and − to zoom; arrow keys move, 0 shows all.",
        setup,
        blocks,
        started_as="energy",
    )


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


def _signal(signal: SignalCurve, zero_s: float, first_s: float, end_s: float) -> tuple[dict[str, float], Any] | None:
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
