"""Figures of distributions, real against generated: columns, users and simulation metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kilowait.report.figures import AGENT, INK, LINES, WIDTH_IN, ReportFigure, escape_dollar, log_axis, new_figure
from kilowait.report.format import capital
from kilowait.report.job_figures import slowdown_axis, wait_axis
from kilowait.report.synthetic.data import SyntheticScoreData
from kilowait.report.synthetic.labels import SIMULATION_METRICS, column_label, value_text

__all__ = [
    "SYNTHETIC_STYLE",
    "REAL_STYLE",
    "column_distribution_figure",
    "simulation_distribution_figure",
    "workload_legend",
    "user_distribution_figure",
]

REAL_STYLE: dict[str, Any] = {"color": LINES[0], "linewidth": 2.2}
SYNTHETIC_STYLE: dict[str, Any] = {"color": LINES[AGENT], "linewidth": 1.5, "linestyle": (0, (3, 2))}
"""Line styles of the two workloads; both stay visible where the lines coincide."""
MARKED_POINTS = 3.0
"""Differences above this, in percentage points, are marked."""
PANELS_PER_ROW = 3
"""Panels per row."""
AXIS_START = {"energy_j": 1e3, "utilization": 0.0, "hour": 0.0}
"""Start of the axis by column; 1 for all others."""


def column_distribution_figure(score: SyntheticScoreData) -> ReportFigure:
    """Cumulative distribution of every numeric column."""
    rows = {str(row["column"]): row for row in score.fidelity["distances"]}
    shown = {name: score.curves["columns"][name] for name in rows}
    figure = _panels(shown, {name: _distance(name, row) for name, row in rows.items()}, column_label)
    alt = "; ".join(f"{column_label(name)} {row['ks']:.3f}" for name, row in rows.items())
    return ReportFigure(
        figure,
        "Cumulative share of jobs; values below the axis are drawn at its left end. The bar marks the largest "
        "difference "
        "between the two, and KS is its length: 0 for equal distributions, 1 for distributions without overlap.",
        f"Cumulative shares of real and generated jobs by column. Kolmogorov-Smirnov distances: {alt}.",
    )


def user_distribution_figure(score: SyntheticScoreData) -> ReportFigure:
    """Distributions of jobs per user, jobs per session, and the time between a user's jobs."""
    rows = {str(row["column"]): row for row in score.fidelity["user_distances"]}
    shown = {name: score.curves["users"][name] for name in rows}
    figure = _panels(shown, {name: _distance(name, row) for name, row in rows.items()}, column_label)
    alt = "; ".join(f"{column_label(name)} {row['ks']:.3f}" for name, row in rows.items())
    return ReportFigure(
        figure,
        "Cumulative share of users, of sessions and of pairs of consecutive jobs. A session is a sequence of a "
        "user’s jobs "
        "with less than half an hour between submissions.",
        f"Distributions over users. Kolmogorov-Smirnov distances: {alt}.",
    )


def simulation_distribution_figure(score: SyntheticScoreData, number: int) -> ReportFigure:
    """Distributions under one policy: waits, slowdowns, backlog and utilization."""
    policy, rows = score.outcomes[number]
    rows_by_name = {str(row["name"]): row for row in rows}
    shown = {name: score.curves["outcomes"][number]["shares"][name] for name in rows_by_name}
    titles = {name: _distance(name, row) for name, row in rows_by_name.items()}
    figure = _panels(shown, titles, SIMULATION_METRICS.__getitem__, per_row=2)
    alt = "; ".join(f"{SIMULATION_METRICS[name]} {row['ks']:.3f}" for name, row in rows_by_name.items())
    return ReportFigure(
        figure,
        f"Under {policy} with EASY: cumulative share of jobs by wait and by slowdown, and cumulative share of hours by "
        "nodes requested by waiting jobs and by utilization.",
        f"Distributions under {policy}, real and generated. Kolmogorov-Smirnov distances: {alt}.",
    )


def workload_legend(axes_or_figure: Any, handles: Sequence[Any], **number: Any) -> None:
    """Add the legend of the two workloads."""
    axes_or_figure.legend(handles, ["real", "generated"], ncols=2, handlelength=2.6, **number)


def _distance(name: str, row: Mapping[str, Any]) -> str:
    return f"KS {row['ks']:.3f}, Wasserstein {value_text(name, float(row['wasserstein']))}"


def _panels(
    curves: Mapping[str, Mapping[str, Any]], subtitles: Mapping[str, str], title: Any, *, per_row: int = PANELS_PER_ROW
) -> Any:
    """A panel for each curve, in rows; `under` is the subtitle of each panel."""
    per_row = min(per_row, len(curves))
    rows = math.ceil(len(curves) / per_row)
    with new_figure(height_in=0.45 + 2.75 * rows, rows=rows, columns=per_row, width_in=2 * WIDTH_IN) as (figure, grid):
        panels = np.atleast_1d(grid).ravel()
        handles: list[Any] = []
        for axes, (name, curve) in zip(panels, curves.items(), strict=False):
            handles = _curve(axes, name, curve)
            axes.set_title(f"{capital(title(name))}\n", loc="left", size=10, weight="bold")
            axes.annotate(
                escape_dollar(subtitles[name]),
                (0, 1),
                xytext=(0, 5),
                xycoords="axes fraction",
                textcoords="offset points",
                size=9,
            )
        for number, axes in enumerate(panels):
            if number >= len(curves):
                axes.set_visible(False)
            elif number % per_row == 0:
                axes.set_ylabel("share, %")
        workload_legend(figure, handles, loc="outside upper left")
    return figure


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
        axes.plot([scale * widest] * 2, gap, color=INK, linewidth=1.4, marker="_", markersize=6)
    axes.set_ylim(-1, 102)
    _axis(axes, name, scale * float(at.min()), scale * float(at.max()))
    return handles


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
        number, half = (math.log(at) - low) / (high - low), 0.012 * len(label.get_text()) + 0.01
        if number - half >= free:
            ticks[at] = label.get_text()
            free = number + half
    axes.set_xticks(list(ticks), list(ticks.values()))
