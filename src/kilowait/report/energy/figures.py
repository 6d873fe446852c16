"""Figures of energy: who trades waiting for energy, what nodes drew power for, and power over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from kilowait.evaluation.comparison import SignalCurve
from kilowait.report.energy.data import (
    STATES,
    EnergyData,
    called,
    change,
    scaled,
)
from kilowait.report.figures import (
    AGENT,
    FAINT,
    GRID,
    INK,
    LINES,
    ReportFigure,
    legend_columns,
    line_numbers,
    line_style,
    new_figure,
    plain,
    span_unit,
)

__all__ = ["BEHIND", "pareto", "power", "spent"]

BEHIND = ("carbon", "price", "temperature")
"""Signals drawn behind power, by a word of their name, the first first."""
_COLOURS = dict(zip(STATES, (LINES[0], LINES[5], LINES[4], LINES[3], LINES[1], LINES[6]), strict=True))
_PLACES = (
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
"""Where a name may stand beside its point, in points, and how it is aligned; the first that is free is taken."""


def pareto(drew: EnergyData) -> ReportFigure:
    """Mean wait against energy and CO2 (else cost): those whom nobody beats in both are joined."""
    metrics = [("energy_kwh", "energy of the nodes", "kWh")]
    if drew.has("co2_kg"):
        metrics.append(("co2_kg", "CO2", "kg"))
    elif drew.has("cost"):
        metrics.append(("cost", "cost", drew.currency))
    wait = drew.means("mean_wait_s")
    known = [who for who in drew.contenders if math.isfinite(wait[who])]
    per, unit = span_unit([float(wait[who]) for who in known])
    told = []
    with new_figure(height_in=3.9, columns=2) as (figure, panels):
        if len(metrics) == 1:
            panels[1].remove()
            panels[0].set_subplotspec(panels[0].get_gridspec()[:])
        for axes, (metric, words, own) in zip(panels, metrics, strict=False):
            values = drew.means(metric)
            scale = scaled([float(values[who]) for who in known], own)
            places = {who: (float(values[who]) * scale.factor, float(wait[who]) / per) for who in known}
            front = drew.front(metric)
            _front(axes, [places[who] for who in front])
            for who in known:
                agent = drew.contest.contenders[who].kind == "agent"
                colour = LINES[AGENT if agent else 0] if who in front else FAINT
                filled = "full" if who in front else "none"
                axes.plot(*places[who], "o", color=colour, markersize=8, fillstyle=filled)
            _round_axes(axes, list(places.values()))
            axes.set_xlabel(f"{words}, {scale.unit}" if scale.unit else words)
            axes.set_ylabel(f"mean wait, {unit}")
            order = [*front, *(who for who in (drew.first, *known) if who not in front)]
            named = {who: (plain(drew.found.names[who]), places[who]) for who in order}
            _named(figure, axes, named, [places[who] for who in front])
            names = ", ".join(drew.contest.labels[who] for who in front)
            told.append(f"by mean wait and {words} nobody beats {names} in both")
    return ReportFigure(
        figure,
        "Mean wait against what is drawn: further down and to the left is better. Filled and joined: nobody is "
        "better in both. A point without a name had no room for it; the table has all. Axes do not begin at 0.",
        f"Mean wait against energy{' and CO2' if drew.has('co2_kg') else ''}: {'; '.join(told)}.",
    )


def spent(drew: EnergyData) -> ReportFigure:
    """Energy of the nodes by what they did, a bar a contender, the first on top."""
    rows = [*drew.contenders, *drew.found.of_kind("clairvoyant")]
    totals = {who: sum(drew.record.states[who].values()) for who in rows}
    scale = scaled(list(totals.values()), "kWh")
    drawn = [name for name in STATES if any(drew.record.states[who].get(name, 0.0) > 0 for who in rows)]
    told = []
    with new_figure(height_in=1.2 + 0.4 * len(rows), columns=2) as (figure, panels):
        panels[1].remove()
        axes = panels[0]
        axes.set_subplotspec(axes.get_gridspec()[:])
        for place, who in enumerate(reversed(rows)):
            left, parts = 0.0, []
            for name in drawn:
                value = drew.record.states[who].get(name, 0.0)
                wide = value * scale.factor
                axes.barh(
                    place, wide, left=left, height=0.66, color=_COLOURS[name], edgecolor=INK, linewidth=0.4
                )
                left += wide
                parts.append(f"{STATES[name]} {scale.told(value)}")
            saving = "" if who == drew.first else f"  {change(totals[who] / max(totals[drew.first], 1e-300))}"
            axes.annotate(
                f"{scale.told(totals[who])}{saving}",
                (left, place),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
            )
            told.append(f"{drew.contest.labels[who]}: {', '.join(parts)}")
        axes.set_yticks(range(len(rows)), [plain(drew.found.names[who]) for who in reversed(rows)])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlim(0, max(max(totals.values()) * scale.factor, 1e-9) * 1.16)
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"energy of the nodes, {scale.unit}")
        for name in drawn:
            axes.plot([], [], "s", color=_COLOURS[name], label=STATES[name], markersize=8)
        axes.legend(
            loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=6, handletextpad=0.2, columnspacing=1.2
        )
    windows = len(drew.contest.windows)
    fixed = (
        " Fixed: what is drawn whatever the nodes do, such as switches and storage."
        if "fixed" in drawn
        else ""
    )
    over = "" if windows == 1 else f", over all {windows} windows"
    return ReportFigure(
        figure,
        f"What nodes drew power for{over}.{fixed}",
        f"Energy of the nodes in {scale.unit} by what they did. {'; '.join(reversed(told))}.",
    )


def power(drew: EnergyData) -> ReportFigure:
    """Power of the facility over time, a panel for each signal behind it; for files."""
    signals: Sequence[SignalCurve | None] = [s for name in BEHIND[:2] if (s := drew.signal(name)) is not None]
    signals = signals or [drew.signal(BEHIND[2])]
    numbers = line_numbers(drew.found)
    shown = [who for who in drew.found.shown if who < len(drew.record.curves)]
    scale = scaled([watts for who in shown for watts in drew.record.curves[who].facility_w], "W")
    with new_figure(height_in=3.2 * len(signals), rows=len(signals), columns=2) as (figure, panels):
        grid = panels.reshape(-1, 2)
        for place, signal in enumerate(signals):
            grid[place, 1].remove()
            axes = grid[place, 0]
            axes.set_subplotspec(axes.get_gridspec()[place, :])
            for who in shown:
                curve = drew.record.curves[who]
                style = line_style(numbers[who]) | {"linewidth": 1.3}
                edge, watts = np.array(curve.edge_s), np.array(curve.facility_w) * scale.factor
                label = plain(drew.found.names[who])
                axes.step(edge / 86400.0, np.append(watts, watts[-1:]), where="post", label=label, **style)
            axes.set_ylim(bottom=0)
            axes.margins(x=0)
            axes.set_ylabel(f"facility, {scale.unit}")
            axes.set_xlabel("day of the log")
            axes.xaxis.set_major_formatter("{x:,g}")
            if signal is not None:
                _behind(axes, signal)
        if shown:
            handles, labels = grid[0, 0].get_legend_handles_labels()
            figure.legend(
                handles,
                labels,
                loc="outside upper left",
                ncols=legend_columns(drew.found, 6),
                handlelength=2.6,
            )
    return ReportFigure(figure, "Power of the facility over time.", "Power of the facility over time.")


def _behind(axes: Any, signal: SignalCurve) -> None:
    """The signal as a grey area behind the lines, with an axis of its own at the right."""
    low, high = axes.get_xlim()
    other = axes.twinx()
    other.set_zorder(axes.get_zorder() - 1)
    axes.patch.set_visible(False)
    edge, value = np.array(signal.edge_s) / 86400.0, np.array(signal.value)
    other.fill_between(edge, np.append(value, value[-1:]), step="post", color=GRID, linewidth=0)
    other.set_xlim(low, high)
    other.set_ylim(min(0.0, float(value.min(initial=0.0))), max(float(value.max(initial=0.0)), 1e-9) * 1.1)
    other.grid(visible=False)
    other.set_ylabel(plain(f"{called(signal)}, {signal.unit}"), color=FAINT)
    other.yaxis.set_major_formatter("{x:,g}")


def _front(axes: Any, points: Sequence[tuple[float, float]]) -> None:
    """A line along the front: what lies above and to the right of it is beaten."""
    if len(points) > 1:
        across, up = zip(*points, strict=True)
        axes.step(across, up, where="post", color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)


def _round_axes(axes: Any, points: Sequence[tuple[float, float]]) -> None:
    """Room around the points for their names; waits of many sizes on a logarithmic axis."""
    waits = [up for _, up in points]
    if waits and min(waits) > 0 and max(waits) / min(waits) > 30:
        axes.set_yscale("log")
        axes.minorticks_off()
    axes.margins(x=0.22, y=0.16)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.locator_params(axis="x", nbins=6)


def _named(
    figure: Any,
    axes: Any,
    named: dict[int, tuple[str, tuple[float, float]]],
    front: Sequence[tuple[float, float]],
) -> None:
    """Names beside their points, none on another, a point or the front; one without room is left out."""
    figure.draw_without_rendering()  # settles where points are
    renderer = figure.canvas.get_renderer()
    inside = axes.get_window_extent(renderer).padded(2)
    near = 5 * figure.dpi / 72
    dots = [axes.transData.transform(point) for _, point in named.values()]
    taken = [(x - near, y - near, x + near, y + near) for x, y in dots]
    steps = [axes.transData.transform(point) for point in front]
    for (x0, y0), (x1, y1) in pairwise(steps):  # across, then down
        taken += [(x0, y0 - 1, x1, y0 + 1), (x1 - 1, y1, x1 + 1, y0)]
    for words, point in named.values():
        for across, up, ha, va in _PLACES:
            placed = axes.annotate(
                words, point, xytext=(across, up), textcoords="offset points", ha=ha, va=va, size=9
            )
            box = placed.get_window_extent(renderer)
            own = (box.x0, box.y0, box.x1, box.y1)
            within = (
                box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0 and box.y1 <= inside.y1
            )
            if within and not any(_meet(own, other) for other in taken):
                taken.append(own)
                break
            placed.remove()


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
