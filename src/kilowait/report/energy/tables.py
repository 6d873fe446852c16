"""HTML tables of energy metrics by policy, and of savings by power control."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from kilowait.evaluation.comparison import ComparisonResult, SignalCurve
from kilowait.report.energy.data import ControlSavings, EnergyData, UnitScale, change, display_name, scaled
from kilowait.report.html import best_of, interval, marked_cell, table, text
from kilowait.units import format_duration

__all__ = ["energy_table", "control_savings_table", "assumptions"]


def energy_table(energy_data: EnergyData) -> str:
    """Energy, savings, CO2, cost, peak power, PUE and waits of every policy, in input order."""
    comparison = energy_data.comparison
    order = [*energy_data.policies, *energy_data.data.of_kind("clairvoyant")]
    first = comparison.labels[energy_data.first]
    cost = f"cost, {energy_data.currency}" if energy_data.currency else "cost"
    head, columns = ["policy"], []
    energy_scale = scaled(energy_data.means("energy_kwh")[order].tolist(), "kWh")
    for metric, label, unit, relative in (
        ("energy_kwh", "nodes", "kWh", False),
        ("facility_kwh", "facility", "kWh", True),
        ("co2_kg", "CO2", "kg", True),
        ("cost", cost, "", True),
        ("peak_kw", "peak power of the nodes", "kW", False),
    ):
        if not energy_data.has(metric):
            continue
        values = energy_data.means(metric)
        scale = energy_scale if unit == "kWh" else scaled(values[order].tolist(), unit)
        best = best_of(values, energy_data.policies, "less")
        significance = energy_data.significance(metric) if metric == "energy_kwh" else None
        head.append(f"{label}, {scale.unit}" if scale.unit else label)
        columns.append(
            [
                marked_cell(scale.format(float(values[policy])), policy in best)
                + (
                    _relative_change(energy_data, metric, policy)
                    if relative
                    else _interval(significance, comparison.labels[policy], scale)
                )
                for policy in order
            ]
        )
        if metric == "energy_kwh" and len(energy_data.policies) > 1:
            head.append(f"saved against {first}")
            columns.append([_saved(energy_data, metric, policy) for policy in order])
    if energy_data.has("pue"):
        values = energy_data.means("pue")
        best = best_of(values, energy_data.policies, "less")
        head.append("PUE")
        columns.append([marked_cell(_pue(float(values[policy])), policy in best) for policy in order])
    for metric, label, cell in (
        ("mean_wait_s", "mean wait", format_duration),
        (energy_data.data.lead.metric, energy_data.data.lead.label, energy_data.data.lead.format),
    ):
        values = energy_data.means(metric)
        best = best_of(values, energy_data.policies, "less")
        head.append(label)
        columns.append([marked_cell(cell(float(values[policy])), policy in best) for policy in order])
    rows = [
        [escape(comparison.labels[policy]), *(column[number] for column in columns)]
        for number, policy in enumerate(order)
    ]
    if math.isfinite(energy_data.bound_kwh):
        rows.append(_bound(energy_data, head, energy_scale))
    agents = [number for number, policy in enumerate(order) if comparison.policies[policy].kind == "agent"]
    each = "" if comparison.batched else f", means of {len(comparison.windows)} windows"
    return table(
        f"Energy on {text(energy_data.data.trace)}{each}",
        [text(label) for label in head],
        rows,
        marked=agents,
        faint=range(len(energy_data.policies), len(rows)),
    )


def _bound(energy_data: EnergyData, head: Sequence[str], scale: UnitScale) -> list[str]:
    """The row with the lower bound of the energy of any schedule."""
    cells = ["lower bound of any schedule", text(scale.format(energy_data.bound_kwh))]
    if len(energy_data.policies) > 1:
        baseline = float(energy_data.means("energy_kwh")[energy_data.first])
        cells.append(text(change(2 - energy_data.bound_kwh / baseline).removeprefix("+")) if baseline > 0 else "–")
    return cells + [""] * (len(head) - len(cells))


def assumptions(energy_data: EnergyData) -> str:
    """The assumptions of the energy accounting: its signals and notes."""
    note = "Bold with a dot: lowest of the column."
    if len(energy_data.policies) > 1:
        note += f" Small with a sign: relative to {energy_data.comparison.labels[energy_data.first]}."
    if energy_data.significance("energy_kwh") is not None:
        note += " Other small numbers: 95 % interval."
    note += (
        " Facility: nodes, cooling and conversion losses; CO2 and cost are those of the facility. PUE: facility / "
        "nodes."
    )
    if math.isfinite(energy_data.bound_kwh):
        note += " Lower bound: every job in its most energy-efficient DVFS state and no idle nodes."
    lines = [f"<li>{_signal(signal)}</li>" for signal in energy_data.record.signals]
    lines += [
        f"<li>{text(_capital(remark))}{'' if remark.endswith('.') else '.'}</li>" for remark in energy_data.record.notes
    ]
    listed = f'<ul class="note assumptions">{"".join(lines)}</ul>' if lines else ""
    return f'<p class="note">{text(note)}</p>{listed}'


def _signal(signal: SignalCurve) -> str:
    """The description of a signal, preceded by its name where the description does not contain it."""
    if signal.name.lower() in signal.description.lower():
        return text(_capital(signal.description))
    unit = f", {text(signal.unit)}" if signal.unit else ""
    return f"<b>{text(_capital(display_name(signal)))}</b>{unit}: {text(signal.description)}"


def control_savings_table(energy_data: EnergyData, savings: ControlSavings) -> str:
    """Savings of single power controls, their sum, and the savings of combined controls."""
    comparison = energy_data.comparison
    base = comparison.labels[savings.without]
    metrics = [
        (metric, label, unit)
        for metric, label, unit in (
            ("energy_kwh", "energy", "kWh"),
            ("facility_kwh", "facility energy", "kWh"),
            ("co2_kg", "CO2", "kg"),
            ("cost", "cost", energy_data.currency),
        )
        if energy_data.has(metric)
    ]
    shown = (*savings.single, *savings.together)
    saved = {
        metric: {
            policy: float(energy_data.means(metric)[savings.without] - energy_data.means(metric)[policy])
            for policy in shown
        }
        for metric, _, _ in metrics
    }
    scales = {metric: scaled(list(saved[metric].values()), unit) for metric, _, unit in metrics}
    scales["energy_kwh"] = scales["facility_kwh"]  # both columns in the unit of the larger values
    wait = energy_data.means("mean_wait_s")

    def cells(values: dict[str, float]) -> list[str]:
        row = []
        for metric, _, _ in metrics:
            baseline = float(energy_data.means(metric)[savings.without])
            relative = change(1 - values[metric] / baseline) if baseline > 0 else "–"
            row.append(f"{text(relative)}<small>{text(_signed(scales[metric], -values[metric]))}</small>")
        return row

    rows = [
        [
            escape(comparison.policies[policy].power_controls),
            *cells({metric: saved[metric][policy] for metric, _, _ in metrics}),
            f"{text(format_duration(float(wait[policy])))}"
            f"<small>{text(_wait_difference(wait[policy], wait[savings.without]))}</small>",
        ]
        for policy in shown
    ]
    if savings.additive:
        total = {metric: sum(saved[metric][policy] for policy in savings.single) for metric, _, _ in metrics}
        rows.insert(len(savings.single), ["sum of single controls", *cells(total), ""])
    faint = [len(savings.single)] if savings.additive else []
    html_table = table(
        f"Savings by power control, single and combined, relative to {escape(base)}",
        ["power control", *(text(label) for _, label, _ in metrics), "mean wait"],
        rows,
        faint=faint,
        marked=range(len(savings.single) + len(faint), len(rows)),
    )
    note = (
        "Combined savings can differ from the sum of single savings: for example, DVFS has no effect on a "
        "sleeping node."
    )
    return f'{html_table}<p class="note">{text(note)}</p>' if faint else html_table


def _saved(energy_data: EnergyData, metric: str, policy: int) -> str:
    """The saving relative to the first policy in per cent; negative where the policy uses more."""
    saving = change(2 - energy_data.ratio(metric, policy))
    return "–" if policy == energy_data.first else text(saving.removeprefix("+"))


def _relative_change(energy_data: EnergyData, metric: str, policy: int) -> str:
    if policy == energy_data.first or not math.isfinite(energy_data.ratio(metric, policy)):
        return ""
    return f"<small>{text(change(energy_data.ratio(metric, policy)))}</small>"


def _interval(significance: ComparisonResult | None, label: str, scale: UnitScale) -> str:
    means = {} if significance is None else {mean.policy: mean for mean in significance.means}
    return interval(means.get(label), scale.format)


def _pue(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "–"


def _signed(scale: UnitScale, value: float) -> str:
    magnitude = scale.format(abs(value))
    sign = "" if not magnitude.strip("0.,") else "−" if value < 0 else "+"
    return f"{sign}{magnitude} {scale.unit}".rstrip()


def _wait_difference(ours: float, theirs: float) -> str:
    if not (math.isfinite(ours) and math.isfinite(theirs)):
        return "–"
    difference = format_duration(abs(ours - theirs))
    return "no change" if difference == "0 s" else f"{'−' if ours < theirs else '+'}{difference}"


def _capital(label: str) -> str:
    return label[:1].upper() + label[1:]
