"""Summary of a comparison as sentences, key numbers, caveats and tables: which policy is best, and at what cost."""

from __future__ import annotations

import math

import numpy as np

from kilowait.evaluation.comparison import ComparisonResult, PairwiseResult
from kilowait.evaluation.comparison.conclusions import (
    STARVATION_RATIO,
    agent_sentences,
    starvation,
    starvation_ratio_text,
    starvation_sentences,
)
from kilowait.evaluation.metric_definitions import WINDOWS_NOTE, better_of, metric_name
from kilowait.report.data.comparison import USERS, ComparisonData, pairs_against
from kilowait.report.format import (
    Cell,
    NumberFormat,
    ReportColumn,
    ReportTable,
    capital,
    column,
    count,
    interval_text,
    listed,
    number,
    share,
    table_of_columns,
)
from kilowait.units import format_duration

_METRIC_NOTES = {
    "mean_bsld": "Bounded slowdown: wait plus run over run, runs below 10 s counting as 10 s, at least 1.",
    "mean_turnaround_s": "Completion time (JCT), or turnaround: from submission to the final end. Waits include all "
    "time without a GPU, before the first start and after preemptions. GPU allocation is measured while jobs "
    "arrive.",
}


def summary(data: ComparisonData) -> list[str]:
    """The results in sentences, most important first; undecided comparisons are named as such."""
    comparison = data.comparison
    sentences = [_scope(data)]
    if len(data.real) > 1 and data.significance is not None:
        sentences += _winner(data, data.significance)
        sentences += _agents(data, data.significance)
        sentences += _tradeoffs(data)
        sentences += starvation_sentences(data.comparison.longest_wait_s, data.comparison.fcfs_label)
    elif len(comparison.policies) == 1:
        sentences.append(_single_run(data))
    return sentences


def caveats(data: ComparisonData) -> list[str]:
    """Limitations of the comparison that a reader should know."""
    notes = [_sentence(note) for note in data.comparison.notes]
    if len(data.real) < 2:
        return notes
    if data.significance is None:
        return [*notes, "In some window a policy started no job, so means cannot be compared."]
    if not data.comparison.batched:
        return notes + [_sentence(note) for note in data.significance.notes]
    return [
        *notes,
        f"There is one run of each policy. {data.significance.windows} batches of consecutive jobs are used instead of "
        "independent windows; a backlog that spans several batches makes the intervals too narrow. Windows sampled "
        "from the log, each with a warm-up, give more reliable intervals.",
    ]


def _scope(data: ComparisonData) -> str:
    comparison, windows = data.comparison, data.comparison.windows
    jobs = len(windows.jobs)
    policies, clairvoyant = len(data.real), len(data.of_kind("clairvoyant"))
    subject = f"{policies} policies were compared" if policies > 1 else "One policy was run"
    subject += f", and {clairvoyant} of them also with perfect estimates," if clairvoyant else ""
    machine = f"{comparison.size:,} {comparison.unit}{'' if comparison.size == 1 else 's'}"
    if comparison.machine is not None:
        machine += f" with {sum(group.nodes * group.gpus for group in comparison.machine.groups):,} GPUs"
    window_text = "" if comparison.batched else f" ({windows.description})"
    backfill = comparison.common_backfill
    backfill_text = "" if backfill is None else f", with backfill {backfill}"
    return f"{subject} on {data.trace}: {jobs:,} jobs on {machine}{backfill_text}{window_text}."


def _single_run(data: ComparisonData) -> str:
    """The main metrics of a report with a single policy."""
    names = ("mean_wait_s", "max_wait_s", "utilization", data.lead.metric)
    wait_s, longest_s, busy, lead = (float(data.comparison.over_windows(name)[0]) for name in names)
    label, wait = data.comparison.labels[0], format_duration(wait_s)
    if data.node_level:
        return (
            f"Under {label} jobs take {format_duration(lead)} on average from submission to their end (JCT), {wait} of "
            f"it waiting; the longest wait is {format_duration(longest_s)}. The GPU utilization while jobs arrive is "
            f"{share(busy)}."
        )
    return (
        f"Under {label} jobs wait {wait} on average and at most {format_duration(longest_s)}, their mean bounded "
        f"slowdown is {number(lead)}, and the utilization while jobs arrive is {share(busy)}."
    )


