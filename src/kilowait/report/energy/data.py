"""What the contenders drew: side by side, against the first of them, and in sentences.

Every number is the record's; here they are chosen, held against one another and put into words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kilowait.errors import InputError
from kilowait.evaluation.comparison import (
    ComparisonResult,
    EnergyResults,
    PolicyConfig,
    SignalCurve,
)
from kilowait.report.comparison_data import ComparisonData, Floats
from kilowait.report.format import share
from kilowait.units import format_span

__all__ = [
    "STATES",
    "ControlSavings",
    "EnergyData",
    "UnitScale",
    "called",
    "change",
    "levers_of",
    "scaled",
    "sentences",
]

STATES = {
    "jobs": "jobs",
    "idle": "idle",
    "asleep": "asleep",
    "shutting_down": "falling asleep",
    "waking": "waking up",
    "fixed": "fixed",
}
"""What nodes draw power for, in the order in which it is stacked."""
ALIKE = 1.001
"""Mean waits within a thousandth are not told apart in words."""
_LARGER = {"kWh": "MWh", "MWh": "GWh", "kg": "t", "t": "kt", "W": "kW", "kW": "MW", "MW": "GW"}


@dataclass(frozen=True)
class UnitScale:
    """A unit in which the largest of some values is a number of few digits."""

    factor: float
    """A value in its own unit times this is one in `unit`."""
    unit: str
    decimals: int

    def told(self, value: float) -> str:
        """In that unit, without it; values of one scale have the same decimals."""
        return f"{value * self.factor:,.{self.decimals}f}" if math.isfinite(value) else "–"


def scaled(values: Sequence[float], unit: str) -> UnitScale:
    """The unit for values that were given in `unit`.

    >>> scale = scaled([12_345.0, 20_000.0], "kWh")
    >>> scale.told(12_345.0), scale.unit
    ('12.35', 'MWh')
    """
    top = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    factor = 1.0
    while top * factor >= 10_000 and unit in _LARGER:
        factor, unit = factor / 1000, _LARGER[unit]
    digits = math.floor(math.log10(top * factor)) if top > 0 else 0
    return UnitScale(factor, unit, min(max(3 - digits, 0), 6) if top > 0 else 0)


def called(signal: SignalCurve) -> str:
    """A signal's name for people.

    >>> called(SignalCurve("carbon", "g/kWh", "GB", (0.0, 1.0), (200.0,)))
    'carbon intensity'
    """
    return "carbon intensity" if signal.name == "carbon" else signal.name


def change(ratio: float) -> str:
    """A ratio as a step from 1, in per cent.

    >>> change(0.876), change(1.0), change(1.0204), change(2.5)
    ('−12.4 %', '0 %', '+2.0 %', '+150 %')
    """
    if not math.isfinite(ratio):
        return "–"
    step = 100 * (ratio - 1)
    size = f"{abs(step):.0f}" if abs(step) >= 99.5 else f"{abs(step):.1f}"
    return "0 %" if float(size) == 0 else f"{'−' if step < 0 else '+'}{size} %"


def levers_of(contender: PolicyConfig) -> tuple[str, ...]:
    """The levers it pulls, one by one; ``("all",)`` is all of them.

    >>> levers_of(PolicyConfig("fcfs", "easy", levers="sleep=break-even+dvfs=1.1"))
    ('sleep=break-even', 'dvfs=1.1')
    """
    return () if contender.levers == "none" else tuple(contender.levers.split("+"))


@dataclass(frozen=True)
class ControlSavings:
    """The same scheduler without a lever, with one at a time, and with several together."""

    without: int
    single: tuple[int, ...]
    together: tuple[int, ...]
    added: bool
    """Whether each single lever is of another kind, so that their savings may be added up."""


class EnergyData:
    """The energy of a contest, held against its first contender."""

    def __init__(self, found: ComparisonData, record: EnergyResults) -> None:
        self.found, self.record, self.contest = found, record, found.contest
        self.first = min(found.real, default=0)
        """Whom the others are held against."""

    @classmethod
    def of(cls, found: ComparisonData) -> EnergyData | None:
        """None where no power model was given."""
        record = found.contest.energy
        return None if record is None else cls(found, record)

    def has(self, metric: str) -> bool:
        """Whether the record knows it; CO2 and cost need a signal."""
        return metric in self.record.metrics[0][0]

    def means(self, metric: str) -> Floats:
        """Of each contender: the mean over windows; of peaks the highest.

        Ten digits count: sums in another order differ beyond them, and that makes nobody better.
        """
        values = self.contest.values(metric)
        merged = values.max(axis=1) if metric.startswith("peak") else values.mean(axis=1)
        return np.array([float(f"{value:.10g}") for value in merged])

    @property
    def bound_kwh(self) -> float:
        """Energy below which no schedule can go: the work alone, nothing idle; NaN where it was not worked out."""
        return float(self.means("least_kwh")[self.first]) if self.has("least_kwh") else math.nan

    def ratio(self, metric: str, who: int, other: int | None = None) -> float:
        """Over that of the first contender, or of another; NaN where that is nothing."""
        means = self.means(metric)
        against = float(means[self.first if other is None else other])
        return float(means[who]) / against if against > 0 else math.nan

    def least(self, metric: str) -> int:
        """Who has least of it; of those alike, who waits shortest."""
        means, wait = self.means(metric), self.means("mean_wait_s")
        ranks = {who: (float(means[who]), _last(float(wait[who])), who) for who in self.contenders}
        return min(ranks, key=ranks.__getitem__)

    @property
    def contenders(self) -> tuple[int, ...]:
        """Those one could use, as they were given."""
        return tuple(sorted(self.found.real)) or (self.first,)

    def front(self, metric: str) -> tuple[int, ...]:
        """Contenders whom nobody beats in both mean wait and this metric, least of the metric first."""
        wait, drawn = self.means("mean_wait_s"), self.means(metric)
        known = [who for who in self.contenders if math.isfinite(wait[who]) and math.isfinite(drawn[who])]
        ordered = sorted(known, key=lambda who: (float(drawn[who]), float(wait[who]), who))
        kept: list[int] = []
        for who in ordered:
            if not kept or wait[who] < wait[kept[-1]]:
                kept.append(who)
        return tuple(kept)

    def judged(self, metric: str) -> ComparisonResult | None:
        """The verdict on it; None on one window, and where a value is missing."""
        if self.contest.batched or len(self.contenders) < 2:
            return None
        try:
            return self.contest.judge(metric, seed=self.found.seed)
        except InputError:
            return None

    @cached_property
    def levers(self) -> tuple[ControlSavings, ...]:
        """Schedulers of which the savings can be split by lever."""
        kinds: dict[tuple[object, ...], list[int]] = {}
        for who in self.contenders:
            contender = self.contest.contenders[who]
            own = (contender.policy, contender.backfill, contender.kind, contender.name)
            kinds.setdefault(own, []).append(who)
        found = []
        for members in kinds.values():
            pulled = {who: levers_of(self.contest.contenders[who]) for who in members}
            without = [who for who in members if not pulled[who]]
            single = tuple(who for who in members if len(pulled[who]) == 1 and pulled[who] != ("all",))
            together = tuple(who for who in members if len(pulled[who]) > 1 or pulled[who] == ("all",))
            if without and single and len(single) + len(together) > 1:
                kinds_of = {pulled[who][0].partition("=")[0] for who in single}
                found.append(
                    ControlSavings(
                        without[0], single, together, len(single) > 1 and len(kinds_of) == len(single)
                    )
                )
        return tuple(found)

    def signal(self, name: str) -> SignalCurve | None:
        """Carbon, price or another, by a word of its name."""
        return next((s for s in self.record.signals if name in s.name.lower()), None)

    @property
    def currency(self) -> str:
        """Of the price; empty where it does not say."""
        price = self.signal("price")
        return "" if price is None or "/" not in price.unit else price.unit.partition("/")[0].strip()


def _last(value: float) -> float:
    return math.inf if math.isnan(value) else value


# -- words -----------------------------------------------------------------------------------------


def sentences(found: ComparisonData) -> list[str]:
    """Who draws and emits least, by how much against the first, and what that costs in waiting."""
    drew = EnergyData.of(found)
    if drew is None:
        return []
    labels, least = found.contest.labels, drew.least("energy_kwh")
    first = labels[drew.first]
    if len(drew.contenders) < 2:
        return [_amounts(drew)]
    if least == drew.first or drew.ratio("energy_kwh", least) == 1:
        said = [f"Nobody draws less energy than {first}: {_amount(drew, 'energy_kwh', 'kWh', least)}."]
    else:
        said = [_least(drew, "energy_kwh", "kWh", f"{labels[least]} draws least energy", least)]
    if drew.has("co2_kg"):
        clean = drew.least("co2_kg")
        if clean == drew.first:
            said.append(f"Nobody emits less CO2 than {first}: {_amount(drew, 'co2_kg', 'kg', clean)}.")
        else:
            start = "It also emits" if clean == least else f"{labels[clean]} emits"
            said.append(_least(drew, "co2_kg", "kg", f"{start} least CO2", clean))
    return said + _waiting(drew, least) + _bound(drew)


def _amounts(drew: EnergyData) -> str:
    who = drew.contenders[0]
    said = f"The nodes draw {_amount(drew, 'energy_kwh', 'kWh', who)}"
    said += f", with the building {_amount(drew, 'facility_kwh', 'kWh', who)}"
    if drew.has("co2_kg"):
        said += f"; that is {_amount(drew, 'co2_kg', 'kg', who)} of CO2"
    return f"{said}."


def _amount(drew: EnergyData, metric: str, unit: str, who: int) -> str:
    value = float(drew.means(metric)[who])
    scale = scaled([value], unit)
    each = "" if drew.contest.batched else " a window"
    return f"{scale.told(value)} {scale.unit}{each}"


def _least(drew: EnergyData, metric: str, unit: str, start: str, who: int) -> str:
    """Who has least, and the verdict against the first; without windows only by how much."""
    first, judged = drew.contest.labels[drew.first], drew.judged(metric)
    said = f"{start}: {_amount(drew, metric, unit, who)}"
    if judged is None:
        return f"{said}, {_less(drew.ratio(metric, who))} than {first}."
    return f"{said}. {judged.pair(drew.contest.labels[who], first).sentence()}"


def _less(ratio: float) -> str:
    return f"{share(1 - ratio)} less" if ratio <= 1 else f"{share(ratio - 1)} more"


def _waiting(drew: EnergyData, least: int) -> list[str]:
    """What the least energy costs in waiting, and how much can be saved at no longer wait."""
    wait, labels = drew.means("mean_wait_s"), drew.contest.labels
    first = labels[drew.first]
    if least == drew.first or not (math.isfinite(wait[least]) and math.isfinite(wait[drew.first])):
        return []
    ours, theirs = float(wait[least]), float(wait[drew.first])
    spans = f"from {format_span(theirs)} to {format_span(ours)}"
    if ours <= theirs * ALIKE:
        way = f"the mean wait falls {spans}" if ours * ALIKE < theirs else f"{format_span(ours)} on average"
        return [f"Jobs wait no longer for that: {way}{_doubt(drew, least)}."]
    lead = drew.found.lead
    before, after = (float(value) for value in drew.means(lead.metric)[[drew.first, least]])
    said = [
        f"That costs waiting: under {labels[least]} instead of {first} the mean wait rises {spans}"
        f"{_doubt(drew, least)}, the {lead.words} {_rises(before, after, lead.told)}."
    ]
    calm = [who for who in drew.contenders if wait[who] <= theirs * ALIKE and who != drew.first]
    energy = drew.means("energy_kwh")
    best = min(calm, key=lambda who: (float(energy[who]), who), default=None)
    if best is None or drew.ratio("energy_kwh", best) >= 1:
        return [*said, f"Nobody saves energy at no longer a mean wait than {first}."]
    saved = share(1 - drew.ratio("energy_kwh", best))
    return [*said, f"At no longer a mean wait {labels[best]} saves most: {saved} of the energy of {first}."]


def _bound(drew: EnergyData) -> list[str]:
    """How much there is to save at all."""
    most = 1 - drew.bound_kwh / float(drew.means("energy_kwh")[drew.first])
    if not math.isfinite(most):
        return []
    first = drew.contest.labels[drew.first]
    return [
        f"No schedule can save more than {share(max(most, 0.0))} of the energy of {first}: the rest is the work itself."
    ]


def _rises(before: float, after: float, told: Callable[[float], str]) -> str:
    way = "from" if after >= before else "falls from"
    return f"{way} {told(before)} to {told(after)}"


def _doubt(drew: EnergyData, who: int) -> str:
    judged = drew.found.wait
    if judged is None or drew.contest.batched:
        return ""
    labels = drew.contest.labels
    pair = judged.pair(labels[who], labels[drew.first])
    return " (which the windows do not tell apart)" if pair.verdict == "undecided" else ""
