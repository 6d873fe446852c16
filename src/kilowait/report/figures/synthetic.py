"""Figures of a synthetic workload: distributions, correlations, classifier, arrivals, simulated load and privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kilowait.report.data.comparison import AGENT
from kilowait.report.data.synthetic import KINDS, SyntheticScoreData
from kilowait.report.data.synthetic_columns import SIMULATION_METRICS, column_label
from kilowait.report.figures import (
    FAINT,
    INK,
    LINES,
    WIDTH_IN,
    ReportFigure,
    annotate,
    escape_dollar,
    line_style,
    need_matplotlib,
    new_figure,
    row_labels,
)
from kilowait.report.figures.distributions import (
    REAL_STYLE,
    SYNTHETIC_STYLE,
    distribution_panels,
    mark_difference,
    workload_legend,
)
from kilowait.report.format import number, share
from kilowait.units import format_duration

EQUAL = 1e-4
"""The lower end of the distance axis; smaller distances are drawn there."""
TOP = 10
"""The number of features of the classifier that are drawn."""
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_PERIODS_H = {2: "2 h", 6: "6 h", 12: "12 h", 24: "1 day", 72: "3 days", 168: "1 week", 672: "4 weeks"}


def column_distributions(score: SyntheticScoreData) -> ReportFigure:
    """Cumulative distribution of every numeric column."""
    return distribution_panels(
        _by_name(score.fidelity["distances"], "column"),
        score.curves["columns"],
        "Cumulative share of jobs; values below the axis are drawn at its left end. The bar marks the largest "
        "difference between the two, and KS is its length: 0 for equal distributions, 1 for distributions without "
        "overlap.",
        "Cumulative shares of real and generated jobs by column",
    )


def user_distributions(score: SyntheticScoreData) -> ReportFigure:
    """Distributions of jobs per user, jobs per session, and the time between a user's jobs."""
    return distribution_panels(
        _by_name(score.fidelity["user_distances"], "column"),
        score.curves["users"],
        "Cumulative share of users, of sessions and of pairs of consecutive jobs. A session is a sequence of a "
        "user’s jobs with less than half an hour between submissions.",
        "Distributions over users",
    )


def simulation_distributions(score: SyntheticScoreData, place: int) -> ReportFigure:
    """Distributions under one policy: waits, slowdowns, backlog and utilization."""
    policy, rows = score.outcomes[place]
    return distribution_panels(
        _by_name(rows, "name"),
        score.curves["outcomes"][place]["shares"],
        f"Under {policy} with EASY: cumulative share of jobs by wait and by slowdown, and cumulative share of hours by "
        "nodes requested by waiting jobs and by utilization.",
        f"Distributions under {policy}, real and generated",
        label=SIMULATION_METRICS.__getitem__,
        per_row=2,
    )


def _by_name(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, Mapping[str, Any]]:
    return {str(row[key]): row for row in rows}


def correlations(score: SyntheticScoreData) -> ReportFigure:
    """Heat maps of correlations: real, generated and their difference, a row for each kind of correlation."""
    pairs_by_kind = {
        kind: pairs for kind in KINDS if (pairs := [pair for pair in score.fidelity["pairs"] if pair["kind"] == kind])
    }
    names = {kind: _names(pairs) for kind, pairs in pairs_by_kind.items()}
    heights = [0.9 + 0.36 * (len(names[kind]) - 1) for kind in pairs_by_kind]
    with new_figure(
        height_in=sum(heights), rows=len(pairs_by_kind), columns=3, width_in=2 * WIDTH_IN, heights=heights
    ) as (figure, grid):
        figure.get_layout_engine().set(h_pad=0.09)
        for line, (kind, pairs) in zip(np.atleast_2d(grid), pairs_by_kind.items(), strict=True):
            for axes, (side, label) in zip(
                line, (("real", "real"), ("synthetic", "generated"), ("difference", "difference")), strict=True
            ):
                _heat_map(axes, names[kind], pairs, side, labelled=side == "real")
                axes.set_title(f"{KINDS[kind]}: {label}", loc="left", size=9)
    worst = score.results["worst_pair"]
    return ReportFigure(
        figure,
        "Correlations between columns, from −1 (orange) over 0 (no colour) to 1 (blue), and generated minus real; "
        "where the right has no colour, the generated workload preserves the correlation.",
        f"Correlations between columns. Largest difference: {column_label(str(worst['one']))} and "
        f"{column_label(str(worst['other']))}, {worst['synthetic']:.2f} instead of {worst['real']:.2f}.",
    )


def feature_importance(score: SyntheticScoreData) -> ReportFigure:
    """Feature importance of the classifiers without and with the user's history."""
    fidelity = score.fidelity
    panels = [
        (fidelity["feature_importance"], f"single jobs: AUC {fidelity['auc']:.3f}"),
        (fidelity["feature_importance_history"], f"with the user’s history: AUC {fidelity['auc_history']:.3f}"),
    ]
    rows_shown = max(min(len(parts), TOP) for parts, _ in panels)
    with new_figure(height_in=1.0 + 0.29 * rows_shown, columns=2) as (figure, grid):
        for axes, (parts, label) in zip(grid, panels, strict=True):
            rows = list(parts.items())[:TOP][::-1]
            for place, (_, part) in enumerate(rows):
                axes.barh(place, 100 * part, color=LINES[AGENT], height=0.65)
                annotate(axes, share(part), (100 * part, place), 4, size=8)
            row_labels(axes, [escape_dollar(column_label(name)) for name, _ in rows], size=8)
            axes.set_xlim(0, 118 * max((part for _, part in rows), default=1.0))
            axes.set_title(label, loc="left", size=10)
            axes.set_xlabel("share of the total gain, %")
    alt = ", ".join(
        f"{column_label(name)} {share(part)}" for name, part in list(fidelity["feature_importance"].items())[:3]
    )
    return ReportFigure(
        figure,
        "Feature importance of the classifier: gain of its splits on the training jobs. Where the AUC is about 0.5, "
        "the importance does not generalize to other jobs.",
        f"The classifier has an AUC of {fidelity['auc']:.3f}. Most important features: {alt}.",
    )


