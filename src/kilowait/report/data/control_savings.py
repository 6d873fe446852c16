"""Energy savings of single power controls, and of several combined, of schedulers that ran with and without them."""

from __future__ import annotations

from dataclasses import dataclass

from kilowait.evaluation.comparison import PolicyConfig
from kilowait.report.data.energy import EnergyData, wait_change
from kilowait.report.format import Cell, ReportTable, UnitScale, change, scaled
from kilowait.units import format_duration

_SUM_NOTE = (
    "Combined savings can differ from the sum of single savings: for example, DVFS has no effect on a sleeping node."
)


def controls_of(config: PolicyConfig) -> tuple[str, ...]:
    """The power controls of a policy, one by one; ``("all",)`` stands for all of them.

    >>> controls_of(PolicyConfig("fcfs", "easy", power_controls="sleep=break-even+dvfs=1.1"))
    ('sleep=break-even', 'dvfs=1.1')
    """
    return () if config.power_controls == "none" else tuple(config.power_controls.split("+"))


@dataclass(frozen=True)
class ControlSavings:
    """One scheduler without power controls, with single controls, and with several combined."""

    without: int
    single: tuple[int, ...]
    together: tuple[int, ...]
    additive: bool
    """Whether all single controls are of different kinds, so that their savings can be summed."""


def control_savings(energy_data: EnergyData) -> tuple[ControlSavings, ...]:
    """Schedulers whose savings can be attributed to single power controls."""
    schedulers: dict[tuple[object, ...], list[int]] = {}
    for policy in energy_data.policies:
        config = energy_data.comparison.policies[policy]
        scheduler = (config.policy, config.backfill, config.kind, config.name)
        schedulers.setdefault(scheduler, []).append(policy)
    savings = []
    for members in schedulers.values():
        controls = {policy: controls_of(energy_data.comparison.policies[policy]) for policy in members}
        without = [policy for policy in members if not controls[policy]]
        single = tuple(policy for policy in members if len(controls[policy]) == 1 and controls[policy] != ("all",))
        together = tuple(policy for policy in members if len(controls[policy]) > 1 or controls[policy] == ("all",))
        if without and single and len(single) + len(together) > 1:
            control_kinds = {controls[policy][0].partition("=")[0] for policy in single}
            savings.append(
                ControlSavings(without[0], single, together, len(single) > 1 and len(control_kinds) == len(single))
            )
    return tuple(savings)


def control_savings_table(energy_data: EnergyData, savings: ControlSavings) -> ReportTable:
    """Savings of single power controls, their sum, and the savings of combined controls."""
    comparison = energy_data.comparison
    units = {
        "energy_kwh": ("energy", "kWh"),
        "facility_kwh": ("facility energy", "kWh"),
        "co2_kg": ("CO2", "kg"),
        "cost": ("cost", energy_data.currency),
    }
    units = {metric: unit for metric, unit in units.items() if energy_data.has(metric)}
    shown = (*savings.single, *savings.together)
    means = {metric: energy_data.means(metric) for metric in units}
    saved = {
        metric: {policy: float(values[savings.without] - values[policy]) for policy in shown}
        for metric, values in means.items()
    }
    scales = {metric: scaled(list(saved[metric].values()), unit) for metric, (_, unit) in units.items()}
    scales["energy_kwh"] = scales["facility_kwh"]  # both columns in the unit of the larger values
    wait = energy_data.means("mean_wait_s").tolist()

    def cells(values: dict[str, float]) -> list[Cell]:
        row = []
        for metric, value in values.items():
            baseline = float(means[metric][savings.without])
            relative = change(1 - value / baseline) if baseline > 0 else "–"
            row.append(Cell(relative, small=(_signed(scales[metric], -value),)))
        return row

    rows: list[list[Cell | str]] = [
        [
            comparison.policies[policy].power_controls,
            *cells({metric: saved[metric][policy] for metric in units}),
            Cell(format_duration(wait[policy]), small=(wait_change(wait[policy], wait[savings.without]),)),
        ]
        for policy in shown
    ]
    if savings.additive:
        total = {metric: sum(saved[metric][policy] for policy in savings.single) for metric in units}
        rows.insert(len(savings.single), ["sum of single controls", *cells(total), ""])
    faint = [len(savings.single)] if savings.additive else []
    return ReportTable(
        f"Savings by power control, single and combined, relative to {comparison.labels[savings.without]}",
        ["power control", *(label for label, _ in units.values()), "mean wait"],
        rows,
        faint=faint,
        marked=range(len(savings.single) + len(faint), len(rows)),
        note=_SUM_NOTE if faint else "",
    )


def _signed(scale: UnitScale, value: float) -> str:
    magnitude = scale.format(abs(value))
    sign = "" if not magnitude.strip("0.,") else "−" if value < 0 else "+"
    return f"{sign}{magnitude} {scale.unit}".rstrip()