def _winner(data: ComparisonData, significance: ComparisonResult) -> list[str]:
    """The best policy against the second best and against FCFS."""
    labels = data.comparison.labels
    best, second = labels[data.real[0]], labels[data.real[1]]
    mean = next(m for m in significance.means if m.policy == best)
    format_value = data.lead.format
    interval = (
        f" (95 % interval {format_value(mean.low)} to {format_value(mean.high)})" if math.isfinite(mean.low) else ""
    )
    sentences = [f"{best} has the lowest {data.lead.label}: {format_value(mean.mean)}{interval}."]
    others = [second]
    if data.fcfs is not None and labels[data.fcfs] not in (best, second):
        others.append(labels[data.fcfs])
    baselines = [labels[policy] for policy in data.of_kind("rule")[:1]]
    in_verdicts = [{labels[agent], baseline} for agent in data.of_kind("agent") for baseline in baselines]
    return sentences + [
        significance.pair(best, other).sentence() for other in others if {best, other} not in in_verdicts
    ]


def _agents(data: ComparisonData, significance: ComparisonResult) -> list[str]:
    """The verdict on each agent against the best priority policy."""
    labels, baselines = data.comparison.labels, data.of_kind("rule")
    if not baselines:
        return []
    baseline, sentences = labels[baselines[0]], []
    gaps = data.comparison.gap_closed(data.lead.metric)
    for policy in data.of_kind("agent"):
        agent = labels[policy]
        name = "agent" if agent == "agent" else f"agent {agent}"
        sentences += agent_sentences(significance.pair(agent, baseline), gaps.get(agent, math.nan), name)
    return sentences


def _tradeoffs(data: ComparisonData) -> list[str]:
    """What improves and what gets worse under the best policy, compared with FCFS."""
    comparison = data.comparison
    first, other = data.real[0], data.fcfs
    if other is None or other == first:
        return []
    best, fcfs = comparison.labels[first], comparison.labels[other]
    costs, gains = [], []
    for metric, label, format_value in (
        ("mean_wait_s", "mean wait", format_duration),
        ("p99_wait_s", "99th percentile of waits", format_duration),
        ("max_wait_s", "longest wait", format_duration),
        ("share_wait_over_bound", "share of jobs that wait longer than a day", share),
        ("starved_jobs", "number of starved jobs", count),
    ):
        merged = comparison.over_windows(metric)
        ours, theirs = float(merged[first]), float(merged[other])
        if not (math.isfinite(ours) and math.isfinite(theirs)):
            continue
        if ours > theirs * 1.001 and format_value(ours) != format_value(theirs):
            costs.append(f"the {label} increases from {format_value(theirs)} to {format_value(ours)}")
        elif metric == "mean_wait_s" and ours < theirs * 0.999:
            gains.append(f"the {label} decreases from {format_value(theirs)} to {format_value(ours)}")
    sentences = []
    if gains:
        sentences.append(f"With {best} instead of {fcfs}, {listed(gains)}.")
    if costs:
        sentences.append(f"Drawback: with {best} instead of {fcfs}, {listed(costs)}.")
    elif gains:
        sentences.append("Neither the longest waits nor the number of starved jobs increase.")
    return sentences


def _sentence(note: str) -> str:
    return f"{capital(note)}{'' if note.endswith('.') else '.'}"


def key_numbers(data: ComparisonData) -> list[tuple[str, str, str]]:
    """Value, label, and policy or explanation of the main results."""
    comparison, lead = data.comparison, data.lead
    best = (data.real or data.ranked)[0]
    label = comparison.labels[best]
    busy = (share(float(comparison.over_windows("utilization")[best])), data.utilization_label, label)
    longest_s = float(comparison.over_windows("max_wait_s")[best])
    ratio = starvation(comparison.longest_wait_s, comparison.fcfs_label).get(label)
    warning = "" if ratio is None else f"; {starvation_ratio_text(ratio)} that of {comparison.fcfs_label}"
    baseline = data.fcfs if data.fcfs is not None and data.fcfs != best else None
    if baseline is None and len(data.real) > 1:
        baseline = data.real[1]
    gain = []
    if baseline is not None and data.significance is not None:
        pair = data.significance.pair(label, comparison.labels[baseline])
        if math.isfinite(pair.ratio):
            detail = pair.verdict
            if math.isfinite(pair.low):
                detail += f"; 95 % interval {_change(pair.low)} to {_change(pair.high)}"
            gain.append((_change(pair.ratio), f"against {comparison.labels[baseline]}", detail))
    return [
        (lead.format(float(comparison.over_windows(lead.metric)[best])), lead.label, label),
        *([busy] if data.node_level else []),
        *gain,
        (format_duration(float(comparison.over_windows("mean_wait_s")[best])), "mean wait", label),
        (format_duration(longest_s), "longest wait", f"{label}{warning}"),
        *([] if data.node_level else [busy]),
    ]


