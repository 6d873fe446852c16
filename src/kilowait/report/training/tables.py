"""Tables and sentences on an agent, as HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from kilowait.evaluation.storage.folder import known
from kilowait.report.format import (
    capital,
    count,
    number,
    share,
)
from kilowait.report.html import (
    best_of,
    marked_cell,
    table,
    text,
)
from kilowait.report.training.data import (
    WHOLE,
    AgentEvaluation,
    case_words,
    signed,
)
from kilowait.units import format_span

__all__ = [
    "case_block",
    "choices_note",
    "gpu_judged_table",
    "judged_table",
    "plain_note",
    "settings_table",
    "usual_table",
    "verdict_block",
]

Cell = Callable[[float], str]


def verdict_block(found: AgentEvaluation) -> str:
    """Whether it beats the rules, and what to keep in mind."""
    said = "".join(f"<p>{text(sentence)}</p>" for sentence in found.sentences())
    notes = "".join(f"<li>{text(capital(str(note)))}.</li>" for note in found.told.get("notes") or ())
    caution = f'<aside class="doubts"><p>Keep in mind</p><ul>{notes}</ul></aside>' if notes else ""
    return f'<div class="lead">{said}</div>{caution}'


def judged_table(found: AgentEvaluation) -> str:
    """Agent and rules with what counts, best first; the best of each column marked."""
    rule = found.rule
    timed = found.metric.endswith("_s")
    columns: list[tuple[str, str, str, Cell]] = [
        (found.metric, found.words, "less", format_span if timed else number)
    ]
    columns += [
        (name, words, better, cell)
        for name, words, better, cell in (
            ("mean_bsld", "mean bounded slowdown", "less", number),
            ("mean_wait_s", "mean wait", "less", format_span),
            ("p95_wait_s", "95 % wait less than", "less", format_span),
            ("max_wait_s", "longest wait", "less", format_span),
            ("utilization", "busy", "more", share),
            ("starved_jobs", "starved jobs", "less", count),
        )
        if name != found.metric and any(math.isfinite(found.value(row, name)) for row in found.rows)
    ]
    every = range(len(found.rows))
    cells: list[list[str]] = []
    for metric, _, better, cell in columns:
        values = [found.value(row, metric) for row in found.rows]
        best = best_of(values, list(every), better)
        made = []
        for who, row in enumerate(found.rows):
            low, high = found.reach(row, metric)
            spread = f"<small>{text(cell(low))} – {text(cell(high))}</small>" if math.isfinite(low) else ""
            made.append(marked_cell(cell(values[who]), who in best) + spread)
        cells.append(made)
    head = [words for _, words, _, _ in columns]
    if rule is not None and len(found.rows) > 1:
        head.insert(1, f"against {rule}")
        cells.insert(1, [_verdict(found, str(row["label"]), rule) for row in found.rows])
    rows = [
        [escape(str(row["label"])), *(column[who] for column in cells)] for who, row in enumerate(found.rows)
    ]
    agents = [who for who, row in enumerate(found.rows) if row["kind"] == "agent"]
    caption = (
        f"On {text(str(found.told['cut']))} of {text(str(found.told['trace']))}, later than the training"
    )
    note = "Small: 95 % interval. Bold with a dot: the best of its column."
    made_table = table(caption, ["contender", *map(text, head)], rows, marked=agents)
    return f'{made_table}<p class="note">{text(note)}</p>'


def gpu_judged_table(told: Mapping[str, Any]) -> str:
    """Agent and rules on a GPU cluster, by mean completion time."""
    policies = {name: known(_numbers(row)) for name, row in told["policies"].items()}
    order = sorted(policies, key=lambda name: policies[name]["mean_jct_s"])
    columns: tuple[tuple[str, str, str, Cell], ...] = (
        ("mean_jct_s", "mean completion time (JCT)", "less", format_span),
        ("p95_jct_s", "95 % take less than", "less", format_span),
        ("makespan_s", "makespan", "less", format_span),
        ("gpu_utilization", "GPUs held", "more", share),
        ("flops_utilization", "GPUs held, by FLOPS", "more", share),
    )
    cells = []
    for figure, _, better, cell in columns:
        values = [policies[name].get(figure, math.nan) for name in order]
        best = best_of(values, list(range(len(order))), better)
        cells.append([marked_cell(cell(value), who in best) for who, value in enumerate(values)])
    ratios = []
    for name in order:
        ratio, low, high = (
            math.nan if end is None else end for end in told["ratios"].get(name) or [None] * 3
        )
        spread = f"<small>{number(low)} – {number(high)}</small>" if math.isfinite(low) else ""
        ratios.append(f"× {number(ratio)}{spread}" if math.isfinite(ratio) else "–")
    cells.insert(1, ratios)
    head = ["contender", *(words for _, words, _, _ in columns)]
    head.insert(2, "against the best rule")
    rows = [[escape(name), *(column[who] for column in cells)] for who, name in enumerate(order)]
    caption = (
        f"On {int(told['windows']):,} windows of {int(told['window_jobs']):,} jobs, later than the training"
    )
    marked = [who for who, name in enumerate(order) if name == "agent"]
    note = "Small: 95 % interval. Bold with a dot: the best of its column. Fastest: the fastest types are tried first."
    return f'{table(caption, list(map(text, head)), rows, marked=marked)}<p class="note">{text(note)}</p>'


def energy_judged_table(told: Mapping[str, Any]) -> str:
    """Agent and rules with levers on a machine with power: those on the front, and the rules without levers."""
    policies, spent = {name: known(row) for name, row in told["policies"].items()}, str(told["spent"])
    shown = {"agent", *told["front"], *(name for name in policies if name.endswith(", none"))}
    order = sorted(shown, key=lambda name: policies[name].get(spent, math.nan))
    columns: tuple[tuple[str, str, Cell], ...] = (
        ("energy", "kWh per job", number),
        ("co2", "kg CO2e per job", number),
        ("cost", "cost per job", number),
        ("slowdown", "mean bounded slowdown", number),
        ("wait_s", "mean wait", format_span),
        ("p95_wait_s", "95 % wait less than", format_span),
    )
    used = [column for column in columns if column[0] in policies["agent"]]
    cells = []
    for figure, _, cell in used:
        values = [policies[name].get(figure, math.nan) for name in order]
        best = best_of(values, list(range(len(order))), "less")
        cells.append([marked_cell(cell(value), who in best) for who, value in enumerate(values)])
    rows = [[escape(name), *(column[who] for column in cells)] for who, name in enumerate(order)]
    caption = (
        f"On {int(told['windows']):,} windows of {int(told['window_jobs']):,} jobs, later than the training"
    )
    value, low, high = told["beyond"]["spent"]
    other, lower, higher = told["beyond"]["waited"]
    note = (
        f"Of {len(policies) - 1:,} rules with levers written by hand those on the front of {spent} and slowdown are "
        f"shown, and the rules without levers. The agent spends {number(value)} times ({number(low)} – {number(high)}) "
        f"the least of those with no larger slowdown, and its slowdown is {number(other)} times ({number(lower)} – "
        f"{number(higher)}) the least of those that spend no more; 95 % intervals over windows. The slowdown is by the "
        "run time at full speed."
    )
    marked = [who for who, name in enumerate(order) if name == "agent"]
    head = ["contender", *(words for _, words, _ in used)]
    return f'{table(caption, list(map(text, head)), rows, marked=marked)}<p class="note">{text(note)}</p>'


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, (list, tuple))}


def _verdict(found: AgentEvaluation, label: str, rule: str) -> str:
    pair = found.pair(label, rule)
    if pair is None:
        return "–"
    ratio = f"<small>× {number(pair.ratio)}</small>" if math.isfinite(pair.ratio) else ""
    won = f"<small>{pair.wins} of {pair.windows} won</small>"
    return f'<span class="{pair.verdict}">{pair.verdict}</span>{ratio}{won}'


def plain_note(rule: str) -> str:
    """That there are no weights to show."""
    said = f"The search found nothing that beats {rule} on jobs left out, so the agent is {rule}."
    return f"<p>{text(said)}</p>"


def usual_table(explained: Mapping[str, Any]) -> str:
    """All numbers with what they are and do."""
    ranked = sorted(explained["usual"], key=lambda part: -part["mean"])
    rows = [
        [
            escape(str(part["name"])),
            text(number(float(part["mean"]))),
            text(signed(float(part["leaning"]))),
            "job" if part["of"] == "job" else "whole",
            text(str(part["meaning"])),
        ]
        for part in ranked
    ]
    head = ["number", "mean share", "if it grows by 1", "of", "what it is"]
    made = table(
        f"What the agent looks at, over {int(explained['measured']):,} choices", head, rows, words=(4,)
    )
    return f"<details><summary>All numbers, with what they are</summary>{made}</details>"


def choices_note(explained: Mapping[str, Any]) -> str:
    """What a share is."""
    said = (
        f"It was watched playing the validation jobs: {int(explained['choices']):,} choices between at least two jobs. "
        "Of each, what counts is by how much the chosen job leads. That is held against the lead that a job like the "
        "mean of the others would have had, and the difference is shared out among the numbers that make it."
    )
    return f'<p class="note">{text(said)}</p>'


def case_block(case: Mapping[str, Any], score: str, level: int, *, opened: bool) -> str:
    """One choice in words, and its table."""
    said = "".join(f"<p>{text(sentence)}</p>" for sentence in case_words(case, score))
    parts = sorted(case["parts"], key=lambda part: -abs(float(part["moved"])))
    rows = [
        [
            escape(str(part["name"])),
            text(signed(float(part["moved"]))),
            text(_plain(float(part["value"]))),
            text(_plain(float(part["usual"]))),
            "the job" if part["of"] == "job" else text(WHOLE),
        ]
        for part in parts
    ]
    total = sum(float(part["moved"]) for part in case["parts"])
    rows.append(["all together", text(signed(total)), "", "", ""])
    head = ["number", "moved the margin by", "value", "usual", "of"]
    made = table(f"Choice: {text(str(case['which']))}", head, rows, words=(4,), faint=[len(rows) - 1])
    state = " open" if opened else ""
    seen = any(part["of"] == "whole" for part in parts)
    rest = ", for the rest the mean of all choices that were met" if seen else ""
    return (
        f"<h{level}>{text(capital(str(case['which'])))}</h{level}>{said}"
        f"<details{state}><summary>Number by number</summary>{made}"
        f'<p class="note">Usual: for the job the mean of the others that could be chosen{rest}.</p></details>'
    )


def settings_table(settings: Mapping[str, Any]) -> str:
    """How it was trained."""
    rows = [
        [escape(str(name)), escape(value if isinstance(value, str) else json.dumps(value, default=str))]
        for name, value in settings.items()
    ]
    made = table("Settings of the training", ["setting", "value"], rows, words=(1,))
    return f"<details><summary>Settings</summary>{made}</details>"


def _plain(value: float) -> str:
    return f"−{number(-value)}" if value < 0 else number(value)
