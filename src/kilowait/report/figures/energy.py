"""Figures of energy: mean wait against energy and CO2, energy by node state, and power over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from kilowait.evaluation.comparison import SignalCurve
from kilowait.report.data.comparison import AGENT
from kilowait.report.data.energy import BACKGROUND_SIGNALS, NODE_STATE_LABELS, EnergyData, display_name
from kilowait.report.figures import (
    FAINT,
    GRID,
    INK,
    LINES,
    ReportFigure,
    annotate,
    escape_dollar,
    legend_above,
    legend_columns,
    legend_outside,
    line_style,
    new_figure,
    row_labels,
    span_unit,
    whole_width,
)
from kilowait.report.format import change, scaled

_COLOURS = dict(zip(NODE_STATE_LABELS, (LINES[0], LINES[5], LINES[4], LINES[3], LINES[1], LINES[6]), strict=True))
_LABEL_OFFSETS = (
    (8, 0, "left", "center"),
    (-8, 0, "right", "center"),
    (0, 9, "center", "bottom"),
    (0, -9, "center", "top"),
    (7, 7, "left", "bottom"),
    (7, -7, "left", "top"),
    (-7, 7, "right", "bottom"),
    (-7, -7, "right", "top"),
    (-4, 10, "left", "bottom"),
    (-4, -10, "left", "top"),
    (4, 10, "right", "bottom"),
    (4, -10, "right", "top"),
    (12, 20, "left", "bottom"),
    (12, -20, "left", "top"),
    (-12, 20, "right", "bottom"),
    (-12, -20, "right", "top"),
)
"""Candidate label positions: offset from the point (in points) and alignment; the first free one is used."""


def energy_pareto(energy_data: EnergyData) -> ReportFigure:
    """Mean wait against energy and against CO2 (else cost), with the Pareto fronts."""
    metrics = [("energy_kwh", "energy of the nodes", "kWh")]
    if energy_data.has("co2_kg"):
        metrics.append(("co2_kg", "CO2", "kg"))
    elif energy_data.has("cost"):
        metrics.append(("cost", "cost", energy_data.currency))
    wait = energy_data.means("mean_wait_s")
    with_wait = [policy for policy in energy_data.policies if math.isfinite(wait[policy])]
    unit_s, unit = span_unit([float(wait[policy]) for policy in with_wait])
    alt_parts = []
    with new_figure(height_in=3.9, columns=2) as (figure, panels):
        if len(metrics) == 1:
            whole_width(panels)
        for axes, (metric, label, unit_in) in zip(panels, metrics, strict=False):
            values = energy_data.means(metric)
            scale = scaled([float(values[policy]) for policy in with_wait], unit_in)
            places = {
                policy: (float(values[policy]) * scale.factor, float(wait[policy]) / unit_s) for policy in with_wait
            }
            front = energy_data.pareto_front(metric)
            _draw_front(axes, [places[policy] for policy in front])
            for policy in with_wait:
                agent = energy_data.comparison.policies[policy].kind == "agent"
                colour = LINES[AGENT if agent else 0] if policy in front else FAINT
                filled = "full" if policy in front else "none"
                axes.plot(*places[policy], "o", color=colour, markersize=8, fillstyle=filled)
            _format_axes(axes, list(places.values()))
            axes.set_xlabel(f"{label}, {scale.unit}" if scale.unit else label)
            axes.set_ylabel(f"mean wait, {unit}")
            order = [*front, *(policy for policy in (energy_data.first, *with_wait) if policy not in front)]
            names_and_points = {
                policy: (escape_dollar(energy_data.data.names[policy]), places[policy]) for policy in order
            }
            _label_points(figure, axes, names_and_points, [places[policy] for policy in front])
            names = ", ".join(energy_data.comparison.labels[policy] for policy in front)
            alt_parts.append(f"the Pareto front of mean wait and {label} is {names}")
    return ReportFigure(
        figure,
        "Mean wait against energy use: lower and further left is better. Filled points and line: Pareto front. "
        "Points without space for their name are listed in the table. Axes do not begin at 0.",
        f"Mean wait against energy{' and CO2' if energy_data.has('co2_kg') else ''}: {'; '.join(alt_parts)}.",
    )


def energy_by_state(energy_data: EnergyData) -> ReportFigure:
    """Energy of the nodes by node state, one bar for each policy, the first on top."""
    rows = [*energy_data.policies, *energy_data.data.of_kind("clairvoyant")]
    totals = {policy: sum(energy_data.record.states[policy].values()) for policy in rows}
    scale = scaled(list(totals.values()), "kWh")
    by_policy = energy_data.record.states
    states = [name for name in NODE_STATE_LABELS if any(by_policy[policy].get(name, 0.0) > 0 for policy in rows)]
    alt_parts = []
    with new_figure(height_in=1.2 + 0.4 * len(rows), columns=2) as (figure, panels):
        axes = whole_width(panels)
        for place, policy in enumerate(reversed(rows)):
            left, parts = 0.0, []
            for name in states:
                value = by_policy[policy].get(name, 0.0)
                width = value * scale.factor
                axes.barh(place, width, left=left, height=0.66, color=_COLOURS[name], edgecolor=INK, linewidth=0.4)
                left += width
                parts.append(f"{NODE_STATE_LABELS[name]} {scale.format(value)}")
            relative = change(totals[policy] / max(totals[energy_data.first], 1e-300))
            saving = "" if policy == energy_data.first else f"  {relative}"
            annotate(axes, f"{scale.format(totals[policy])}{saving}", (left, place), 6)
            alt_parts.append(f"{energy_data.comparison.labels[policy]}: {', '.join(parts)}")
        row_labels(axes, [escape_dollar(energy_data.data.names[policy]) for policy in reversed(rows)])
        axes.set_xlim(0, max(max(totals.values()) * scale.factor, 1e-9) * 1.16)
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.set_xlabel(f"energy of the nodes, {scale.unit}")
        for name in states:
            axes.plot([], [], "s", color=_COLOURS[name], label=NODE_STATE_LABELS[name], markersize=8)
        legend_above(axes, 6, handletextpad=0.2, columnspacing=1.2)
    windows = len(energy_data.comparison.windows)
    fixed = " Fixed: power independent of the nodes' states, such as switches and storage." if "fixed" in states else ""
    window_note = "" if windows == 1 else f", over all {windows} windows"
    return ReportFigure(
        figure,
        f"Energy of the nodes by state{window_note}.{fixed}",
        f"Energy of the nodes in {scale.unit} by state. {'; '.join(reversed(alt_parts))}.",
    )


def power_over_time(energy_data: EnergyData) -> ReportFigure:
    """Facility power over time, a panel for each background signal; only for saved figures."""
    signals: Sequence[SignalCurve | None] = [
        s for name in BACKGROUND_SIGNALS[:2] if (s := energy_data.signal(name)) is not None
    ]
    signals = signals or [energy_data.signal(BACKGROUND_SIGNALS[2])]
    numbers = energy_data.data.colour_numbers
    shown = [policy for policy in energy_data.data.shown if policy < len(energy_data.record.curves)]
    scale = scaled([watts for policy in shown for watts in energy_data.record.curves[policy].facility_w], "W")
    with new_figure(height_in=3.2 * len(signals), rows=len(signals), columns=2) as (figure, panels):
        grid = panels.reshape(-1, 2)
        for place, signal in enumerate(signals):
            grid[place, 1].remove()
            axes = grid[place, 0]
            axes.set_subplotspec(axes.get_gridspec()[place, :])
            for policy in shown:
                curve = energy_data.record.curves[policy]
                style = line_style(numbers[policy]) | {"linewidth": 1.3}
                edge, watts = np.array(curve.edge_s), np.array(curve.facility_w) * scale.factor
                label = escape_dollar(energy_data.data.names[policy])
                axes.step(edge / 86400.0, np.append(watts, watts[-1:]), where="post", label=label, **style)
            axes.set_ylim(bottom=0)
            axes.margins(x=0)
            axes.set_ylabel(f"facility, {scale.unit}")
            axes.set_xlabel("day of the log")
            axes.xaxis.set_major_formatter("{x:,g}")
            if signal is not None:
                _background(axes, signal)
        if shown:
            legend_outside(figure, grid[0, 0], legend_columns(energy_data.data, 6))
    return ReportFigure(figure, "Power of the facility over time.", "Power of the facility over time.")


def _background(axes: Any, signal: SignalCurve) -> None:
    """Draw the signal as a grey area in the background, with its own axis at the right."""
    low, high = axes.get_xlim()
    other = axes.twinx()
    other.set_zorder(axes.get_zorder() - 1)
    axes.patch.set_visible(False)
    edge, value = np.array(signal.edge_s) / 86400.0, np.array(signal.value)
    other.fill_between(edge, np.append(value, value[-1:]), step="post", color=GRID, linewidth=0)
    other.set_xlim(low, high)
    other.set_ylim(min(0.0, float(value.min(initial=0.0))), max(float(value.max(initial=0.0)), 1e-9) * 1.1)
    other.grid(visible=False)
    other.set_ylabel(escape_dollar(f"{display_name(signal)}, {signal.unit}"), color=FAINT)
    other.yaxis.set_major_formatter("{x:,g}")


def _draw_front(axes: Any, points: Sequence[tuple[float, float]]) -> None:
    """Draw the Pareto front as a step line; points above and to the right of it are dominated."""
    if len(points) > 1:
        across, up = zip(*points, strict=True)
        axes.step(across, up, where="post", color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)


def _format_axes(axes: Any, points: Sequence[tuple[float, float]]) -> None:
    """Set margins for the names of points; use a logarithmic axis where waits span more than a factor of 30."""
    waits = [up for _, up in points]
    if waits and min(waits) > 0 and max(waits) / min(waits) > 30:
        axes.set_yscale("log")
        axes.minorticks_off()
    axes.margins(x=0.22, y=0.16)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.locator_params(axis="x", nbins=6)


def _label_points(
    figure: Any,
    axes: Any,
    names_and_points: dict[int, tuple[str, tuple[float, float]]],
    front: Sequence[tuple[float, float]],
) -> None:
    """Write names beside their points without overlap; a name without free space is omitted."""
    figure.draw_without_rendering()  # computes the positions of the points
    renderer = figure.canvas.get_renderer()
    inside = axes.get_window_extent(renderer).padded(2)
    near = 5 * figure.dpi / 72
    dots = [axes.transData.transform(point) for _, point in names_and_points.values()]
    taken = [(x - near, y - near, x + near, y + near) for x, y in dots]
    steps = [axes.transData.transform(point) for point in front]
    for (x0, y0), (x1, y1) in pairwise(steps):  # across, then down
        taken += [(x0, y0 - 1, x1, y0 + 1), (x1 - 1, y1, x1 + 1, y0)]
    for label, point in names_and_points.values():
        for across, up, ha, va in _LABEL_OFFSETS:
            label_artist = annotate(axes, label, point, across, up, ha=ha, va=va, size=9)
            box = label_artist.get_window_extent(renderer)
            extent = (box.x0, box.y0, box.x1, box.y1)
            within = box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0 and box.y1 <= inside.y1
            if within and not any(_overlap(extent, other) for other in taken):
                taken.append(extent)
                break
            label_artist.remove()


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
