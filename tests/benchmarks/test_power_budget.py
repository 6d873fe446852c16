"""The table of budgets: rows that need no prediction are those of the page, and its words are made of small figures."""

from __future__ import annotations

from pathlib import Path

from benchmarks.reproduce.data_paths import Sources
from benchmarks.reproduce.power_budget import (
    BUDGETS,
    NODES,
    PLANS,
    measured_jobs,
    power_model,
    replayed,
    row_of,
    text,
)

import kilowait as kw
from kilowait.experiments.predict_power import with_predicted_watts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scheduling-with-predictions.md"


def test_rows_without_predictions_are_those_of_the_page(data_dir):
    jobs, machine = measured_jobs(Sources.find(str(data_dir))), kw.Cluster.from_nodes(NODES)
    cut = int(0.7 * len(jobs))
    model = power_model(jobs[:cut])
    page = [line.split() for line in PAGE.read_text("utf-8").splitlines()]
    for words in ("full load", "measured, in hindsight"):
        told = jobs if not PLANS[words] else with_predicted_watts(jobs, machine, PLANS[words], 344.0)
        row = row_of(words, replayed(told[cut:], machine, model, "budget=40%"))
        assert " ".join(row).split() in page


def test_every_plan_has_a_row_under_every_budget():
    figures = {"mean_wait_s": 60.0, "p95_wait_s": 600.0, "mean_bsld": 2.0, "mean_w": 1e3, "peak_w": 2e3}
    above = {"share": 0.015, "kwh": 1.0, "most_w": 100.0, "budget_w": 1000.0}
    plans = {f"{budget} %, {words}": figures | above for budget in BUDGETS for words in PLANS}
    found = {"part": "later", "jobs": 9, "idle_w": 20.0, "full_w": 300.0, "plans": plans | {"none": figures}}
    shown = text(found)
    assert shown.count("1.50 %") == len(BUDGETS) * len(PLANS) and "10.0 %" in shown
    assert "without a budget: 1.00 kW on average, 2.00 kW at most; mean wait 1 min" in shown