def _change(ratio: float) -> str:
    """A ratio as a relative change in per cent."""
    return f"{'−' if ratio < 1 else '+'}{100 * abs(ratio - 1):.0f} %"


# -- tables ------------------------------------------------------------------------------------------


def comparison_table(data: ComparisonData) -> ReportTable:
    """All policies with the main metrics, best first; the best value of each column is marked."""
    comparison, order = data.comparison, (*data.real, *data.of_kind("clairvoyant"))
    labels = [comparison.labels[policy] for policy in order]
    lead, wait = (_mean_column(data, order, *mean) for mean in _means(data))
    tests = _test_columns(data, labels) if len(data.real) > 1 else []
    columns = [lead, wait, *_wait_columns(data, order), *tests, *_other_columns(data, order)]
    if data.bounds:
        labels.append("lower bound of any schedule")
        bounds = {label: cell(data.bounds.get(metric, math.nan)) for metric, label, _, cell in _means(data)}
        columns = [ReportColumn(each.label, [*each.cells, bounds.get(each.label, "")]) for each in columns]
    note = (
        f"Small: 95 % interval. Bold with a dot: best of the column. {_METRIC_NOTES[data.lead.metric]} Jain’s index is "
        "computed from mean bounded slowdowns; 1 means that all are equal. Starved: the job waited longer than "
        "ten times its estimate and longer than ten hours."
    )
    if not comparison.batched:
        note += f" {WINDOWS_NOTE}"
    if starvation(comparison.longest_wait_s, comparison.fcfs_label):
        note += f" Longest wait in colour: more than {STARVATION_RATIO:g} times that of {comparison.fcfs_label}."
    if data.of_kind("clairvoyant"):
        note += (
            " Perfect estimates: the policy knows the true run times, which is impossible in practice; this shows the "
            "possible gain from better predictions and is not part of the significance tests."
        )
    return table_of_columns(
        f"Policies on {data.trace}, best first",
        "policy",
        labels,
        columns,
        marked=[place for place, policy in enumerate(order) if comparison.policies[policy].kind == "agent"],
        faint=range(len(data.real), len(labels)),
        folded=range(len(data.real), len(order)),
        note=note,
    )


def _means(data: ComparisonData) -> list[tuple[str, str, ComparisonResult | None, NumberFormat]]:
    """The metrics that are tested: name, label, test results, format."""
    return [
        (data.lead.metric, data.lead.label, data.significance, data.lead.format),
        ("mean_wait_s", metric_name("mean_wait_s"), data.wait, format_duration),
    ]


def _mean_column(
    data: ComparisonData,
    order: tuple[int, ...],
    metric: str,
    label: str,
    significance: ComparisonResult | None,
    cell: NumberFormat,
) -> ReportColumn:
    means = {} if significance is None else {mean.policy: mean for mean in significance.means}

    def interval(policy: int) -> str:
        mean = means.get(data.comparison.labels[policy])
        return "" if mean is None else interval_text(mean.low, mean.high, cell)

    return column(label, data.comparison.over_windows(metric), cell, order=order, candidates=data.real, small=interval)


def _test_columns(data: ComparisonData, labels: list[str]) -> list[ReportColumn]:
    """The test against the reference, with the windows won."""
    reference = data.comparison.labels[data.reference]
    pairs = pairs_against(data, reference)
    cells = [verdict_cell(pairs.get(label), *_won(pairs.get(label))) for label in labels]
    return [ReportColumn(f"against {reference}", cells)]


def _won(pair: PairwiseResult | None) -> list[str]:
    return [] if pair is None else [f"{pair.wins} of {pair.windows} won"]


def verdict_cell(pair: PairwiseResult | None, *more: str) -> Cell:
    """The verdict of a significance test, with the ratio of the means; `more` are further texts in small type."""
    if pair is None:
        return Cell("–")
    ratio = [f"× {number(pair.ratio)}"] if math.isfinite(pair.ratio) else []
    return Cell(pair.verdict, small=(*ratio, *more), kind=pair.verdict)


