"""HTML tables and sentences of the report sections on agents."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from kilowait.evaluation.storage.folder import null_to_nan
from kilowait.report.format import capital, count, number, share
from kilowait.report.html import best_of, marked_cell, table, text
from kilowait.report.training.data import STATE, AgentEvaluation, decision_sentences, signed
from kilowait.units import format_duration

__all__ = [
    "decision_block",
    "attribution_note",
    "gpu_evaluation_table",
    "evaluation_table",
    "fallback_note",
    "settings_table",
    "feature_table",
    "evaluation_summary",
]

Cell = Callable[[float], str]


def evaluation_summary(evaluation: AgentEvaluation) -> str:
    """The result of the evaluation in sentences, with caveats."""
    paragraphs = "".join(f"<p>{text(sentence)}</p>" for sentence in evaluation.sentences())
    notes = "".join(f"<li>{text(capital(str(note)))}.</li>" for note in evaluation.results.get("notes") or ())
    caution = f'<aside class="caveats"><p>Caveats</p><ul>{notes}</ul></aside>' if notes else ""
    return f'<div class="lead">{paragraphs}</div>{caution}'


def evaluation_table(evaluation: AgentEvaluation) -> str:
    """The main metrics of agent and other policies, best first; the best of each column is marked."""
    best_policy = evaluation.best_policy
    timed = evaluation.metric.endswith("_s")
    columns: list[tuple[str, str, str, Cell]] = [
        (evaluation.metric, evaluation.metric_label, "less", format_duration if timed else number)
    ]
    columns += [
        (name, label, better, cell)
        for name, label, better, cell in (
            ("mean_bsld", "mean bounded slowdown", "less", number),
            ("mean_wait_s", "mean wait", "less", format_duration),
            ("p95_wait_s", "95th percentile of wait", "less", format_duration),
            ("max_wait_s", "longest wait", "less", format_duration),
            ("utilization", "utilization", "more", share),
            ("starved_jobs", "starved jobs", "less", count),
        )
        if name != evaluation.metric and any(math.isfinite(evaluation.value(row, name)) for row in evaluation.rows)
    ]
    all_rows = range(len(evaluation.rows))
    cells: list[list[str]] = []
    for metric, _, better, cell in columns:
        values = [evaluation.value(row, metric) for row in evaluation.rows]
        best = best_of(values, list(all_rows), better)
        column = []
        for index, row in enumerate(evaluation.rows):
            low, high = evaluation.interval(row, metric)
            interval = f"<small>{text(cell(low))} – {text(cell(high))}</small>" if math.isfinite(low) else ""
            column.append(marked_cell(cell(values[index]), index in best) + interval)
        cells.append(column)
    head = [label for _, label, _, _ in columns]
    if best_policy is not None and len(evaluation.rows) > 1:
        head.insert(1, f"against {best_policy}")
        cells.insert(1, [_significance_cell(evaluation, str(row["label"]), best_policy) for row in evaluation.rows])
    rows = [
        [escape(str(row["label"])), *(column[index] for column in cells)] for index, row in enumerate(evaluation.rows)
    ]
    agents = [index for index, row in enumerate(evaluation.rows) if row["kind"] == "agent"]
    caption = (
        f"On {text(str(evaluation.results['cut']))} of {text(str(evaluation.results['trace']))}, later than the "
        "training jobs"
    )
    note = "Small: 95 % interval. Bold with a dot: best of the column."
    html_table = table(caption, ["policy", *map(text, head)], rows, marked=agents)
    return f'{html_table}<p class="note">{text(note)}</p>'


def gpu_evaluation_table(results: Mapping[str, Any]) -> str:
    """Agent and other policies on a GPU cluster, by mean completion time."""
    policies = {name: null_to_nan(_numbers(row)) for name, row in results["policies"].items()}
    order = sorted(policies, key=lambda name: policies[name]["mean_jct_s"])
    columns: tuple[tuple[str, str, str, Cell], ...] = (
        ("mean_jct_s", "mean completion time (JCT)", "less", format_duration),
        ("p95_jct_s", "95th percentile", "less", format_duration),
        ("makespan_s", "makespan", "less", format_duration),
        ("gpu_utilization", "GPUs allocated", "more", share),
        ("flops_utilization", "GPUs allocated, by FLOPS", "more", share),
    )
    cells = []
    for metric, _, better, cell in columns:
        values = [policies[name].get(metric, math.nan) for name in order]
        best = best_of(values, list(range(len(order))), better)
        cells.append([marked_cell(cell(value), index in best) for index, value in enumerate(values)])
    ratios = []
    for name in order:
        ratio, low, high = (math.nan if end is None else end for end in results["ratios"].get(name) or [None] * 3)
        interval = f"<small>{number(low)} – {number(high)}</small>" if math.isfinite(low) else ""
        ratios.append(f"× {number(ratio)}{interval}" if math.isfinite(ratio) else "–")
    cells.insert(1, ratios)
    head = ["policy", *(label for _, label, _, _ in columns)]
    head.insert(2, "against the best priority policy")
    rows = [[escape(name), *(column[index] for column in cells)] for index, name in enumerate(order)]
    caption = (
        f"On {int(results['windows']):,} windows of {int(results['window_jobs']):,} jobs, later than the training jobs"
    )
    marked = [index for index, name in enumerate(order) if name == "agent"]
    note = "Small: 95 % interval. Bold with a dot: best of the column. Fastest: the fastest GPU types are tried first."
    return f'{table(caption, list(map(text, head)), rows, marked=marked)}<p class="note">{text(note)}</p>'


def energy_evaluation_table(results: Mapping[str, Any]) -> str:
    """Agent, policies with power controls on the Pareto front, and policies without power controls."""
    policies, resource = (
        {name: null_to_nan(row) for name, row in results["policies"].items()},
        str(results["objective"]),
    )
    shown = {"agent", *results["front"], *(name for name in policies if name.endswith(", none"))}
    order = sorted(shown, key=lambda name: policies[name].get(resource, math.nan))
    columns: tuple[tuple[str, str, Cell], ...] = (
        ("energy", "kWh per job", number),
        ("co2", "kg CO2e per job", number),
        ("cost", "cost per job", number),
        ("slowdown", "mean bounded slowdown", number),
        ("wait_s", "mean wait", format_duration),
        ("p95_wait_s", "95th percentile of wait", format_duration),
    )
    known_columns = [column for column in columns if column[0] in policies["agent"]]
    cells = []
    for metric, _, cell in known_columns:
        values = [policies[name].get(metric, math.nan) for name in order]
        best = best_of(values, list(range(len(order))), "less")
        cells.append([marked_cell(cell(value), index in best) for index, value in enumerate(values)])
    rows = [[escape(name), *(column[index] for column in cells)] for index, name in enumerate(order)]
    caption = (
        f"On {int(results['windows']):,} windows of {int(results['window_jobs']):,} jobs, later than the training jobs"
    )
    value, low, high = results["margin"]["objective_ratio"]
    slowdown_ratio, lower, higher = results["margin"]["delay_ratio"]
    note = (
        f"Of {len(policies) - 1:,} hand-tuned policies with power controls, the table shows the Pareto front of "
        f"{resource} and "
        f"slowdown, and the policies without power controls. {capital(resource)} of the agent is {number(value)} times "
        f"({number(low)} – {number(high)}) the minimum of the policies with no larger slowdown, and its slowdown is "
        f"{number(slowdown_ratio)} times ({number(lower)} – {number(higher)}) the minimum of those with no more "
        f"{resource}; 95 % "
        "intervals over windows. Slowdowns refer to the run time at full speed."
    )
    marked = [index for index, name in enumerate(order) if name == "agent"]
    head = ["policy", *(label for _, label, _ in known_columns)]
    return f'{table(caption, list(map(text, head)), rows, marked=marked)}<p class="note">{text(note)}</p>'


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, (list, tuple))}


def _significance_cell(evaluation: AgentEvaluation, label: str, best_policy: str) -> str:
    pair = evaluation.pair(label, best_policy)
    if pair is None:
        return "–"
    ratio = f"<small>× {number(pair.ratio)}</small>" if math.isfinite(pair.ratio) else ""
    won = f"<small>{pair.wins} of {pair.windows} won</small>"
    return f'<span class="{pair.verdict}">{pair.verdict}</span>{ratio}{won}'


def fallback_note(best_policy: str) -> str:
    """A note that the agent is identical to a priority policy and has no weights."""
    note = (
        f"The search found no weights that are better than {best_policy} on the validation jobs, so the agent is "
        f"{best_policy}."
    )
    return f"<p>{text(note)}</p>"


def feature_table(explained: Mapping[str, Any]) -> str:
    """All features with their mean attribution and meaning."""
    ranked = sorted(explained["usual"], key=lambda part: -part["mean"])
    rows = [
        [
            escape(str(part["name"])),
            text(number(float(part["mean"]))),
            text(signed(float(part["leaning"]))),
            "job" if part["of"] == "job" else "state",
            text(str(part["meaning"])),
        ]
        for part in ranked
    ]
    head = ["feature", "mean share", "effect of + 1", "of", "meaning"]
    html_table = table(
        f"Feature attribution, over {int(explained['measured']):,} decisions", head, rows, text_columns=(4,)
    )
    return f"<details><summary>All features and their meaning</summary>{html_table}</details>"


def attribution_note(explained: Mapping[str, Any]) -> str:
    """A note on the attribution method."""
    note = (
        f"The agent scheduled the validation jobs: {int(explained['choices']):,} decisions between at least two "
        "jobs. For "
        "each decision, the margin of the chosen job is compared with the margin of a job with the mean features "
        "of the "
        "other jobs, and the difference is attributed to the features."
    )
    return f'<p class="note">{text(note)}</p>'


def decision_block(case: Mapping[str, Any], score: str, level: int, *, expanded: bool) -> str:
    """One explained decision: sentences and table."""
    paragraphs = "".join(f"<p>{text(sentence)}</p>" for sentence in decision_sentences(case, score))
    parts = sorted(case["parts"], key=lambda part: -abs(float(part["moved"])))
    rows = [
        [
            escape(str(part["name"])),
            text(signed(float(part["moved"]))),
            text(_with_minus(float(part["value"]))),
            text(_with_minus(float(part["usual"]))),
            "the job" if part["of"] == "job" else text(STATE),
        ]
        for part in parts
    ]
    total = sum(float(part["moved"]) for part in case["parts"])
    rows.append(["total", text(signed(total)), "", "", ""])
    head = ["feature", "effect on margin", "value", "baseline", "of"]
    html_table = table(f"Decision: {text(str(case['which']))}", head, rows, text_columns=(4,), faint=[len(rows) - 1])
    state = " open" if expanded else ""
    has_state = any(part["of"] == "whole" for part in parts)
    state_note = ", for the state the mean of all decisions" if has_state else ""
    return (
        f"<h{level}>{text(capital(str(case['which'])))}</h{level}>{paragraphs}"
        f"<details{state}><summary>All features</summary>{html_table}"
        f'<p class="note">Baseline: for the job the mean of the other eligible jobs{state_note}.</p></details>'
    )


def settings_table(settings: Mapping[str, Any]) -> str:
    """The training settings."""
    rows = [
        [escape(str(name)), escape(value if isinstance(value, str) else json.dumps(value, default=str))]
        for name, value in settings.items()
    ]
    html_table = table("Training settings", ["setting", "value"], rows, text_columns=(1,))
    return f"<details><summary>Settings</summary>{html_table}</details>"


def _with_minus(value: float) -> str:
    return f"−{number(-value)}" if value < 0 else number(value)
