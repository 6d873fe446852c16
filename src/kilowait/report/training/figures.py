"""Figures of a training, of what an agent looks at, and of how jobs look at one another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kilowait.report.figures import (
    AGENT,
    FAINT,
    INK,
    LINES,
    ReportFigure,
    log_axis,
    need_matplotlib,
    new_figure,
    plain,
)
from kilowait.report.format import capital, number
from kilowait.report.training.data import WHOLE, AgentEvaluation
from kilowait.units import format_span

__all__ = ["attention", "curves", "judged", "looked_at"]

FOR, AGAINST = 2, 5
"""Numbers of the colours of what speaks for a job and against it."""
NOTHING = 0.005
"""Weights of attention below this are shown as 0 per cent."""
_LOSSES = {
    "policy": "loss of the policy",
    "value": "loss of the value",
    "kl": "step of the policy (KL)",
    "price": "price of the limit",
    "cost": "term that is limited",
}


def curves(history: Sequence[Mapping[str, Any]], objective: str) -> ReportFigure:
    """How the training of a network went: a panel for each figure that it told."""
    steps = np.array([int(row["steps"]) for row in history])
    columns = {
        name: _column(history, name) for name in ("metric", "validation", "mean_return", "entropy", "kl")
    }
    losses = list(dict.fromkeys(name for row in history for name in row.get("losses") or {}))
    panels: list[tuple[str, dict[str, Any]]] = [
        (f"to be small: {objective}", {"episodes": columns["metric"], "validation": columns["validation"]}),
        ("return of an episode", {"return": columns["mean_return"]}),
        ("entropy of the policy, nats", {"entropy": columns["entropy"]}),
        (_LOSSES["kl"], {"kl": columns["kl"]}),
    ]
    for name in losses:
        values = np.array([_number((row.get("losses") or {}).get(name)) for row in history])
        panels.append((_LOSSES.get(name, name.replace("_", " ")), {name: values}))
    panels = [panel for panel in panels if any(np.isfinite(line).any() for line in panel[1].values())]
    rows = max(math.ceil(len(panels) / 2), 1)
    with new_figure(height_in=0.5 + 2.0 * rows, rows=rows, columns=2) as (figure, grid):
        every = np.atleast_1d(grid).ravel()
        for axes, (title, lines) in zip(every, panels, strict=False):
            for name, values in lines.items():
                there = np.isfinite(values)
                chosen = name == "validation"
                style = {"color": LINES[AGENT if chosen else 0], "linewidth": 1.9 if chosen else 1.3}
                mark = "o-" if chosen or there.sum() == 1 else "-"
                axes.plot(steps[there], values[there], mark, markersize=4, label=name, **style)
            axes.set_title(plain(title), loc="left", size=10)
            axes.xaxis.set_major_formatter(need_matplotlib().ticker.EngFormatter(sep=""))
            axes.ticklabel_format(axis="y", style="plain", useOffset=False)
            axes.margins(x=0.02)
            if len(lines) > 1 and np.isfinite(lines["validation"]).any():
                above = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "ncols": 2}
                axes.legend(handlelength=1.6, fontsize=9, **above)
        for axes in every[len(panels) :]:
            axes.remove()
        for axes in every[max(len(panels) - 2, 0) : len(panels)]:
            axes.set_xlabel("decisions learned from")
    known = columns["validation"][np.isfinite(columns["validation"])]
    ended = f" The least validation is {number(float(known.min()))}." if len(known) else ""
    return ReportFigure(
        figure,
        f"{len(steps):,} updates, {steps[-1]:,} decisions. Episodes: those that ended in an update, as it played "
        "then, at random. Validation: the same later jobs every time, greedily; the weights with the least are kept. "
        "Of the losses the course counts, not the height.",
        f"Training of a network over {steps[-1]:,} decisions: {', '.join(title for title, _ in panels)}.{ended}",
    )


def judged(found: AgentEvaluation) -> ReportFigure:
    """The metric of every contender with its interval, best on top."""
    timed = found.metric.endswith("_s")
    told = format_span if timed else number
    rows = [row for row in reversed(found.rows) if math.isfinite(found.value(row))]
    per = 3600.0 if timed else 1.0
    edges: list[float] = []
    with new_figure(height_in=0.9 + 0.34 * max(len(rows), 1)) as (figure, axes):
        for place, row in enumerate(rows):
            colour = LINES[AGENT if row["kind"] == "agent" else 0]
            mean = found.value(row)
            ends = [end / per for end in (mean, *found.reach(row)) if math.isfinite(end)]
            axes.plot([min(ends), max(ends)], [place] * 2, color=colour, linewidth=2.2)
            axes.plot([mean / per], [place], "o", color=colour, markersize=7)
            near = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(told(mean), (max(ends), place), **near)
            edges += ends
        axes.set_yticks(range(len(rows)), [plain(str(row["label"])) for row in rows])
        axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)
        axes.grid(axis="y", visible=False)
        log_axis(axes, min(edges, default=1.0), max(edges, default=1.0), room=1.8)
        axes.set_xlabel(f"{found.words}{', h' if timed else ''}, 95 % interval (less is better)")
    named = "; ".join(f"{row['label']} {told(found.value(row))}" for row in reversed(rows))
    return ReportFigure(
        figure,
        f"On {found.told['cut']}, jobs later than any it was trained on. Logarithmic.",
        f"{capital(found.words)}, best first: {named}.",
    )


def looked_at(explained: Mapping[str, Any]) -> ReportFigure:
    """How much each number moves the margin of choices, on average."""
    groups = [
        (
            title,
            sorted((part for part in explained["usual"] if part["of"] == of), key=lambda part: part["mean"]),
        )
        for of, title in (("job", "of the job"), ("whole", f"of {WHOLE}"))
    ]
    groups = [group for group in groups if group[1]]
    longest = max(len(parts) for _, parts in groups)
    top = max((float(part["mean"]) for _, parts in groups for part in parts), default=0.0) or 1.0
    with new_figure(height_in=1.2 + 0.25 * longest, columns=len(groups)) as (figure, grid):
        for axes, (title, parts) in zip(np.atleast_1d(grid), groups, strict=True):
            for place, part in enumerate(parts):
                leaning = float(part["leaning"])
                colour = FAINT if leaning == 0 else LINES[FOR if leaning > 0 else AGAINST]
                axes.barh(place, float(part["mean"]), color=colour, height=0.7)
                # The direction in a sign too: not everybody tells the colours apart.
                sign = "" if leaning == 0 else "+" if leaning > 0 else "−"
                near = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "size": 9}
                axes.annotate(sign, (float(part["mean"]), place), **near)
            axes.set_yticks(range(len(parts)), [plain(str(part["name"])) for part in parts])
            axes.set_ylim(-0.6, longest - 0.4)
            axes.set_xlim(0, 1.08 * top)
            axes.grid(axis="y", visible=False)
            axes.set_title(title, loc="left", size=10)
            axes.set_xlabel(f"mean share of the margin ({explained['score']})")
    first = sorted(explained["usual"], key=lambda part: -part["mean"])[:5]
    return ReportFigure(
        figure,
        f"Means over {int(explained['measured']):,} choices, of the share that a number has in the margin by which the "
        "chosen job leads, whether for it or against. Green with a plus: more of it speaks for a job; orange with a "
        "minus: less of it does.",
        "What counts most: "
        + ", ".join(f"{part['name']} {number(float(part['mean']))}" for part in first)
        + ".",
    )


def attention(looked: Mapping[str, Any]) -> ReportFigure:
    """Who looks at whom: a row looks at columns."""
    whole = ["machine and queue"] if looked["whole"] else []
    roles = ["chosen", "next best", *(f"job {place + 1}" for place in range(2, len(looked["jobs"])))]
    roles = roles[: len(looked["jobs"])]
    rows = [*whole, *(_named(role, job) for role, job in zip(roles, looked["jobs"], strict=True))]
    columns = [*(["machine"] if whole else []), *roles]
    weights = np.array(looked["weights"], np.float64)
    if weights[:, -1].max(initial=0.0) >= NOTHING:
        columns.append("all others")
    weights = weights[:, : len(columns)]
    top = max(float(weights[:, : len(rows)].max(initial=0.0)), 1e-9)
    with new_figure(height_in=0.8 + 0.32 * len(rows)) as (figure, axes):
        for row, line in enumerate(weights):
            for column, weight in enumerate(line):
                if column < len(rows):  # all others together are no cell like the rest
                    shade = 0.8 * weight / top  # words stay legible on it
                    axes.bar(column, 1, 1, row - 0.5, color=LINES[0], alpha=shade, linewidth=0)
                colour = INK if column < len(rows) else FAINT
                axes.text(column, row, f"{100 * weight:.0f}", ha="center", va="center", size=8, color=colour)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), rows, size=8)
        axes.set_xticks(range(len(columns)), [name.replace(" ", "\n", 1) for name in columns], size=8)
        axes.tick_params(length=0)
        axes.xaxis.tick_top()
        axes.grid(visible=False)
        for side in axes.spines.values():
            side.set_visible(False)
    chosen = weights[len(whole), : len(rows)]
    most = int(np.argmax(chosen))
    return ReportFigure(
        figure,
        "Attention of the last layer, mean of its heads, in per cent: a row looks at columns. First the chosen job and "
        "the next best, then those that the chosen one looked at most. It says where numbers came from, not that they "
        "were a reason.",
        f"The chosen job looks most at {rows[most]}: {100 * chosen[most]:.0f} %.",
    )


def _named(role: str, facts: Mapping[str, Any]) -> str:
    size = []
    for name, word in (("nodes", "node"), ("gpus", "GPU")):
        if facts.get(name) is not None:
            size.append(f"{facts[name]:,g} {word}{'' if facts[name] == 1 else 's'}")
    if facts.get("estimate_s") is not None:
        size.append(format_span(float(facts["estimate_s"])))
    return f"{role}: {', '.join(size)}" if size else role


def _column(history: Sequence[Mapping[str, Any]], name: str) -> Any:
    return np.array([_number(row.get(name)) for row in history])


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
