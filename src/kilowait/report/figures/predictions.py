"""Figures of run-time predictions: predicted against true, calibration, drift, feature attribution, single jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.report.data.comparison import AGENT
from kilowait.report.data.predictions import PredictionReportData, factor
from kilowait.report.figures import (
    FAINT,
    INK,
    LINES,
    ReportFigure,
    annotate,
    escape_dollar,
    legend_above,
    line_style,
    need_matplotlib,
    new_figure,
    row_labels,
)
from kilowait.report.format import share
from kilowait.units import format_duration

_TICKS_S = {
    1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 21600: "6 h", 86400: "1 d", 604800: "7 d",
    2592000: "30 d",
}  # fmt: skip
SHADES = 7
SMALL, MIDDLE, LARGE = (0, "v"), (None, "o"), (AGENT, "^")
"""Colour and marker of values in the lowest, middle and highest third; markers differ for colour-blind readers."""
LONGER, SHORTER = AGENT, 0


def true_against_predicted(data: PredictionReportData) -> ReportFigure:
    """Density of jobs by true and predicted run time, for the forest and for the request."""
    results = data.results["histogram"]
    edges = np.array(results["edges_s"], np.float64)
    panels = {"forest": "predicted run time", "request": "requested time"}
    shown = [(name, label) for name, label in panels.items() if results["cells"][name]]
    most = max(count for name, _ in shown for _, _, count in results["cells"][name])
    ticks = {at: label for at, label in _TICKS_S.items() if at <= edges[-1]}
    with new_figure(height_in=5.0, columns=len(shown)) as (figure, grid):
        for axes, (name, label) in zip(np.atleast_1d(grid), shown, strict=True):
            _draw_cells(axes, results["cells"][name], edges, most)
            axes.plot(edges[[0, -1]], edges[[0, -1]], color=INK, linewidth=1.0)
            for scale, labels, limits in (
                (axes.set_xscale, axes.set_xticks, axes.set_xlim),
                (axes.set_yscale, axes.set_yticks, axes.set_ylim),
            ):
                scale("log")
                limits(edges[0], edges[-1])
                labels(list(ticks), list(ticks.values()))
            axes.minorticks_off()
            axes.set_xlabel("true run time")
            axes.set_ylabel(label)
    within_cell = "; ".join(f"{label} {share(_share_near_diagonal(results['cells'][name]))}" for name, label in shown)
    return ReportFigure(
        figure,
        f"The last {int(data.results['test_jobs']):,} jobs; stronger colours mean more jobs. On the line the "
        "prediction equals the true run time; below it the job ran longer than predicted.",
        f"Predicted against true run times. Within one cell of the diagonal, about a factor of 1.5: {within_cell}.",
    )


def calibration(data: PredictionReportData) -> ReportFigure:
    """Coverage of the predicted upper bounds against their nominal level."""
    rows = data.results["calibration"]
    levels = [100 * float(row["level"]) for row in rows]
    with new_figure(height_in=3.6) as (figure, axes):
        axes.plot([0, 100], [0, 100], color=INK, linewidth=1.0)
        for name, label, line, mark in (
            ("plain", "uncalibrated", 0, "s"),
            ("calibrated", "calibrated on ended jobs (conformal)", AGENT, "o"),
        ):
            coverage = [100 * float(row[name]) for row in rows]
            axes.plot(levels, coverage, marker=mark, markersize=5, label=label, **line_style(line))
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 102)
        axes.set_xlabel("nominal coverage, % of jobs")
        axes.set_ylabel("observed coverage, % of jobs")
        axes.legend(loc="upper left")
    alt = "; ".join(f"{100 * row['level']:.0f} %: {share(float(row['calibrated']))}" for row in rows)
    return ReportFigure(
        figure,
        "An upper bound is a run time that a job does not exceed with a given probability. On the line observed and "
        "nominal coverage are equal; below it more jobs exceed their bound than stated, above it bounds are "
        "conservative.",
        f"Observed coverage of the calibrated bounds: {alt}.",
    )


def drift(data: PredictionReportData) -> ReportFigure:
    """Accuracy, share of too short predictions and number of jobs over the whole log."""
    results = data.results["drift"]
    rows, every_s = results["rows"], float(results["every_s"])
    unit, per = ("week", 7 * 86400.0) if every_s <= 7 * 86400.0 else ("month of 30 days", every_s)
    at = [float(row["start_s"]) / per + 0.5 for row in rows]
    with new_figure(height_in=5.4, rows=3, share_x=True) as (figure, grid):
        for name, label, line in (
            ("accuracy", "prediction", AGENT),
            ("last2", "last two jobs", 2),
            ("request", "request", 0),
        ):
            values = np.array([math.nan if row[name] is None else 100 * row[name] for row in rows])
            if np.isfinite(values).any():
                grid[0].plot(at, values, label=label, **line_style(line))
        grid[0].set_ylabel("accuracy, %")
        grid[0].set_ylim(0, 100)
        legend_above(grid[0], 3)
        grid[1].plot(at, [100 * float(row["underprediction_rate"]) for row in rows], **line_style(AGENT))
        grid[1].set_ylabel("too short, %")
        grid[1].set_ylim(0, 100)
        grid[2].bar(at, [int(row["jobs"]) for row in rows], width=0.9, color=FAINT)
        grid[2].set_ylabel("jobs")
        grid[2].set_xlabel(f"{unit} of the log")
    with_accuracy = [row for row in rows if row["accuracy"] is not None]
    least, most = (pick(with_accuracy, key=lambda row: float(row["accuracy"])) for pick in (min, max))
    return ReportFigure(
        figure,
        f"Values of each {unit} over the whole log. Until enough jobs have ended, the anchor is the prediction. A "
        "falling line means that user behaviour changed faster than the forest was updated.",
        f"Accuracy by {unit}: from {share(float(least['accuracy']))} to {share(float(most['accuracy']))}, over "
        f"{len(rows)} of them.",
    )


def beeswarm(data: PredictionReportData) -> ReportFigure:
    """Beeswarm plot of the effect of the most important features, one marker for each job."""
    results = data.results["importance"]["beeswarm"]
    rows = list(reversed(results))
    # Outliers are drawn at the edge, so that they do not compress the others.
    limit = max(0.1, *(float(np.quantile(np.abs(row["contributions"]), 0.99)) for row in rows))
    with new_figure(height_in=1.2 + 0.42 * len(rows)) as (figure, axes):
        axes.axvline(0.0, color=INK, linewidth=1.0)
        for place, row in enumerate(rows):
            moved = np.clip(np.array(row["contributions"], np.float64), -limit, limit)
            rank = np.array([math.nan if value is None else value for value in row["rank"]])
            height = place + _stacked(moved, limit)
            for (line, mark), selected in (
                (MIDDLE, (rank >= 1 / 3) & (rank <= 2 / 3)),
                (SMALL, rank < 1 / 3),
                (LARGE, rank > 2 / 3),
            ):
                colour = FAINT if line is None else LINES[line]
                axes.plot(moved[selected], height[selected], mark, color=colour, markersize=2.8, markeredgewidth=0)
            unknown = np.isnan(rank)
            axes.plot(moved[unknown], height[unknown], "x", color=FAINT, markersize=2.4)
        axes.set_yticks(range(len(rows)), [escape_dollar(str(row["name"])) for row in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlim(-1.05 * limit, 1.05 * limit)
        _factor_axis(axes, limit)
        axes.set_xlabel("effect on the prediction: shorter (left) or longer (right)")
    first = data.importance[:5]
    return ReportFigure(
        figure,
        f"Each marker is a job; {len(results[0]['contributions']):,} jobs for each of the {len(results)} most "
        "important features. The x axis is the factor by which the feature changed the prediction. Orange, pointing "
        "up: the value of the feature is high for this log; blue, pointing down: low; grey: medium; crosses: unknown.",
        "Features with the largest mean effect: "
        + ", ".join(f"{row['name']} {factor(float(row['mean']))}" for row in first)
        + ".",
    )


def job_explanation(case: Mapping[str, Any]) -> ReportFigure:
    """The effect of each feature on the prediction of one job."""
    parts: Sequence[Mapping[str, Any]] = list(reversed(case["contributions"]))
    moved = [float(case["other_contributions"]), *(float(part["contribution"]) for part in parts)]
    labels = ["all others", *(f"{part['name']}: {part['value_text']}" for part in parts)]
    limit = max(*(abs(value) for value in moved), 0.1)
    with new_figure(height_in=1.0 + 0.3 * len(moved)) as (figure, axes):
        axes.axvline(0.0, color=INK, linewidth=1.0)
        for place, value in enumerate(moved):
            axes.barh(place, value, color=LINES[LONGER if value > 0 else SHORTER], height=0.7)
            side = (4, "left") if value >= 0 else (-4, "right")
            annotate(axes, factor(value), (value, place), side[0], ha=side[1], size=8)
        row_labels(axes, [escape_dollar(label) for label in labels], size=8)
        axes.set_xlim(-1.45 * limit, 1.45 * limit)
        _factor_axis(axes, limit)
        axes.set_xlabel("effect on the prediction: shorter (left) or longer (right)")
    alt = ", ".join(f"{part['name']} {factor(float(part['contribution']))}" for part in case["contributions"][:4])
    return ReportFigure(
        figure,
        f"From the anchor, {format_duration(float(case['anchor_s']))}, to the mean prediction, "
        f"{format_duration(float(case['geometric_mean_s']))}; the true run time was "
        f"{format_duration(float(case['true_s']))}.",
        f"Features with the largest effect on the prediction of job {int(case['job_id'])}: {alt}.",
    )


def _draw_cells(axes: Any, cells: Sequence[Sequence[int]], edges: npt.NDArray[np.float64], most: int) -> None:
    """Draw the cells with one path for each shade, which keeps the SVG small."""
    matplotlib = need_matplotlib()
    corners = ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))
    path = matplotlib.path.Path
    codes = [path.MOVETO, path.LINETO, path.LINETO, path.LINETO, path.CLOSEPOLY]
    by_shade: dict[int, list[tuple[float, float]]] = {}
    for column, row, count in cells:
        shade = 1 + int((SHADES - 1) * math.log(count) / max(math.log(most), 1e-9) + 0.5)
        by_shade.setdefault(shade, []).extend((edges[column + x], edges[row + y]) for x, y in corners)
    for shade, points in sorted(by_shade.items()):
        shade_path = path(points, codes * (len(points) // len(corners)))
        alpha = 0.1 + 0.85 * (shade - 1) / (SHADES - 1)
        axes.add_patch(matplotlib.patches.PathPatch(shade_path, facecolor=LINES[0], alpha=alpha, linewidth=0))


def _share_near_diagonal(cells: Sequence[Sequence[int]]) -> float:
    """The share of the jobs at most one cell away from the diagonal."""
    within_cell = sum(count for column, row, count in cells if abs(column - row) <= 1)
    return within_cell / max(sum(count for _, _, count in cells), 1)


def _stacked(moved: npt.NDArray[np.float64], limit: float) -> npt.NDArray[np.float64]:
    """Vertical offsets that stack markers of similar effect on both sides of their line."""
    place = np.rint(60 * moved / limit).astype(np.int64)
    height = np.zeros(len(moved))
    for at in np.unique(place):
        index = np.arange(int((place == at).sum()))
        height[place == at] = (index + 1) // 2 * np.where(index % 2, 1, -1)
    return 0.42 * height / max(float(np.abs(height).max(initial=0.0)), 12.0)


def _factor_axis(axes: Any, limit: float) -> None:
    """Label a logarithmic axis with factors."""
    factors: list[float] = []
    for step in (1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 300, 1000):
        # Far enough from the previous tick for the labels.
        if 0.35 * limit <= math.log(step) - math.log(factors[-1] if factors else 1.0) and math.log(step) <= limit:
            factors.append(step)
    ticks = {0.0: "1"}
    for step in factors:
        ticks |= {math.log(step): f"× {step:g}", -math.log(step): f"÷ {step:g}"}
    axes.set_xticks(list(ticks), list(ticks.values()))
