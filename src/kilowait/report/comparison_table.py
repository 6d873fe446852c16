"""The main comparison table: metrics of every policy, confidence intervals and significance against the reference."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from kilowait.evaluation.comparison import PairwiseResult
from kilowait.report.comparison_data import ComparisonData, pairs_against
from kilowait.report.format import count, number, share
from kilowait.report.html import NumberFormat, best_of, interval, marked_cell, table, text
from kilowait.units import format_duration

__all__ = ["comparison_table"]

_METRIC_NOTES = {
    "mean_bsld": "Bounded slowdown: wait plus run over run, runs below 10 s counting as 10 s, at least 1.",
    "mean_turnaround_s": "Completion time (JCT), or turnaround: from submission to the final end. Waits include all "
    "time without a GPU, before the first start and after preemptions. GPU allocation is measured while jobs "
    "arrive.",
}


def comparison_table(data: ComparisonData) -> str:
    """All policies with the main metrics, best first; the best value of each column is marked."""
    comparison, order = data.comparison, (*data.real, *data.of_kind("clairvoyant"))
    ranked = list(data.real)
    reference = comparison.labels[data.reference]
    has_users = np.isfinite(comparison.means("jain_user_bsld")).any()
    jain = "jain_user_bsld" if has_users else "jain_size_bsld"
    suffix = "" if comparison.batched else ", mean of windows"
    other_metrics: tuple[tuple[str, str, str, NumberFormat], ...] = (
        ("p95_wait_s", f"95th percentile of wait{suffix}", "less", format_duration),
        ("max_wait_s", "longest wait", "less", format_duration),
        ("utilization", data.utilization_label, "more", share),
        (jain, f"Jain’s index over {'users' if has_users else 'job sizes'}", "more", number),
        ("share_wait_over_bound", "share waiting over a day", "less", share),
        ("starved_jobs", "starved jobs", "less", count),
    )
    columns: list[list[str]] = []
    cell: NumberFormat
    head = ["policy", data.lead.label, "mean wait"]
    for metric, significance, cell in (
        (data.lead.metric, data.significance, data.lead.format),
        ("mean_wait_s", data.wait, format_duration),
    ):
        spread = {} if significance is None else {mean.policy: mean for mean in significance.means}
        values = comparison.means(metric)
        best = best_of(values, ranked, "less")
        columns.append(
            [
                marked_cell(cell(float(values[policy])), policy in best)
                + interval(spread.get(comparison.labels[policy]), cell)
                for policy in order
            ]
        )
    for metric, label, better, cell in other_metrics:
        by_window = comparison.values(metric)
        values = by_window.max(axis=1) if metric == "max_wait_s" else by_window.mean(axis=1)
        if metric == "starved_jobs":
            values = by_window.sum(axis=1)
        best = best_of(values, ranked, better)
        head.append(label)
        columns.append([marked_cell(cell(float(values[policy])), policy in best) for policy in order])
    if len(data.real) > 1:  # placed next to the mean that they test
        pairs = pairs_against(data, reference)
        plural = "batches" if comparison.batched else "windows"
        head[2:2] = [f"against {reference}", f"{plural} won"]
        columns[1:1] = [
            [_significance_cell(pairs.get(comparison.labels[policy])) for policy in order],
            [_wins_cell(pairs.get(comparison.labels[policy])) for policy in order],
        ]
    rows = [
        [escape(comparison.labels[policy]), *(column[column_number] for column in columns)]
        for column_number, policy in enumerate(order)
    ]
    if data.bounds:
        bounds = [data.bounds.get(metric, math.nan) for metric in (data.lead.metric, "mean_wait_s")]
        bound = {
            head.index(data.lead.label): data.lead.format(bounds[0]),
            head.index("mean wait"): format_duration(bounds[1]),
        }
        rows.append(
            [
                "lower bound of any schedule",
                *(text(bound.get(column_number, "")) for column_number in range(1, len(head))),
            ]
        )
    agents = [
        column_number for column_number, policy in enumerate(order) if comparison.policies[policy].kind == "agent"
    ]
    note = (
        f"Small: 95 % interval. Bold with a dot: best of the column. {_METRIC_NOTES[data.lead.metric]} Jain’s index is "
        "computed from mean bounded slowdowns; 1 means that all are equal. Starved: the job waited longer than "
        "ten times its "
        "estimate and longer than ten hours."
    )
    if data.of_kind("clairvoyant"):
        note += (
            " Perfect estimates: the policy knows the true run times, which is impossible in practice; this shows the "
            "possible gain from better predictions and is not part of the significance tests."
        )
    html_table = table(
        f"Policies on {text(data.trace)}, best first",
        [text(h) for h in head],
        rows,
        marked=agents,
        faint=range(len(data.real), len(rows)),
    )
    return f'{html_table}<p class="note">{text(note)}</p>'


def _wins_cell(pair: PairwiseResult | None) -> str:
    return "–" if pair is None else f"{pair.wins} of {pair.windows}"


def _significance_cell(pair: PairwiseResult | None) -> str:
    if pair is None:
        return "–"
    ratio = f"<small>× {number(pair.ratio)}</small>" if math.isfinite(pair.ratio) else ""
    return f'<span class="{pair.verdict}">{pair.verdict}</span>{ratio}'
