"""Figures of an agent: training curves, evaluation, feature attribution and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kilowait.report.data.comparison import AGENT
from kilowait.report.data.training import STATE, AgentEvaluationData
from kilowait.report.figures import (
    FAINT,
    INK,
    LINES,
    ReportFigure,
    annotate,
    escape_dollar,
    interval_mark,
    legend_above,
    log_axis,
    need_matplotlib,
    new_figure,
    row_labels,
)
from kilowait.report.format import capital, number
from kilowait.units import format_duration

FAVOURS, AGAINST = 2, 5
"""Colour numbers of features in favour of a job and against it."""
NEGLIGIBLE = 0.005
"""Attention weights below this are displayed as 0 per cent."""
_LOSSES = {
    "policy": "policy loss",
    "value": "value loss",
    "kl": "policy update (KL divergence)",
    "multiplier": "Lagrange multiplier of the constraint",
    "cost": "constrained cost",
}


def curves(history: Sequence[Mapping[str, Any]], objective: str) -> ReportFigure:
    """Training curves of a network, a panel for each logged metric."""
    steps = np.array([int(row["steps"]) for row in history])
    columns = {name: _column(history, name) for name in ("metric", "validation", "mean_return", "entropy", "kl")}
    losses = list(dict.fromkeys(name for row in history for name in row.get("losses") or {}))
    panels: list[tuple[str, dict[str, Any]]] = [
        (f"objective (minimized): {objective}", {"episodes": columns["metric"], "validation": columns["validation"]}),
        ("episode return", {"return": columns["mean_return"]}),
        ("policy entropy, nats", {"entropy": columns["entropy"]}),
        (_LOSSES["kl"], {"kl": columns["kl"]}),
    ]
    for name in losses:
        values = np.array([_number((row.get("losses") or {}).get(name)) for row in history])
        panels.append((_LOSSES.get(name, name.replace("_", " ")), {name: values}))
    panels = [panel for panel in panels if any(np.isfinite(line).any() for line in panel[1].values())]
    rows = max(math.ceil(len(panels) / 2), 1)
    with new_figure(height_in=0.5 + 2.0 * rows, rows=rows, columns=2) as (figure, grid):
        panel_axes = np.atleast_1d(grid).ravel()
        for axes, (title, lines) in zip(panel_axes, panels, strict=False):
            for name, values in lines.items():
                finite = np.isfinite(values)
                validated = name == "validation"
                style = {"color": LINES[AGENT if validated else 0], "linewidth": 1.9 if validated else 1.3}
                mark = "o-" if validated or finite.sum() == 1 else "-"
                axes.plot(steps[finite], values[finite], mark, markersize=4, label=name, **style)
            axes.set_title(escape_dollar(title), loc="left", size=10)
            axes.xaxis.set_major_formatter(need_matplotlib().ticker.EngFormatter(sep=""))
            axes.ticklabel_format(axis="y", style="plain", useOffset=False)
            axes.margins(x=0.02)
            if len(lines) > 1 and np.isfinite(lines["validation"]).any():
                above = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "ncols": 2}
                axes.legend(handlelength=1.6, fontsize=9, **above)
        for axes in panel_axes[len(panels) :]:
            axes.remove()
        for axes in panel_axes[max(len(panels) - 2, 0) : len(panels)]:
            axes.set_xlabel("training decisions")
    known = columns["validation"][np.isfinite(columns["validation"])]
    lowest = f" The lowest validation value is {number(float(known.min()))}." if len(known) else ""
    return ReportFigure(
        figure,
        f"{len(steps):,} updates, {steps[-1]:,} decisions. Episodes: those that ended during the update, with sampled "
        "actions. Validation: always the same later jobs, with greedy actions; the weights with the lowest value are "
        "kept. For losses the trend matters, not the value.",
        f"Training of a network over {steps[-1]:,} decisions: {', '.join(title for title, _ in panels)}.{lowest}",
    )


def evaluation_metric(evaluation: AgentEvaluationData) -> ReportFigure:
    """The evaluation metric of every policy with its confidence interval, best on top."""
    timed = evaluation.metric.endswith("_s")
    format_value = format_duration if timed else number
    rows = [row for row in reversed(evaluation.rows) if math.isfinite(evaluation.value(row))]
    unit_s = 3600.0 if timed else 1.0
    limits: list[float] = []
    with new_figure(height_in=0.9 + 0.34 * max(len(rows), 1)) as (figure, axes):
        for place, row in enumerate(rows):
            colour = LINES[AGENT if row["kind"] == "agent" else 0]
            mean = evaluation.value(row)
            ends = [end / unit_s for end in (mean, *evaluation.interval(row)) if math.isfinite(end)]
            interval_mark(axes, place, mean / unit_s, ends, format_value(mean), colour)
            limits += ends
        row_labels(axes, [escape_dollar(str(row["label"])) for row in rows])
        log_axis(axes, min(limits, default=1.0), max(limits, default=1.0), room=1.8)
        axes.set_xlabel(f"{evaluation.metric_label}{', h' if timed else ''}, 95 % interval (less is better)")
    values = "; ".join(f"{row['label']} {format_value(evaluation.value(row))}" for row in reversed(rows))
    return ReportFigure(
        figure,
        f"On {evaluation.results['cut']}, later than all training jobs. Logarithmic.",
        f"{capital(evaluation.metric_label)}, best first: {values}.",
    )


def feature_attribution(explained: Mapping[str, Any]) -> ReportFigure:
    """The mean effect of each feature on the margin of decisions."""
    groups = [
        (title, sorted((part for part in explained["usual"] if part["of"] == kind), key=lambda part: part["mean"]))
        for kind, title in (("job", "of the job"), ("whole", f"of {STATE}"))
    ]
    groups = [group for group in groups if group[1]]
    longest = max(len(parts) for _, parts in groups)
    top = max((float(part["mean"]) for _, parts in groups for part in parts), default=0.0) or 1.0
    with new_figure(height_in=1.2 + 0.25 * longest, columns=len(groups)) as (figure, grid):
        for axes, (title, parts) in zip(np.atleast_1d(grid), groups, strict=True):
            for place, part in enumerate(parts):
                direction = float(part["leaning"])
                colour = FAINT if direction == 0 else LINES[FAVOURS if direction > 0 else AGAINST]
                axes.barh(place, float(part["mean"]), color=colour, height=0.7)
                # The sign repeats the direction for colour-blind readers.
                sign = "" if direction == 0 else "+" if direction > 0 else "−"
                annotate(axes, sign, (float(part["mean"]), place), 4, size=9)
            row_labels(axes, [escape_dollar(str(part["name"])) for part in parts], rows=longest)
            axes.set_xlim(0, 1.08 * top)
            axes.set_title(title, loc="left", size=10)
            axes.set_xlabel(f"mean share of the margin ({explained['score']})")
    first = sorted(explained["usual"], key=lambda part: -part["mean"])[:5]
    return ReportFigure(
        figure,
        f"Mean absolute share of each feature in the margin of the chosen job, over {int(explained['measured']):,} "
        "decisions. Green with a plus: higher values favour a job; orange with a minus: lower values favour it.",
        "Most important features: "
        + ", ".join(f"{part['name']} {number(float(part['mean']))}" for part in first)
        + ".",
    )


def search_curves(history: Sequence[Mapping[str, Any]], objective: str) -> ReportFigure:
    """The agent's score over the generations of a CMA-ES search, relative to the initial policy."""
    steps = [int(row["number"]) for row in history]
    training, validation = _column(history, "training"), _column(history, "validation")
    validated = np.isfinite(validation)
    with new_figure(height_in=3.2) as (figure, axes):
        axes.axhline(1.0, color=INK, linewidth=1.2)
        axes.plot(steps, training, color=LINES[0], linewidth=1.4, label="training")
        style = {"color": LINES[AGENT], "linewidth": 1.8, "markersize": 5, "label": "validation"}
        axes.plot(np.array(steps)[validated], validation[validated], "o-", **style)
        axes.set_xlabel("generation")
        axes.set_ylabel("relative to the initial policy")
        legend_above(axes, 2, handlelength=1.8)
        axes.margins(x=0.02)
    last = validation[validated][-1] if validated.any() else math.nan
    return ReportFigure(
        figure,
        f"Objective: {objective}. Training: mean of the candidates; each generation uses other windows, hence the "
        "noise. Validation: jobs not used in the search. 1 is the initial policy; below 1 is better.",
        f"{len(steps)} generations of training; the final validation score is {number(float(last))} relative to "
        "the initial policy.",
    )


