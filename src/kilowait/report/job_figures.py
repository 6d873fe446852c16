"""Figures of many jobs: how waits and slowdowns are spread, how classes fare, what happened over time and where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.evaluation.timeline import timeline
from kilowait.jobs import ExecutionLog
from kilowait.report.comparison_data import ComparisonData, JobClass
from kilowait.report.figures import (
    FAINT,
    LINES,
    WIDTH_IN,
    ReportFigure,
    legend_columns,
    line_numbers,
    line_style,
    new_figure,
    plain,
)
from kilowait.report.format import share
from kilowait.report.gantt import GanttRows, outages
from kilowait.report.load_over_time import load_over_time
from kilowait.units import format_span

__all__ = ["classes", "gantt", "over_time", "shares", "size_colours", "slowdown_axis", "violins", "wait_axis"]

Floats = npt.NDArray[np.float64]
_WAIT_TICKS = {
    1.0: "1 s",
    60.0: "1 min",
    3600.0: "1 h",
    86400.0: "1 day",
    604800.0: "1 week",
    31536000.0: "1 year",
}
GRID = 160
_DONE = {True: "were done no later", False: "were slowed down no more"}
VIRIDIS = ("#fde725", "#a0da39", "#4ac16d", "#1fa187", "#277f8e", "#3f6db5", "#6a51b8", "#8e2f8f")


def shares(found: ComparisonData) -> ReportFigure:
    """Which share of the jobs waited, or was slowed down, no more than ...; one line a contender."""
    numbers = line_numbers(found)
    with new_figure(height_in=3.5, columns=2) as (figure, (left, right)):
        for place, contender in enumerate(found.shown):
            label = plain(found.names[contender])
            style = line_style(numbers[contender])
            for axes, values, least in zip((left, right), found.spread[place], (1.0, 1.0), strict=True):
                if len(values):
                    grid = np.geomspace(least, max(float(values.max()), 2.0), GRID)
                    part = np.searchsorted(np.sort(values), grid, side="right") / len(values)
                    axes.plot(grid, 100 * part, label=label, **style)
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_ylim(0, 101)
            axes.set_ylabel("jobs, %")
        wait_axis(left, _longest(found, 0))
        left.set_xlabel("waited no longer than")
        _lead_axis(right, found)
        right.set_xlabel("took no longer than (JCT)" if found.lead.timed else "bounded slowdown no more than")
        if left.lines:
            handles, labels = left.get_legend_handles_labels()
            figure.legend(
                handles,
                labels,
                loc="outside upper left",
                ncols=min(len(labels), legend_columns(found, 6)),
                handlelength=2.6,
            )
    names = ", ".join(found.contest.labels[who] for who in found.shown)
    return ReportFigure(
        figure,
        f"The share of jobs that waited no longer (left) and {_DONE[found.lead.timed]} (right) than what is below. "
        "Further up and to the left is better.",
        f"Cumulative shares of jobs by wait and by {found.lead.of_job}, a line each for {names}.",
    )


def violins(found: ComparisonData) -> ReportFigure:
    """How waits and slowdowns are spread: a shape a contender, its median and the middle half marked."""
    numbers = line_numbers(found)
    rows = len(found.shown)
    with new_figure(height_in=1.1 + 0.62 * rows, columns=2) as (figure, (left, right)):
        told, names = [], []
        for place, contender in enumerate(found.shown):
            at = rows - 1 - place
            waits, slowdowns = found.spread[place]
            colour = LINES[numbers[contender]]
            waited = waits[waits >= 1.0]
            _violin(left, waited, at, colour)
            _violin(right, slowdowns, at, colour)
            at_once = 1 - len(waited) / len(waits) if len(waits) else math.nan
            names.append(f"{plain(found.names[contender])}\n{share(at_once)} at once")
            told.append(
                f"{found.contest.labels[contender]}: half of the jobs that waited did so for less than "
                f"{format_span(float(np.median(waited)) if len(waited) else 0.0)}, {share(at_once)} started at once"
            )
        wait_axis(left, _longest(found, 0))
        _lead_axis(right, found)
        left.set_xlabel("wait of the jobs that did wait")
        right.set_xlabel(found.lead.of_job)
        for axes, shown in ((left, names[::-1]), (right, [""] * rows)):
            axes.set_yticks(range(rows), shown)
            axes.set_ylim(-0.6, rows - 0.35)
            axes.grid(axis="y", visible=False)
    return ReportFigure(
        figure,
        "The wider, the more jobs. The line is the median, the bar the middle half. Logarithmic; jobs that waited less "
        "than a second are counted at the left.",
        f"{'; '.join(told)}.",
    )


def classes(
    found: ComparisonData, by_size: Sequence[JobClass], by_runtime: Sequence[JobClass]
) -> ReportFigure:
    """Mean bounded slowdown by size and by run time, a line a contender."""
    numbers = line_numbers(found)
    sizes = "GPUs" if found.placed else "nodes"
    with new_figure(height_in=3.2, columns=2) as (figure, panels):
        for axes, rows, words in zip(panels, (by_size, by_runtime), (sizes, "true run time"), strict=True):
            for place, contender in enumerate(found.shown):
                values = [row.mean_bsld[place] for row in rows]
                style = line_style(numbers[contender])
                label = plain(found.names[contender])
                axes.plot(range(len(rows)), values, marker="o", markersize=4, label=label, **style)
            size = 9 if len(rows) < 8 else 7
            axes.set_xticks(range(len(rows)), [row.label for row in rows], size=size)
            if any(math.isfinite(value) for row in rows for value in row.mean_bsld):
                axes.set_yscale("log")
                _round_y(axes)
            axes.set_xlabel(words)
            axes.set_ylabel("mean bounded slowdown")
            axes.margins(x=0.06)
        if panels[0].lines:
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(
                handles,
                labels,
                loc="outside upper left",
                ncols=min(len(labels), legend_columns(found, 6)),
                handlelength=2.6,
            )
    names = ", ".join(found.contest.labels[who] for who in found.shown)
    return ReportFigure(
        figure,
        f"Who is slowed down: jobs by {sizes} and by true run time. Logarithmic.",
        f"Mean bounded slowdown by class of job for {names}; the numbers are in the tables.",
    )


def over_time(found: ComparisonData, *, bins: int = 400) -> ReportFigure:
    """Jobs waiting, nodes (or GPUs) they ask for and nodes busy (or GPUs held), in the typical window; for files."""
    unit = "GPUs" if found.placed else "nodes"
    numbers = line_numbers(found)
    with new_figure(height_in=6.0, rows=3, share_x=True) as (figure, panels):
        for contender in found.shown:
            steps = timeline(found.log(contender))
            if len(steps) < 2:
                continue
            cut = load_over_time(steps, found.log(contender), found.contest.machine, bins)
            day = cut.edge_s[:-1] / 86400.0
            style = line_style(numbers[contender]) | {"linewidth": 1.3}
            label = plain(found.names[contender])
            for axes, values in zip(panels, (cut.jobs, cut.asked, cut.busy), strict=True):
                axes.step(day, values, where="post", label=label, **style)
        for axes, words in zip(
            panels, ("jobs waiting", f"{unit} asked for", f"{found.busy_words}, %"), strict=True
        ):
            axes.set_ylabel(words)
            axes.set_ylim(bottom=0)
            axes.margins(x=0)
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.xaxis.set_major_formatter("{x:,g}")
        panels[2].set_xlabel("day of the log")
        columns = legend_columns(found, 3, width_in=WIDTH_IN) if found.levered else 3
        if panels[0].lines:
            panels[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, handlelength=2.6)
    said = f"Backlog and {found.busy_words} over time."
    return ReportFigure(figure, said, said)


def gantt(
    found: ComparisonData, contender: int, given: GanttRows, sizes: Sequence[tuple[int, str]]
) -> ReportFigure:
    """Which nodes were busy when, by size of job; for files. Each pixel is the mix of what covers it."""
    log = found.log(contender)
    width, height = 1160, 420
    picture, span_days = _mixed(log, given, sizes, width, height)
    with new_figure(height_in=3.4, columns=2) as (figure, panels):
        panels[1].remove()
        axes = panels[0]
        axes.set_subplotspec(axes.get_gridspec()[:])
        axes.imshow(
            picture,
            origin="lower",
            aspect="auto",
            extent=(*span_days, 0, max(given.rows, 1)),
            interpolation="nearest",
        )
        out = {"facecolor": "none", "edgecolor": FAINT, "hatch": "//////", "linewidth": 0, "zorder": 0}
        for from_s, to_s, nodes in outages(log):  # as many as were out; nobody knows which
            days = (max(from_s / 86400.0, span_days[0]), to_s / 86400.0)
            axes.fill_between(days, given.rows - nodes, given.rows, **out)
        axes.grid(visible=False)
        axes.set_xlabel("day of the log")
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.set_ylabel("nodes")
        for (_, label), colour in zip(sizes, size_colours(len(sizes)), strict=True):
            words = "1 node" if label == "1" else f"{label} nodes"
            axes.plot([], [], "s", color=colour, label=words, markersize=7)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=8, handletextpad=0.2, columnspacing=1)
    label = found.contest.labels[contender]
    return ReportFigure(figure, f"Who ran where and when under {label}.", f"Gantt chart of {label}.")


def size_colours(count: int) -> list[str]:
    """One colour a class of sizes, small to large; the page's Gantt chart has the same."""
    if count < 2:
        return [VIRIDIS[4]] * count
    return [VIRIDIS[round(place / (count - 1) * (len(VIRIDIS) - 1))] for place in range(count)]


