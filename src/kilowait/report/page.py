"""One self-contained page: findings in words, tables, figures, and what was run. Nothing is loaded from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError
from kilowait.report import figures
from kilowait.report.content import Report, number, summary
from kilowait.units import format_span

__all__ = ["drawn", "page", "write_page"]

_CSS = """
:root { color-scheme: light dark; --ink: #24292f; --faint: #57606a; --grid: #d0d7de; --paper: #ffffff;
  --card: #f6f8fa; --mark: #b34700; --rule: #0072b2; --agent: #d55e00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9da7b3; --grid: #3d444d; --paper: #0d1117;
  --card: #161b22; --mark: #ff9a57; --rule: #58a6e0; --agent: #ff8a3d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 52rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1rem 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
p, li { max-width: 44rem; }
.lead { background: var(--card); border-left: 4px solid var(--mark); border-radius: 4px; padding: .2rem 1rem; }
.note, figcaption { color: var(--faint); font-size: .9rem; }
figure { margin: 1.4rem 0; max-width: 40rem; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { margin-top: .3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
tbody th { vertical-align: top; }
th, td { padding: .35rem .8rem .35rem 0; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th { font-weight: 600; }
thead th { white-space: normal; vertical-align: bottom; }
th:first-child { text-align: left; }
td.words, th.words { text-align: left; white-space: normal; }
tr.agent th, tr.agent td { color: var(--mark); font-weight: 600; }
"""

NARROW = "\u00a0%"
"""A per cent sign that stays with its number."""
Cell = Callable[[float], str]
_COLUMNS: tuple[tuple[str, str, Cell], ...] = (
    ("mean_bsld", "mean bounded slowdown", number),
    ("median_bsld", "median", number),
    ("mean_wait_s", "mean wait", format_span),
    ("p95_wait_s", "95 % wait less than", format_span),
    ("max_wait_s", "longest wait", format_span),
    ("utilization", "nodes busy", lambda share: f"{100 * share:.1f} %" if math.isfinite(share) else "-"),
)


def page(report: Report) -> str:
    """The page as HTML."""
    title = escape(report.title)
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main>",
        f"<h1>{title}</h1>",
        '<div class="lead">',
        *(f"<p>{escape(sentence.replace(' %', NARROW))}</p>" for sentence in summary(report)),
        "</div>",
        "<h2>Policies side by side</h2>",
        _results(report),
    ]
    for name, (figure, caption, alt) in drawn(report).items():
        svg = figures.as_svg(figure, name).replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)
        parts.append(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>")
    if report.duels:
        parts += ["<h2>The agent on unseen jobs</h2>", _duels(report)]
    if report.weights:
        parts += ["<h2>What the agent looks at</h2>", _weights(report)]
    if report.facts:
        parts += ["<h2>What was run</h2>", _facts(report.facts)]
    parts.append(
        '<p class="note">Bounded slowdown: wait plus run over run, run times below 10 s counting as 10 s, at least 1. '
        "Written by kilowait.</p>\n</main>\n</body>\n</html>\n"
    )
    return "\n".join(parts)


def write_page(report: Report, path: str | PathLike[str]) -> Path:
    """Write the page to a file."""
    target = Path(path)
    text = page(report)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise InputError(f"cannot write the page {target}: {problem.strerror or problem}") from None
    return target


def drawn(report: Report) -> dict[str, tuple[Any, str, str]]:
    """The report's figures by name, each with its caption and a text for those who cannot see it."""
    found: dict[str, tuple[Any, str, str]] = {}
    ranking = ", ".join(f"{r.label} {number(r.metrics['mean_bsld'])}" for r in report.ranked())
    if report.duels:
        means = sorted(
            [*((d.rule_mean, d.rule) for d in report.duels), (report.duels[0].agent_mean, "agent")]
        )
        ranking = ", ".join(f"{name} {number(mean)}" for mean, name in means)
    found["comparison"] = (
        figures.comparison(report.results, report.duels),
        f"Mean over {report.duels[0].windows} windows of unseen jobs, each begun on an empty machine."
        if report.duels
        else f"Mean bounded slowdown over {report.jobs}.",
        f"Mean bounded slowdown, best first: {ranking}.",
    )
    if report.duels:
        against = "; ".join(
            f"{d.rule} {number(d.ratio)}, from {number(d.ratio_low)} to {number(d.ratio_high)}"
            for d in report.duels
        )
        found["against"] = (
            figures.duels(report.duels),
            "The agent against each rule on the same windows: ratio of means, 95 % bootstrap interval of the pairs.",
            f"Agent over rule: {against}.",
        )
    if report.logs:
        names = ", ".join(report.logs)
        found["waits"] = (
            figures.waits(report.logs),
            f"How long jobs wait, over {report.jobs}. Further left and up is better.",
            f"Share of jobs by wait, a line each for {names}.",
        )
        found["time"] = (
            figures.over_time(report.logs),
            "Jobs waiting and nodes busy, in a stretch from the middle of the same runs. Where nodes idle although "
            "jobs wait, the next in line needs nearly all of them and waits for the last small job to end.",
            f"Jobs waiting and nodes busy over time for {names}.",
        )
    if report.curve is not None:
        found["learning"] = (
            figures.learning(report.curve),
            "Training: mean of the candidates, every generation on other windows, hence the noise. Validation: later "
            "jobs, always the same. 1 is the start, the order of smallest area first.",
            "Scores of the agent by generation, relative to its start.",
        )
    return found


def _results(report: Report) -> str:
    known = [column for column in _COLUMNS if all(column[0] in result.metrics for result in report.results)]
    head = ["policy", *(words for _, words, _ in known)]
    rows = [[r.label, *(cell(float(r.metrics[key])) for key, _, cell in known)] for r in report.ranked()]
    learned = [result.learned for result in report.ranked()]
    return _table(f"One run over {report.jobs}, best first.", head, rows, learned)


def _duels(report: Report) -> str:
    head = ["against", "rule", "agent", "agent / rule", "95 % interval", "the agent is"]
    rows = [
        [
            duel.rule,
            number(duel.rule_mean),
            number(duel.agent_mean),
            number(duel.ratio),
            f"{number(duel.ratio_low)} – {number(duel.ratio_high)}",
            duel.outcome,
        ]
        for duel in sorted(report.duels, key=lambda duel: duel.rule_mean)
    ]
    said = (
        f"Mean bounded slowdown over {report.duels[0].windows} windows of jobs later than any the agent was trained "
        "or chosen on. Undecided: the interval holds 1. Each interval is for its own comparison; among many, one may "
        "miss by chance."
    )
    return _table(said, head, rows, [False] * len(rows))


def _weights(report: Report) -> str:
    head = ["feature", "weight", "what it is"]
    rows = [[name, f"{weight:+.3f}", meaning] for name, weight, meaning in report.weights]
    said = "Score = sum of weight x feature; the smallest score goes first, so a positive weight sends a job back."
    return _table(said, head, rows, [False] * len(rows), words=2)


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = [[name, value] for name, value in facts]
    return _table("", ["", ""], rows, [False] * len(rows), words=1, headed=False)


def _table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    learned: Sequence[bool],
    *,
    words: int = -1,
    headed: bool = True,
) -> str:
    """A table with row and column headers; column `words` holds prose."""
    said = f'<p class="note">{escape(caption)}</p>' if caption else ""
    cells = "".join(
        f'<th scope="col"{" class=words" if place == words else ""}>{escape(text)}</th>'
        for place, text in enumerate(head)
    )
    lines = []
    for row, ours in zip(rows, learned, strict=True):
        rest = "".join(
            f'<td class="words">{escape(text)}</td>' if place == words else f"<td>{escape(text)}</td>"
            for place, text in enumerate(row[1:], 1)
        )
        mark = ' class="agent"' if ours else ""
        lines.append(f'<tr{mark}><th scope="row">{escape(row[0])}</th>{rest}</tr>')
    top = f"<thead><tr>{cells}</tr></thead>" if headed else ""
    return f'{said}<div class="wide"><table>{top}<tbody>{"".join(lines)}</tbody></table></div>'
