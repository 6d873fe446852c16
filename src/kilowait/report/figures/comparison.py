"""Figures of a comparison: means, ratios, distributions of waits and slowdowns, job classes, load over time, Gantt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kilowait.evaluation.comparison import ComparisonResult
from kilowait.jobs import ExecutionLog
from kilowait.report.data.comparison import AGENT, CLAIRVOYANT, ComparisonData, Floats, load_over_time, pairs_against
from kilowait.report.figures import (
    FAINT,
    INK,
    LINES,
    WIDTH_IN,
    ReportFigure,
    escape_dollar,
    interval_mark,
    legend_above,
    legend_columns,
    legend_outside,
    line_style,
    log_axis,
    new_figure,
    round_y,
    row_labels,
    slowdown_axis,
    span_unit,
    wait_axis,
    whole_width,
    wrapped,
)
from kilowait.report.format import capital, number, share
from kilowait.report.gantt import GanttRows, outages
from kilowait.units import format_duration

GRID = 160
AXIS_LABEL_WIDTH = 66
"""Characters of a line in the label of an axis."""
_PERFECT = ["the same policy with perfect estimates"]
VIRIDIS = ("#fde725", "#a0da39", "#4ac16d", "#1fa187", "#277f8e", "#3f6db5", "#6a51b8", "#8e2f8f")


def cumulative_distributions(data: ComparisonData) -> ReportFigure:
    """Cumulative distributions of waits and of slowdowns (or completion times), one line for each policy."""
    numbers = data.colour_numbers
    lows = (1.0, _shortest_completion(data) if data.lead.timed else 1.0)
    with new_figure(height_in=3.5, columns=2) as (figure, (left, right)):
        for place, policy in enumerate(data.shown):
            label = escape_dollar(data.names[policy])
            style = line_style(numbers[policy])
            for axes, values, low in zip((left, right), data.distributions[place], lows, strict=True):
                if len(values):
                    grid = np.geomspace(low, max(float(values.max()), 2.0 * low), GRID)
                    cumulative_share = np.searchsorted(np.sort(values), grid, side="right") / len(values)
                    axes.plot(grid, 100 * cumulative_share, label=label, **style)
        for axes in (left, right):
            axes.set_xscale("log")
            first = min((line.get_ydata()[0] for line in axes.lines), default=0.0)
            axes.set_ylim(10 * math.floor(first / 10), 100.6)  # no empty space below the lines
            axes.set_ylabel("jobs, %")
        wait_axis(left, _longest(data, 0))
        left.set_xlabel("wait")
        _lead_axis(right, data)
        right.set_xlabel("completion time (JCT)" if data.lead.timed else "bounded slowdown")
        if left.lines:
            legend_outside(figure, left, legend_columns(data, 6))
    names = ", ".join(data.shown_labels)
    return ReportFigure(
        figure,
        f"Cumulative share of jobs by wait (left) and by {data.lead.of_job} (right). Higher and further left is "
        "better. The axis of the share starts above 0 where no line is below.",
        f"Cumulative shares of jobs by wait and by {data.lead.of_job}, one line each for {names}.",
    )


def violins(data: ComparisonData) -> ReportFigure:
    """Violin plots of waits and of slowdowns (or completion times) with median and quartiles, one for each policy."""
    numbers = data.colour_numbers
    rows = len(data.shown)
    with new_figure(height_in=1.1 + 0.62 * rows, columns=2) as (figure, (left, right)):
        alt_parts, names = [], []
        for place, policy in enumerate(data.shown):
            at = rows - 1 - place
            waits, slowdowns = data.distributions[place]
            colour = LINES[numbers[policy]]
            waited = waits[waits >= 1.0]
            _violin(left, waited, at, colour)
            _violin(right, slowdowns, at, colour)
            at_once = 1 - len(waited) / len(waits) if len(waits) else math.nan
            names.append(f"{escape_dollar(data.names[policy])}\n{share(at_once)} without wait")
            alt_parts.append(
                f"{data.comparison.labels[policy]}: the median wait of the jobs that waited is "
                f"{format_duration(float(np.median(waited)) if len(waited) else 0.0)}, {share(at_once)} started "
                "without wait"
            )
        wait_axis(left, _longest(data, 0))
        _lead_axis(right, data)
        left.set_xlabel("wait of the jobs that waited")
        right.set_xlabel(data.lead.of_job)
        for axes, shown in ((left, names[::-1]), (right, [""] * rows)):
            row_labels(axes, shown)
            axes.set_ylim(-0.6, rows - 0.35)
    return ReportFigure(
        figure,
        "The width shows the number of jobs, the line the median, the bar the interquartile range. Logarithmic; the "
        "share of jobs that waited less than a second is given at the left.",
        f"{'; '.join(alt_parts)}.",
    )


def slowdown_by_class(data: ComparisonData) -> ReportFigure:
    """Mean bounded slowdown by job size and by run time, one line for each policy."""
    numbers = data.colour_numbers
    sizes = "GPUs" if data.node_level else f"{data.comparison.unit}s"
    with new_figure(height_in=3.2, columns=2) as (figure, panels):
        for axes, kind, x_label in zip(panels, (data.size_kind, "runtime"), (sizes, "true run time"), strict=True):
            rows = data.classes[kind]
            for place, policy in enumerate(data.shown):
                values = [row.mean_bsld[place] for row in rows]
                style = line_style(numbers[policy])
                label = escape_dollar(data.names[policy])
                axes.plot(range(len(rows)), values, marker="o", markersize=4, label=label, **style)
            size = 9 if len(rows) < 8 else 7
            axes.set_xticks(range(len(rows)), [row.label for row in rows], size=size)
            if any(math.isfinite(value) for row in rows for value in row.mean_bsld):
                axes.set_yscale("log")
                round_y(axes)
            axes.set_xlabel(x_label)
            axes.set_ylabel("mean bounded slowdown")
            axes.margins(x=0.06)
        if panels[0].lines:
            legend_outside(figure, panels[0], legend_columns(data, 6))
    names = ", ".join(data.shown_labels)
    return ReportFigure(
        figure,
        f"Mean bounded slowdown by {sizes} and by true run time. Logarithmic.",
        f"Mean bounded slowdown by job class for {names}; the numbers are in the tables.",
    )


def over_time(data: ComparisonData, *, bins: int = 400) -> ReportFigure:
    """Jobs waiting, nodes (or GPUs) requested and busy in the typical window; only for saved figures."""
    unit = "GPUs" if data.node_level else f"{data.comparison.unit}s"
    numbers = data.colour_numbers
    with new_figure(height_in=6.0, rows=3, share_x=True) as (figure, panels):
        for policy in data.shown:
            load = load_over_time(data.log(policy), data.comparison.machine, bins)
            if load is None:
                continue
            day = load.edge_s[:-1] / 86400.0
            style = line_style(numbers[policy]) | {"linewidth": 1.3}
            label = escape_dollar(data.names[policy])
            for axes, values in zip(panels, (load.jobs, load.requested, load.busy), strict=True):
                axes.step(day, values, where="post", label=label, **style)
        for axes, label in zip(panels, ("jobs waiting", f"{unit} requested", f"{data.busy_label}, %"), strict=True):
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            axes.margins(x=0)
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.xaxis.set_major_formatter("{x:,g}")
        panels[2].set_xlabel("day of the log")
        columns = legend_columns(data, 3, width_in=WIDTH_IN) if data.has_power_controls else 3
        if panels[0].lines:
            legend_above(panels[0], columns, handlelength=2.6)
    caption = f"Backlog and {data.busy_label} over time."
    return ReportFigure(figure, caption, caption)


def gantt(label: str, log: ExecutionLog, gantt_rows: GanttRows, sizes: Sequence[tuple[int, str]]) -> ReportFigure:
    """Gantt chart coloured by job size, only for saved figures. Each pixel mixes the colours of its jobs.

    `log` and `gantt_rows` are those of the page: of a large log, only a part is drawn.
    """
    width, height = 1160, 420
    image, span_days = _schedule_image(log, gantt_rows, sizes, width, height)
    with new_figure(height_in=3.4, columns=2) as (figure, panels):
        axes = whole_width(panels)
        axes.imshow(
            image,
            origin="lower",
            aspect="auto",
            extent=(*span_days, 0, max(gantt_rows.rows, 1)),
            interpolation="nearest",
        )
        hatching = {"facecolor": "none", "edgecolor": FAINT, "hatch": "//////", "linewidth": 0, "zorder": 0}
        for from_s, to_s, nodes in outages(log):  # the number of unavailable nodes is known, not which
            days = (max(from_s / 86400.0, span_days[0]), to_s / 86400.0)
            axes.fill_between(days, gantt_rows.rows - nodes, gantt_rows.rows, **hatching)
        axes.grid(visible=False)
        axes.set_xlabel("day of the log")
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.set_ylabel(f"{log.unit}s")
        for (_, size_class), colour in zip(sizes, size_colours(len(sizes)), strict=True):
            label = f"1 {log.unit}" if size_class == "1" else f"{size_class} {log.unit}s"
            axes.plot([], [], "s", color=colour, label=label, markersize=7)
        legend_above(axes, 8, handletextpad=0.2, columnspacing=1)
    return ReportFigure(
        figure, f"Schedule under {label}: {log.unit}s used by every job over time.", f"Gantt chart of {label}."
    )


def size_colours(count: int) -> list[str]:
    """One colour for each size class, small to large; the same as in the page's Gantt chart."""
    if count < 2:
        return [VIRIDIS[4]] * count
    return [VIRIDIS[round(place / (count - 1) * (len(VIRIDIS) - 1))] for place in range(count)]


