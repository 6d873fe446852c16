"""Panels with the distribution functions of a real and of a generated workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kilowait.report.data.comparison import AGENT
from kilowait.report.data.synthetic_columns import column_label, value_text
from kilowait.report.figures import (
    INK,
    LINES,
    WIDTH_IN,
    ReportFigure,
    annotate,
    escape_dollar,
    log_axis,
    new_figure,
    slowdown_axis,
    wait_axis,
)
from kilowait.report.format import capital

REAL_STYLE: dict[str, Any] = {"color": LINES[0], "linewidth": 2.2}
SYNTHETIC_STYLE: dict[str, Any] = {"color": LINES[AGENT], "linewidth": 1.5, "linestyle": (0, (3, 2))}
"""Line styles of the two workloads; both stay visible where the lines coincide."""
MARKED_POINTS = 3.0
"""Differences above this, in percentage points, are marked."""
PANELS_PER_ROW = 3
AXIS_START = {"energy_j": 1e3, "utilization": 0.0, "hour": 0.0}
"""Start of the axis by column; 1 for all others."""


def distribution_panels(
    rows: Mapping[str, Mapping[str, Any]],
    curves: Mapping[str, Mapping[str, Any]],
    caption: str,
    alt: str,
    *,
    label: Callable[[str], str] = column_label,
    per_row: int = PANELS_PER_ROW,
) -> ReportFigure:
    """A panel with the distribution functions of each quantity, in rows."""
    per_row = min(per_row, len(rows))
    lines = math.ceil(len(rows) / per_row)
    with new_figure(height_in=0.45 + 2.75 * lines, rows=lines, columns=per_row, width_in=2 * WIDTH_IN) as (
        figure,
        grid,
    ):
        panels = np.atleast_1d(grid).ravel()
        handles: list[Any] = []
        for axes, (name, row) in zip(panels, rows.items(), strict=False):
            handles = _curve(axes, name, curves[name])
            axes.set_title(f"{capital(label(name))}\n", loc="left", size=10, weight="bold")
            subtitle = f"KS {row['ks']:.3f}, Wasserstein {value_text(name, float(row['wasserstein']))}"
            annotate(axes, escape_dollar(subtitle), (0, 1), 0, 5, xycoords="axes fraction", va="baseline", size=9)
        for place, axes in enumerate(panels):
            if place >= len(rows):
                axes.set_visible(False)
            elif place % per_row == 0:
                axes.set_ylabel("share, %")
        workload_legend(figure, handles)
    distances = "; ".join(f"{label(name)} {row['ks']:.3f}" for name, row in rows.items())
    return ReportFigure(figure, caption, f"{alt}. Kolmogorov-Smirnov distances: {distances}.")


def workload_legend(figure: Any, handles: Sequence[Any]) -> None:
    """The legend of the real and the generated workload above a figure."""
    figure.legend(handles, ["real", "generated"], ncols=2, handlelength=2.6, loc="outside upper left")


def _curve(axes: Any, name: str, curve: Mapping[str, Any]) -> list[Any]:
    """Draw both distribution functions and mark the largest difference."""
    start = AXIS_START.get(name, 1.0)
    at = np.maximum(np.array(curve["at"], np.float64), start)
    side_values = [np.array(curve[side], np.float64) for side in ("real", "synthetic")]
    scale = 100.0 if name == "utilization" else 1 / 3.6e6 if name == "energy_j" else 1.0
    handles = [
        axes.step(scale * at, 100 * values, where="post", **line)[0]
        for values, line in zip(side_values, (REAL_STYLE, SYNTHETIC_STYLE), strict=True)
    ]
    widest = max(float(curve["widest"]), start)
    gap = [100 * float(values[np.searchsorted(at, widest)]) for values in side_values]
    if abs(gap[0] - gap[1]) > MARKED_POINTS:
        mark_difference(axes, scale * widest, gap)
    axes.set_ylim(-1, 102)
    _axis(axes, name, scale * float(at.min()), scale * float(at.max()))
    return handles


def mark_difference(axes: Any, at: float, ends: Sequence[float]) -> None:
    """Mark a vertical difference."""
    axes.plot([at, at], ends, color=INK, linewidth=1.4, marker="_", markersize=6)


def _axis(axes: Any, name: str, low: float, high: float) -> None:
    if name == "hour":
        axes.set_xlim(0, 24)
        axes.set_xticks(range(0, 25, 6))
    elif name == "utilization":
        axes.set_xlim(0, max(high, 100))
        axes.set_xlabel("% of the nodes")
    elif name.endswith("_s"):
        wait_axis(axes, high)
    elif name == "bsld":
        slowdown_axis(axes, high)
    else:
        log_axis(axes, low, max(high, 10 * low), room=1.1)
        axes.set_xlabel({"energy_j": "kWh", "backlog_nodes": "nodes"}.get(name, ""))
    if axes.get_xscale() == "log":
        _remove_overlapping_ticks(axes)


def _remove_overlapping_ticks(axes: Any) -> None:
    """Remove ticks whose labels would overlap the previous label."""
    low, high = np.log(axes.get_xlim())
    ticks: dict[float, str] = {}
    free = -math.inf
    for at, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
        place, half = (math.log(at) - low) / (high - low), 0.012 * len(label.get_text()) + 0.01
        if place - half >= free:
            ticks[at] = label.get_text()
            free = place + half
    axes.set_xticks(list(ticks), list(ticks.values()))
