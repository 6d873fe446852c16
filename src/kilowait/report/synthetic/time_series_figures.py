"""Figures over time: autocorrelation, spectrum and profiles of submissions, and simulated backlog and utilization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kilowait.report.figures import INK, ReportFigure, new_figure
from kilowait.report.format import number, share
from kilowait.report.synthetic.data import SyntheticScoreData
from kilowait.report.synthetic.distribution_figures import REAL_STYLE, SYNTHETIC_STYLE, workload_legend
from kilowait.units import format_duration

__all__ = ["arrival_cycles", "profiles", "simulated_load"]

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PERIODS_H = {2: "2 h", 6: "6 h", 12: "12 h", 24: "1 day", 72: "3 days", 168: "1 week", 672: "4 weeks"}


def arrival_cycles(score: SyntheticScoreData) -> ReportFigure:
    """Autocorrelation and spectrum of submissions per hour, with markers at a day and a week."""
    autocorrelation, spectrum = score.curves["autocorrelation"], score.curves["spectrum"]
    edges = np.array(spectrum["edge_h"], np.float64)
    middle = np.sqrt(edges[:-1] * edges[1:])
    with new_figure(height_in=3.6, columns=2) as (figure, (left, right)):
        handles = []
        left.axhline(0.0, color=INK, linewidth=1.0)
        for side, line in (("real", REAL_STYLE), ("synthetic", SYNTHETIC_STYLE)):
            lag_days = np.arange(1, len(autocorrelation[side]) + 1) / 24
            handles += left.plot(lag_days, autocorrelation[side], **line)
            parts = np.array(spectrum[side], np.float64)
            resolved = np.isfinite(parts)  # a short log does not resolve long periods
            right.plot(middle[resolved], 100 * parts[resolved], **line)
        lags = len(autocorrelation["real"]) / 24
        _marked(left, {1.0: "a day", 7.0: "a week", 14.0: "two weeks"}, lags)
        left.set_xlim(0, max(lags, 1))
        left.set_xticks(range(int(lags) + 1))
        left.set_xlabel("lag, days")
        left.set_ylabel("correlation")
        right.set_xscale("log")
        right.set_xlim(edges[0], edges[-1])
        right.set_xticks(list(_PERIODS_H), list(_PERIODS_H.values()))
        right.minorticks_off()
        _marked(right, {12.0: "", 24.0: "a day", 168.0: "a week"}, edges[-1])
        right.set_ylim(bottom=0)
        right.set_xlabel("period")
        right.set_ylabel("share of the variance, %")
        workload_legend(figure, handles, loc="outside upper left")
    pattern = score.fidelity["arrivals"]
    alt = ", ".join(
        f"{label} {number(pattern[name][0])} and {number(pattern[name][1])}"
        for name, label in (
            ("autocorrelation_day", "at a lag of one day"),
            ("autocorrelation_week", "at a lag of one week"),
        )
    )
    return ReportFigure(
        figure,
        "Left: autocorrelation of the number of submissions per hour. Right: share of its variance by period; a "
        "peak at "
        "one day is the daily cycle of working hours.",
        f"Autocorrelation and spectrum of submissions per hour. Correlations, real and generated: {alt}.",
    )


def profiles(score: SyntheticScoreData) -> ReportFigure:
    """Submissions by hour of the day and of the week."""
    day, week = score.curves["day"], score.curves["week"]
    dated = bool(score.curves["dated"])
    with new_figure(height_in=3.3, columns=2) as (figure, (left, right)):
        handles = []
        for side, line in (("real", REAL_STYLE), ("synthetic", SYNTHETIC_STYLE)):
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
        workload_legend(figure, handles, loc="outside upper left")
    gap = 50 * float(np.abs(np.subtract(day["real"], day["synthetic"])).sum())
    clock_note = (
        "Hours are in UTC." if dated else "The log has no start date, so hours and days are counted from its start."
    )
    return ReportFigure(
        figure,
        f"Share of jobs by hour of submission, over the day and over the week. {clock_note}",
        f"Daily and weekly profile. {share(gap / 100)} of the generated jobs would have to move to another hour.",
    )


def simulated_load(score: SyntheticScoreData, place: int) -> ReportFigure:
    """Backlog and utilization over time, the real workload left and the generated one right."""
    curves = score.curves["outcomes"][place]
    policy = str(curves["policy"])
    series_by_side: tuple[Mapping[str, Any], ...] = tuple(curves["series"][side] for side in ("real", "synthetic"))
    days = max(len(series["utilization"]) * float(series["step_s"]) / 86400 for series in series_by_side)
    largest_backlog = max((max(series["backlog_nodes"], default=0.0) for series in series_by_side), default=0.0)
    with new_figure(height_in=4.4, rows=2, columns=2, share_x=True) as (figure, grid):
        for column, (series, label, line) in enumerate(
            zip(series_by_side, ("real", "generated"), (REAL_STYLE, SYNTHETIC_STYLE), strict=True)
        ):
            at = np.arange(len(series["utilization"])) * float(series["step_s"]) / 86400
            style = {"color": line["color"], "linewidth": 1.1}
            for row, values in ((0, series["backlog_nodes"]), (1, 100 * np.array(series["utilization"]))):
                grid[row][column].step(at, values, where="post", **style)
                grid[row][column].margins(x=0)
            grid[0][column].set_title(label, loc="left", size=10)
            grid[0][column].set_ylim(0, max(1.05 * largest_backlog, 1))
            grid[0][column].yaxis.set_major_formatter("{x:,g}")
            grid[1][column].set_ylim(0, 103)
            grid[1][column].set_xlim(0, days)
            grid[1][column].set_xlabel("days from the first job")
        grid[0][0].set_ylabel("nodes requested")
        grid[1][0].set_ylabel("nodes busy, %")
    step_s = max(float(series["step_s"]) for series in series_by_side)
    days_note = (
        "The generated workload has the calendar of the real log, so busy and quiet days coincide."
        if score.same_calendar
        else "The days of the two workloads do not correspond: frequency and height of backlogs should be similar, not "
        "their dates."
    )
    return ReportFigure(
        figure,
        f"Both workloads under {policy} with EASY on the same machine, means over {format_duration(step_s)}. "
        f"{days_note}",
        f"Backlog and utilization over time under {policy}, real and generated.",
    )


def _marked(axes: Any, places: Mapping[float, str], end: float) -> None:
    """Draw vertical lines with labels at the top."""
    for at, label in places.items():
        if at <= end:
            axes.axvline(at, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
            axes.annotate(
                label, (at, 1), xytext=(3, -9), xycoords=("data", "axes fraction"), textcoords="offset points", size=8
            )