def _wait_columns(data: ComparisonData, order: tuple[int, ...]) -> list[ReportColumn]:
    """The tail of the waits; the longest wait of a policy with a risk of starvation is marked."""
    comparison = data.comparison
    starving = starvation(comparison.longest_wait_s, comparison.fcfs_label)
    p99, longest = (_metric_column(data, order, metric, format_duration) for metric in ("p99_wait_s", "max_wait_s"))
    cells: list[Cell | str] = []
    for policy, value in zip(order, comparison.over_windows("max_wait_s")[list(order)].tolist(), strict=True):
        ratio, fcfs = starving.get(comparison.labels[policy]), str(comparison.fcfs_label)
        cells.append(longest.cells[len(cells)] if ratio is None else starving_cell(value, ratio, fcfs))
    return [p99, ReportColumn(longest.label, cells)]


def starving_cell(longest_wait_s: float, ratio: float, fcfs: str) -> Cell:
    """A longest wait that is marked for its risk of starvation. `ratio` is that to FCFS, which has the label `fcfs`."""
    text = f"{starvation_ratio_text(ratio)} that of {fcfs}"
    return Cell(format_duration(longest_wait_s), small=(text,), kind="starves")


def _other_columns(data: ComparisonData, order: tuple[int, ...]) -> list[ReportColumn]:
    """Utilization, fairness and long waits."""
    has_users = np.isfinite(data.comparison.over_windows("jain_user_bsld")).any()
    formats: dict[str, NumberFormat] = {
        "utilization": share,
        "jain_user_bsld" if has_users else "jain_size_bsld": number,
        "share_wait_over_bound": share,
        "starved_jobs": count,
    }
    return [_metric_column(data, order, metric, cell) for metric, cell in formats.items()]


def _metric_column(data: ComparisonData, order: tuple[int, ...], metric: str, cell: NumberFormat) -> ReportColumn:
    """A metric over all windows, without an interval."""
    name, values = metric_name(metric, node_level=data.node_level), data.comparison.over_windows(metric)
    return column(name, values, cell, better=better_of(metric), order=order, candidates=data.real)


_CLASS_TITLES = {
    "size": ("By {unit}s", "{unit}s"),
    "gpus": ("By GPUs", "GPUs"),
    "runtime": ("By true run time", "run time"),
    "queue": ("By queue", "queue"),
    "user": (f"The {USERS} users with the most {{hours}}", "user"),
}
"""Caption and first head of the tables of job classes."""


def class_tables(data: ComparisonData) -> list[ReportTable | None]:
    """Tables of job classes with a group of columns for each policy; None for users that the log does not contain.

    A log without queues has no table of queues.
    """
    hours = "GPU-hours" if data.node_level else f"{data.comparison.unit}-hours"
    tables: list[ReportTable | None] = []
    for kind, rows in data.classes.items():
        if kind in ("user", "queue") and [row.label for row in rows] in ([], ["-"]):
            tables += [None] if kind == "user" else []
            continue
        caption, head = (text.replace("{unit}", data.comparison.unit) for text in _CLASS_TITLES[kind])
        lines = []
        for row in rows:
            cells = [row.label, f"{row.jobs:,}", number(row.hours)]
            for wait, bsld in zip(row.mean_wait_s, row.mean_bsld, strict=True):
                cells += [format_duration(wait), number(bsld)]
            lines.append(cells)
        tables.append(
            ReportTable(
                caption.format(hours=hours),
                [head, "jobs", hours, *(["mean wait", "slowdown"] * len(data.shown))],
                lines,
                groups=[("", 3), *((label, 2) for label in data.shown_labels)],
            )
        )
    return tables


def cleaning_report(data: ComparisonData) -> tuple[str, ReportTable]:
    """The rows that were dropped or corrected while reading a trace, as a sentence and as a table."""
    report = data.comparison.cleaning_report or {}
    entries = report["entries"]
    dropped, corrected = (
        sum(int(entry["count"]) for entry in entries if entry["kind"] == kind) for kind in ("dropped", "corrected")
    )
    merged = f", {report['folded']:,} merged into their jobs" if report["folded"] else ""
    rows = [
        [
            str(entry["kind"]),
            f"{entry['count']:,}" if entry["count"] else "–",
            str(entry["reason"]),
            "–" if entry["first_line"] is None else f"{entry['first_line']:,}",
        ]
        for entry in entries
    ]
    return (
        f"{report['rows_read']:,} rows read, {report['jobs']:,} jobs; {dropped:,} dropped, {corrected:,} corrected"
        f"{merged}.",
        ReportTable(
            f"Cleaning report of {data.trace}", ["action", "rows", "reason", "first line"], rows, text_columns=(2,)
        ),
    )
