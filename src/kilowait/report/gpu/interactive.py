"""GPUs held by type, and fragments, over time, interactive."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from kilowait.report.figures import line_numbers
from kilowait.report.gpu.data import GpuData
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

__all__ = ["gpu_chart"]

PANEL_REM = 7.0
"""Height of a panel."""


def gpu_chart(held: GpuData, name: str) -> str:
    """The chart as HTML: a panel for each type of GPU, one for fragments."""
    found = held.found
    if not held.lines:
        return "<p>No job ran for any time, so there is nothing to draw over time.</p>"
    numbers = line_numbers(found)
    zero_s = Ticks([found.log(who) for who in found.shown]).zero_s
    keys = {f"type{place}": kind for place, kind in enumerate(held.sizes)}
    series: list[dict[str, Any]] = []
    blocks, ticks = [], []
    for who, lines in held.lines.items():
        first = lines.fragments
        begin, end = float(first.edge_s[0]), float(first.edge_s[-1])
        drawn = {key: lines.held[kind] for key, kind in keys.items()} | {"fragments": first}
        bins = min(BINS, 4 * max(len(one.value) for one in drawn.values()))
        edge = np.linspace(begin, end, bins + 1)
        columns = {
            key: (100 * one.mean(edge[:-1], edge[1:])).astype(np.float32) for key, one in drawn.items()
        }
        label, own = found.contest.labels[who], f"{name}-{who}"
        reach = {"from": begin - zero_s, "to": end - zero_s, "bins": bins}
        series.append({"label": label, "block": own, "line": numbers[who], **reach})
        blocks.append(block(own, columns))
        ticks.append(tick(label, numbers[who]))
    panels: list[dict[str, Any]] = [
        {"key": key, "title": f"{kind}: {held.sizes[kind]:,} GPUs, held", "unit": " %", "top": 100}
        for key, kind in keys.items()
    ]
    panels.append({"key": "fragments", "title": "fragments, of all GPUs", "unit": " %"})
    setup = {
        "zero": zero_s,
        "unix": unix_of(found, zero_s),
        "series": series,
        "panels": panels,
        "told": "; ".join(
            [*(f"{kind} {{{key}}} %" for key, kind in keys.items()), "fragments {fragments} %"]
        ),
    }
    names = ", ".join(line["label"] for line in series)
    bin_s = max((line["to"] - line["from"]) / line["bins"] for line in series)
    return chart(
        name,
        "time",
        f"GPUs held over time by type ({', '.join(map(escape, held.sizes))}), and fragments, a line each for {names}",
        "".join(ticks),
        "",
        "Point at a time, or press N and P to move along.",
        "The share of the GPUs of each type that jobs hold, parts of GPUs as parts; at the bottom the GPUs that are "
        "free where the usual jobs of this log do not fit, of all GPUs. "
        f"Means over {format_span(bin_s)}, and over more where many of them lie close; with one or two lines, the "
        f"veil is their range. {clock_words(found)} Drag across a stretch, turn the wheel, pinch or use + and − to "
        "zoom; arrows move, 0 shows all.",
        setup,
        blocks,
        height_rem=PANEL_REM * len(panels) + 3,
    )
