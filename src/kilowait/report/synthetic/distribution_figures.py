"""Figures of distributions, real beside generated: of columns, of users, and of what happens in a simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kilowait.report.figures import AGENT, INK, LINES, WIDTH_IN, ReportFigure, log_axis, new_figure, plain
from kilowait.report.format import capital
from kilowait.report.job_figures import slowdown_axis, wait_axis
from kilowait.report.synthetic.data import SyntheticScoreData
from kilowait.report.synthetic.labels import MEASURES, column_words, value_words

__all__ = ["MADE", "REAL", "columns", "outcome", "sides", "users"]

REAL: dict[str, Any] = {"color": LINES[0], "linewidth": 2.2}
MADE: dict[str, Any] = {"color": LINES[AGENT], "linewidth": 1.5, "linestyle": (0, (3, 2))}
"""Lines of the two workloads: where they lie on one another both are seen."""
VISIBLE = 3.0
"""Gaps of so many points are marked."""
ACROSS = 3
"""Panels beside one another."""
FLOORS = {"energy_j": 1e3, "utilization": 0.0, "hour": 0.0}
"""Where the axis begins; elsewhere at 1."""


def columns(found: SyntheticScoreData) -> ReportFigure:
    """Every numeric column: which part of the jobs is no larger."""
    rows = {str(row["column"]): row for row in found.fidelity["distances"]}
    shown = {name: found.curves["columns"][name] for name in rows}
    figure = _panels(shown, {name: _distance(name, row) for name, row in rows.items()}, column_words)
    told = "; ".join(f"{column_words(name)} {row['ks']:.3f}" for name, row in rows.items())
    return ReportFigure(
        figure,
        "The share of jobs that have no more than what is below; values below the axis stand at its left end. The bar "
        "marks where the two differ most, and KS is its length: 0 where the distributions are the same, 1 where they "
        "have nothing in common.",
        f"Cumulative shares of real and generated jobs by column. Kolmogorov-Smirnov distances: {told}.",
    )


def users(found: SyntheticScoreData) -> ReportFigure:
    """Jobs of users, of their sessions, and the time between a user's jobs."""
    rows = {str(row["column"]): row for row in found.fidelity["user_distances"]}
    shown = {name: found.curves["users"][name] for name in rows}
    figure = _panels(shown, {name: _distance(name, row) for name, row in rows.items()}, column_words)
    told = "; ".join(f"{column_words(name)} {row['ks']:.3f}" for name, row in rows.items())
    return ReportFigure(
        figure,
        "The share of users, of sessions and of pairs of jobs that have no more than what is below. A session is a run "
        "of a user’s jobs with less than half an hour between submissions.",
        f"How users differ. Kolmogorov-Smirnov distances: {told}.",
    )


def outcome(found: SyntheticScoreData, place: int) -> ReportFigure:
    """What happens under one rule: waits, slowdowns, backlog and utilization."""
    policy, rows = found.outcomes[place]
    named = {str(row["name"]): row for row in rows}
    shown = {name: found.curves["outcomes"][place]["shares"][name] for name in named}
    titles = {name: _distance(name, row) for name, row in named.items()}
    figure = _panels(shown, titles, MEASURES.__getitem__, across=2)
    told = "; ".join(f"{MEASURES[name]} {row['ks']:.3f}" for name, row in named.items())
    return ReportFigure(
        figure,
        f"Under {policy} with EASY: the share of jobs that waited, or were slowed down, no more than what is below, "
        "and the share of hours with no more nodes waited for, or busy.",
        f"Distributions under {policy}, real and generated. Kolmogorov-Smirnov distances: {told}.",
    )


def sides(axes_or_figure: Any, handles: Sequence[Any], **place: Any) -> None:
    """The legend of the two workloads."""
    axes_or_figure.legend(handles, ["real", "generated"], ncols=2, handlelength=2.6, **place)


def _distance(name: str, row: Mapping[str, Any]) -> str:
    return f"KS {row['ks']:.3f}, moved by {value_words(name, float(row['wasserstein']))}"


def _panels(
    curves: Mapping[str, Mapping[str, Any]],
    under: Mapping[str, str],
    words: Any,
    *,
    across: int = ACROSS,
) -> Any:
    """A panel a curve, in rows; `under` stands below its name."""
    across = min(across, len(curves))
    rows = math.ceil(len(curves) / across)
    with new_figure(height_in=0.45 + 2.75 * rows, rows=rows, columns=across, width_in=2 * WIDTH_IN) as (
        figure,
        grid,
    ):
        panels = np.atleast_1d(grid).ravel()
        handles: list[Any] = []
        for axes, (name, curve) in zip(panels, curves.items(), strict=False):
            handles = _curve(axes, name, curve)
            axes.set_title(f"{capital(words(name))}\n", loc="left", size=10, weight="bold")
            axes.annotate(
                plain(under[name]),
                (0, 1),
                xytext=(0, 5),
                xycoords="axes fraction",
                textcoords="offset points",
                size=9,
            )
        for place, axes in enumerate(panels):
            if place >= len(curves):
                axes.set_visible(False)
            elif place % across == 0:
                axes.set_ylabel("share, %")
        sides(figure, handles, loc="outside upper left")
    return figure


def _curve(axes: Any, name: str, curve: Mapping[str, Any]) -> list[Any]:
    """Both distribution functions, and the widest gap between them."""
    floor = FLOORS.get(name, 1.0)
    at = np.maximum(np.array(curve["at"], np.float64), floor)
    sides = [np.array(curve[side], np.float64) for side in ("real", "made")]
    scale = 100.0 if name == "utilization" else 1 / 3.6e6 if name == "energy_j" else 1.0
    handles = [
        axes.step(scale * at, 100 * values, where="post", **line)[0]
        for values, line in zip(sides, (REAL, MADE), strict=True)
    ]
    widest = max(float(curve["widest"]), floor)
    gap = [100 * float(values[np.searchsorted(at, widest)]) for values in sides]
    if abs(gap[0] - gap[1]) > VISIBLE:
        axes.plot([scale * widest] * 2, gap, color=INK, linewidth=1.4, marker="_", markersize=6)
    axes.set_ylim(-1, 102)
    _axis(axes, name, scale * float(at.min()), scale * float(at.max()))
    return handles


def _axis(axes: Any, name: str, low: float, high: float) -> None:
    if name == "hour":
        axes.set_xlim(0, 24)
        axes.set_xticks(range(0, 25, 6))
    elif name == "utilization":
        axes.set_xlim(0, max(high, 100))
        axes.set_xlabel("% of the nodes")
    elif name.endswith("_s"):
        wait_axis(axes, high)
    elif name == "bsld":
        slowdown_axis(axes, high)
    else:
        log_axis(axes, low, max(high, 10 * low), room=1.1)
        axes.set_xlabel({"energy_j": "kWh", "backlog_nodes": "nodes"}.get(name, ""))
    if axes.get_xscale() == "log":
        _thinned(axes)


def _thinned(axes: Any) -> None:
    """Leave out ticks whose words would run into those before."""
    low, high = np.log(axes.get_xlim())
    kept: dict[float, str] = {}
    free = -math.inf
    for at, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
        place, half = (math.log(at) - low) / (high - low), 0.012 * len(label.get_text()) + 0.01
        if place - half >= free:
            kept[at] = label.get_text()
            free = place + half
    axes.set_xticks(list(kept), list(kept.values()))