def _schedule_image(
    log: ExecutionLog, gantt_rows: GanttRows, sizes: Sequence[tuple[int, str]], width: int, height: int
) -> tuple[Floats, tuple[float, float]]:
    """RGBA image of the schedule, in which each pixel mixes the colours of its jobs; and the first and last day."""
    image = np.ones((height, width, 4))
    if not len(log):
        image[..., 3] = 0.0
        return image, (0.0, 1.0)
    first, last = float(log.start_s.min()), max(float(log.end_s.max()), float(log.start_s.min()) + 1.0)
    pixels_per_s = width / (last - first)
    pixels_per_row = height / max(gantt_rows.rows, 1)
    left = (log.start_s[gantt_rows.segment] - first) * pixels_per_s
    right = (log.end_s[gantt_rows.segment] - first) * pixels_per_s
    low, high = gantt_rows.first * pixels_per_row, (gantt_rows.first + gantt_rows.count) * pixels_per_row
    tops = np.array([top for top, _ in sizes][:-1])
    size_class = np.searchsorted(tops, log.size[log.job[gantt_rows.segment]], side="left")
    covered = np.zeros((height, width))
    mixed = np.zeros((height, width, 3))
    for place, colour in enumerate(size_colours(len(sizes))):
        selected = size_class == place
        cumulative_share = _coverage(left[selected], right[selected], low[selected], high[selected], width, height)
        covered += cumulative_share
        mixed += cumulative_share[..., None] * np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    visible = covered > 1e-3
    image[visible, :3] = np.clip(mixed[visible] / covered[visible, None], 0, 1)
    image[..., 3] = np.clip(covered, 0, 1)
    return image, (first / 86400.0, last / 86400.0)


