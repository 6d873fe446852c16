"""Interactive chart of GPU allocation by type and fragmentation over time."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from kilowait.report.figures import colour_numbers
from kilowait.report.gpu.data import GpuData
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

__all__ = ["gpu_chart"]

PANEL_REM = 7.0
"""Height of a panel, rem."""


def gpu_chart(gpu_data: GpuData, name: str) -> str:
    """The chart as HTML: a panel for each GPU type and one for fragmentation."""
    data = gpu_data.data
    if not gpu_data.lines:
        return "<p>No job ran, so there is no chart over time.</p>"
    numbers = colour_numbers(data)
    zero_s = TickScale([data.log(policy) for policy in data.shown]).zero_s
    keys = {f"type{place}": gpu_type for place, gpu_type in enumerate(gpu_data.sizes)}
    series: list[dict[str, Any]] = []
    blocks, checkboxes = [], []
    for policy, lines in gpu_data.lines.items():
        first = lines.fragmentation
        begin, end = float(first.edge_s[0]), float(first.edge_s[-1])
        step_functions = {key: lines.allocated[gpu_type] for key, gpu_type in keys.items()} | {"fragments": first}
        bins = min(BINS, 4 * max(len(step_function.value) for step_function in step_functions.values()))
        edge = np.linspace(begin, end, bins + 1)
        columns = {
            key: (100 * step_function.mean(edge[:-1], edge[1:])).astype(np.float32)
            for key, step_function in step_functions.items()
        }
        label, element_id = data.comparison.labels[policy], f"{name}-{policy}"
        time_range = {"from": begin - zero_s, "to": end - zero_s, "bins": bins}
        series.append({"label": label, "block": element_id, "line": numbers[policy], **time_range})
        blocks.append(packed_columns_script(element_id, columns))
        checkboxes.append(line_checkbox(label, numbers[policy]))
    panels: list[dict[str, Any]] = [
        {"key": key, "title": f"{gpu_type}: {gpu_data.sizes[gpu_type]:,} GPUs, allocated", "unit": " %", "top": 100}
        for key, gpu_type in keys.items()
    ]
    panels.append({"key": "fragments", "title": "fragmentation, of all GPUs", "unit": " %"})
    setup = {
        "zero": zero_s,
        "unix": unix_of(data, zero_s),
        "series": series,
        "panels": panels,
        "readout": "; ".join(
            [*(f"{gpu_type} {{{key}}} %" for key, gpu_type in keys.items()), "fragmentation {fragments} %"]
        ),
    }
    names = ", ".join(line["label"] for line in series)
    bin_s = max((line["to"] - line["from"]) / line["bins"] for line in series)
    return chart(
        name,
        "time",
        f"Allocated GPUs over time by type ({', '.join(map(escape, gpu_data.sizes))}), and fragmentation, one line "
        f"each for {names}",
        "".join(checkboxes),
        "",
        "Point at a time, or press N and P to move the cursor.",
        "Allocated share of the GPUs of each type, fractions of GPUs included; at the bottom the share of all "
        "GPUs that "
        "are free but unusable for the typical jobs of this log. "
        f"Means over {format_duration(bin_s)}, and over longer bins when zoomed out; with one or two lines, the shaded "
        f"area is their range. {time_axis_note(data)} Drag to select a time span, turn the wheel, pinch or use + "
        "and − to "
        "zoom; arrow keys move, 0 shows all.",
        setup,
        blocks,
        height_rem=PANEL_REM * len(panels) + 3,
    )
