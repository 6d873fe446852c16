"""Summary sentences of a comparison: what was compared, which policy is best, at what cost, and caveats."""

from __future__ import annotations

import math

from kilowait.evaluation.comparison import ComparisonResult
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.format import capital, count, listed, number, share
from kilowait.units import format_duration

__all__ = ["caveats", "summary"]


def summary(data: ComparisonData) -> list[str]:
    """The results in sentences, most important first; undecided comparisons are named as such."""
    comparison = data.comparison
    sentences = [_scope(data)]
    if len(data.real) > 1 and data.significance is not None:
        sentences += _winner(data, data.significance)
        sentences += _agents(data, data.significance)
        sentences += _tradeoffs(data)
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
    machine = f"{comparison.nodes:,} node{'' if comparison.nodes == 1 else 's'}"
    if comparison.machine is not None:
        machine += f" with {sum(group.nodes * group.gpus for group in comparison.machine.groups):,} GPUs"
    window_text = "" if comparison.batched else f" ({windows.description})"
    return f"{subject} on {data.trace}: {jobs:,} jobs on {machine}{window_text}."


def _single_run(data: ComparisonData) -> str:
    """The main metrics of a report with a single policy."""
    names = ("mean_bsld", "mean_wait_s", "mean_turnaround_s", "utilization")
    means = {name: float(data.comparison.means(name)[0]) for name in names}
    wait, busy = format_duration(means["mean_wait_s"]), share(means["utilization"])
    if data.node_level:
        return (
            f"Under {data.comparison.labels[0]} jobs take {format_duration(means['mean_turnaround_s'])} on average "
            f"from submission to their end (JCT), {wait} of it waiting, and {busy} of the GPUs are allocated "
            "while jobs arrive."
        )
    return (
        f"Under {data.comparison.labels[0]} jobs wait {wait} on average, their mean bounded slowdown is "
        f"{number(means['mean_bsld'])}, and {busy} of the nodes are busy."
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
    pairs = [significance.pair(best, other) for other in others]
    return sentences + [pair.sentence(data.lead.label) for pair in pairs]


def _agents(data: ComparisonData, significance: ComparisonResult) -> list[str]:
    """Whether each agent beats the best priority policy, and its share of the gain from perfect estimates."""
    labels, baselines = data.comparison.labels, data.of_kind("rule")
    if not baselines:
        return []
    baseline, sentences = labels[baselines[0]], []
    gaps = data.comparison.gap_closed(data.lead.metric)
    for policy in data.of_kind("agent"):
        agent = labels[policy]
        pair = significance.pair(agent, baseline)
        name = "agent" if agent == "agent" else f"agent {agent}"
        sentence = {
            "better": f"The {name} is significantly better than the best priority policy, {baseline}.",
            "worse": f"The {name} is significantly worse than the best priority policy, {baseline}: use {baseline}.",
            "same": f"The {name} behaves like the best priority policy, {baseline}.",
            "undecided": (
                f"The difference between the {name} and the best priority policy, {baseline}, is not significant."
            ),
        }[pair.verdict]
        sentences.append(sentence)
        if {agent, baseline} != {labels[other] for other in data.real[:2]}:  # otherwise `_winner` has this sentence
            sentences.append(pair.sentence(data.lead.label))
        closed = gaps.get(agent, math.nan)
        if math.isfinite(closed):
            gained = f"{100 * closed:.0f} %" if closed > 0 else "nothing"
            sentences.append(
                f"{agent} achieves {gained} of the gain that {baseline} would have from perfect run-time estimates."
            )
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
        ("max_wait_s", "longest wait", format_duration),
        ("share_wait_over_bound", "share of jobs that wait longer than a day", share),
        ("starved_jobs", "number of starved jobs", count),
    ):
        values = comparison.values(metric)
        merged = values.max(axis=1) if metric.startswith("max") else values.mean(axis=1)
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
        sentences.append("Neither the longest wait nor the number of starved jobs increases.")
    return sentences


def _sentence(note: str) -> str:
    return f"{capital(note)}{'' if note.endswith('.') else '.'}"
