"""Text output of energy accounting, CO2 and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kilowait.cli import console
from kilowait.cli.output.run import checkpoints_text
from kilowait.evaluation.metric_definitions import metric_name

if TYPE_CHECKING:
    from kilowait.energy import EnergyAccounts
    from kilowait.experiments.scenario_inputs import Workload

_STATES = {
    "jobs": "jobs",
    "idle": "idle nodes",
    "shutting_down": "shutting down",
    "asleep": "asleep",
    "waking": "waking",
    "fixed": "fixed equipment",
}


def show_accounts(accounts: EnergyAccounts, controls: str, budget: str | None = None) -> None:
    """Print the energy of a run by node state, and its sources; `budget` describes how far the power budget was met."""
    total = accounts.it_kwh
    parts = [
        f"{state_name} {console.percent(accounts.by_state[state] / total)}"
        for state, state_name in _STATES.items()
        if accounts.by_state[state] > 0 and total > 0
    ]
    hours = (accounts.horizon_s[1] - accounts.horizon_s[0]) / 3600
    rows = [
        ("power controls", controls),
        (
            "energy",
            f"{kwh(accounts.it_kwh)} kWh IT, {kwh(accounts.facility_kwh)} kWh facility (PUE {accounts.pue:.3g}), over "
            f"{console.span(hours * 3600)}",
        ),
        ("used by", ", ".join(parts) or "nothing"),
        (
            "power",
            f"IT {kw(accounts.mean_it_w)} kW on average, {kw(accounts.peak_it_w)} kW peak; facility "
            f"{kw(accounts.peak_facility_w)} kW peak",
        ),
    ]
    if budget is not None:
        rows.append(("power budget", budget))
    if accounts.co2_kg is not None:
        per_kwh = 1e3 * accounts.co2_kg / accounts.facility_kwh if accounts.facility_kwh > 0 else float("nan")
        rows.append(("CO2", f"{console.number(accounts.co2_kg)} kg, {console.number(per_kwh)} g/kWh on average"))
    if accounts.cost is not None:
        per_kwh = 1e3 * accounts.cost / accounts.facility_kwh if accounts.facility_kwh > 0 else float("nan")
        rows.append(
            (
                "cost",
                f"{console.number(accounts.cost)} {accounts.currency}, {console.number(per_kwh)} per MWh on average",
            )
        )
    rows.append(("energy-delay", f"{accounts.energy_delay_j_s:.3g} J s, energy times mean turnaround"))
    console.facts(rows)
    show_sources(accounts.signals.values(), accounts.notes)


def show_energy(comparison: Mapping[str, Any], *, waits: bool = False) -> None:
    """Print one row per policy: its energy, and the savings relative to the first policy."""
    rows = [row for row in comparison["rows"] if row["kind"] != "clairvoyant"]
    energy = comparison["energy"]
    columns = [("energy_kwh", "kWh", True), ("facility_kwh", "kWh", False)]
    if "co2_kg" in rows[0]["metrics"]:
        columns.append(("co2_kg", "kg", True))
    if "cost" in rows[0]["metrics"]:
        currency = str(energy["signals"]["price"]["unit"]).partition("/")[0]
        columns.append(("cost", currency, True))
    columns.append(("peak_kw", "kW", False))
    header = ["energy"]
    for name, unit, saved in columns:
        title = console.heading(f"{metric_name(name)}, {unit}")
        header += [title, "saved"] if saved else [title]
    lead = "mean_turnaround_s" if comparison["node_level"] else "mean_bsld"
    if waits:
        header += [console.heading(metric_name(name)) for name in ("mean_wait_s", lead)]
    cells = []
    for row in rows:
        line = [str(row["label"])]
        for name, _, saved in columns:
            line.append(console.number(float(row["metrics"][name])))
            if saved:
                line.append(_saved(row, name) if row is not rows[0] else "")
        if waits:
            line += [
                console.span(float(row["metrics"]["mean_wait_s"])),
                console.span(float(row["metrics"]["mean_turnaround_s"]))
                if comparison["node_level"]  # power caps lengthen run times, not only waits
                else console.number(float(row["metrics"]["mean_bsld"])),
            ]
        cells.append(line)
    minimum, first = float(rows[0]["metrics"]["least_kwh"]), float(rows[0]["metrics"]["energy_kwh"])
    bound = ["lower bound", console.number(minimum), console.percent(1 - minimum / first) if first > 0 else "-"]
    cells.append(bound + [""] * (len(header) - len(bound)))
    console.table(header, cells)
    best = "on its most efficient GPU type" if comparison["node_level"] else "in its most efficient DVFS state"
    print(f"lower bound: the energy of the work alone, every job {best}, no idle nodes")
    if energy["conclusion"] is not None:
        print(energy["conclusion"])
    show_sources([signal["description"] for signal in energy["signals"].values()], energy["notes"])


def show_controls(comparison: Mapping[str, Any], workload: Workload) -> None:
    """Print energy, savings and waits for each set of power controls."""
    console.log_title(comparison, workload)
    print()
    show_energy(comparison, waits=True)
    if "preemption_costs" in comparison:
        print(f"checkpoints: {checkpoints_text(comparison['preemption_costs'])}")


def show_description(comparison: Mapping[str, Any]) -> None:
    """Print the power of a cluster by component; estimates are marked."""
    nodes = ", ".join(f"{name} {console.count(size, 'node')}" for name, size in comparison["nodes"].items())
    console.title(f"{comparison['name']}: {nodes}")
    rows = []
    for load in ("idle", "full"):
        totals = comparison[load]
        rows.append(
            (load, f"IT {kw(totals['it_w'])} kW, facility {kw(totals['facility_w'])} kW, PUE {totals['pue']:.3g}")
        )
    air = comparison["weather"]
    outside = f" at {air['temperature_c']:g} °C, wet bulb {air['wet_bulb_c']:g} °C" if air else ""
    rows.append(("cooling", f"{comparison['cooling']}{outside}"))
    console.facts(rows)
    print()
    parts = [
        [
            f"{part['group']}: {part['name']}",
            _mark(part),
            str(part["source"]),
            f"{part['units']:,}" if part["units"] else "",
            kw(part["idle_w"]),
            kw(part["full_w"]),
        ]
        for part in comparison["parts"]
    ]
    console.table(["component", "", "source", "units", "idle kW", "full kW"], parts, left=3, wrapped=2)
    for group, sleep in comparison["sleep"].items():
        print()
        if sleep is None:
            print(f"{group}: nodes cannot sleep")
            continue
        print(
            f"{group}: a node draws {console.number(sleep['sleep_w'])} W asleep and "
            f"{console.number(sleep['idle_w'])} W idle; sleep saves energy from "
            f"{console.span(sleep['break_even_s'])} on {_mark(sleep)} ({sleep['source']})".replace("  ", " ")
        )
    for group, levels in comparison["levels"].items():
        if len(levels) > 1:
            print()
            console.table(
                ["DVFS state", "", "source", "speed", "CPU power\nabove idle", "GPU cap\nper node"],
                [
                    [
                        f"{group}: {level['name']}",
                        _mark(level),
                        str(level["source"]),
                        console.percent(level["speed"]),
                        console.percent(level["cpu_dynamic"]),
                        "-" if level["gpu_cap_w"] is None else f"{console.number(level['gpu_cap_w'])} W",
                    ]
                    for level in levels
                ],
                left=3,
                wrapped=2,
            )
    print(f"\nest.: an estimate; {comparison['estimates']} of {len(comparison['parts'])} components are estimates")


def _saved(row: Mapping[str, Any], name: str) -> str:
    """The saving as a percentage; a rounding error is zero."""
    share = float(row["saved"][name])
    return console.percent(0.0 if abs(share) < 5e-4 else share)


def _mark(part: Mapping[str, Any]) -> str:
    return "est." if part["estimate"] else ""


def show_sources(signals: Sequence[str] | Any, notes: Sequence[str]) -> None:
    """Print the signals and notes behind the numbers."""
    for signal in signals:
        print(f"with {signal}")
    for note in notes:
        print(f"{note}")


def kwh(value: float) -> str:
    """Energy as text."""
    return console.number(value)


def kw(watts: float) -> str:
    """Power in kW as text."""
    return console.number(watts / 1e3)
