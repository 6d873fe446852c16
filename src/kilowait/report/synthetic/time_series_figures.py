"""Figures over time: how submissions come and go, and what becomes of both workloads in a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kilowait.report.figures import INK, ReportFigure, new_figure
from kilowait.report.format import number, share
from kilowait.report.synthetic.data import SyntheticScoreData
from kilowait.report.synthetic.distribution_figures import MADE, REAL, sides
from kilowait.units import format_span

__all__ = ["cycles", "profiles", "run"]

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PERIODS_H = {2: "2 h", 6: "6 h", 12: "12 h", 24: "1 day", 72: "3 days", 168: "1 week", 672: "4 weeks"}


def cycles(found: SyntheticScoreData) -> ReportFigure:
    """Autocorrelation and spectrum of submissions an hour, a day and a week marked."""
    lagged, bands = found.curves["autocorrelation"], found.curves["spectrum"]
    edges = np.array(bands["edge_h"], np.float64)
    middle = np.sqrt(edges[:-1] * edges[1:])
    with new_figure(height_in=3.6, columns=2) as (figure, (left, right)):
        handles = []
        left.axhline(0.0, color=INK, linewidth=1.0)
        for side, line in (("real", REAL), ("made", MADE)):
            lag_days = np.arange(1, len(lagged[side]) + 1) / 24
            handles += left.plot(lag_days, lagged[side], **line)
            parts = np.array(bands[side], np.float64)
            told = np.isfinite(parts)  # a short log does not tell long periods apart
            right.plot(middle[told], 100 * parts[told], **line)
        lags = len(lagged["real"]) / 24
        _marked(left, {1.0: "a day", 7.0: "a week", 14.0: "two weeks"}, lags)
        left.set_xlim(0, max(lags, 1))
        left.set_xticks(range(int(lags) + 1))
        left.set_xlabel("days between")
        left.set_ylabel("correlation")
        right.set_xscale("log")
        right.set_xlim(edges[0], edges[-1])
        right.set_xticks(list(_PERIODS_H), list(_PERIODS_H.values()))
        right.minorticks_off()
        _marked(right, {12.0: "", 24.0: "a day", 168.0: "a week"}, edges[-1])
        right.set_ylim(bottom=0)
        right.set_xlabel("period")
        right.set_ylabel("part of the variance, %")
        sides(figure, handles, loc="outside upper left")
    pattern = found.fidelity["arrivals"]
    said = ", ".join(
        f"{words} {number(pattern[name][0])} and {number(pattern[name][1])}"
        for name, words in (("autocorrelation_day", "over a day"), ("autocorrelation_week", "over a week"))
    )
    return ReportFigure(
        figure,
        "Left: how the number of submissions in an hour goes with that of so many days before. Right: what part of its "
        "ups and downs comes back with which period; a peak at a day is the rhythm of working hours.",
        f"Autocorrelation and spectrum of submissions an hour. Correlations, real and generated: {said}.",
    )


def profiles(found: SyntheticScoreData) -> ReportFigure:
    """When in the day and in the week jobs are submitted."""
    day, week = found.curves["day"], found.curves["week"]
    dated = bool(found.curves["dated"])
    with new_figure(height_in=3.3, columns=2) as (figure, (left, right)):
        handles = []
        for side, line in (("real", REAL), ("made", MADE)):
            drawn: list[Any] = []
            for axes, parts in ((left, day[side]), (right, week[side])):
                values = 100 * np.array([*parts, parts[-1]])
                drawn = axes.step(np.arange(len(values)), values, where="post", **line)
            handles += drawn
        left.set_xlim(0, 24)
        left.set_xticks(range(0, 25, 3))
        left.set_xlabel("hour of the day")
        right.set_xlim(0, 168)
        right.set_xticks(range(0, 169, 24), [""] * 8)
        names = DAYS if dated else [f"day {place + 1}" for place in range(7)]
        right.set_xticks([24 * place + 12 for place in range(7)], names, minor=True)
        right.tick_params(which="minor", length=0)
        right.set_xlabel("hour of the week")
        for axes in (left, right):
            axes.set_ylim(bottom=0)
            axes.set_ylabel("jobs, %")
        sides(figure, handles, loc="outside upper left")
    gap = 50 * float(np.abs(np.subtract(day["real"], day["made"])).sum())
    clock = (
        "Hours are those of the log’s clock, which counts from a date in UTC."
        if dated
        else "The log does not say on which date its clock starts, so hours and days are counted from its zero."
    )
    return ReportFigure(
        figure,
        f"The share of jobs submitted in every hour of the day and of the week. {clock}",
        f"Daily and weekly profile. {share(gap / 100)} of the generated jobs would have to move to another hour.",
    )


def run(found: SyntheticScoreData, place: int) -> ReportFigure:
    """Nodes waited for and nodes busy over time, the real workload left and the generated one right."""
    curves = found.curves["outcomes"][place]
    policy = str(curves["policy"])
    both: tuple[Mapping[str, Any], ...] = tuple(curves["series"][side] for side in ("real", "made"))
    days = max(len(one["utilization"]) * float(one["step_s"]) / 86400 for one in both)
    most = max((max(one["backlog_nodes"], default=0.0) for one in both), default=0.0)
    with new_figure(height_in=4.4, rows=2, columns=2, share_x=True) as (figure, grid):
        for column, (one, words, line) in enumerate(
            zip(both, ("real", "generated"), (REAL, MADE), strict=True)
        ):
            at = np.arange(len(one["utilization"])) * float(one["step_s"]) / 86400
            style = {"color": line["color"], "linewidth": 1.1}
            for row, values in ((0, one["backlog_nodes"]), (1, 100 * np.array(one["utilization"]))):
                grid[row][column].step(at, values, where="post", **style)
                grid[row][column].margins(x=0)
            grid[0][column].set_title(words, loc="left", size=10)
            grid[0][column].set_ylim(0, max(1.05 * most, 1))
            grid[0][column].yaxis.set_major_formatter("{x:,g}")
            grid[1][column].set_ylim(0, 103)
            grid[1][column].set_xlim(0, days)
            grid[1][column].set_xlabel("days from the first job")
        grid[0][0].set_ylabel("nodes waited for")
        grid[1][0].set_ylabel("nodes busy, %")
    step_s = max(float(one["step_s"]) for one in both)
    days_said = (
        "The generated jobs keep the real log’s calendar, so ups and downs come on the same days."
        if found.keeps_calendar
        else "The days of the one are not those of the other: what is to be alike is how often and how high backlogs "
        "rise, not when."
    )
    return ReportFigure(
        figure,
        f"Both workloads under {policy} with EASY on the same machine, means over {format_span(step_s)}. {days_said}",
        f"Backlog and utilization over time under {policy}, real and generated.",
    )


def _marked(axes: Any, places: Mapping[float, str], end: float) -> None:
    """Upright lines with words at the top."""
    for at, words in places.items():
        if at <= end:
            axes.axvline(at, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
            axes.annotate(
                words,
                (at, 1),
                xytext=(3, -9),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                size=8,
            )
