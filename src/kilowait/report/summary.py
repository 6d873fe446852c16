"""The findings of a report in sentences: who was compared, who is better, what it costs, what to doubt."""

from __future__ import annotations

import math

from kilowait.evaluation.comparison import ComparisonResult
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.format import (
    capital,
    count,
    listed,
    number,
    share,
)
from kilowait.units import format_span

__all__ = ["caveats", "summary"]


def summary(found: ComparisonData) -> list[str]:
    """The findings in sentences, most important first; what is not decided is said to be so."""
    contest = found.contest
    sentences = [_what(found)]
    if len(found.real) > 1 and found.judged is not None:
        sentences += _winner(found, found.judged)
        sentences += _agents(found, found.judged)
        sentences += _price(found)
    elif len(contest.contenders) == 1:
        sentences.append(_alone(found))
    return sentences


def caveats(found: ComparisonData) -> list[str]:
    """What a reader should know before track_expected_ends it."""
    said = [_sentence(note) for note in found.contest.notes]
    if len(found.real) < 2:
        return said
    if found.judged is None:
        return [*said, "In some window a contender started no job, so means cannot be compared."]
    if not found.contest.batched:
        return said + [_sentence(note) for note in found.judged.notes]
    return [
        *said,
        f"There is one run of each contender. {found.judged.windows} batches of its consecutive jobs stand in for "
        "windows of their own; a backlog that outlasts a few batches makes the intervals too narrow. Windows drawn "
        "from the log, with a warm-up each, would tell more surely.",
    ]


def _what(found: ComparisonData) -> str:
    contest, windows = found.contest, found.contest.windows
    jobs = len(windows.jobs)
    several, knowing = len(found.real), len(found.of_kind("clairvoyant"))
    who = f"{several} ways to schedule were compared" if several > 1 else "One schedule was made"
    who += f", and {knowing} of them with perfect estimates too," if knowing else ""
    machine = f"{contest.nodes:,} node{'' if contest.nodes == 1 else 's'}"
    if contest.machine is not None:
        machine += f" with {sum(group.nodes * group.gpus for group in contest.machine.groups):,} GPUs"
    cut = "" if contest.batched else f" ({windows.words})"
    return f"{who} on {found.trace}: {jobs:,} jobs on {machine}{cut}."


def _alone(found: ComparisonData) -> str:
    """The only run."""
    names = ("mean_bsld", "mean_wait_s", "mean_turnaround_s", "utilization")
    means = {name: float(found.contest.means(name)[0]) for name in names}
    wait, busy = format_span(means["mean_wait_s"]), share(means["utilization"])
    if found.placed:
        return (
            f"Under {found.contest.labels[0]} jobs take {format_span(means['mean_turnaround_s'])} on average from "
            f"submission to their end (JCT), {wait} of it waiting, and {busy} of the GPUs are held while jobs arrive."
        )
    return (
        f"Under {found.contest.labels[0]} jobs wait {wait} on average, their mean bounded slowdown is "
        f"{number(means['mean_bsld'])}, and {busy} of the nodes are busy."
    )


def _winner(found: ComparisonData, judged: ComparisonResult) -> list[str]:
    """Best against the next, and against first come, first served."""
    labels = found.contest.labels
    best, second = labels[found.real[0]], labels[found.real[1]]
    mean = next(m for m in judged.means if m.contender == best)
    told = found.lead.told
    sure = f" (95 % interval {told(mean.low)} to {told(mean.high)})" if math.isfinite(mean.low) else ""
    said = [f"The lowest {found.lead.words} is that of {best}: {told(mean.mean)}{sure}."]
    against = [second]
    if found.plain is not None and labels[found.plain] not in (best, second):
        against.append(labels[found.plain])
    pairs = [judged.pair(best, other) for other in against]
    return said + [pair.sentence(found.lead.words) for pair in pairs]


def _agents(found: ComparisonData, judged: ComparisonResult) -> list[str]:
    """Whether each agent beats the best rule, and how much of what could be gained it gained."""
    labels, rules = found.contest.labels, found.of_kind("rule")
    if not rules:
        return []
    rule, said = labels[rules[0]], []
    gap = found.contest.gap_closed(found.lead.metric)
    for who in found.of_kind("agent"):
        agent = labels[who]
        pair = judged.pair(agent, rule)
        called = "agent" if agent == "agent" else f"agent {agent}"
        words = {
            "better": f"The {called} beats the best rule, {rule}.",
            "worse": f"The {called} does not beat the best rule, {rule}, which is better: use {rule}.",
            "same": f"The {called} does what the best rule, {rule}, does.",
            "undecided": f"Whether the {called} beats the best rule, {rule}, is undecided.",
        }[pair.verdict]
        said.append(words)
        if {agent, rule} != {labels[other] for other in found.real[:2]}:  # else the sentence is there already
            said.append(pair.sentence(found.lead.words))
        closed = gap.get(agent, math.nan)
        if math.isfinite(closed):
            gained = f"{100 * closed:.0f} %" if closed > 0 else "nothing"
            said.append(
                f"Of what {rule} would gain from knowing all run times in advance, {agent} gains {gained}."
            )
    return said


def _price(found: ComparisonData) -> list[str]:
    """What the better mean costs others, held against first come, first served."""
    contest = found.contest
    first, other = found.real[0], found.plain
    if other is None or other == first:
        return []
    best, plain = contest.labels[first], contest.labels[other]
    costs, gains = [], []
    for metric, words, told in (
        ("mean_wait_s", "mean wait", format_span),
        ("max_wait_s", "longest wait", format_span),
        ("share_wait_over_bound", "share of jobs that wait over a day", share),
        ("starved_jobs", "number of starved jobs", count),
    ):
        values = contest.values(metric)
        merged = values.max(axis=1) if metric.startswith("max") else values.mean(axis=1)
        ours, theirs = float(merged[first]), float(merged[other])
        if not (math.isfinite(ours) and math.isfinite(theirs)):
            continue
        if ours > theirs * 1.001 and told(ours) != told(theirs):
            costs.append(f"the {words} rises from {told(theirs)} to {told(ours)}")
        elif metric == "mean_wait_s" and ours < theirs * 0.999:
            gains.append(f"the {words} falls from {told(theirs)} to {told(ours)}")
    said = []
    if gains:
        said.append(f"Under {best} instead of {plain} {listed(gains)}.")
    if costs:
        said.append(f"It has a price: under {best} instead of {plain} {listed(costs)}.")
    elif gains:
        said.append("Neither the longest wait nor the number of jobs left waiting grows.")
    return said


def _sentence(note: str) -> str:
    return f"{capital(note)}{'' if note.endswith('.') else '.'}"
