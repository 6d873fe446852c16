"""One agent under every preference between terms of its reward: a table and, of two terms, a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from kilowait.report.figures import AGENT, FAINT, INK, LINES, ReportFigure, new_figure, plain
from kilowait.report.format import capital, number
from kilowait.report.html import table, text

__all__ = ["front", "front_table"]


def front_table(told: Mapping[str, Any]) -> str:
    """What every term comes to under each preference, and under the rule beside it."""
    terms = list(told["terms"])
    rows = [
        [
            *(f"{float(point['preference'][name]):.2f}" for name in terms),
            *(_cell(point, name) for name in terms),
            "another is better in all" if point["dominated"] else "",
        ]
        for point in told["points"]
    ]
    rule = told["reference"]
    rows.append(
        [escape(str(rule["name"])), *[""] * (len(terms) - 1), *(_cell(rule, name) for name in terms), ""]
    )
    made = table(
        f"One agent under {len(told['points'])} preferences, on {int(told['windows']):,} windows of "
        f"{int(told['window_jobs']):,} jobs, later than the training",
        [*(f"prefers {escape(name)}" for name in terms), *(escape(name) for name in terms), ""],
        rows,
        words=(2 * len(terms),),
        faint=[len(rows) - 1],
    )
    meant = "; ".join(
        f"{name}: {meaning}, in units of {number(float(told['units'][name]))}"
        for name, meaning in told["terms"].items()
    )
    note = f"Small: 95 % interval. {capital(meant)}. Less is better."
    return f'{made}<p class="note">{text(note)}</p>'


def front(told: Mapping[str, Any]) -> ReportFigure:
    """The points of two terms, joined in the order of the preferences."""
    across, up = list(told["terms"])
    points = told["points"]
    places = [(float(point["figures"][across]), float(point["figures"][up])) for point in points]
    rule = tuple(float(told["reference"]["figures"][name]) for name in (across, up))
    near = {"xytext": (7, 5), "textcoords": "offset points", "size": 9}
    with new_figure(height_in=3.9) as (figure, axes):
        axes.plot(*zip(*places, strict=True), color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
        for point, place in zip(points, places, strict=True):
            for name, ends in (("x", point["intervals"][across]), ("y", point["intervals"][up])):
                if all(end is not None and math.isfinite(end) for end in ends):
                    line = (ends, [place[1]] * 2) if name == "x" else ([place[0]] * 2, ends)
                    axes.plot(*line, color=FAINT, linewidth=1.0, zorder=0)
            filled = "none" if point["dominated"] else "full"
            axes.plot(*place, "o", color=LINES[AGENT], markersize=7, fillstyle=filled)
        for point, place in ((points[0], places[0]), (points[-1], places[-1])):
            most = max(point["preference"], key=lambda name: point["preference"][name])
            axes.annotate(plain(f"{most} alone"), place, **near)
        axes.plot(*rule, "s", color=LINES[0], markersize=7)
        axes.annotate(plain(str(told["reference"]["name"])), rule, **near)
        axes.margins(0.15)
        axes.set_xlabel(plain(f"{across} (less is better)"))
        axes.set_ylabel(plain(f"{up} (less is better)"))
    beaten = sum(bool(point["dominated"]) for point in points)
    return ReportFigure(
        figure,
        f"One agent under {len(points)} preferences, from {across} alone to {up} alone; the lines through a point are "
        f"95 % intervals over windows. Empty: another preference is better in both ({beaten} of {len(points)}). "
        "Square: a rule on the same windows. Axes do not begin at 0.",
        f"{capital(across)} against {up} under {len(points)} preferences: from {number(places[0][0])} and "
        f"{number(places[0][1])} to {number(places[-1][0])} and {number(places[-1][1])}.",
    )


def _cell(row: Mapping[str, Any], name: str) -> str:
    low, high = (row.get("intervals") or {}).get(name) or (None, None)
    spread = ""
    if low is not None and high is not None:
        spread = f"<small>{text(number(float(low)))} – {text(number(float(high)))}</small>"
    return text(number(float(row["figures"][name]))) + spread
