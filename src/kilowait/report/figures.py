"""Figures by matplotlib, drawn without its global state: colours that colour-blind readers can tell apart, few lines.

Every function returns a matplotlib Figure; `as_svg` and `save` turn it into something to look at.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError, MissingExtraError
from kilowait.evaluation import timeline
from kilowait.jobs import SegmentLog
from kilowait.report.content import Curve, Duel, Result, number

__all__ = ["as_svg", "comparison", "duels", "learning", "need_matplotlib", "over_time", "save", "waits"]

INK, FAINT, GRID = "#24292f", "#57606a", "#d0d7de"
AGENT, RULE = "#D55E00", "#0072B2"
LINES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#999999")
"""Okabe and Ito's colours; the agent's own is kept out of them."""
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), "-", "-")
_THEME = {INK: "ink", FAINT: "faint", GRID: "grid", RULE: "rule", AGENT: "agent"}
"""Colours that a page may change, and the names of its CSS variables."""
WIDTH_IN = 5.8
_TICKS_S = {
    60.0: "1 min",
    600.0: "10 min",
    3600.0: "1 h",
    21600.0: "6 h",
    86400.0: "1 day",
    604800.0: "1 week",
    31536000.0: "1 year",
}
_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.hashsalt": "kilowait",
    "svg.fonttype": "path",
}


def need_matplotlib() -> Any:
    """matplotlib, or a MissingExtraError that names the extra."""
    try:
        import matplotlib
        import matplotlib.backends.backend_agg
        import matplotlib.backends.backend_svg
        import matplotlib.figure
        import matplotlib.ticker
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    return matplotlib


def comparison(results: Sequence[Result], duels: Sequence[Duel] = ()) -> Any:
    """Mean bounded slowdown of each policy, best on top.

    With `duels`: the mean over the windows of unseen jobs with its 95 % interval; without: of the whole run.
    """
    if duels:
        rows = [(duel.rule, duel.rule_mean, duel.rule_interval, RULE) for duel in duels]
        rows.append(("agent", duels[0].agent_mean, duels[0].agent_interval, AGENT))
        label = "mean bounded slowdown, 95 % interval"
    else:
        means = [result.metrics["mean_bsld"] for result in results]
        rows = [
            (result.label, mean, (mean, mean), AGENT if result.learned else RULE)
            for result, mean in zip(results, means, strict=True)
        ]
        label = "mean bounded slowdown"
    rows = [row for row in rows if math.isfinite(row[1])]  # where no job started there is no mean
    rows.sort(key=lambda row: -row[1])
    with _drawing(height_in=0.9 + 0.34 * len(rows)) as (figure, axes):
        for place, (_, mean, (low, high), colour) in enumerate(rows):
            axes.plot([low, high], [place, place], color=colour, linewidth=2.2, solid_capstyle="round")
            axes.plot([mean], [place], "o", color=colour, markersize=7)
            axes.annotate(
                number(mean),
                (max(high, mean), place),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                size=10,
            )
        axes.set_yticks(range(len(rows)), [row[0] for row in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        if rows:
            _log_axis(axes, min(row[2][0] for row in rows), max(row[2][1] for row in rows))
        axes.set_xlabel(f"{label} (less is better)")
        axes.grid(axis="y", visible=False)
    return figure


def duels(found: Sequence[Duel]) -> Any:
    """Agent over rule, with intervals: left of 1 the agent is better."""
    if not found:
        raise InputError("there is no comparison of the agent with a rule to draw")
    rows = sorted(found, key=lambda duel: duel.rule_mean, reverse=True)
    with _drawing(height_in=0.9 + 0.34 * len(rows)) as (figure, axes):
        axes.axvline(1.0, color=INK, linewidth=1.2)
        for place, duel in enumerate(rows):
            colour = AGENT if duel.outcome == "better" else FAINT if duel.outcome == "undecided" else RULE
            axes.plot([duel.ratio_low, duel.ratio_high], [place, place], color=colour, linewidth=2.2)
            axes.plot([duel.ratio], [place], "o", color=colour, markersize=7)
        axes.set_yticks(range(len(rows)), [f"against {duel.rule}" for duel in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlim(0, 1.08 * max(1.0, *(duel.ratio_high for duel in rows)))
        axes.set_xlabel("bounded slowdown, agent / rule (below 1: the agent is better)")
        axes.grid(axis="y", visible=False)
    return figure


def waits(logs: Mapping[str, SegmentLog]) -> Any:
    """Which share of the jobs waited no longer than ...; one line a policy."""
    with _drawing(height_in=3.6) as (figure, axes):
        longest = 3600.0
        for place, (name, log) in enumerate(logs.items()):
            wait_s = log.jobs()["wait_s"]
            wait_s = np.sort(wait_s[np.isfinite(wait_s)])
            if not len(wait_s):
                continue
            longest = max(longest, float(wait_s[-1]))
            grid_s = np.geomspace(60.0, max(float(wait_s[-1]), 61.0), 160)
            share = np.searchsorted(wait_s, grid_s, side="right") / len(wait_s)
            axes.plot(grid_s, 100 * share, label=name.lstrip("_"), **_line(name, place))
        axes.set_xscale("log")
        axes.set_xlim(60.0, longest)
        shown = {at: words for at, words in _TICKS_S.items() if at <= longest}
        axes.set_xticks(list(shown), list(shown.values()))
        axes.minorticks_off()
        axes.set_ylim(0, 101)
        axes.set_xlabel("wait (logarithmic)")
        axes.set_ylabel("jobs that waited no longer, %")
        if axes.lines:
            axes.legend(loc="lower right")
    return figure


def over_time(logs: Mapping[str, SegmentLog], *, days: float = 28.0, bin_s: float = 43200.0) -> Any:
    """Jobs that wait and nodes that are busy, over a stretch of `days` days in the middle of the logs."""
    with _drawing(height_in=4.6, rows=2) as (figure, (above, below)):
        start_s, stop_s = _stretch(logs, days)
        for place, (name, log) in enumerate(logs.items()):
            steps = timeline(log)
            if len(steps) < 2:
                continue
            length_s = float(steps.time_s[-1] - steps.time_s[0])
            bins = steps.sampled(max(int(min(length_s / bin_s, 50_000)), min(100, len(steps))))
            inside = (bins.edge_s[:-1] >= start_s) & (bins.edge_s[1:] <= stop_s)
            day = (bins.edge_s[:-1][inside] - start_s) / 86400.0
            style = _line(name, place)
            above.step(day, bins.waiting_jobs[inside], where="post", label=name.lstrip("_"), **style)
            busy = 100 * bins.busy_nodes / np.maximum(bins.capacity_nodes, 1.0)
            below.step(day, busy[inside], where="post", **style)
        above.set_ylabel("jobs waiting")
        above.set_ylim(bottom=0)
        if above.lines:
            above.legend(
                loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, handlelength=1.8, columnspacing=1.2
            )
        above.tick_params(labelbottom=False)
        below.set_ylabel("nodes busy, %")
        below.set_ylim(0, 103)
        below.set_xlabel(f"days, from day {start_s / 86400.0:,.0f} of the log")
        for axes in (above, below):
            axes.margins(x=0)
    return figure


def learning(curve: Curve) -> Any:
    """The agent's score over the generations, relative to where it started."""
    with _drawing(height_in=3.2) as (figure, axes):
        axes.axhline(1.0, color=INK, linewidth=1.2)
        training = {"color": LINES[4], "linewidth": 1.4, "label": "training"}
        axes.plot(curve.generation, curve.training, **training)
        validation = np.array(curve.validation, np.float64)
        known = np.isfinite(validation)
        chosen = {"color": AGENT, "linewidth": 1.8, "markersize": 5, "label": "validation"}
        axes.plot(np.array(curve.generation)[known], validation[known], "o-", **chosen)
        axes.set_xlabel("generation")
        axes.set_ylabel("relative to the start")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, handlelength=1.8, columnspacing=1.2)
        axes.margins(x=0.02)
    return figure


