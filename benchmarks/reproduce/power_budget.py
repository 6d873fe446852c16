"""Power-budget scheduling with predicted power against full-load power, on Kabré's measured energy.

Kabré's jobs have measured energy, but the size of the cluster and the power of its nodes are unknown. The experiment
uses jobs of at least 10 W per node (see `prediction_accuracy`) and at most 6 nodes, which fit the tightest budget, on
32 nodes. The power model has two parameters from the first 70 % of these jobs: idle power is the 5th percentile of
their power per node, full-load power the 99th. The last 30 % are the test set, replayed alone with fcfs and EASY;
predictions use the jobs that had ended in a first replay of the whole log. Every plan is accounted with the measured
power. The jobs from 40 to 70 % (`--part earlier`) were used during development.

    python -m benchmarks.reproduce power-budget --data DIR
    python -m benchmarks.reproduce.power_budget --data DIR --part earlier
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

import kilowait as kw
from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.prediction_accuracy import LOGS, MIN_W
from benchmarks.reproduce.text_tables import table
from kilowait.energy.accounting import account_energy
from kilowait.energy.controls import budget_violation, resolve_controls
from kilowait.energy.power import (
    Component,
    ConstantPue,
    Facility,
    GroupPower,
    NodePower,
    PowerModel,
    with_measured_power,
)
from kilowait.experiments.predictors import POWER_MODEL_PREDICTOR, with_predicted_watts
from kilowait.jobs import JobTable
from kilowait.units import format_duration

__all__ = ["PARTS", "PLANS", "measured_jobs", "power_model", "simulate_with_budget", "results", "row_of", "text"]

NODES = 32
"""Jobs use about 20 nodes on average."""
WIDEST = 6
"""Maximum nodes of a job, so that it fits the tightest budget at full load."""
PARTS = {"later": (0.7, 1.0), "earlier": (0.4, 0.7)}
"""Fractions of the jobs by submission: test set, and jobs on which models were selected."""
BUDGETS = (25, 30, 40, 60)
"""Power budgets, per cent of full power."""
PLANS = {
    "full load": POWER_MODEL_PREDICTOR,
    "predicted (recent)": "recent",
    "predicted (forest)": "forest:median",
    "predicted (boosting)": "boosting:mean",
    "75 % bound (forest)": "forest:quantile:0.75",
    "90 % bound (forest)": "forest:quantile:0.9",
    "measured, in hindsight": "",
}
"""The power predictor of each plan; empty: the measured power, as if it were known."""


def results(sources: Sources, say: Callable[[str], None], part: str = "later") -> dict[str, Any]:
    """Waits and budget violations by budget and plan."""
    jobs = measured_jobs(sources)
    machine = kw.Cluster.from_nodes(NODES)
    model = power_model(jobs[: int(0.7 * len(jobs))])
    first, last = (int(share * len(jobs)) for share in PARTS[part])
    max_w = model.groups[0].full_w
    plans: dict[str, Any] = {}
    for plan_name, plan in PLANS.items():
        say(f"Kabre, {plan_name} ...")
        planned_jobs = jobs if not plan else with_predicted_watts(jobs, machine, plan, max_w)
        for budget in BUDGETS:
            plans[f"{budget} %, {plan_name}"] = simulate_with_budget(
                planned_jobs[first:last], machine, model, f"budget={budget}%"
            )
    plans["none"] = simulate_with_budget(jobs[first:last], machine, model, "none")
    return {"part": part, "jobs": last - first, "idle_w": model.groups[0].idle_w, "full_w": max_w, "plans": plans}


def measured_jobs(sources: Sources) -> JobTable:
    """Kabré's jobs of at most the maximum size with a known, plausible mean power, by submission."""
    path = sources.file(LOGS["Kabre"].file, "it is Kabré's sacct of 2024 (DylanBC09/kabre)")
    with_power, _ = with_measured_power(kw.read_trace(path), MIN_W)
    known = ~np.isnan(with_power["power_w"]) & (with_power["nodes"] <= WIDEST)
    jobs: JobTable = with_power[known]
    return jobs.sorted()


def power_model(jobs: JobTable) -> PowerModel:
    """Power model: idle power is the 5th percentile of the jobs' power per node, full-load power the 99th."""
    idle_w, full_w = (float(watts) for watts in np.percentile(jobs["power_w"] / jobs["nodes"], (5, 99)))
    node = NodePower((Component("node", "cpu", 1, round(idle_w), round(full_w), "measured jobs", True),))
    group = GroupPower("nodes", NODES, node)
    return PowerModel("kabre", (group,), Facility(0.0, ConstantPue(1.0)))


def simulate_with_budget(
    jobs: JobTable, machine: kw.Cluster, model: PowerModel, power_controls: str
) -> dict[str, float]:
    """One simulation under a budget: waits and budget violations."""
    resolved = resolve_controls(power_controls, jobs, machine, model)
    log = kw.simulate(resolved.jobs, machine, "fcfs", "easy", power_controls=resolved.controls)
    metrics_all = kw.metrics(log)
    energy = account_energy(log, machine, model, tables=resolved.tables)
    metrics = {name: float(metrics_all[name]) for name in ("mean_wait_s", "p95_wait_s", "mean_bsld")}
    metrics |= {"mean_w": energy.mean_it_w, "peak_w": energy.peak_it_w}
    return metrics | ({} if resolved.budget_w is None else asdict(budget_violation(energy, resolved.budget_w)))


def row_of(plan_name: str, row: dict[str, float]) -> list[str]:
    """The table row of a plan."""
    return [
        plan_name,
        format_duration(round(row["mean_wait_s"])),
        format_duration(round(row["p95_wait_s"])),
        f"{row['mean_bsld']:,.1f}",
        f"{row['mean_w'] / 1e3:.2f}",
        f"{100 * row['time_share']:.2f} %",
        f"{100 * row['max_excess_w'] / row['budget_w']:.1f} %",
    ]


def text(output: dict[str, Any]) -> str:
    """A table for each budget."""
    lines = [
        f"Kabre, {output['jobs']:,} jobs ({output['part']} part), {NODES} nodes of {output['idle_w']:.0f} to "
        f"{output['full_w']:.0f} W, fcfs, EASY"
    ]
    unlimited = output["plans"]["none"]
    lines.append(
        f"without a budget: {unlimited['mean_w'] / 1e3:.2f} kW on average, {unlimited['peak_w'] / 1e3:.2f} kW at most; "
        f"mean wait {format_duration(round(unlimited['mean_wait_s']))}, bounded slowdown {unlimited['mean_bsld']:.1f}"
    )
    for budget in BUDGETS:
        rows = [row_of(plan_name, output["plans"][f"{budget} %, {plan_name}"]) for plan_name in PLANS]
        limit = output["plans"][f"{budget} %, full load"]["budget_w"]
        heads = ["planned with", "mean wait", "95 % below", "bsld", "mean kW", "time above", "by at most"]
        lines.append(f"\nbudget of {budget} % of full power, {limit / 1e3:.2f} kW\n")
        lines.append(table(heads, rows))
    return "\n".join(lines)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main() -> int:
    """Print the table of one of the parts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce.power_budget", description=__doc__)
    parser.add_argument("--data", metavar="DIR", help="folder of real logs; else what KILOWAIT_DATA names")
    parser.add_argument("--part", choices=PARTS, default="later")
    options = parser.parse_args()
    output = results(Sources.find(options.data), _say, options.part)
    sys.stdout.write(text(output) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
