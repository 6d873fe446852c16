"""The Pareto front of a preference-conditioned agent: a table and, for two reward terms, a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from kilowait.report.figures import AGENT, FAINT, INK, LINES, ReportFigure, escape_dollar, new_figure
from kilowait.report.format import capital, number
from kilowait.report.html import table, text

__all__ = ["pareto_figure", "pareto_table"]


def pareto_table(results: Mapping[str, Any]) -> str:
    """The value of every reward term under each preference, and under the reference policy."""
    terms = list(results["terms"])
    rows = [
        [
            *(f"{float(point['preference'][name]):.2f}" for name in terms),
            *(_cell(point, name) for name in terms),
            "dominated" if point["dominated"] else "",
        ]
        for point in results["points"]
    ]
    reference = results["reference"]
    rows.append(
        [escape(str(reference["name"])), *[""] * (len(terms) - 1), *(_cell(reference, name) for name in terms), ""]
    )
    html_table = table(
        f"One agent under {len(results['points'])} preferences, on {int(results['windows']):,} windows of "
        f"{int(results['window_jobs']):,} jobs, later than the training jobs",
        [*(f"weight of {escape(name)}" for name in terms), *(escape(name) for name in terms), ""],
        rows,
        text_columns=(2 * len(terms),),
        faint=[len(rows) - 1],
    )
    meanings = "; ".join(
        f"{name}: {meaning}, in units of {number(float(results['units'][name]))}"
        for name, meaning in results["terms"].items()
    )
    note = f"Small: 95 % interval. {capital(meanings)}. Less is better."
    return f'{html_table}<p class="note">{text(note)}</p>'


def pareto_figure(results: Mapping[str, Any]) -> ReportFigure:
    """The values of two reward terms, joined in the order of the preferences."""
    x_term, y_term = list(results["terms"])
    points = results["points"]
    points_xy = [(float(point["metrics"][x_term]), float(point["metrics"][y_term])) for point in points]
    reference = tuple(float(results["reference"]["metrics"][name]) for name in (x_term, y_term))
    label_style = {"xytext": (7, 5), "textcoords": "offset points", "size": 9}
    with new_figure(height_in=3.9) as (figure, axes):
        axes.plot(*zip(*points_xy, strict=True), color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
        for point, point_xy in zip(points, points_xy, strict=True):
            for name, ends in (("x", point["intervals"][x_term]), ("y", point["intervals"][y_term])):
                if all(end is not None and math.isfinite(end) for end in ends):
                    line = (ends, [point_xy[1]] * 2) if name == "x" else ([point_xy[0]] * 2, ends)
                    axes.plot(*line, color=FAINT, linewidth=1.0, zorder=0)
            filled = "none" if point["dominated"] else "full"
            axes.plot(*point_xy, "o", color=LINES[AGENT], markersize=7, fillstyle=filled)
        for point, point_xy in ((points[0], points_xy[0]), (points[-1], points_xy[-1])):
            preferred = max(point["preference"], key=lambda name: point["preference"][name])
            axes.annotate(escape_dollar(f"only {preferred}"), point_xy, **label_style)
        axes.plot(*reference, "s", color=LINES[0], markersize=7)
        axes.annotate(escape_dollar(str(results["reference"]["name"])), reference, **label_style)
        axes.margins(0.15)
        axes.set_xlabel(escape_dollar(f"{x_term} (less is better)"))
        axes.set_ylabel(escape_dollar(f"{y_term} (less is better)"))
    dominated = sum(bool(point["dominated"]) for point in points)
    return ReportFigure(
        figure,
        f"One agent under {len(points)} preferences, from only {x_term} to only {y_term}; the lines through a "
        "point are "
        f"95 % intervals over windows. Hollow: dominated by another preference ({dominated} of {len(points)}). "
        "Square: the reference policy on the same windows. Axes do not begin at 0.",
        f"{capital(x_term)} against {y_term} under {len(points)} preferences: from {number(points_xy[0][0])} and "
        f"{number(points_xy[0][1])} to {number(points_xy[-1][0])} and {number(points_xy[-1][1])}.",
    )


def _cell(row: Mapping[str, Any], name: str) -> str:
    low, high = (row.get("intervals") or {}).get(name) or (None, None)
    interval = ""
    if low is not None and high is not None:
        interval = f"<small>{text(number(float(low)))} – {text(number(float(high)))}</small>"
    return text(number(float(row["metrics"][name]))) + interval