def privacy(score: SyntheticScoreData) -> ReportFigure:
    """Distances to the closest record, and the ROC curve of membership inference from them."""
    closest, roc = score.curves["closest"], score.curves["membership"]
    metrics = score.privacy
    assert metrics is not None  # the curves exist only with held-out jobs
    with new_figure(height_in=4.0, columns=2) as (figure, (left, right)):
        at = np.array(closest["at"], np.float64)
        shown = np.concatenate([at[1:] > EQUAL, [True]])  # the last point below EQUAL, and all above
        at = np.maximum(at[shown], EQUAL)
        for name, label, line in (
            ("synthetic_to_seen", "generated to training", AGENT),
            ("synthetic_to_held_out", "generated to held out", 2),
            ("held_out_to_seen", "held out to training", 0),
        ):
            left.step(at, 100 * np.array(closest[name])[shown], where="post", label=label, **line_style(line))
        left.set_xscale("log")
        left.set_xlim(EQUAL, max(float(at.max()), 1.0))
        ticks = [10.0**power for power in range(-4, 2) if 10.0**power <= max(float(at.max()), 1.0)]
        left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        left.minorticks_off()
        left.set_ylim(-1, 102)
        left.set_ylabel("jobs, %")
        left.set_xlabel("distance to the closest record, standard deviations")
        left.legend(loc="lower right")
        right.plot([0, 100], [0, 100], color=FAINT, linewidth=1.0)
        right.plot(
            100 * np.array(roc["false_positive_rate"]), 100 * np.array(roc["true_positive_rate"]), **line_style(AGENT)
        )
        false_positives, true_positives = (100 * float(part) for part in roc["best"])
        mark_difference(right, false_positives, (false_positives, true_positives))
        label = f"advantage {true_positives - false_positives:.1f} points"
        middle = (false_positives + true_positives) / 2
        annotate(right, label, (false_positives, middle), 14, -10, va="baseline", size=9)
        right.set_xlim(0, 100)
        right.set_ylim(0, 101)
        right.set_xlabel("false positive rate (held-out jobs), %")
        right.set_ylabel("true positive rate (training jobs), %")
        right.set_title(f"AUC {metrics['membership_auc']:.3f}", loc="left", size=10)
    return ReportFigure(
        figure,
        "Left: distance of every job to the closest job of another set; at the left edge they are (nearly) equal. "
        "Generated jobs that are closer to training jobs than held-out jobs are were memorized. Right: ROC curve of "
        "membership inference (a real job close to a generated one is taken for a training job); the diagonal is "
        "chance.",
        f"Median distance of a generated job to the closest training job {number(metrics['closest_seen'])}, to the "
        f"closest held-out job {number(metrics['closest_held_out'])}. Membership inference has an AUC of "
        f"{metrics['membership_auc']:.3f} and an advantage of {share(metrics['membership_advantage'])}.",
    )


def _short_label(name: str) -> str:
    return "interarrival" if name == "interarrival_s" else column_label(name)


def _names(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The column names of the pairs, in order."""
    return list(dict.fromkeys([pair["one"] for pair in pairs] + [pair["other"] for pair in pairs]))


def _heat_map(
    axes: Any, names: Sequence[str], pairs: Sequence[Mapping[str, Any]], side: str, *, labelled: bool
) -> None:
    """Draw the lower triangle of a correlation matrix."""
    patches = need_matplotlib().patches
    last = len(names) - 1
    for pair in pairs:
        value = float(pair["synthetic"]) - float(pair["real"]) if side == "difference" else float(pair[side])
        column, row = names.index(pair["one"]), last - names.index(pair["other"])
        colour = LINES[0 if value > 0 else AGENT]
        axes.add_patch(
            patches.Rectangle(
                (column - 0.48, row - 0.46), 0.96, 0.92, facecolor=colour, alpha=0.8 * min(abs(value), 1.0), linewidth=0
            )
        )
        value = 0.0 if abs(value) < 0.005 else value
        label = f"{value:+.2f}" if side == "difference" and value else f"{value:.2f}"
        axes.text(column, row, label.replace("-", "−"), ha="center", va="center", size=8)
    axes.set_xlim(-0.5, last - 0.5)
    axes.set_ylim(-0.5, last - 0.5)
    axes.set_xticks(range(last), [_short_label(name) for name in names[:-1]], size=8)
    rows = [_short_label(name) for name in reversed(names[1:])]
    axes.set_yticks(range(last), rows if labelled else [""] * last, size=8)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


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
        workload_legend(figure, handles)
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
        "Left: autocorrelation of the number of submissions per hour. Right: share of its variance by period; a peak "
        "at one day is the daily cycle of working hours.",
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
        workload_legend(figure, handles)
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
            annotate(axes, label, (at, 1), 3, -9, xycoords=("data", "axes fraction"), va="baseline", size=8)
