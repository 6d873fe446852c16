"""The table of contenders: every number that counts, its interval, and the verdict against the reference."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from kilowait.evaluation.comparison import PairwiseResult
from kilowait.report.comparison_data import ComparisonData, pairs_against
from kilowait.report.format import count, number, share
from kilowait.report.html import (
    Cell,
    best_of,
    interval,
    marked_cell,
    table,
    text,
)
from kilowait.units import format_span

__all__ = ["comparison_table"]

_DEFINED = {
    "mean_bsld": "Bounded slowdown: wait plus run over run, runs below 10 s counting as 10 s, at least 1.",
    "mean_turnaround_s": "Completion time (JCT), or turnaround: from joining the queue to the last end. Waits hold all "
    "the time without a GPU, before the first start and after a preemption. GPUs are counted as held while jobs "
    "arrive.",
}


def comparison_table(found: ComparisonData) -> str:
    """Every contender with every number that counts, best first; the best of each column marked."""
    contest, order = found.contest, (*found.real, *found.of_kind("clairvoyant"))
    judged_ones = list(found.real)
    reference = contest.labels[found.reference]
    users = np.isfinite(contest.means("jain_user_bsld")).any()
    jain = "jain_user_bsld" if users else "jain_size_bsld"
    several = "" if contest.batched else ", mean of windows"
    single: tuple[tuple[str, str, str, Cell], ...] = (
        ("p95_wait_s", f"95 % wait less than{several}", "less", format_span),
        ("max_wait_s", "longest wait", "less", format_span),
        ("utilization", found.busy_words, "more", share),
        (jain, f"Jain’s index over {'users' if users else 'sizes'}", "more", number),
        ("share_wait_over_bound", "wait over a day", "less", share),
        ("starved_jobs", "starved jobs", "less", count),
    )
    columns: list[list[str]] = []
    cell: Cell
    head = ["contender", found.lead.words, "mean wait"]
    for metric, judged, cell in (
        (found.lead.metric, found.judged, found.lead.told),
        ("mean_wait_s", found.wait, format_span),
    ):
        spread = {} if judged is None else {mean.contender: mean for mean in judged.means}
        values = contest.means(metric)
        best = best_of(values, judged_ones, "less")
        columns.append(
            [
                marked_cell(cell(float(values[who])), who in best)
                + interval(spread.get(contest.labels[who]), cell)
                for who in order
            ]
        )
    for metric, words, better, cell in single:
        table_of = contest.values(metric)
        values = table_of.max(axis=1) if metric == "max_wait_s" else table_of.mean(axis=1)
        if metric == "starved_jobs":
            values = table_of.sum(axis=1)
        best = best_of(values, judged_ones, better)
        head.append(words)
        columns.append([marked_cell(cell(float(values[who])), who in best) for who in order])
    if len(found.real) > 1:  # beside the mean they are the verdicts on
        pairs = pairs_against(found, reference)
        plural = "batches" if contest.batched else "windows"
        head[2:2] = [f"against {reference}", f"{plural} won"]
        columns[1:1] = [
            [_verdict(pairs.get(contest.labels[who])) for who in order],
            [_won(pairs.get(contest.labels[who])) for who in order],
        ]
    rows = [
        [escape(contest.labels[who]), *(column[place] for column in columns)]
        for place, who in enumerate(order)
    ]
    if found.bounds:
        known = [found.bounds.get(metric, math.nan) for metric in (found.lead.metric, "mean_wait_s")]
        bound = {
            head.index(found.lead.words): found.lead.told(known[0]),
            head.index("mean wait"): format_span(known[1]),
        }
        rows.append(
            ["no schedule can go below", *(text(bound.get(place, "")) for place in range(1, len(head)))]
        )
    agents = [place for place, who in enumerate(order) if contest.contenders[who].kind == "agent"]
    note = (
        f"Small: 95 % interval. Bold with a dot: the best of its column. {_DEFINED[found.lead.metric]} Jain’s index is "
        "of mean bounded slowdowns, and 1 where all fare alike. Starved: waited longer than ten times its own "
        "estimate, and ten hours."
    )
    if found.of_kind("clairvoyant"):
        note += (
            " Perfect estimates: the rule is told the true run times, which nobody can know; that shows what better "
            "predictions could gain, and is not judged."
        )
    made = table(
        f"Contenders on {text(found.trace)}, best first",
        [text(h) for h in head],
        rows,
        marked=agents,
        faint=range(len(found.real), len(rows)),
    )
    return f'{made}<p class="note">{text(note)}</p>'


def _won(pair: PairwiseResult | None) -> str:
    return "–" if pair is None else f"{pair.wins} of {pair.windows}"


def _verdict(pair: PairwiseResult | None) -> str:
    if pair is None:
        return "–"
    ratio = f"<small>× {number(pair.ratio)}</small>" if math.isfinite(pair.ratio) else ""
    return f'<span class="{pair.verdict}">{pair.verdict}</span>{ratio}'