def _mixed(
    log: ExecutionLog, given: GanttRows, sizes: Sequence[tuple[int, str]], width: int, height: int
) -> tuple[npt.NDArray[np.float64], tuple[float, float]]:
    """The part of each pixel that jobs cover, mixed from their colours; and from which day to which."""
    picture = np.ones((height, width, 4))
    if not len(log):
        picture[..., 3] = 0.0
        return picture, (0.0, 1.0)
    first, last = float(log.start_s.min()), max(float(log.end_s.max()), float(log.start_s.min()) + 1.0)
    across = width / (last - first)
    up = height / max(given.rows, 1)
    left = (log.start_s[given.segment] - first) * across
    right = (log.end_s[given.segment] - first) * across
    low, high = given.first * up, (given.first + given.count) * up
    tops = np.array([top for top, _ in sizes][:-1])
    of = np.searchsorted(tops, log.jobs_table["nodes"][log.job[given.segment]], side="left")
    covered = np.zeros((height, width))
    mixed = np.zeros((height, width, 3))
    for number, colour in enumerate(size_colours(len(sizes))):
        own = of == number
        part = _coverage(left[own], right[own], low[own], high[own], width, height)
        covered += part
        mixed += part[..., None] * np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    seen = covered > 1e-3
    picture[seen, :3] = np.clip(mixed[seen] / covered[seen, None], 0, 1)
    picture[..., 3] = np.clip(covered, 0, 1)
    return picture, (first / 86400.0, last / 86400.0)


