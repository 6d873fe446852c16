"""Text output of ``kilowait compare``: tables, significance results, fairness."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kilowait.cli import console
from kilowait.cli.output.energy import show_energy
from kilowait.cli.output.run import checkpoints_text, show_gpu_table
from kilowait.evaluation.comparison.conclusions import STARVATION_RATIO
from kilowait.evaluation.metric_definitions import METRIC_DEFINITIONS, WINDOWS_NOTE, better_of, metric_name

if TYPE_CHECKING:
    from kilowait.experiments.scenario_inputs import Workload

Formatter = Callable[[float], str]
_ALWAYS = ("mean_bsld", "mean_wait_s", "p99_wait_s", "max_wait_s", "utilization")
_FAIRNESS = ("jain_user_bsld", "worst_user_bsld", "worst_size_bsld", "share_wait_over_bound", "starved_jobs")
_SHARES = ("utilization", "share_wait_over_bound")


def _formatter(metric: str) -> Formatter:
    if metric.endswith("_s"):
        return console.span
    if metric.startswith("jain"):
        return lambda value: f"{value:.2f}" if math.isfinite(value) else "-"
    return console.percent if metric in _SHARES else console.number


def _heading(comparison: Mapping[str, Any], metric: str) -> str:
    """The name of a metric as a heading of a table, with its unit where the values have none."""
    unit = {"energy_kwh": ", kWh", "facility_kwh": ", kWh", "co2_kg": ", kg", "peak_kw": ", kW"}.get(metric, "")
    return console.heading(f"{metric_name(metric, node_level=comparison['node_level'])}{unit}")


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


@dataclass(frozen=True)
class _Column:
    """A metric of every row, with the interval of its mean where the tests have one."""

    metric: str
    heading: str
    values: Sequence[float]
    has_interval: bool


def _columns(comparison: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[_Column]:
    """The chosen metric as it is tested, and the metrics that every table has."""
    metric, windows = str(comparison["metric"]), int(comparison["windows"])
    definition = METRIC_DEFINITIONS[metric]
    names = list(dict.fromkeys((metric, *_ALWAYS)))
    if "gpus" in comparison:  # jobs share nodes; the GPU table shows the utilization
        names = [name for name in names if name != "utilization"]
    columns = []
    if definition.name_of_mean(windows) != definition.name:  # tests compare the mean of the windows' maxima
        means = [float(row["mean"]) for row in rows]
        columns.append(_Column(metric, console.heading(definition.name_of_mean(windows)), means, True))
    for name in names:
        values = [float(row["metrics"][name]) for row in rows]
        has_interval = (name != metric or not columns or columns[0].metric != name) and _has_interval(rows, name)
        columns.append(_Column(name, _heading(comparison, name), values, has_interval))
    return columns


def show_table(comparison: Mapping[str, Any]) -> None:
    """Print metrics with confidence intervals; the best of each column and very long waits are marked."""
    rows = _ranked(comparison)
    clairvoyant = {_key(row): row for row in comparison["rows"] if row["kind"] == "clairvoyant"}
    has_controls = any(row["power_controls"] != "none" for row in rows)
    columns = _columns(comparison, rows)
    header = ["policy", "backfill", *(["power controls"] if has_controls else [])]
    n_left = len(header)
    for column in columns:
        header += [column.heading, *(["95 %\ninterval"] if column.has_interval else [])]
    if clairvoyant:
        header += ["with perfect\nestimates", "gap\nclosed"]
    cells, marked = [], set()
    for place, row in enumerate(rows):
        line = [
            str(row["label"]).partition(",")[0],
            str(row["backfill"]),
            *([row["power_controls"]] if has_controls else []),
        ]
        for column in columns:
            format_value, value = _formatter(column.metric), column.values[place]
            if value == _best(column.values, better_of(column.metric)):
                marked.add((place, len(line)))
            starves = column.metric == "max_wait_s" and row["label"] in comparison["starvation"]
            line.append(format_value(value) + (" !" if starves else ""))
            if column.has_interval:
                interval = row["intervals"][column.metric]
                line.append(f"{format_value(interval['low'])} – {format_value(interval['high'])}")
        if clairvoyant:
            perfect = clairvoyant.get(_key(row))
            line.append("-" if perfect is None else _formatter(comparison["metric"])(float(perfect["mean"])))
            gap = comparison["gap_closed"].get(row["label"], math.nan)
            # A policy worse than the best one closes no gap; for an agent the negative value is informative.
            line.append(console.percent(gap) if gap >= 0 or row["kind"] == "agent" else "-")
        cells.append(line)
    cells += [[label, "error", *[""] * (len(header) - 2)] for label in comparison["failed"]]
    console.table(header, cells, left=n_left, marked=marked)
    for text in _legend(comparison):
        print(text)
    bounds = comparison["lower_bounds"]
    if bounds:
        print(
            f"no schedule can have a mean bounded slowdown below {console.number(bounds['mean_bsld'])}, "
            f"a mean wait below {console.span(bounds['mean_wait_s'])} "
            f"or a makespan below {console.span(bounds['makespan_s'])} here"
        )


def _legend(comparison: Mapping[str, Any]) -> list[str]:
    """What the marks and the values of several windows are."""
    lines = ["* best of its column"]
    if comparison["starvation"]:
        lines.append(f"! longest wait above {STARVATION_RATIO:g} times that of FCFS; --max-wait bounds it")
    if comparison["windows"] > 1:
        lines.append(WINDOWS_NOTE)
    return lines


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
        *(_heading(comparison, name) for name in _FAIRNESS),
    ]
    rows = [
        [
            str(row["label"]).partition(",")[0],
            str(row["backfill"]),
            *([row["power_controls"]] if has_controls else []),
            *(_formatter(name)(float(row["metrics"][name])) for name in _FAIRNESS),
        ]
        for row in _ranked(comparison)
    ]
    console.table(header, rows, left=3 if has_controls else 2)


def show_all(results: Sequence[Mapping[str, Any]]) -> None:
    """Print one column per log: the mean of each policy divided by that of the first, and the geometric mean."""
    metric = str(results[0]["metric"])
    first = _without_clairvoyant(results[0])[0]["label"]
    lines = []
    starving = {label for comparison in results for label in comparison["starvation"]}
    for number, row in enumerate(_without_clairvoyant(results[0])):
        ratios = [
            _without_clairvoyant(comparison)[number]["mean"] / _without_clairvoyant(comparison)[0]["mean"]
            if _without_clairvoyant(comparison)[0]["mean"]
            else math.nan
            for comparison in results
        ]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if min(ratios) > 0 else math.nan
        lines.append(
            [
                f"{row['label']}{' !' if row['label'] in starving else ''}",
                *(f"{ratio:.3f}" for ratio in ratios),
                f"{mean:.3f}",
            ]
        )
    console.title(f"all logs: {metric_name(metric)} relative to {first}")
    console.table(
        ["", *(str(comparison["trace"]).rpartition("/")[2] for comparison in results), "geometric mean"], lines
    )
    if starving:
        print(f"! on one of the logs the longest wait is above {STARVATION_RATIO:g} times that of FCFS")


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(row["policy"]), str(row["backfill"]), str(row["power_controls"])


def _without_clairvoyant(comparison: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in comparison["rows"] if row["kind"] != "clairvoyant"]


def _ranked(comparison: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows, best first by the mean of the chosen metric; those without a value last."""
    sign = 1.0 if better_of(comparison["metric"]) == "less" else -1.0
    return sorted(_without_clairvoyant(comparison), key=lambda row: (math.isnan(row["mean"]), sign * row["mean"]))


def _best(values: Sequence[float], better: str) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.nan if not known else min(known) if better == "less" else max(known)


def _has_interval(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return all(name in row["intervals"] and math.isfinite(row["intervals"][name]["low"]) for row in rows)
