"""HTML building blocks of the report: tables, figures, tiles, provenance. All text from data is escaped here."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from kilowait.evaluation.comparison import PolicyMean
from kilowait.report.comparison_data import ComparisonData, JobClass
from kilowait.report.energy.data import EnergyData, change, scaled, sentences
from kilowait.report.figures import ReportFigure, as_svg
from kilowait.report.format import number, share
from kilowait.report.summary import caveats, summary
from kilowait.units import format_duration

__all__ = [
    "NumberFormat",
    "best_of",
    "class_tables",
    "shown_policies_note",
    "figure",
    "interval",
    "cleaning_table",
    "marked_cell",
    "provenance",
    "summary_block",
    "table",
    "text",
    "tile_row",
    "weights_table",
]

USERS = 20
"""Users in the table of users, at most."""
_KINDS = {"corrected": "corrected"}
"""Kinds of entries of a cleaning report whose displayed name differs."""
NumberFormat = Callable[[float], str]
"""A function that formats a number."""


def text(words: str) -> str:
    """Escape text; per cent signs are joined to their number by a no-break space."""
    return escape(words).replace(" %", "&nbsp;%")


def table(
    caption: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    groups: Sequence[tuple[str, int]] = (),
    text_columns: Sequence[int] = (),
    marked: Sequence[int] = (),
    faint: Sequence[int] = (),
) -> str:
    """A table in a scrollable box. Cells must be HTML already; `text_columns` are the numbers of columns of text.

    `groups` is a row above the head: names and the number of columns each spans. `marked` rows are highlighted,
    `faint` rows are greyed out.
    """
    above = "".join(
        f'<th scope="colgroup" colspan="{span}">{name}</th>' if name else f'<td colspan="{span}"></td>'
        for name, span in groups
    )
    classes = [' class="words"' if column_number in text_columns else "" for column_number in range(len(head))]
    columns = "".join(f'<th scope="col"{kind}>{name}</th>' for name, kind in zip(head, classes, strict=True))
    lines = []
    for row_number, row in enumerate(rows):
        cells = "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row[1:], classes[1:], strict=True))
        mark = ' class="marked"' if row_number in marked else ' class="faint"' if row_number in faint else ""
        lines.append(f'<tr{mark}><th scope="row">{row[0]}</th>{cells}</tr>')
    top = f'<tr class="groups">{above}</tr>' if groups else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead>{top}<tr>{columns}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def best_of(values: Any, candidates: Sequence[int], better: str) -> set[int]:
    """Indices of the best finite value; empty where all values are equal."""
    finite = [float(values[policy]) for policy in candidates if math.isfinite(values[policy])]
    if len(finite) < 2 or min(finite) == max(finite):
        return set()
    top = min(finite) if better == "less" else max(finite)
    return {policy for policy in candidates if values[policy] == top}


def marked_cell(cell: str, best: bool) -> str:
    """A cell; the best of its column is highlighted."""
    return f'<b class="best">{text(cell)}<span class="unseen"> (best)</span></b>' if best else text(cell)


def interval(mean: PolicyMean | None, cell: NumberFormat) -> str:
    """The confidence interval of a mean in small type; empty where it is unknown."""
    if mean is None or not math.isfinite(mean.low):
        return ""
    return f"<small>{text(cell(mean.low))} – {text(cell(mean.high))}</small>"


def figure(report_figure: ReportFigure, name: str) -> str:
    """An inline SVG with its caption."""
    svg = as_svg(report_figure.figure, name).replace(
        "<svg", f'<svg role="img" aria-label="{escape(report_figure.alt)}"', 1
    )
    wide = " wide" if report_figure.figure.get_size_inches()[0] > 8 else ""
    return (
        f'<figure class="drawn{wide}"><div class="scroll">{svg}</div>'
        f"<figcaption>{text(report_figure.caption)}</figcaption></figure>"
    )


# -- summary --------------------------------------------------------------------------------------


def summary_block(data: ComparisonData) -> str:
    """The key numbers, summary sentences and caveats of a comparison."""
    paragraphs = "".join(f"<p>{text(sentence)}</p>" for sentence in [*summary(data), *sentences(data)])
    warnings = caveats(data)
    notes = "".join(f"<li>{text(note)}</li>" for note in warnings)
    aside = f'<aside class="caveats"><p>Caveats</p><ul>{notes}</ul></aside>' if warnings else ""
    return f'{_tiles(data)}<div class="lead">{paragraphs}</div>{aside}'


def _tiles(data: ComparisonData) -> str:
    comparison = data.comparison
    best = (data.real or data.ranked)[0]
    label = comparison.labels[best]
    lead = data.lead
    tiles = [(lead.format(float(comparison.means(lead.metric)[best])), lead.label, label)]
    busy = (share(float(comparison.means("utilization")[best])), f"of the {data.utilization_label}", label)
    if data.node_level:
        tiles.append(busy)
    baseline = data.fcfs if data.fcfs is not None and data.fcfs != best else None
    if baseline is None and len(data.real) > 1:
        baseline = data.real[1]
    if baseline is not None and data.significance is not None:
        pair = data.significance.pair(label, comparison.labels[baseline])
        if math.isfinite(pair.ratio):
            detail = pair.verdict
            if math.isfinite(pair.low):
                detail += f"; 95 % interval {_change(pair.low)} to {_change(pair.high)}"
            tiles.append((_change(pair.ratio), f"against {comparison.labels[baseline]}", detail))
    tiles.append((format_duration(float(comparison.means("mean_wait_s")[best])), "mean wait", label))
    if not data.node_level:
        tiles.append(busy)
    return tile_row([*tiles, *_energy_tiles(data)])


def tile_row(tiles: Iterable[tuple[str, str, str]]) -> str:
    """Key numbers in large type: value, label, and policy or explanation."""
    items = "".join(
        f"<div><dt>{text(label)}</dt><dd>{text(value)}<small>{text(detail)}</small></dd></div>"
        for value, label, detail in tiles
    )
    return f'<dl class="tiles">{items}</dl>'


def _energy_tiles(data: ComparisonData) -> list[tuple[str, str, str]]:
    """Tiles of the lowest energy and the lowest CO2."""
    tiles: list[tuple[str, str, str]] = []
    energy_data = EnergyData.of(data)
    if energy_data is None:
        return []
    labels = data.comparison.labels
    for metric, unit, words in (("energy_kwh", "kWh", "energy"), ("co2_kg", "kg", "CO2")):
        if not energy_data.has(metric):
            continue
        best = energy_data.least(metric)
        if best == energy_data.first:
            value = float(energy_data.means(metric)[best])
            scale = scaled([value], unit)
            each = "" if data.comparison.batched else " a window"
            tiles.append((f"{scale.format(value)} {scale.unit}", f"{words}{each}", labels[best]))
        else:
            detail = f"{labels[best]} against {labels[energy_data.first]}"
            tiles.append((change(energy_data.ratio(metric, best)), words, detail))
    return tiles


def _change(ratio: float) -> str:
    """A ratio as a relative change in per cent."""
    return f"{'−' if ratio < 1 else '+'}{100 * abs(ratio - 1):.0f} %"


def shown_policies_note(data: ComparisonData) -> str:
    """A note that names the policies drawn in figures, where not all are."""
    labels = data.comparison.labels
    if len(data.shown) == len(labels):
        return ""
    names = ", ".join(labels[policy] for policy in data.shown)
    note = f"The figures below show {len(data.shown)} of {len(labels)} policies: {names}."
    return f'<p class="note">{text(note)}</p>'


# -- job classes ----------------------------------------------------------------------------------


def class_tables(data: ComparisonData, by: Mapping[str, Sequence[JobClass]]) -> str:
    """Tables of job classes with a group of columns for each policy."""
    hours = "GPU-hours" if data.node_level else "node-hours"
    titles = {
        "size": "By nodes",
        "gpus": "By GPUs",
        "runtime": "By true run time",
        "user": f"The {USERS} users with the most {hours}",
    }
    heads = {"size": "nodes", "gpus": "GPUs", "runtime": "run time", "user": "user"}
    tables = []
    for kind, rows in by.items():
        if kind == "user" and [row.label for row in rows] in ([], ["-"]):
            tables.append('<p class="note">The log contains no users.</p>')
            continue
        groups = [("", 3), *((escape(data.comparison.labels[policy]), 2) for policy in data.shown)]
        head = [heads[kind], "jobs", hours, *(["mean wait", "slowdown"] * len(data.shown))]
        lines = []
        for row in rows:
            cells = [escape(row.label), f"{row.jobs:,}", text(number(row.hours))]
            for wait, bsld in zip(row.mean_wait_s, row.mean_bsld, strict=True):
                cells += [text(format_duration(wait)), text(number(bsld))]
            lines.append(cells)
        tables.append(table(titles[kind], head, lines, groups=groups))
    return "".join(tables)


# -- training, cleaning report, provenance ----------------------------------------------------------


def weights_table(weights: Sequence[Sequence[Any]]) -> str:
    """The weights of a linear agent."""
    rows = [
        [escape(str(name)), f"{float(weight):+.3f}".replace("-", "−"), text(str(meaning))]
        for name, weight, meaning in weights
    ]
    note = (
        '<p class="note">'
        "Score = sum of weight × feature; the job with the smallest score starts first, so a positive weight "
        "lowers its priority.</p>"
    )
    return table("Weights of the agent", ["feature", "weight", "meaning"], rows, text_columns=(2,)) + note


def cleaning_table(entries: Mapping[str, Any], trace: str) -> str:
    """The rows that were dropped or corrected while reading a trace."""
    counts = {
        kind: sum(int(e["count"]) for e in entries["entries"] if e["kind"] == kind) for kind in ("dropped", "corrected")
    }
    sentence = (
        f"{entries['rows_read']:,} rows read, {entries['jobs']:,} jobs; {counts['dropped']:,} dropped, "
        f"{counts['corrected']:,} corrected"
        + (f", {entries['folded']:,} merged into their jobs" if entries["folded"] else "")
        + "."
    )
    rows = [
        [
            escape(_KINDS.get(str(entry["kind"]), str(entry["kind"]))),
            f"{entry['count']:,}" if entry["count"] else "–",
            text(str(entry["reason"])),
            "–" if entry["first_line"] is None else f"{entry['first_line']:,}",
        ]
        for entry in entries["entries"]
    ]
    entry_table = (
        table(f"Cleaning report of {text(trace)}", ["action", "rows", "reason", "first line"], rows, text_columns=(2,))
        if rows
        else ""
    )
    return f"<p>{text(sentence)}</p>{entry_table}"


def provenance(folder: str, kind: str, manifest: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    """Provenance of a folder: versions, seeds, hashes, command, scenario."""
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
    manifest_table = table(f"Manifest of {escape(folder)}", ["item", "value"], rows, text_columns=(1,))
    scenario_json = escape(json.dumps(scenario, indent=2, ensure_ascii=False, default=str))
    return (
        f"{manifest_table}<details><summary>Scenario of {escape(folder)}</summary>"
        f'<pre tabindex="0">{scenario_json}</pre></details>'
    )


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
