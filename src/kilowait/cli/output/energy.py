"""Energy, CO2 and cost in tables, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kilowait.cli import console
from kilowait.cli.output.run import ledger_line

if TYPE_CHECKING:
    from kilowait.energy import EnergyAccounts
    from kilowait.experiments.inputs import Workload

__all__ = ["show_accounts", "show_description", "show_drawn", "show_levers", "show_said"]

_STATES = {
    "jobs": "jobs",
    "idle": "idle nodes",
    "shutting_down": "falling asleep",
    "asleep": "asleep",
    "waking": "waking",
    "fixed": "fixed gear",
}


def show_accounts(spent: EnergyAccounts, pulled: str, budget: str | None = None) -> None:
    """What a run drew, what it was spent on, and what that rests on; `budget` says whether one was kept."""
    total = spent.it_kwh
    parts = [
        f"{words} {console.percent(spent.by_state[state] / total)}"
        for state, words in _STATES.items()
        if spent.by_state[state] > 0 and total > 0
    ]
    hours = (spent.horizon_s[1] - spent.horizon_s[0]) / 3600
    rows = [
        ("levers", pulled),
        (
            "energy",
            f"{kwh(spent.it_kwh)} kWh IT, {kwh(spent.facility_kwh)} kWh facility (PUE {spent.pue:.3g}), over "
            f"{console.span(hours * 3600)}",
        ),
        ("spent on", ", ".join(parts) or "nothing"),
        (
            "power",
            f"IT {kw(spent.mean_it_w)} kW on average, {kw(spent.peak_it_w)} kW at most; facility "
            f"{kw(spent.peak_facility_w)} kW at most",
        ),
    ]
    if budget is not None:
        rows.append(("budget", budget))
    if spent.co2_kg is not None:
        each = 1e3 * spent.co2_kg / spent.facility_kwh if spent.facility_kwh > 0 else float("nan")
        rows.append(("CO2", f"{console.number(spent.co2_kg)} kg, {console.number(each)} g/kWh on average"))
    if spent.cost is not None:
        each = 1e3 * spent.cost / spent.facility_kwh if spent.facility_kwh > 0 else float("nan")
        rows.append(
            (
                "cost",
                f"{console.number(spent.cost)} {spent.currency}, {console.number(each)} per MWh on average",
            )
        )
    rows.append(("energy-delay", f"{spent.energy_delay_j_s:.3g} J s, energy times mean turnaround"))
    console.facts(rows)
    show_said(spent.signals.values(), spent.notes)


def show_drawn(found: Mapping[str, Any], *, waits: bool = False) -> None:
    """A line for each contender: what it drew, and what it saved against the first."""
    rows = [row for row in found["rows"] if row["kind"] != "clairvoyant"]
    drew = found["energy"]
    columns = [("energy_kwh", "energy\nkWh", True), ("facility_kwh", "facility\nkWh", False)]
    if "co2_kg" in rows[0]["metrics"]:
        columns.append(("co2_kg", "CO2\nkg", True))
    if "cost" in rows[0]["metrics"]:
        currency = str(drew["signals"]["price"]["unit"]).partition("/")[0]
        columns.append(("cost", f"cost\n{currency}", True))
    columns.append(("peak_kw", "peak\nkW", False))
    header = ["energy"]
    for _, title, saved in columns:
        header += [title, "saved"] if saved else [title]
    if waits:
        header += ["mean\nwait", "mean\nturnaround" if found["node_level"] else "mean bounded\nslowdown"]
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
                if found["node_level"]  # caps lengthen runs, not only waits
                else console.number(float(row["metrics"]["mean_bsld"])),
            ]
        cells.append(line)
    least, first = float(rows[0]["metrics"]["least_kwh"]), float(rows[0]["metrics"]["energy_kwh"])
    bound = [
        "no schedule below",
        console.number(least),
        console.percent(1 - least / first) if first > 0 else "-",
    ]
    cells.append(bound + [""] * (len(header) - len(bound)))
    console.table(header, cells)
    best = "on the GPU type where it takes least" if found["node_level"] else "at its level of least energy"
    print(f"no schedule below: the work alone, every job {best}, nothing idle")
    show_said([signal["words"] for signal in drew["signals"].values()], drew["notes"])


def show_levers(found: Mapping[str, Any], workload: Workload) -> None:
    """What each set of levers drew and saved, and how long jobs waited."""
    console.title(f"{found['trace']}: {console.count(len(workload.jobs), 'job')} on {found['nodes']:,} nodes")
    read = ledger_line(workload)
    if read is not None:
        print(read)
    print()
    show_drawn(found, waits=True)


def show_description(found: Mapping[str, Any]) -> None:
    """Power of a machine, part by part; estimates are marked."""
    nodes = ", ".join(f"{name} {console.count(size, 'node')}" for name, size in found["nodes"].items())
    console.title(f"{found['name']}: {nodes}")
    rows = []
    for load in ("idle", "full"):
        whole = found[load]
        rows.append(
            (
                load,
                f"IT {kw(whole['it_w'])} kW, facility {kw(whole['facility_w'])} kW, PUE {whole['pue']:.3g}",
            )
        )
    air = found["weather"]
    outside = f" at {air['temperature_c']:g} °C, wet bulb {air['wet_bulb_c']:g} °C" if air else ""
    rows.append(("cooling", f"{found['cooling']}{outside}"))
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
        for part in found["parts"]
    ]
    console.table(["part", "", "source", "units", "idle kW", "full kW"], parts, left=3, wrapped=2)
    for group, how in found["sleep"].items():
        print()
        if how is None:
            print(f"{group}: nodes cannot sleep")
            continue
        print(
            f"{group}: a node draws {console.number(how['sleep_w'])} W asleep and "
            f"{console.number(how['idle_w'])} W idle; sleep pays from "
            f"{console.span(how['break_even_s'])} on {_mark(how)} ({how['source']})".replace("  ", " ")
        )
    for group, levels in found["levels"].items():
        if len(levels) > 1:
            print()
            console.table(
                ["levels", "", "source", "speed", "CPU power\nabove idle", "GPU cap\na node"],
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
    print(f"\nest.: an estimate; {found['estimates']} of {len(found['parts'])} parts are")


def _saved(row: Mapping[str, Any], name: str) -> str:
    """Per cent; a rounding of nothing is nothing."""
    share = float(row["saved"][name])
    return console.percent(0.0 if abs(share) < 5e-4 else share)


def _mark(part: Mapping[str, Any]) -> str:
    return "est." if part["estimate"] else ""


def show_said(signals: Sequence[str] | Any, notes: Sequence[str]) -> None:
    """What the numbers rest on."""
    for words in signals:
        print(f"with {words}")
    for note in notes:
        print(f"{note}")


def kwh(value: float) -> str:
    """For people."""
    return console.number(value)


def kw(watts: float) -> str:
    """Kilowatts of watts."""
    return console.number(watts / 1e3)