def _coverage(left: Floats, right: Floats, low: Floats, high: Floats, width: int, height: int) -> Floats:
    """How much of each pixel rectangles cover, exactly: corners are laid down, their sums are the areas."""
    grid = np.zeros((height + 2) * (width + 2))
    for x, sign_x in ((left, 1.0), (right, -1.0)):
        column = np.floor(x).astype(np.int64)
        for y, sign_y in ((low, 1.0), (high, -1.0)):
            row = np.floor(y).astype(np.int64)
            for step_x, part_x in ((0, 1 - (x - column)), (1, x - column)):
                for step_y, part_y in ((0, 1 - (y - row)), (1, y - row)):
                    at = (row + step_y) * (width + 2) + column + step_x
                    weight = sign_x * sign_y * part_x * part_y
                    grid += np.bincount(at, weights=weight, minlength=len(grid))
    summed: Floats = grid.reshape(height + 2, width + 2).cumsum(axis=0).cumsum(axis=1)
    return summed[:height, :width]


def _violin(axes: Any, values: Floats, at: int, colour: str) -> None:
    if not len(values):
        return
    logs = np.log10(np.maximum(values, 1.0))
    low, high = float(logs.min()), max(float(logs.max()), float(logs.min()) + 0.05)
    edges = np.linspace(low - 0.1, high + 0.1, 121)
    density = np.histogram(logs, edges)[0].astype(np.float64)
    bell = np.exp(-0.5 * (np.arange(-9, 10) / 3.0) ** 2)
    density = np.convolve(density, bell, mode="same")
    middle = (edges[:-1] + edges[1:]) / 2
    inside = (middle >= low) & (middle <= high)
    half = 0.4 * density / density.max()
    axes.fill_between(
        10 ** middle[inside], at - half[inside], at + half[inside], color=colour, alpha=0.35, linewidth=0
    )
    quarter, median, three = np.percentile(values, (25, 50, 75)).tolist()
    axes.plot(
        [max(quarter, 1.0), max(three, 1.0)], [at, at], color=colour, linewidth=4, solid_capstyle="butt"
    )
    axes.plot([max(median, 1.0)] * 2, [at - 0.3, at + 0.3], color=colour, linewidth=1.8)


def _longest(found: ComparisonData, which: int) -> float:
    return max((float(parts[which].max()) for parts in found.spread if len(parts[which])), default=2.0)


def wait_axis(axes: Any, longest: float) -> None:
    """A logarithmic axis of spans, from a second on."""
    axes.set_xscale("log")
    longest = max(longest, 60.0)
    axes.set_xlim(0.9, longest)
    ticks = {at: words for at, words in _WAIT_TICKS.items() if at <= longest}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()


def _lead_axis(axes: Any, found: ComparisonData) -> None:
    """Of what the page leads with."""
    (wait_axis if found.lead.timed else slowdown_axis)(axes, _longest(found, 1))


def slowdown_axis(axes: Any, longest: float) -> None:
    """A logarithmic axis of slowdowns, from 1 on."""
    axes.set_xscale("log")
    top = max(longest, 10.0)
    axes.set_xlim(0.9, top * 1.1)
    ticks = [10.0**power for power in range(math.ceil(math.log10(top)) + 1)]
    axes.set_xticks(
        [tick for tick in ticks if tick <= top * 1.1], [f"{t:,g}" for t in ticks if t <= top * 1.1]
    )
    axes.minorticks_off()


def _round_y(axes: Any) -> None:
    low, high = axes.get_ylim()
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    mantissas = (1, 2, 5) if high / low < 200 else (1,)
    ticks = [m * 10.0**d for d in decades for m in mantissas if low <= m * 10.0**d <= high]
    axes.set_yticks(ticks, [f"{tick:,g}" for tick in ticks])
    axes.minorticks_off()
