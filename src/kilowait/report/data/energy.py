"""Energy of a comparison: metrics relative to the first policy, savings by control, sentences and tables.

All metrics come from the energy accounting of the runs; this module selects, compares and describes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from kilowait.errors import InputError
from kilowait.evaluation.comparison import ComparisonResult, EnergyResults, SignalCurve
from kilowait.evaluation.comparison.conclusions import best_trade_off, energy_options, trade_off_sentence
from kilowait.evaluation.metric_definitions import metric_name
from kilowait.report.data.comparison import ComparisonData, Floats, nan_last
from kilowait.report.format import (
    NumberFormat,
    ReportColumn,
    ReportTable,
    capital,
    change,
    column,
    interval_text,
    scaled,
    share,
    table_of_columns,
)
from kilowait.units import format_duration

NODE_STATE_LABELS = {
    "jobs": "jobs",
    "idle": "idle",
    "asleep": "asleep",
    "shutting_down": "shutting down",
    "waking": "waking up",
    "fixed": "fixed",
}
"""Labels of the node states, in stacking order."""
BACKGROUND_SIGNALS = ("carbon", "price", "temperature")
"""Signals drawn in the background of power charts, by a part of their name, the preferred one first."""
_UNITS = {"energy_kwh": "kWh", "facility_kwh": "kWh", "co2_kg": "kg", "peak_kw": "kW"}
EQUAL_RATIO = 1.001
"""Mean waits whose ratio is below this count as equal in sentences."""


def display_name(signal: SignalCurve) -> str:
    """The display name of a signal.

    >>> display_name(SignalCurve("carbon", "g/kWh", "GB", (0.0, 1.0), (200.0,)))
    'carbon intensity'
    """
    return "carbon intensity" if signal.name == "carbon" else signal.name


class EnergyData:
    """The energy of a comparison, relative to its first policy."""

    def __init__(self, data: ComparisonData, record: EnergyResults) -> None:
        self.data, self.record, self.comparison = data, record, data.comparison
        self.first = min(data.real, default=0)
        """The baseline for energy savings."""

    @classmethod
    def of(cls, data: ComparisonData) -> EnergyData | None:
        """The energy data; None where the runs had no power model."""
        record = data.comparison.energy
        return None if record is None else cls(data, record)

    def has(self, metric: str) -> bool:
        """Whether the runs have the metric; CO2 and cost require a signal."""
        return metric in self.record.metrics[0][0]

    def means(self, metric: str) -> Floats:
        """The metric over all windows, by policy.

        Rounded to ten significant digits, so that rounding errors of the summation order do not affect ranks.
        """
        return np.array([float(f"{value:.10g}") for value in self.comparison.over_windows(metric)])

    def scaled_mean(self, metric: str, policy: int) -> str:
        """The mean of an energy or a mass, with its unit."""
        value = float(self.means(metric)[policy])
        scale = scaled([value], _UNITS[metric])
        return f"{scale.format(value)} {scale.unit}"

    @property
    def bound_kwh(self) -> float:
        """Lower bound of the energy of any schedule (jobs only, no idle nodes); NaN where it was not computed."""
        return float(self.means("least_kwh")[self.first]) if self.has("least_kwh") else math.nan

    def ratio(self, metric: str, policy: int, other: int | None = None) -> float:
        """Ratio to the first policy, or to policy `other`; NaN where the denominator is 0."""
        means = self.means(metric)
        against = float(means[self.first if other is None else other])
        return float(means[policy]) / against if against > 0 else math.nan

    def least(self, metric: str) -> int:
        """The policy with the lowest value; ties are broken by mean wait."""
        means, wait = self.means(metric), self.means("mean_wait_s")
        ranks = {policy: (float(means[policy]), nan_last(float(wait[policy])), policy) for policy in self.policies}
        return min(ranks, key=ranks.__getitem__)

    def saved(self, policy: int) -> str:
        """The saving of energy relative to the first policy in per cent; negative where the policy uses more."""
        saving = change(2 - self.ratio("energy_kwh", policy))
        return "–" if policy == self.first else saving.removeprefix("+")

    def relative_change(self, metric: str, policy: int) -> str:
        """The change of a metric relative to the first policy; empty for the first policy itself."""
        ratio = self.ratio(metric, policy)
        return "" if policy == self.first or not math.isfinite(ratio) else change(ratio)

    @property
    def policies(self) -> tuple[int, ...]:
        """Policies usable in practice (without perfect estimates), in input order."""
        return tuple(sorted(self.data.real)) or (self.first,)

    def pareto_front(self, metric: str) -> tuple[int, ...]:
        """The Pareto front of mean wait and a metric, lowest metric first."""
        wait, values = self.means("mean_wait_s"), self.means(metric)
        finite = [policy for policy in self.policies if math.isfinite(wait[policy]) and math.isfinite(values[policy])]
        ordered = sorted(finite, key=lambda policy: (float(values[policy]), float(wait[policy]), policy))
        pareto_front: list[int] = []
        for policy in ordered:
            if not pareto_front or wait[policy] < wait[pareto_front[-1]]:
                pareto_front.append(policy)
        return tuple(pareto_front)

    def significance(self, metric: str) -> ComparisonResult | None:
        """Statistical comparison by a metric; None for a single window, and where a value is missing."""
        if self.comparison.batched or len(self.policies) < 2:
            return None
        try:
            return self.comparison.significance(metric, seed=self.data.seed)
        except InputError:
            return None

    def signal(self, name: str) -> SignalCurve | None:
        """The first signal whose name contains `name`, such as carbon or price."""
        return next((s for s in self.record.signals if name in s.name.lower()), None)

    @property
    def currency(self) -> str:
        """The currency of the price signal; empty where it is unknown."""
        price = self.signal("price")
        return "" if price is None or "/" not in price.unit else price.unit.partition("/")[0].strip()


# -- sentences -----------------------------------------------------------------------------------------


def sentences(data: ComparisonData) -> list[str]:
    """The most useful saving first; then the lowest energy and CO2, and the effect on waiting."""
    energy_data = EnergyData.of(data)
    if energy_data is None:
        return []
    labels, least = data.comparison.labels, energy_data.least("energy_kwh")
    first = labels[energy_data.first]
    if len(energy_data.policies) < 2:
        return [_single_policy(energy_data)]
    options = energy_options(data.comparison)
    best, conclusion = best_trade_off(options), trade_off_sentence(options)
    if least == energy_data.first or energy_data.ratio("energy_kwh", least) == 1:
        sentences = [f"No policy uses less energy than {first}: {_amount(energy_data, 'energy_kwh', least)}."]
    else:
        sentences = [_least(energy_data, "energy_kwh", f"{labels[least]} uses the least energy", least)]
    if energy_data.has("co2_kg"):
        greenest = energy_data.least("co2_kg")
        if greenest == energy_data.first:
            sentences.append(f"No policy emits less CO2 than {first}: {_amount(energy_data, 'co2_kg', greenest)}.")
        else:
            subject = "It also emits" if greenest == least else f"{labels[greenest]} emits"
            sentences.append(_least(energy_data, "co2_kg", f"{subject} the least CO2", greenest))
    if best is not None and best.label == labels[least] and best.mean_wait_s <= options[0].mean_wait_s:
        effect = []  # the conclusion says it
    else:
        effect = _wait_effect(energy_data, least)
    return [*([] if conclusion is None else [conclusion]), *sentences, *effect, *_bound(energy_data)]


def _single_policy(energy_data: EnergyData) -> str:
    policy = energy_data.policies[0]
    sentences = f"The nodes use {_amount(energy_data, 'energy_kwh', policy)}"
    sentences += f", the facility {_amount(energy_data, 'facility_kwh', policy)}"
    if energy_data.has("co2_kg"):
        sentences += f"; that is {_amount(energy_data, 'co2_kg', policy)} of CO2"
    return f"{sentences}."


def _amount(energy_data: EnergyData, metric: str, policy: int) -> str:
    each = "" if energy_data.comparison.batched else " per window"
    return f"{energy_data.scaled_mean(metric, policy)}{each}"


def _least(energy_data: EnergyData, metric: str, subject: str, policy: int) -> str:
    """The lowest value with its significance against the first policy; for a single window only the difference."""
    first, significance = energy_data.comparison.labels[energy_data.first], energy_data.significance(metric)
    sentences = f"{subject}: {_amount(energy_data, metric, policy)}"
    if significance is None:
        return f"{sentences}, {_relative(energy_data.ratio(metric, policy))} than {first}."
    return f"{sentences}. {significance.pair(energy_data.comparison.labels[policy], first).sentence()}"


def _relative(ratio: float) -> str:
    return f"{share(1 - ratio)} less" if ratio <= 1 else f"{share(ratio - 1)} more"


def _wait_effect(energy_data: EnergyData, least: int) -> list[str]:
    """The effect of the lowest energy on waits, and the highest saving without a longer mean wait."""
    wait, labels = energy_data.means("mean_wait_s"), energy_data.comparison.labels
    first = labels[energy_data.first]
    if least == energy_data.first or not (math.isfinite(wait[least]) and math.isfinite(wait[energy_data.first])):
        return []
    ours, theirs = float(wait[least]), float(wait[energy_data.first])
    spans = f"from {format_duration(theirs)} to {format_duration(ours)}"
    if ours <= theirs * EQUAL_RATIO:
        shorter = ours * EQUAL_RATIO < theirs
        effect = f"the mean wait decreases {spans}" if shorter else f"{format_duration(ours)} on average"
        return [f"This does not increase waits: {effect}{_significance_note(energy_data, least)}."]
    lead = energy_data.data.lead
    before, after = (float(value) for value in energy_data.means(lead.metric)[[energy_data.first, least]])
    sentences = [
        f"This increases waits: with {labels[least]} instead of {first}, the mean wait increases {spans}"
        f"{_significance_note(energy_data, least)}, the {lead.label} {_change_text(before, after, lead.format)}."
    ]
    no_longer_wait = [
        policy
        for policy in energy_data.policies
        if wait[policy] <= theirs * EQUAL_RATIO and policy != energy_data.first
    ]
    energy = energy_data.means("energy_kwh")
    best = min(no_longer_wait, key=lambda policy: (float(energy[policy]), policy), default=None)
    if best is None or energy_data.ratio("energy_kwh", best) >= 1:
        return [*sentences, f"No policy saves energy without a longer mean wait than {first}."]
    saved = share(1 - energy_data.ratio("energy_kwh", best))
    return [*sentences, f"Without a longer mean wait, {labels[best]} saves most: {saved} of the energy of {first}."]


def _bound(energy_data: EnergyData) -> list[str]:
    """The highest possible saving."""
    most = 1 - energy_data.bound_kwh / float(energy_data.means("energy_kwh")[energy_data.first])
    if not math.isfinite(most):
        return []
    first = energy_data.comparison.labels[energy_data.first]
    return [
        f"No schedule can save more than {share(max(most, 0.0))} of the energy of {first}: the rest is needed by "
        "the jobs."
    ]


def _change_text(before: float, after: float, format_value: Callable[[float], str]) -> str:
    direction = "from" if after >= before else "decreases from"
    return f"{direction} {format_value(before)} to {format_value(after)}"


def _significance_note(energy_data: EnergyData, policy: int) -> str:
    significance = energy_data.data.wait
    if significance is None or energy_data.comparison.batched:
        return ""
    labels = energy_data.comparison.labels
    pair = significance.pair(labels[policy], labels[energy_data.first])
    return " (the difference is not significant)" if pair.verdict == "undecided" else ""


# -- tables and key numbers ----------------------------------------------------------------------------


def key_numbers(energy_data: EnergyData) -> list[tuple[str, str, str]]:
    """Energy and CO2 of the policy that saves most for little wait: value, label, policy and change of the wait."""
    numbers: list[tuple[str, str, str]] = []
    labels = energy_data.comparison.labels
    chosen = best_trade_off(energy_options(energy_data.comparison))
    wait_s = energy_data.means("mean_wait_s")
    for metric in ("energy_kwh", "co2_kg"):
        if not energy_data.has(metric):
            continue
        words = metric_name(metric)
        best = energy_data.first if chosen is None else labels.index(chosen.label)
        if best == energy_data.first:
            each = "" if energy_data.comparison.batched else " a window"
            numbers.append((energy_data.scaled_mean(metric, best), f"{words}{each}", labels[best]))
        else:
            longer = wait_change(float(wait_s[best]), float(wait_s[energy_data.first]))
            detail = f"{labels[best]} against {labels[energy_data.first]}; mean wait {longer}"
            numbers.append((change(energy_data.ratio(metric, best)), words, detail))
    return numbers


def wait_change(ours_s: float, theirs_s: float) -> str:
    """The difference of two waits, with its sign.

    >>> wait_change(660.0, 600.0), wait_change(600.0, 600.0)
    ('+1 min', 'no change')
    """
    if not (math.isfinite(ours_s) and math.isfinite(theirs_s)):
        return "–"
    difference = format_duration(abs(ours_s - theirs_s))
    return "no change" if difference == "0 s" else f"{'−' if ours_s < theirs_s else '+'}{difference}"


def energy_table(energy_data: EnergyData) -> ReportTable:
    """Energy, savings, CO2, cost, peak power, PUE and waits of every policy, in input order."""
    comparison, lead = energy_data.comparison, energy_data.data.lead
    order = [*energy_data.policies, *energy_data.data.of_kind("clairvoyant")]
    labels = [comparison.labels[policy] for policy in order]
    compared = len(energy_data.policies) > 1

    def of(metric: str, label: str, cell: NumberFormat, small: Callable[[int], str] | None = None) -> ReportColumn:
        values = energy_data.means(metric)
        return column(label, values, cell, order=order, candidates=energy_data.policies, small=small)

    energy_scale = scaled(energy_data.means("energy_kwh")[order].tolist(), "kWh")
    significance = energy_data.significance("energy_kwh")
    intervals = {} if significance is None else {mean.policy: (mean.low, mean.high) for mean in significance.means}

    def interval(policy: int) -> str:
        low, high = intervals.get(comparison.labels[policy], (math.nan, math.nan))
        return interval_text(low, high, energy_scale.format)

    columns = [of("energy_kwh", f"{metric_name('energy_kwh')}, {energy_scale.unit}", energy_scale.format, interval)]
    if compared:
        columns.append(
            ReportColumn(f"saved against {comparison.labels[energy_data.first]}", [energy_data.saved(p) for p in order])
        )
    for metric in ("facility_kwh", "co2_kg", "cost", "peak_kw"):
        if energy_data.has(metric):
            unit, label = _UNITS.get(metric, energy_data.currency), metric_name(metric)
            scale = energy_scale if unit == "kWh" else scaled(energy_data.means(metric)[order].tolist(), unit)
            small = None if metric == "peak_kw" else partial(energy_data.relative_change, metric)
            columns.append(of(metric, f"{label}, {scale.unit}" if scale.unit else label, scale.format, small))
    if energy_data.has("pue"):
        columns.append(of("pue", "PUE", lambda value: f"{value:.3f}" if math.isfinite(value) else "–"))
    columns.append(of("mean_wait_s", metric_name("mean_wait_s"), format_duration))
    columns.append(of(lead.metric, lead.label, lead.format))
    if math.isfinite(energy_data.bound_kwh):
        labels.append("lower bound of any schedule")
        bounds = [energy_scale.format(energy_data.bound_kwh)]
        if compared:
            baseline = float(energy_data.means("energy_kwh")[energy_data.first])
            bounds.append(change(2 - energy_data.bound_kwh / baseline).removeprefix("+") if baseline > 0 else "–")
        bounds += [""] * (len(columns) - len(bounds))
        columns = [ReportColumn(each.label, [*each.cells, bound]) for each, bound in zip(columns, bounds, strict=True)]
    windows = "" if comparison.batched else f", means of {len(comparison.windows)} windows"
    return table_of_columns(
        f"Energy on {energy_data.data.trace}{windows}",
        "policy",
        labels,
        columns,
        marked=[place for place, policy in enumerate(order) if comparison.policies[policy].kind == "agent"],
        faint=range(len(energy_data.policies), len(labels)),
        folded=range(len(energy_data.policies), len(order)),
        note=_table_note(energy_data, tested=significance is not None),
    )


def _table_note(energy_data: EnergyData, *, tested: bool) -> str:
    note = "Bold with a dot: lowest of the column."
    if len(energy_data.policies) > 1:
        note += f" Small with a sign: relative to {energy_data.comparison.labels[energy_data.first]}."
    if tested:
        note += " Other small numbers: 95 % interval."
    note += (
        " Energy: that of the nodes. Facility energy: nodes, cooling and conversion losses; CO2 and cost are those of "
        "the facility. PUE: facility energy / energy."
    )
    if math.isfinite(energy_data.bound_kwh):
        note += " Lower bound: every job in its most energy-efficient DVFS state and no idle nodes."
    return note


def assumptions(energy_data: EnergyData) -> list[tuple[str, str]]:
    """The signals and notes of the energy accounting: a name, empty where the text contains it, and a text."""
    lines = []
    for signal in energy_data.record.signals:
        if signal.name.lower() in signal.description.lower():
            lines.append(("", capital(signal.description)))
        else:
            unit = f", {signal.unit}" if signal.unit else ""
            lines.append((capital(display_name(signal)), f"{unit}: {signal.description}"))
    notes = energy_data.record.notes
    return lines + [("", f"{capital(remark)}{'' if remark.endswith('.') else '.'}") for remark in notes]
