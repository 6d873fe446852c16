"""Power over time, interactive: lines of every contender drawn, with carbon intensity or price behind them."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np

from kilowait.evaluation.comparison import SignalCurve
from kilowait.report.comparison_data import Floats
from kilowait.report.energy.data import EnergyData, called, scaled
from kilowait.report.energy.figures import BEHIND
from kilowait.report.figures import line_numbers
from kilowait.report.interactive import (
    BINS,
    Ticks,
    block,
    chart,
    clock_words,
    tick,
    unix_of,
)
from kilowait.units import format_span

__all__ = ["binned", "power_chart"]


def power_chart(drew: EnergyData, name: str, along: str) -> str:
    """The chart as HTML. It zooms together with the chart `along` (its id) where both draw the same window."""
    record, found = drew.record, drew.found
    shown = [who for who in found.shown if who < len(record.curves) and record.curves[who].it_w]
    if not shown:
        return "<p>No power was kept over time, so there is nothing to draw.</p>"
    numbers = line_numbers(found)
    same = record.drawn == found.typical
    first_s = min(record.curves[who].edge_s[0] for who in shown)
    end_s = max(record.curves[who].edge_s[-1] for who in shown)
    zero_s = Ticks([found.log(who) for who in found.shown]).zero_s if same else first_s
    scale = scaled([watts for who in shown for watts in record.curves[who].facility_w], "W")
    series: list[dict[str, Any]] = []
    signals: list[dict[str, Any]] = []
    blocks, ticks = [], []
    for who in shown:
        curve = record.curves[who]
        bins = min(BINS, len(curve.it_w))
        columns = {
            key: (scale.factor * binned(curve.edge_s, watts, bins)).astype(np.float32)
            for key, watts in (("it", curve.it_w), ("facility", curve.facility_w))
        }
        label, own = found.contest.labels[who], f"{name}-{who}"
        reach = {"from": curve.edge_s[0] - zero_s, "to": curve.edge_s[-1] - zero_s, "bins": bins}
        series.append({"label": label, "block": own, "line": numbers[who], **reach})
        blocks.append(block(own, columns))
        ticks.append(tick(label, numbers[who]))
    for number, signal in enumerate(_ordered(record.signals)):
        packed = _signal(signal, zero_s, first_s, end_s)
        if packed is not None:
            own = f"{name}-signal-{number}"
            signals.append({"name": called(signal), "unit": signal.unit, "block": own, **packed[0]})
            blocks.append(block(own, {"value": packed[1]}))
    options = "".join(
        f'<option value="{place}">{escape(signal["name"])}</option>' for place, signal in enumerate(signals)
    )
    choices = (
        '<label>Power of <select data-choice="key"><option value="facility">the facility</option>'
        '<option value="it">the nodes</option></select></label>'
    )
    if signals:
        choices += (
            f'<label>Behind it <select data-choice="behind">{options}<option value="-1">nothing</option></select>'
            "</label>"
        )
    bin_s = max((line["to"] - line["from"]) / line["bins"] for line in series)
    setup: dict[str, Any] = {
        "zero": zero_s,
        "unix": unix_of(found, zero_s),
        "series": series,
        "signals": signals,
        "unit": scale.unit,
        "along": along if same else None,
        "panels": [{"key": "facility", "title": "power"}],
    }
    names = ", ".join(line["label"] for line in series)
    behind = f", with {' or '.join(s['name'] for s in signals)} behind" if signals else ""
    which = clock_words(found) if same else clock_words(found, record.drawn)
    zoom = "It zooms together with the backlog above. " if same else ""
    return chart(
        name,
        "power",
        f"Power over time{behind}, a line each for {names}",
        "".join(ticks) + choices,
        "",
        "Point at a time, or press N and P to move along.",
        f"Means over {format_span(bin_s)}, and over more where many of them lie close. "
        f"{'Grey: the signal, on the axis at the right. ' if signals else ''}{which} {zoom}"
        "Drag across a stretch, turn the wheel, pinch or use + and − to zoom; arrows move, 0 shows all.",
        setup,
        blocks,
        started_as="energy",
    )


def binned(edge_s: Any, value: Any, bins: int) -> Floats:
    """Exact means of a step function over equal bins from its first edge to its last.

    >>> binned([0, 1, 4], [6.0, 2.0], 2).tolist()
    [4.0, 2.0]
    """
    edge = np.asarray(edge_s, np.float64)
    values = np.asarray(value, np.float64)
    equal = np.linspace(edge[0], edge[-1], bins + 1)
    if bins == len(values) and np.allclose(edge, equal, rtol=0, atol=1e-6):
        return values
    summed = np.concatenate(([0.0], np.cumsum(values * np.diff(edge))))
    means: Floats = np.diff(np.interp(equal, edge, summed)) / np.diff(equal)
    return means


def _ordered(signals: tuple[SignalCurve, ...]) -> list[SignalCurve]:
    def rank(signal: SignalCurve) -> int:
        return next((place for place, word in enumerate(BEHIND) if word in signal.name.lower()), len(BEHIND))

    return sorted(signals, key=rank)


def _signal(
    signal: SignalCurve, zero_s: float, first_s: float, end_s: float
) -> tuple[dict[str, float], Any] | None:
    """The part of a signal within the chart, in bins as fine as its steps; None where there is none."""
    edge, value = np.array(signal.edge_s, np.float64), np.array(signal.value, np.float64)
    low, high = max(first_s, float(edge[0])), min(end_s, float(edge[-1]))
    if high <= low:
        return None
    inner = edge[(edge > low) & (edge < high)]
    kept = np.concatenate(([low], inner, [high]))
    held = value[np.searchsorted(edge, kept[:-1], side="right") - 1]
    step = float(np.diff(edge).min())
    bins = int(min(BINS, max(math.ceil((high - low) / step), 1)))
    reach = {"from": low - zero_s, "to": high - zero_s, "bins": bins}
    return reach, binned(kept, held, bins).astype(np.float32)
