"""The tables of energy as HTML: what everybody drew, and what each lever saves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from kilowait.evaluation.comparison import ComparisonResult, SignalCurve
from kilowait.report.energy.data import (
    ControlSavings,
    EnergyData,
    UnitScale,
    called,
    change,
    scaled,
)
from kilowait.report.html import (
    best_of,
    interval,
    marked_cell,
    table,
    text,
)
from kilowait.units import format_span

__all__ = ["energy_table", "lever_table", "assumptions"]


def energy_table(drew: EnergyData) -> str:
    """Energy, CO2, cost, peak, PUE, what is saved, and the waits beside it; in the order given."""
    contest = drew.contest
    order = [*drew.contenders, *drew.found.of_kind("clairvoyant")]
    first = contest.labels[drew.first]
    cost = f"cost, {drew.currency}" if drew.currency else "cost"
    head, columns = ["contender"], []
    energy = scaled(drew.means("energy_kwh")[order].tolist(), "kWh")
    for metric, words, unit, steps in (
        ("energy_kwh", "nodes", "kWh", False),
        ("facility_kwh", "facility", "kWh", True),
        ("co2_kg", "CO2", "kg", True),
        ("cost", cost, "", True),
        ("peak_kw", "highest peak of the nodes", "kW", False),
    ):
        if not drew.has(metric):
            continue
        values = drew.means(metric)
        scale = energy if unit == "kWh" else scaled(values[order].tolist(), unit)
        best = best_of(values, drew.contenders, "less")
        judged = drew.judged(metric) if metric == "energy_kwh" else None
        head.append(f"{words}, {scale.unit}" if scale.unit else words)
        columns.append(
            [
                marked_cell(scale.told(float(values[who])), who in best)
                + (_step(drew, metric, who) if steps else _spread(judged, contest.labels[who], scale))
                for who in order
            ]
        )
        if metric == "energy_kwh" and len(drew.contenders) > 1:
            head.append(f"saved against {first}")
            columns.append([_saved(drew, metric, who) for who in order])
    if drew.has("pue"):
        values = drew.means("pue")
        best = best_of(values, drew.contenders, "less")
        head.append("PUE")
        columns.append([marked_cell(_pue(float(values[who])), who in best) for who in order])
    for metric, words, cell in (
        ("mean_wait_s", "mean wait", format_span),
        (drew.found.lead.metric, drew.found.lead.words, drew.found.lead.told),
    ):
        values = drew.means(metric)
        best = best_of(values, drew.contenders, "less")
        head.append(words)
        columns.append([marked_cell(cell(float(values[who])), who in best) for who in order])
    rows = [
        [escape(contest.labels[who]), *(column[place] for column in columns)]
        for place, who in enumerate(order)
    ]
    if math.isfinite(drew.bound_kwh):
        rows.append(_bound(drew, head, energy))
    agents = [place for place, who in enumerate(order) if contest.contenders[who].kind == "agent"]
    each = "" if contest.batched else f", means of {len(contest.windows)} windows"
    return table(
        f"Energy on {text(drew.found.trace)}{each}",
        [text(words) for words in head],
        rows,
        marked=agents,
        faint=range(len(drew.contenders), len(rows)),
    )


def _bound(drew: EnergyData, head: Sequence[str], scale: UnitScale) -> list[str]:
    """The row of what no schedule can go below."""
    cells = ["no schedule can go below", text(scale.told(drew.bound_kwh))]
    if len(drew.contenders) > 1:
        whole = float(drew.means("energy_kwh")[drew.first])
        cells.append(text(change(2 - drew.bound_kwh / whole).removeprefix("+")) if whole > 0 else "–")
    return cells + [""] * (len(head) - len(cells))


def assumptions(drew: EnergyData) -> str:
    """What the numbers rest on: signals in their own words, and what was assumed."""
    said = "Bold with a dot: the least of its column."
    if len(drew.contenders) > 1:
        said += f" Small and with a sign: against {drew.contest.labels[drew.first]}."
    if drew.judged("energy_kwh") is not None:
        said += " Other small numbers: 95 % interval."
    said += " Facility: nodes, cooling and losses of the building; CO2 and cost are of that. PUE: facility over nodes."
    if math.isfinite(drew.bound_kwh):
        said += " No schedule can go below the work alone, every job at its level of least energy and nothing idle."
    lines = [f"<li>{_signal(signal)}</li>" for signal in drew.record.signals]
    lines += [
        f"<li>{text(_capital(note))}{'' if note.endswith('.') else '.'}</li>" for note in drew.record.notes
    ]
    listed = f'<ul class="note rests">{"".join(lines)}</ul>' if lines else ""
    return f'<p class="note">{text(said)}</p>{listed}'


def _signal(signal: SignalCurve) -> str:
    """In its own words, which mostly begin with its name."""
    if signal.name.lower() in signal.words.lower():
        return text(_capital(signal.words))
    unit = f", {text(signal.unit)}" if signal.unit else ""
    return f"<b>{text(_capital(called(signal)))}</b>{unit}: {text(signal.words)}"


def lever_table(drew: EnergyData, group: ControlSavings) -> str:
    """What each lever saves alone, what they would add up to, and what they save together."""
    contest = drew.contest
    base = contest.labels[group.without]
    metrics = [
        (metric, words, unit)
        for metric, words, unit in (
            ("energy_kwh", "energy", "kWh"),
            ("facility_kwh", "facility energy", "kWh"),
            ("co2_kg", "CO2", "kg"),
            ("cost", "cost", drew.currency),
        )
        if drew.has(metric)
    ]
    shown = (*group.single, *group.together)
    saved = {
        metric: {who: float(drew.means(metric)[group.without] - drew.means(metric)[who]) for who in shown}
        for metric, _, _ in metrics
    }
    scales = {metric: scaled(list(saved[metric].values()), unit) for metric, _, unit in metrics}
    scales["energy_kwh"] = scales["facility_kwh"]  # the larger of the two, so that they have the same unit
    wait = drew.means("mean_wait_s")

    def cells(values: dict[str, float]) -> list[str]:
        found = []
        for metric, _, _ in metrics:
            whole = float(drew.means(metric)[group.without])
            part = change(1 - values[metric] / whole) if whole > 0 else "–"
            found.append(f"{text(part)}<small>{text(_signed(scales[metric], -values[metric]))}</small>")
        return found

    rows = [
        [
            escape(contest.contenders[who].levers),
            *cells({metric: saved[metric][who] for metric, _, _ in metrics}),
            f"{text(format_span(float(wait[who])))}<small>{text(_longer(wait[who], wait[group.without]))}</small>",
        ]
        for who in shown
    ]
    if group.added:
        added = {metric: sum(saved[metric][who] for who in group.single) for metric, _, _ in metrics}
        rows.insert(len(group.single), ["alone, added up", *cells(added), ""])
    faint = [len(group.single)] if group.added else []
    made = table(
        f"Saving by lever: alone, and together, against {escape(base)}",
        ["lever", *(text(words) for _, words, _ in metrics), "mean wait"],
        rows,
        faint=faint,
        marked=range(len(group.single) + len(faint), len(rows)),
    )
    said = "Together levers need not save what they save alone, added up: a node asleep cannot be slowed down as well."
    return f'{made}<p class="note">{text(said)}</p>' if faint else made


def _saved(drew: EnergyData, metric: str, who: int) -> str:
    """What is less than the first's, in per cent; below 0 where it is more."""
    step = change(2 - drew.ratio(metric, who))
    return "–" if who == drew.first else text(step.removeprefix("+"))


def _step(drew: EnergyData, metric: str, who: int) -> str:
    if who == drew.first or not math.isfinite(drew.ratio(metric, who)):
        return ""
    return f"<small>{text(change(drew.ratio(metric, who)))}</small>"


def _spread(judged: ComparisonResult | None, label: str, scale: UnitScale) -> str:
    means = {} if judged is None else {mean.contender: mean for mean in judged.means}
    return interval(means.get(label), scale.told)


def _pue(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "–"


def _signed(scale: UnitScale, value: float) -> str:
    told = scale.told(abs(value))
    sign = "" if not told.strip("0.,") else "−" if value < 0 else "+"
    return f"{sign}{told} {scale.unit}".rstrip()


def _longer(ours: float, theirs: float) -> str:
    if not (math.isfinite(ours) and math.isfinite(theirs)):
        return "–"
    said = format_span(abs(ours - theirs))
    return "as long" if said == "0 s" else f"{'−' if ours < theirs else '+'}{said}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
