"""Conclusions of a comparison in sentences: an agent against the best policy, starvation, the best energy saving.

The command line and the pages print these sentences, so that both say the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kilowait.evaluation.comparison.pairwise import PairwiseResult, counted
from kilowait.units import format_duration

if TYPE_CHECKING:
    from kilowait.evaluation.comparison.result import Comparison

STARVATION_RATIO = 5.0
"""A policy has a risk of starvation if its longest wait is more than this factor times that of FCFS."""
MIN_WINDOWS = 20
"""With fewer windows than this a result carries a note."""
_EQUAL_WAIT_RATIO = 1.001
"""Mean waits whose ratio is below this count as equal."""
_SMALLEST_SAVING = 0.001
"""Smaller savings of energy, as shares, do not count."""


def starvation(longest_wait_s: Mapping[str, float], fcfs: str | None) -> dict[str, float]:
    """The policies with a risk of starvation, by label: the ratio of their longest wait to that of FCFS, if above 5.

    `longest_wait_s` is the longest wait over all windows by label, `fcfs` the label of FCFS; None: it was not run, so
    that no policy can be marked.

    >>> starvation({"fcfs": 3600.0, "saf": 36000.0, "sjf": 7200.0}, "fcfs")
    {'saf': 10.0}
    """
    if fcfs is None or not math.isfinite(longest_wait_s[fcfs]):
        return {}
    reference_s = longest_wait_s[fcfs]
    return {
        label: wait_s / reference_s if reference_s > 0 else math.inf
        for label, wait_s in longest_wait_s.items()
        if label != fcfs and wait_s > STARVATION_RATIO * reference_s
    }


def starvation_sentences(longest_wait_s: Mapping[str, float], fcfs: str | None) -> list[str]:
    """One sentence for each policy with a risk of starvation.

    >>> starvation_sentences({"fcfs": 3600.0, "saf": 36000.0}, "fcfs")
    ['Risk of starvation under saf: its longest wait, 10 h 0 min, is 10 times that of fcfs (1 h 0 min).']
    """
    return [
        f"Risk of starvation under {label}: its longest wait, {format_duration(longest_wait_s[label])}, is "
        f"{starvation_ratio_text(ratio)} that of {fcfs} ({format_duration(longest_wait_s[str(fcfs)])})."
        for label, ratio in starvation(longest_wait_s, fcfs).items()
    ]


def starvation_ratio_text(ratio: float) -> str:
    """The ratio of a longest wait to that of FCFS in words.

    >>> starvation_ratio_text(12.3), starvation_ratio_text(5.25)
    ('12 times', '5.2 times')
    """
    return "far above" if math.isinf(ratio) else f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def agent_sentences(pair: PairwiseResult, gap: float, name: str = "agent") -> list[str]:
    """The verdict on an agent against the best priority policy (`pair`, agent first), and what it rests on.

    `gap` is the share of the gain from perfect estimates that the agent achieves; NaN: unknown. `name` is how the
    first sentence calls the agent.
    """
    baseline = pair.theirs
    verdict = {
        "better": f"The {name} is significantly better than the best priority policy, {baseline}.",
        "worse": f"The {name} is significantly worse than the best priority policy, {baseline}: use {baseline}.",
        "same": f"The {name} behaves like the best priority policy, {baseline}.",
        "undecided": f"The difference between the {name} and the best priority policy, {baseline}, is not significant.",
    }[pair.verdict]
    return [verdict, pair.sentence(), scope_of_verdict(pair.windows, pair.unit), *_closed_gap(pair.ours, gap, baseline)]


def gpu_agent_sentences(ratio: Sequence[float | None], windows: int) -> list[str]:
    """The verdict on an agent on a GPU cluster: its mean completion time against that of the best policy.

    `ratio` is the ratio of the two and its 95 % interval; ends that are unknown are None or NaN.

    >>> print(gpu_agent_sentences([0.9, 0.85, 0.96], 30)[0].partition(",")[0])
    The agent is significantly better than the best policy: 0.900 of its mean completion time (JCT)
    """
    value, low, high = _known(ratio)
    verdict = "significantly better than" if high < 1 else "significantly worse than" if low > 1 else ""
    subject = (
        f"The agent is {verdict} the best policy"
        if verdict
        else ("The difference between the agent and the best policy is not significant")
    )
    return [
        f"{subject}: {value:.3f} of its mean completion time (JCT), {_interval(low, high)}.",
        scope_of_verdict(windows),
    ]


def power_agent_sentences(
    margin: Mapping[str, Sequence[float | None]], objective: str, policies: int, windows: int
) -> list[str]:
    """The verdict on an agent with power controls against the Pareto front of hand-tuned policies.

    `margin` has the ratios `objective_ratio` and `delay_ratio`, each with its 95 % interval; `policies` is the number
    of the hand-tuned policies.
    """
    value, low, high = _known(margin["objective_ratio"])
    slowdown, lower, higher = _known(margin["delay_ratio"])
    front = "the Pareto front of the hand-tuned power controls"
    if high < 1 or higher < 1:
        verdict = f"The agent dominates part of {front}."
    elif value >= 1 and slowdown >= 1:
        verdict = f"The agent is not better than {front}: use those."
    else:
        verdict = f"The difference between the agent and {front} is not significant."
    return [
        verdict,
        f"The agent: {value:.3f} of the lowest {objective} among the {policies:,} hand-tuned policies whose slowdown "
        f"is not larger, {_interval(low, high)}; {slowdown:.3f} of the lowest slowdown among those whose {objective} "
        f"is not larger, {_interval(lower, higher)}.",
        scope_of_verdict(windows),
    ]


def _known(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def _interval(low: float, high: float) -> str:
    return f"95 % interval {low:.3f} to {high:.3f}" if math.isfinite(low) and math.isfinite(high) else "no interval"


def scope_of_verdict(windows: int, unit: str = "window") -> str:
    """What a verdict rests on; a warning if it is little.

    >>> scope_of_verdict(12)
    'This verdict rests on only 12 windows of one log: test on at least 20 windows, and on other logs, before use.'
    """
    if unit != "window":
        return f"This verdict rests on one run of one log, divided into {counted(windows, unit)}: test on windows."
    if windows < MIN_WINDOWS:
        return (
            f"This verdict rests on only {counted(windows, unit)} of one log: test on at least {MIN_WINDOWS} windows, "
            "and on other logs, before use."
        )
    return f"This verdict rests on {counted(windows, unit)} of one log; on other jobs it may differ."


def _closed_gap(agent: str, gap: float, baseline: str) -> list[str]:
    """The share of the gain from perfect estimates that an agent achieves; empty if it is unknown."""
    if not math.isfinite(gap):
        return []
    gained = f"{100 * gap:.0f} %" if gap > 0 else "nothing"
    subject = "The agent" if agent == "agent" else agent
    return [f"{subject} achieves {gained} of the gain that {baseline} would have from perfect run-time estimates."]


def search_outcome(fallback_policy: str | None, start: str, accepted_step: float) -> str:
    """How the search of a linear agent ended.

    `fallback_policy` is the policy that the agent is identical to (None: it has weights of its own), `start` the start
    of the search, `accepted_step` the step from there to the best candidate: 0, 0.5 or 1.

    >>> search_outcome(None, "default", 0.5)
    "The search started at 'default'; the agent is half the way from there to the best candidate."
    """
    if fallback_policy is not None:
        return (
            f"On the training jobs {fallback_policy} was better than any candidate of the search: the agent is that "
            "policy."
        )
    if accepted_step == 0.0:
        return f"The search found nothing clearly better than its start, {start!r}: the agent is that start."
    share = "half" if accepted_step == 0.5 else "all"
    return f"The search started at {start!r}; the agent is {share} the way from there to the best candidate."


@dataclass(frozen=True)
class EnergyTradeOff:
    """The energy and the mean wait of a policy, with its power controls."""

    label: str
    energy_kwh: float
    mean_wait_s: float


def energy_options(comparison: Comparison) -> list[EnergyTradeOff]:
    """Energy and mean wait of every policy and agent of a comparison with energy results, in input order."""
    columns = zip(
        comparison.policies,
        comparison.labels,
        comparison.over_windows("energy_kwh").tolist(),
        comparison.over_windows("mean_wait_s").tolist(),
        strict=True,
    )
    return [EnergyTradeOff(*values) for config, *values in columns if config.kind != "clairvoyant"]


def best_trade_off(options: Sequence[EnergyTradeOff]) -> EnergyTradeOff | None:
    """The option that saves much of the energy for little wait, compared with the first; None if none saves any.

    It maximizes the share of the largest saving that it reaches, less the share of the longest wait (that of the
    option with the largest saving) that it costs. Options with a longer wait than that one are no candidates.

    >>> rows = [("fcfs", 100.0, 600.0), ("sleep", 59.0, 660.0), ("all", 50.0, 7200.0)]
    >>> best_trade_off([EnergyTradeOff(*row) for row in rows]).label
    'sleep'
    """
    first, known = options[0], [each for each in options if math.isfinite(each.mean_wait_s)]
    saving = [each for each in known if each.energy_kwh < first.energy_kwh * (1 - _SMALLEST_SAVING)]
    if not saving or not math.isfinite(first.mean_wait_s):
        return None
    most = min(saving, key=lambda each: (each.energy_kwh, each.mean_wait_s))
    longest_s = most.mean_wait_s - first.mean_wait_s
    if most.mean_wait_s <= first.mean_wait_s * _EQUAL_WAIT_RATIO:
        return most

    def score(each: EnergyTradeOff) -> float:
        saved = (first.energy_kwh - each.energy_kwh) / (first.energy_kwh - most.energy_kwh)
        return saved - max(each.mean_wait_s - first.mean_wait_s, 0.0) / longest_s

    candidates = [each for each in saving if each.mean_wait_s <= most.mean_wait_s]
    return max(candidates, key=lambda each: (score(each), -each.energy_kwh))


def trade_off_sentence(options: Sequence[EnergyTradeOff]) -> str | None:
    """The most useful saving of energy and the wait that it costs; None if no option saves energy.

    >>> rows = [("fcfs", 100.0, 600.0), ("sleep", 59.0, 660.0), ("all", 50.0, 7200.0)]
    >>> trade_off_sentence([EnergyTradeOff(*row) for row in rows])
    'sleep saves 41.0 % of the energy of fcfs, and the mean wait increases by 1 min, from 10 min to 11 min.'
    """
    best = best_trade_off(options)
    if best is None:
        return None
    first = options[0]
    saved = f"{best.label} saves {100 * (1 - best.energy_kwh / first.energy_kwh):.1f} % of the energy of {first.label}"
    before, after = format_duration(first.mean_wait_s), format_duration(best.mean_wait_s)
    if best.mean_wait_s > first.mean_wait_s * _EQUAL_WAIT_RATIO:
        longer = format_duration(best.mean_wait_s - first.mean_wait_s)
        return f"{saved}, and the mean wait increases by {longer}, from {before} to {after}."
    if best.mean_wait_s * _EQUAL_WAIT_RATIO < first.mean_wait_s:
        return f"{saved}, and the mean wait decreases from {before} to {after}."
    return f"{saved} without a longer mean wait."