def _coverage(left: Floats, right: Floats, low: Floats, high: Floats, width: int, height: int) -> Floats:
    """Exact area of each pixel that the rectangles cover, from cumulative sums of their corners."""
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
    kernel = np.exp(-0.5 * (np.arange(-9, 10) / 3.0) ** 2)
    density = np.convolve(density, kernel, mode="same")
    middle = (edges[:-1] + edges[1:]) / 2
    inside = (middle >= low) & (middle <= high)
    half = 0.4 * density / density.max()
    axes.fill_between(10 ** middle[inside], at - half[inside], at + half[inside], color=colour, alpha=0.35, linewidth=0)
    quarter, median, three = np.percentile(values, (25, 50, 75)).tolist()
    axes.plot([max(quarter, 1.0), max(three, 1.0)], [at, at], color=colour, linewidth=4, solid_capstyle="butt")
    axes.plot([max(median, 1.0)] * 2, [at - 0.3, at + 0.3], color=colour, linewidth=1.8)


def _longest(data: ComparisonData, which: int) -> float:
    return max((float(parts[which].max()) for parts in data.distributions if len(parts[which])), default=2.0)


def _lead_axis(axes: Any, data: ComparisonData) -> None:
    """Format the x axis for the lead metric."""
    if data.lead.timed:
        wait_axis(axes, _longest(data, 1), shortest=_shortest_completion(data))
    else:
        slowdown_axis(axes, _longest(data, 1))


def _shortest_completion(data: ComparisonData) -> float:
    """The shortest completion time of a job, at least 1 s."""
    return max(min((float(parts[1].min()) for parts in data.distributions if len(parts[1])), default=1.0), 1.0)


