"""The parts of the page as HTML. Everything that comes from data is escaped here."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from kilowait.evaluation.comparison import PolicyMean
from kilowait.report.comparison_data import ComparisonData, JobClass
from kilowait.report.energy.data import (
    EnergyData,
    change,
    scaled,
    sentences,
)
from kilowait.report.figures import ReportFigure, as_svg
from kilowait.report.format import number, share
from kilowait.report.summary import caveats, summary
from kilowait.units import format_span

__all__ = [
    "Cell",
    "best_of",
    "class_tables",
    "drawn_note",
    "figure",
    "interval",
    "ledger",
    "marked_cell",
    "provenance",
    "summary_block",
    "table",
    "text",
    "tile_row",
    "weights_table",
]

USERS = 20
Cell = Callable[[float], str]
"""How a number is written."""


def text(words: str) -> str:
    """Escaped; a per cent sign stays with its number."""
    return escape(words).replace(" %", "&nbsp;%")


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    groups: Sequence[tuple[str, int]] = (),
    words: Sequence[int] = (),
    marked: Sequence[int] = (),
    faint: Sequence[int] = (),
) -> str:
    """A table in a box of its own that scrolls. Cells are HTML already; `words` are columns of prose.

    `groups` is a line above the head: names and how many columns each spans. `marked` are rows to stand
    out, `faint` ones to stand back.
    """
    above = "".join(
        f'<th scope="colgroup" colspan="{span}">{name}</th>' if name else f'<td colspan="{span}"></td>'
        for name, span in groups
    )
    kinds = [' class="words"' if place in words else "" for place in range(len(head))]
    columns = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in zip(head, kinds, strict=True))
    lines = []
    for place, row in enumerate(rows):
        cells = "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True))
        mark = ' class="marked"' if place in marked else ' class="faint"' if place in faint else ""
        lines.append(f'<tr{mark}><th scope="row">{row[0]}</th>{cells}</tr>')
    top = f'<tr class="groups">{above}</tr>' if groups else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead>{top}<tr>{columns}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def best_of(values: Any, among: Sequence[int], better: str) -> set[int]:
    """Those with the best value; nobody where all are alike."""
    known = [float(values[who]) for who in among if math.isfinite(values[who])]
    if len(known) < 2 or min(known) == max(known):
        return set()
    top = min(known) if better == "less" else max(known)
    return {who for who in among if values[who] == top}


def marked_cell(cell: str, best: bool) -> str:
    """A cell; the best of its column stands out."""
    return f'<b class="best">{text(cell)}<span class="unseen"> (best)</span></b>' if best else text(cell)


def interval(mean: PolicyMean | None, cell: Cell) -> str:
    """From where to where a mean may lie, small; nothing where that is not known."""
    if mean is None or not math.isfinite(mean.low):
        return ""
    return f"<small>{text(cell(mean.low))} – {text(cell(mean.high))}</small>"


def figure(drawn: ReportFigure, name: str) -> str:
    """An inline SVG with its caption."""
    svg = as_svg(drawn.figure, name).replace("<svg", f'<svg role="img" aria-label="{escape(drawn.alt)}"', 1)
    wide = " wide" if drawn.figure.get_size_inches()[0] > 8 else ""
    return (
        f'<figure class="drawn{wide}"><div class="scroll">{svg}</div><figcaption>{text(drawn.caption)}</figcaption>'
        "</figure>"
    )


# -- 1. in words -----------------------------------------------------------------------------------


def summary_block(found: ComparisonData) -> str:
    """Key numbers, sentences, and what to keep in mind."""
    said = "".join(f"<p>{text(sentence)}</p>" for sentence in [*summary(found), *sentences(found)])
    kept = caveats(found)
    notes = "".join(f"<li>{text(note)}</li>" for note in kept)
    caution = f'<aside class="doubts"><p>Keep in mind</p><ul>{notes}</ul></aside>' if kept else ""
    return f'{_tiles(found)}<div class="lead">{said}</div>{caution}'


def _tiles(found: ComparisonData) -> str:
    contest = found.contest
    best = (found.real or found.ranked)[0]
    label = contest.labels[best]
    lead = found.lead
    tiles = [(lead.told(float(contest.means(lead.metric)[best])), lead.words, label)]
    busy = (share(float(contest.means("utilization")[best])), f"of the {found.busy_words}", label)
    if found.placed:
        tiles.append(busy)
    other = found.plain if found.plain is not None and found.plain != best else None
    if other is None and len(found.real) > 1:
        other = found.real[1]
    if other is not None and found.judged is not None:
        pair = found.judged.pair(label, contest.labels[other])
        if math.isfinite(pair.ratio):
            sure = pair.verdict
            if math.isfinite(pair.low):
                sure += f"; 95 % interval {_change(pair.low)} to {_change(pair.high)}"
            tiles.append((_change(pair.ratio), f"against {contest.labels[other]}", sure))
    tiles.append((format_span(float(contest.means("mean_wait_s")[best])), "mean wait", label))
    if not found.placed:
        tiles.append(busy)
    return tile_row([*tiles, *_saved(found)])


def tile_row(tiles: Iterable[tuple[str, str, str]]) -> str:
    """Key numbers, large: the value, what it is, and whose or how to read it."""
    items = "".join(
        f"<div><dt>{text(what)}</dt><dd>{text(value)}<small>{text(whose)}</small></dd></div>"
        for value, what, whose in tiles
    )
    return f'<dl class="tiles">{items}</dl>'


def _saved(found: ComparisonData) -> list[tuple[str, str, str]]:
    """Energy and CO2 of who draws least of them, as tiles."""
    drew, tiles = EnergyData.of(found), []
    if drew is None:
        return []
    labels = found.contest.labels
    for metric, unit, words in (("energy_kwh", "kWh", "energy"), ("co2_kg", "kg", "CO2")):
        if not drew.has(metric):
            continue
        least = drew.least(metric)
        if least == drew.first:
            value = float(drew.means(metric)[least])
            scale = scaled([value], unit)
            each = "" if found.contest.batched else " a window"
            tiles.append((f"{scale.told(value)} {scale.unit}", f"{words}{each}", labels[least]))
        else:
            whose = f"{labels[least]} against {labels[drew.first]}"
            tiles.append((change(drew.ratio(metric, least)), words, whose))
    return tiles


def _change(ratio: float) -> str:
    """A ratio as a step from 1."""
    return f"{'−' if ratio < 1 else '+'}{100 * abs(ratio - 1):.0f} %"


def drawn_note(found: ComparisonData) -> str:
    """Who is drawn, where not all are."""
    labels = found.contest.labels
    if len(found.shown) == len(labels):
        return ""
    names = ", ".join(labels[who] for who in found.shown)
    said = f"From here on {len(found.shown)} of {len(labels)} are drawn: {names}."
    return f'<p class="note">{text(said)}</p>'


# -- 5. classes ------------------------------------------------------------------------------------


def class_tables(found: ComparisonData, by: Mapping[str, Sequence[JobClass]]) -> str:
    """Classes of jobs, contenders side by side."""
    hours = "GPU-hours" if found.placed else "node-hours"
    titles = {
        "size": "By nodes",
        "gpus": "By GPUs",
        "runtime": "By true run time",
        "user": f"The {USERS} users of most {hours}",
    }
    heads = {"size": "nodes", "gpus": "GPUs", "runtime": "run time", "user": "user"}
    found_tables = []
    for kind, rows in by.items():
        if kind == "user" and [row.label for row in rows] in ([], ["-"]):
            found_tables.append('<p class="note">The log does not say whose jobs they are.</p>')
            continue
        groups = [("", 3), *((escape(found.contest.labels[who]), 2) for who in found.shown)]
        head = [heads[kind], "jobs", hours, *(["mean wait", "slowdown"] * len(found.shown))]
        lines = []
        for row in rows:
            cells = [escape(row.label), f"{row.jobs:,}", text(number(row.hours))]
            for wait, bsld in zip(row.mean_wait_s, row.mean_bsld, strict=True):
                cells += [text(format_span(wait)), text(number(bsld))]
            lines.append(cells)
        found_tables.append(table(titles[kind], head, lines, groups=groups))
    return "".join(found_tables)


# -- 7. to 9.: training, ledger, provenance ---------------------------------------------------------


def weights_table(weights: Sequence[Sequence[Any]]) -> str:
    """What a linear agent looks at."""
    rows = [
        [escape(str(name)), f"{float(weight):+.3f}".replace("-", "−"), text(str(meaning))]
        for name, weight, meaning in weights
    ]
    said = (
        '<p class="note">'
        "Score = sum of weight × feature; the smallest score goes first, so a positive weight sends a "
        "job back.</p>"
    )
    return table("What the agent looks at", ["feature", "weight", "what it is"], rows, words=(2,)) + said


def ledger(entries: Mapping[str, Any], trace: str) -> str:
    """What was dropped and mended in reading a trace."""
    counts = {
        kind: sum(int(e["count"]) for e in entries["entries"] if e["kind"] == kind)
        for kind in ("dropped", "mended")
    }
    said = (
        f"{entries['rows_read']:,} rows read, {entries['jobs']:,} jobs; {counts['dropped']:,} dropped, "
        f"{counts['mended']:,} mended"
        + (f", {entries['folded']:,} folded into their jobs" if entries["folded"] else "")
        + "."
    )
    rows = [
        [
            escape(str(entry["kind"])),
            f"{entry['count']:,}" if entry["count"] else "–",
            text(str(entry["reason"])),
            "–" if entry["first_line"] is None else f"{entry['first_line']:,}",
        ]
        for entry in entries["entries"]
    ]
    listed = (
        table(
            f"Ledger of {text(trace)}",
            ["what", "rows", "why", "first line"],
            rows,
            words=(2,),
        )
        if rows
        else ""
    )
    return f"<p>{text(said)}</p>{listed}"


def provenance(folder: str, kind: str, manifest: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    """Where numbers come from: versions, seeds, hashes, command, scenario."""
    rows = [["folder", f"<code>{escape(folder)}</code>"], ["kind", escape(kind)]]
    for key, value in manifest.items():
        if key in ("kind", "files", "inputs"):
            continue
        if isinstance(value, Mapping):
            shown = ", ".join(f"{escape(str(k))} {escape(_scalar(v))}" for k, v in value.items())
        elif isinstance(value, (list, tuple)):
            items = [_scalar(item) for item in value]
            shown = escape(shlex.join(items) if key == "command" else ", ".join(items))
        else:
            shown = escape(_scalar(value))
        rows.append([escape(str(key)), f"<code>{shown}</code>" if key == "command" else shown])
    for key, words in (("inputs", "input"), ("files", "file")):
        for name, digest in (manifest.get(key) or {}).items():
            rows.append([f"{words}: {escape(str(name))}", f"<code>sha256 {escape(_scalar(digest))}</code>"])
    facts = table(f"Manifest of {escape(folder)}", ["what", "value"], rows, words=(1,))
    said = escape(json.dumps(scenario, indent=2, ensure_ascii=False, default=str))
    return (
        f"{facts}<details><summary>Scenario of {escape(folder)}</summary>"
        f'<pre tabindex="0">{said}</pre></details>'
    )


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