def as_svg(figure: Any, prefix: str, *, themed: bool = True) -> str:
    """The figure as an inline SVG element; ids get `prefix`, so that several fit into one page.

    `themed` lets the page's CSS variables colour text and grid, for light and dark.
    """
    text = _bytes(figure, "svg").decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    if themed:
        for colour, name in _THEME.items():
            text = re.sub(colour, f"var(--{name})", text, flags=re.IGNORECASE)
    return text


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write NAME.png and NAME.svg into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in ("png", "svg"):
        path = folder / f"{name}.{kind}"
        path.write_bytes(_bytes(figure, kind))
        paths.append(path)
    return paths


def _bytes(figure: Any, kind: str) -> bytes:
    matplotlib = need_matplotlib()
    metadata = {"Date": None} if kind == "svg" else {"Software": "kilowait"}
    out = io.BytesIO()
    opaque = {"facecolor": "white"} if kind == "png" else {"transparent": True}
    with matplotlib.rc_context(_STYLE):
        figure.savefig(out, format=kind, dpi=150, metadata=metadata, **opaque)
    return out.getvalue()


class _drawing:
    """A figure with its axes, in our style, without pyplot."""

    def __init__(self, *, height_in: float, rows: int = 1) -> None:
        self._matplotlib = need_matplotlib()
        self._style = self._matplotlib.rc_context(_STYLE)
        self._size, self._rows = (WIDTH_IN, height_in), rows

    def __enter__(self) -> tuple[Any, Any]:
        self._style.__enter__()
        figure = self._matplotlib.figure.Figure(figsize=self._size, layout="constrained")
        self._matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
        return figure, figure.subplots(self._rows, 1)

    def __exit__(self, *problem: Any) -> None:
        self._style.__exit__(*problem)


def _line(name: str, place: int) -> dict[str, Any]:
    if name == "agent":
        return {
            "color": AGENT,
            "linewidth": 2.6,
            "linestyle": "-",
            "zorder": 1.9,
        }  # a dashed line on it shows
    return {"color": LINES[place % len(LINES)], "linewidth": 1.6, "linestyle": DASHES[place % len(DASHES)]}


def _log_axis(axes: Any, low: float, high: float) -> None:
    """A logarithmic axis with round numbers on it, and room for the words to the right."""
    axes.set_xscale("log")
    low, high = max(low, 1e-3), max(high, 1e-3)
    axes.set_xlim(low * 0.85, max(high, low * 1.5) * 1.5)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    ticks = [mantissa * 10.0**decade for decade in decades for mantissa in (1, 2, 5)]
    shown = [tick for tick in ticks if low * 0.85 <= tick <= high * 1.5]
    axes.set_xticks(shown, [f"{tick:,g}" for tick in shown])
    axes.minorticks_off()


def _stretch(logs: Mapping[str, SegmentLog], days: float) -> tuple[float, float]:
    """Seconds: the middle `days` of the time over which jobs are submitted, or all of it."""
    submit_s = np.concatenate([log.jobs_table["submit_s"] for log in logs.values()] or [np.zeros(1)])
    if not len(submit_s):
        return 0.0, 0.0
    first, last = float(submit_s.min()), float(submit_s.max())
    if last - first <= days * 86400.0:
        return first, math.inf
    start = first + (last - first - days * 86400.0) / 2
    return start, start + days * 86400.0