def pareto_front(results: Mapping[str, Any]) -> ReportFigure:
    """The values of two reward terms, joined in the order of the preferences."""
    x_term, y_term = list(results["terms"])
    points = results["points"]
    points_xy = [(float(point["metrics"][x_term]), float(point["metrics"][y_term])) for point in points]
    reference = (float(results["reference"]["metrics"][x_term]), float(results["reference"]["metrics"][y_term]))
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
            annotate(axes, escape_dollar(f"only {preferred}"), point_xy, 7, 5, va="baseline", size=9)
        axes.plot(*reference, "s", color=LINES[0], markersize=7)
        annotate(axes, escape_dollar(str(results["reference"]["name"])), reference, 7, 5, va="baseline", size=9)
        axes.margins(0.15)
        axes.set_xlabel(escape_dollar(f"{x_term} (less is better)"))
        axes.set_ylabel(escape_dollar(f"{y_term} (less is better)"))
    dominated = sum(bool(point["dominated"]) for point in points)
    return ReportFigure(
        figure,
        f"One agent under {len(points)} preferences, from only {x_term} to only {y_term}; the lines through a point "
        f"are 95 % intervals over windows. Hollow: dominated by another preference ({dominated} of {len(points)}). "
        "Square: the reference policy on the same windows. Axes do not begin at 0.",
        f"{capital(x_term)} against {y_term} under {len(points)} preferences: from {number(points_xy[0][0])} and "
        f"{number(points_xy[0][1])} to {number(points_xy[-1][0])} and {number(points_xy[-1][1])}.",
    )