def means(data: ComparisonData, significance: ComparisonResult) -> ReportFigure:
    """Lead metric of every policy with its confidence interval, best on top."""
    lead = data.lead
    labels, values = data.comparison.labels, data.comparison.means(lead.metric).tolist()
    unit_s, unit = span_unit([v for v in values if math.isfinite(v)]) if lead.timed else (1.0, "")
    intervals = {mean.policy: mean for mean in significance.means}
    rows = [policy for policy in reversed(data.real) if math.isfinite(values[policy])]
    limits: list[float] = []
    clairvoyant_marks = []
    with new_figure(height_in=0.9 + 0.34 * len(rows)) as (figure, axes):
        for row, policy in enumerate(rows):
            colour = LINES[AGENT if data.comparison.policies[policy].kind == "agent" else 0]
            mean, clairvoyant = intervals[labels[policy]], data.clairvoyant(policy)
            ends = [end / unit_s for end in (mean.low, mean.mean, mean.high) if math.isfinite(end)]
            text = lead.format(mean.mean)
            interval_mark(axes, row, mean.mean / unit_s, ends, text, colour, solid_capstyle="round")
            if clairvoyant is not None and math.isfinite(values[clairvoyant]):
                ends.append(values[clairvoyant] / unit_s)
                clairvoyant_marks.append(
                    axes.plot([values[clairvoyant] / unit_s], [row], "D", color=LINES[CLAIRVOYANT], markersize=5)[0]
                )
            limits += ends
        row_labels(axes, [escape_dollar(data.names[policy]) for policy in rows])
        log_axis(axes, min(limits), max(limits), room=2.2 if lead.timed else 1.5)
        quantity = f"{lead.label}, {unit}" if unit else lead.label
        axes.set_xlabel(_axis_label(data, f"{quantity}, 95 % interval (less is better)"))
        if clairvoyant_marks:
            legend_above(axes, 1, handles=clairvoyant_marks[:1], labels=_PERFECT, handletextpad=0.2)
    alt = "; ".join(f"{labels[policy]} {lead.format(values[policy])}" for policy in reversed(rows))
    samples = f"{significance.windows} {'batches of one run' if data.comparison.batched else 'windows'}"
    return ReportFigure(
        figure,
        f"{capital(lead.label)} over {samples}, with bootstrap intervals. Logarithmic axis.",
        f"{capital(lead.label)}, best first: {alt}.",
    )


def ratios(data: ComparisonData) -> ReportFigure:
    """Ratio of every policy's mean to that of the reference, with its confidence interval: left of 1 is better."""
    reference = data.comparison.labels[data.reference]
    rows = [pair for pair in pairs_against(data, reference).values() if math.isfinite(pair.ratio)]
    rows.sort(key=lambda pair: -pair.ratio)
    colours = {"better": LINES[2], "worse": LINES[AGENT], "undecided": FAINT, "same": FAINT}
    with new_figure(height_in=0.9 + 0.34 * max(len(rows), 1)) as (figure, axes):
        axes.axvline(1.0, color=INK, linewidth=1.2)
        limits = [1.0]
        for row, pair in enumerate(rows):
            ends = [end for end in (pair.low, pair.ratio, pair.high) if math.isfinite(end) and end > 0]
            limits += ends
            text, filled = f"{number(pair.ratio)}  {pair.verdict}", pair.verdict in ("better", "worse")
            interval_mark(axes, row, pair.ratio, ends, text, colours[pair.verdict], filled=filled, size=9)
        names = dict(zip(data.comparison.labels, data.names, strict=True))
        row_labels(axes, [escape_dollar(names[pair.ours]) for pair in rows])
        log_axis(axes, min(limits), max(limits), room=2.6)
        label = f"{data.lead.label} relative to {escape_dollar(names[reference])} (left of 1: better)"
        axes.set_xlabel(_axis_label(data, label))
    alt = "; ".join(
        f"{pair.ours} {number(pair.ratio)}, from {number(pair.low)} to {number(pair.high)}, {pair.verdict}"
        for pair in reversed(rows)
    )
    return ReportFigure(
        figure,
        f"Pairwise comparison with {reference}, the reference policy: ratio of the means with 95 % interval. Hollow: "
        "not significantly different after correction for multiple comparisons.",
        f"{capital(data.lead.label)} relative to that of {reference}: {alt}.",
    )


def _axis_label(data: ComparisonData, label: str) -> str:
    """An axis label in lines; broken before a bracket where long names of power controls leave little space."""
    return wrapped(label.replace(" (", "\n(") if data.has_power_controls else label, AXIS_LABEL_WIDTH)
