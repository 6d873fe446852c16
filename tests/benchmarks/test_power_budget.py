"""The power-budget benchmark: rows without predictions equal those of the docs, and the text output."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.power_budget import (
    BUDGETS,
    NODES,
    PLANS,
    measured_jobs,
    power_model,
    row_of,
    simulate_with_budget,
    text,
)

import kilowait as kw
from kilowait.experiments.predictors import with_predicted_watts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scheduling-with-predictions.md"


def test_rows_without_predictions_equal_the_docs(data_dir):
    jobs, machine = measured_jobs(Sources.find(str(data_dir))), kw.Cluster.from_nodes(NODES)
    cut = int(0.7 * len(jobs))
    model = power_model(jobs[:cut])
    page = [line.split() for line in PAGE.read_text("utf-8").splitlines()]
    for plan in ("full load", "measured, in hindsight"):
        planned_jobs = jobs if not PLANS[plan] else with_predicted_watts(jobs, machine, PLANS[plan], 344.0)
        row = row_of(plan, simulate_with_budget(planned_jobs[cut:], machine, model, "budget=40%"))
        assert " ".join(row).split() in page


def test_every_plan_has_a_row_under_every_budget():
    metrics = {"mean_wait_s": 60.0, "p95_wait_s": 600.0, "mean_bsld": 2.0, "mean_w": 1e3, "peak_w": 2e3}
    violation = {"time_share": 0.015, "excess_kwh": 1.0, "max_excess_w": 100.0, "budget_w": 1000.0}
    plans = {f"{budget} %, {plan}": metrics | violation for budget in BUDGETS for plan in PLANS}
    results = {"part": "later", "jobs": 9, "idle_w": 20.0, "full_w": 300.0, "plans": plans | {"none": metrics}}
    output = text(results)
    assert output.count("1.50 %") == len(BUDGETS) * len(PLANS) and "10.0 %" in output
    assert "without a budget: 1.00 kW on average, 2.00 kW at most; mean wait 1 min" in output