def attention(attention_data: Mapping[str, Any]) -> ReportFigure:
    """Attention weights: the rows attend to the columns."""
    state = ["machine and queue"] if attention_data["whole"] else []
    roles = ["chosen", "second best", *(f"job {place + 1}" for place in range(2, len(attention_data["jobs"])))]
    roles = roles[: len(attention_data["jobs"])]
    rows = [*state, *(_job_label(role, job) for role, job in zip(roles, attention_data["jobs"], strict=True))]
    columns = [*(["machine"] if state else []), *roles]
    weights = np.array(attention_data["weights"], np.float64)
    if weights[:, -1].max(initial=0.0) >= NEGLIGIBLE:
        columns.append("all others")
    weights = weights[:, : len(columns)]
    top = max(float(weights[:, : len(rows)].max(initial=0.0)), 1e-9)
    with new_figure(height_in=0.8 + 0.32 * len(rows)) as (figure, axes):
        for row, line in enumerate(weights):
            for column, weight in enumerate(line):
                if column < len(rows):  # the last column, all other jobs, is not shaded
                    shade = 0.8 * weight / top  # keeps the text legible
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
    chosen = weights[len(state), : len(rows)]
    most = int(np.argmax(chosen))
    return ReportFigure(
        figure,
        "Attention of the last layer, mean over its heads, in per cent: rows attend to columns. First the chosen job "
        "and the second best, then the jobs that the chosen one attends to most. Attention shows the information flow, "
        "not the reason for a decision.",
        f"The chosen job attends most to {rows[most]}: {100 * chosen[most]:.0f} %.",
    )


def _job_label(role: str, facts: Mapping[str, Any]) -> str:
    size = []
    for name, word in (("nodes", "node"), ("gpus", "GPU")):
        if facts.get(name) is not None:
            size.append(f"{facts[name]:,g} {word}{'' if facts[name] == 1 else 's'}")
    if facts.get("estimate_s") is not None:
        size.append(format_duration(float(facts["estimate_s"])))
    return f"{role}: {', '.join(size)}" if size else role


def _column(history: Sequence[Mapping[str, Any]], name: str) -> Any:
    return np.array([_number(row.get(name)) for row in history])


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
