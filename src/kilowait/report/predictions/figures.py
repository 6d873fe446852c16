"""Figures on predicted run times: against the truth, over levels, over time, by feature, and of single jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.report.figures import (
    AGENT,
    FAINT,
    INK,
    LINES,
    ReportFigure,
    line_style,
    need_matplotlib,
    new_figure,
    plain,
)
from kilowait.report.format import share
from kilowait.report.predictions.data import PredictionReportData, factor
from kilowait.units import format_span

__all__ = ["calibration", "drift", "job", "plane", "swarm"]

_TICKS_S = {
    1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 21600: "6 h", 86400: "1 d", 604800: "7 d",
    2592000: "30 d",
}  # fmt: skip
SHADES = 7
SMALL, MIDDLE, LARGE = (0, "v"), (None, "o"), (AGENT, "^")
"""Colour and mark of values in the lowest, middle and highest third: not everybody tells the colours apart."""
LONGER, SHORTER = AGENT, 0


def plane(found: PredictionReportData) -> ReportFigure:
    """How many jobs lie where: predicted against true run time, of the forest and of the request."""
    told = found.told["plane"]
    edges = np.array(told["edges_s"], np.float64)
    panels = {"forest": "what was predicted", "request": "what was asked for"}
    shown = [(name, words) for name, words in panels.items() if told["cells"][name]]
    most = max(count for name, _ in shown for _, _, count in told["cells"][name])
    ticks = {at: words for at, words in _TICKS_S.items() if at <= edges[-1]}
    with new_figure(height_in=5.0, columns=len(shown)) as (figure, grid):
        for axes, (name, words) in zip(np.atleast_1d(grid), shown, strict=True):
            _shaded(axes, told["cells"][name], edges, most)
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
            axes.set_ylabel(words)
    near = "; ".join(f"{words} {share(_near(told['cells'][name]))}" for name, words in shown)
    return ReportFigure(
        figure,
        f"The last {int(found.told['judged']):,} jobs; the stronger the colour, the more of them. On the line the "
        "prediction was the truth; below it the job took longer than was said.",
        f"Predicted against true run times. Within a cell of the truth, about a factor of 1.5: {near}.",
    )


def calibration(found: PredictionReportData) -> ReportFigure:
    """For how many jobs bounds held, against how many they were to hold for."""
    rows = found.told["calibration"]
    levels = [100 * float(row["level"]) for row in rows]
    with new_figure(height_in=3.6) as (figure, axes):
        axes.plot([0, 100], [0, 100], color=INK, linewidth=1.0)
        for name, words, line, mark in (
            ("plain", "as the forest says", 0, "s"),
            ("calibrated", "calibrated on jobs that had ended", AGENT, "o"),
        ):
            held = [100 * float(row[name]) for row in rows]
            axes.plot(levels, held, marker=mark, markersize=5, label=words, **line_style(line))
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 102)
        axes.set_xlabel("is to hold for, % of jobs")
        axes.set_ylabel("held for, % of jobs")
        axes.legend(loc="upper left")
    told = "; ".join(f"{100 * row['level']:.0f} %: {share(float(row['calibrated']))}" for row in rows)
    return ReportFigure(
        figure,
        "A bound is a time that a job is to stay below with a given probability. On the line it keeps its promise; "
        "below the line more jobs outlive it than was said, above it is more cautious than it need be.",
        f"For how many jobs calibrated bounds held: {told}.",
    )


def drift(found: PredictionReportData) -> ReportFigure:
    """Accuracy and the share that was too short, and how many jobs there were, over the whole log."""
    told = found.told["drift"]
    rows, every_s = told["rows"], float(told["every_s"])
    unit, per = ("week", 7 * 86400.0) if every_s <= 7 * 86400.0 else ("month of 30 days", every_s)
    at = [float(row["start_s"]) / per + 0.5 for row in rows]
    with new_figure(height_in=5.4, rows=3, share_x=True) as (figure, grid):
        for name, words, line in (
            ("accuracy", "prediction", AGENT),
            ("last2", "last two jobs", 2),
            ("request", "request", 0),
        ):
            values = np.array([math.nan if row[name] is None else 100 * row[name] for row in rows])
            if np.isfinite(values).any():
                grid[0].plot(at, values, label=words, **line_style(line))
        grid[0].set_ylabel("accuracy, %")
        grid[0].set_ylim(0, 100)
        grid[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3)
        grid[1].plot(at, [100 * float(row["underprediction_rate"]) for row in rows], **line_style(AGENT))
        grid[1].set_ylabel("too short, %")
        grid[1].set_ylim(0, 100)
        grid[2].bar(at, [int(row["jobs"]) for row in rows], width=0.9, color=FAINT)
        grid[2].set_ylabel("jobs")
        grid[2].set_xlabel(f"{unit} of the log")
    known = [row for row in rows if row["accuracy"] is not None]
    least, most = (pick(known, key=lambda row: float(row["accuracy"])) for pick in (min, max))
    return ReportFigure(
        figure,
        f"Every {unit} by itself, over the whole log. Until enough jobs have ended the anchor is the prediction. A "
        "line that falls says that users changed faster than the forest learned.",
        f"Accuracy by {unit}: from {share(float(least['accuracy']))} to {share(float(most['accuracy']))}, over "
        f"{len(rows)} of them.",
    )


def swarm(found: PredictionReportData) -> ReportFigure:
    """What the weightiest features did to the predictions of single jobs: a mark a job."""
    told = found.told["importance"]["swarm"]
    rows = list(reversed(told))
    # A few jobs far out would press the others together; they are drawn at the edge.
    reach = max(0.1, *(float(np.quantile(np.abs(row["moved"]), 0.99)) for row in rows))
    with new_figure(height_in=1.2 + 0.42 * len(rows)) as (figure, axes):
        axes.axvline(0.0, color=INK, linewidth=1.0)
        for place, row in enumerate(rows):
            moved = np.clip(np.array(row["moved"], np.float64), -reach, reach)
            rank = np.array([math.nan if value is None else value for value in row["rank"]])
            height = place + _stacked(moved, reach)
            for (line, mark), own in (
                (MIDDLE, (rank >= 1 / 3) & (rank <= 2 / 3)),
                (SMALL, rank < 1 / 3),
                (LARGE, rank > 2 / 3),
            ):
                colour = FAINT if line is None else LINES[line]
                axes.plot(moved[own], height[own], mark, color=colour, markersize=2.8, markeredgewidth=0)
            lost = np.isnan(rank)
            axes.plot(moved[lost], height[lost], "x", color=FAINT, markersize=2.4)
        axes.set_yticks(range(len(rows)), [plain(str(row["name"])) for row in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlim(-1.05 * reach, 1.05 * reach)
        _factor_axis(axes, reach)
        axes.set_xlabel("made the prediction shorter (left) or longer (right)")
    first = found.importance[:5]
    return ReportFigure(
        figure,
        f"A mark is a job, {len(told[0]['moved']):,} of them for each of the {len(told)} numbers that count most. How "
        "far to the right: by what factor the number made the prediction longer. Orange, pointing up: the number is "
        "large for this log; blue, pointing down: small; grey: in between; crosses: not known.",
        "What moves predictions most, on average: "
        + ", ".join(f"{row['name']} {factor(float(row['mean']))}" for row in first)
        + ".",
    )


def job(case: Mapping[str, Any]) -> ReportFigure:
    """What made the prediction of one job longer or shorter."""
    parts: Sequence[Mapping[str, Any]] = list(reversed(case["parts"]))
    moved = [float(case["rest"]), *(float(part["moved"]) for part in parts)]
    labels = ["all others", *(f"{part['name']}: {part['words']}" for part in parts)]
    reach = max(*(abs(value) for value in moved), 0.1)
    with new_figure(height_in=1.0 + 0.3 * len(moved)) as (figure, axes):
        axes.axvline(0.0, color=INK, linewidth=1.0)
        for place, value in enumerate(moved):
            axes.barh(place, value, color=LINES[LONGER if value > 0 else SHORTER], height=0.7)
            side = {"xytext": (4 if value >= 0 else -4, 0), "ha": "left" if value >= 0 else "right"}
            axes.annotate(
                factor(value), (value, place), textcoords="offset points", va="center", size=8, **side
            )
        axes.set_yticks(range(len(labels)), [plain(label) for label in labels], size=8)
        axes.set_ylim(-0.6, len(labels) - 0.4)
        axes.set_xlim(-1.45 * reach, 1.45 * reach)
        axes.grid(axis="y", visible=False)
        _factor_axis(axes, reach)
        axes.set_xlabel("made the prediction shorter (left) or longer (right)")
    told = ", ".join(f"{part['name']} {factor(float(part['moved']))}" for part in case["parts"][:4])
    return ReportFigure(
        figure,
        f"From the anchor, {format_span(float(case['anchor_s']))}, to the mean, "
        f"{format_span(float(case['centre_s']))}; the truth was {format_span(float(case['true_s']))}.",
        f"What made the prediction of job {int(case['job_id'])} longer or shorter: {told}.",
    )


def _shaded(axes: Any, cells: Sequence[Sequence[int]], edges: npt.NDArray[np.float64], most: int) -> None:
    """Cells in shades, all of a shade as one path: a page of thousands of rectangles would be heavy."""
    matplotlib = need_matplotlib()
    corners = ((0, 0), (1, 0), (1, 1), (0, 1), (0, 0))
    path = matplotlib.path.Path
    codes = [path.MOVETO, path.LINETO, path.LINETO, path.LINETO, path.CLOSEPOLY]
    by_shade: dict[int, list[tuple[float, float]]] = {}
    for across, up, count in cells:
        shade = 1 + int((SHADES - 1) * math.log(count) / max(math.log(most), 1e-9) + 0.5)
        by_shade.setdefault(shade, []).extend((edges[across + x], edges[up + y]) for x, y in corners)
    for shade, points in sorted(by_shade.items()):
        drawn = path(points, codes * (len(points) // len(corners)))
        alpha = 0.1 + 0.85 * (shade - 1) / (SHADES - 1)
        axes.add_patch(matplotlib.patches.PathPatch(drawn, facecolor=LINES[0], alpha=alpha, linewidth=0))


def _near(cells: Sequence[Sequence[int]]) -> float:
    """The part of the jobs within a cell of the diagonal."""
    near = sum(count for across, up, count in cells if abs(across - up) <= 1)
    return near / max(sum(count for _, _, count in cells), 1)


def _stacked(moved: npt.NDArray[np.float64], reach: float) -> npt.NDArray[np.float64]:
    """Heights of marks, so that those at one place stand on one another, on both sides of their line."""
    place = np.rint(60 * moved / reach).astype(np.int64)
    height = np.zeros(len(moved))
    for at in np.unique(place):
        own = np.flatnonzero(place == at)
        height[own] = (np.arange(len(own)) + 1) // 2 * np.where(np.arange(len(own)) % 2, 1, -1)
    return 0.42 * height / max(float(np.abs(height).max(initial=0.0)), 12.0)


def _factor_axis(axes: Any, reach: float) -> None:
    """An axis of logarithms whose ticks are factors."""
    chosen: list[float] = []
    for step in (1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 300, 1000):
        # Far enough from the one before for their words.
        if (
            0.35 * reach <= math.log(step) - math.log(chosen[-1] if chosen else 1.0)
            and math.log(step) <= reach
        ):
            chosen.append(step)
    ticks = {0.0: "1"}
    for step in chosen:
        ticks |= {math.log(step): f"× {step:g}", -math.log(step): f"÷ {step:g}"}
    axes.set_xticks(list(ticks), list(ticks.values()))
