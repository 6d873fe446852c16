"""Text output of ``kilowait compare``: tables, significance results, fairness."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kilowait.cli import console
from kilowait.cli.output.energy import show_energy
from kilowait.cli.output.run import checkpoints_text, show_gpu_table

if TYPE_CHECKING:
    from kilowait.experiments.scenario_inputs import Workload

Formatter = Callable[[float], str]
_COLUMNS: dict[str, tuple[str, Formatter]] = {
    "mean_bsld": ("mean bounded\nslowdown", console.number),
    "mean_wait_s": ("mean\nwait", console.span),
    "median_wait_s": ("median\nwait", console.span),
    "p95_wait_s": ("95 % wait\nbelow", console.span),
    "max_wait_s": ("longest\nwait", console.span),
    "mean_turnaround_s": ("mean\nturnaround", console.span),
    "utilization": ("utilization", console.percent),
    "makespan_s": ("makespan", console.span),
    "energy_kwh": ("energy\nkWh", console.number),
    "facility_kwh": ("facility\nkWh", console.number),
    "co2_kg": ("CO2\nkg", console.number),
    "cost": ("cost", console.number),
    "peak_kw": ("peak\nkW", console.number),
}
_ALWAYS = ("mean_bsld", "mean_wait_s", "p95_wait_s", "max_wait_s", "utilization")
_FAIRNESS: dict[str, tuple[str, Formatter]] = {
    "jain_user_bsld": ("Jain's index\nover users", lambda value: f"{value:.2f}" if math.isfinite(value) else "-"),
    "worst_user_bsld": ("slowdown of the\nworst-off user", console.number),
    "worst_size_bsld": ("slowdown of the\nworst-off size", console.number),
    "share_wait_over_bound": ("jobs waiting\nover a day", console.percent),
    "starved_jobs": ("starved\njobs", console.number),
}


def show_comparisons(results: Sequence[Mapping[str, Any]], workloads: Sequence[Workload]) -> None:
    """Print the table, the significance results and the fairness of each log; then all logs together."""
    for number, (comparison, workload) in enumerate(zip(results, workloads, strict=True)):
        if number:
            print()
        console.log_title(comparison, workload)
        print(f"compared on {comparison['cut']}")
        print()
        show_table(comparison)
        if "gpus" in comparison:
            print()
            show_gpu_table(comparison["gpus"], _ranked(comparison))
            print(f"checkpoints: {checkpoints_text(comparison['preemption_costs'])}")
        if "energy" in comparison:
            print()
            show_energy(comparison)
        show_sentences(comparison)
        show_fairness(comparison)
    if len(results) > 1:
        print()
        show_all(results)


def show_table(comparison: Mapping[str, Any]) -> None:
    """Print means with confidence intervals; the best of each column is marked."""
    metric = str(comparison["metric"])
    rows = _ranked(comparison)
    clairvoyant = {_key(row): row for row in comparison["rows"] if row["kind"] == "clairvoyant"}
    has_controls = any(row["power_controls"] != "none" for row in rows)
    names = list(dict.fromkeys((metric, *_ALWAYS)))
    if "gpus" in comparison:  # jobs share nodes; the GPU table shows the utilization
        names.remove("utilization")
    header = ["policy", "backfill", *(["power controls"] if has_controls else [])]
    n_left = len(header)
    for name in names:
        header.append(_COLUMNS[name][0])
        if _has_interval(rows, name):
            header.append("95 %\ninterval")
    if clairvoyant:
        header += ["with perfect\nestimates", "gap\nclosed"]
    best = {name: _best(rows, name) for name in names}
    cells, marked = [], set()
    for place, row in enumerate(rows):
        line = [
            str(row["label"]).partition(",")[0],
            str(row["backfill"]),
            *([row["power_controls"]] if has_controls else []),
        ]
        for name in names:
            format_value = _COLUMNS[name][1]
            value = float(row["metrics"][name])
            if value == best[name]:
                marked.add((place, len(line)))
            line.append(format_value(value))
            if _has_interval(rows, name):
                interval = row["intervals"][name]
                line.append(f"{format_value(interval['low'])} – {format_value(interval['high'])}")
        if clairvoyant:
            perfect = clairvoyant.get(_key(row))
            line.append("-" if perfect is None else _COLUMNS[metric][1](float(perfect["metrics"][metric])))
            gap = comparison["gap_closed"].get(row["label"], math.nan)
            # A policy worse than the best one closes no gap; for an agent the negative value is informative.
            line.append(console.percent(gap) if gap >= 0 or row["kind"] == "agent" else "-")
        cells.append(line)
    cells += [[label, "error", *[""] * (len(header) - 2)] for label in comparison["failed"]]
    console.table(header, cells, left=n_left, marked=marked)
    print("* best of its column")
    bounds = comparison["lower_bounds"]
    if bounds:
        print(
            f"no schedule can have a mean bounded slowdown below {console.number(bounds['mean_bsld'])}, "
            f"a mean wait below {console.span(bounds['mean_wait_s'])} "
            f"or a makespan below {console.span(bounds['makespan_s'])} here"
        )


def show_sentences(comparison: Mapping[str, Any]) -> None:
    """Print one sentence per pair of policies."""
    print()
    for sentence in comparison["sentences"]:
        print(sentence)
    if comparison["sentences"]:
        print()


def show_fairness(comparison: Mapping[str, Any]) -> None:
    """Print fairness: users, job sizes, long waits."""
    has_controls = any(row["power_controls"] != "none" for row in comparison["rows"])
    header = [
        "fairness and risk",
        "",
        *([""] if has_controls else []),
        *(format_value for format_value, _ in _FAIRNESS.values()),
    ]
    rows = [
        [
            str(row["label"]).partition(",")[0],
            str(row["backfill"]),
            *([row["power_controls"]] if has_controls else []),
            *(format_value(float(row["metrics"][name])) for name, (_, format_value) in _FAIRNESS.items()),
        ]
        for row in _ranked(comparison)
    ]
    console.table(header, rows, left=3 if has_controls else 2)


def show_all(results: Sequence[Mapping[str, Any]]) -> None:
    """Print one column per log: the mean of each policy divided by that of the first, and the geometric mean."""
    metric = str(results[0]["metric"])
    first = _without_clairvoyant(results[0])[0]["label"]
    lines = []
    for number, row in enumerate(_without_clairvoyant(results[0])):
        ratios = [
            _without_clairvoyant(comparison)[number]["metrics"][metric]
            / _without_clairvoyant(comparison)[0]["metrics"][metric]
            if _without_clairvoyant(comparison)[0]["metrics"][metric]
            else math.nan
            for comparison in results
        ]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if min(ratios) > 0 else math.nan
        lines.append([str(row["label"]), *(f"{ratio:.3f}" for ratio in ratios), f"{mean:.3f}"])
    console.title(f"all logs: {metric} relative to {first}")
    console.table(
        ["", *(str(comparison["trace"]).rpartition("/")[2] for comparison in results), "geometric mean"], lines
    )


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(row["policy"]), str(row["backfill"]), str(row["power_controls"])


def _without_clairvoyant(comparison: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in comparison["rows"] if row["kind"] != "clairvoyant"]


def _ranked(comparison: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows, best first by the chosen metric; those without a value last."""
    metric = comparison["metric"]
    sign = _sign(metric)
    return sorted(
        _without_clairvoyant(comparison),
        key=lambda row: (math.isnan(row["metrics"][metric]), sign * row["metrics"][metric]),
    )


def _sign(metric: str) -> float:
    from kilowait.evaluation.comparison import METRIC_DIRECTION

    return 1.0 if METRIC_DIRECTION[metric] == "less" else -1.0


def _best(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    values = [float(row["metrics"][name]) for row in rows if not math.isnan(row["metrics"][name])]
    if not values:
        return math.nan
    return min(values) if _sign(name) > 0 else max(values)


def _has_interval(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return all(name in row["intervals"] and math.isfinite(row["intervals"][name]["low"]) for row in rows)
