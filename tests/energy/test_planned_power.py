"""Power controls plan with predicted power; accounting uses measured power."""

from __future__ import annotations

import math

import numpy as np
import pytest

import kilowait as kw
from kilowait.cluster import Cluster
from kilowait.energy.accounting import account_energy
from kilowait.energy.controls import BudgetViolation, budget_violation, resolve_controls
from kilowait.energy.power import PowerModel
from kilowait.energy.power.utilization import with_planned_power
from kilowait.jobs import JobTable
from kilowait.series import Series

HOUR = 3600.0
NODES = Cluster.from_nodes(4)
TAURUS = PowerModel.preset("taurus")  # 95 W idle, 191 W at full load
BUDGET = "budget=480W"  # 100 W above four idle nodes


def jobs(measured_w, predicted_w=None) -> JobTable:
    """Jobs of one node and one hour, all submitted at time 0."""
    n = len(measured_w)
    table = JobTable(job_id=range(n), submit_s=[0] * n, runtime_s=[HOUR] * n, nodes=[1] * n, power_w=measured_w)
    return table if predicted_w is None else table.with_columns(predicted_power_w=predicted_w)


def run_with(controls: str, table: JobTable):
    resolved = resolve_controls(controls, table, NODES, TAURUS)
    log = kw.simulate(resolved.jobs, NODES, power_controls=resolved.controls, backfill="none")
    return resolved, log.jobs()["start_s"], account_energy(log, NODES, TAURUS, tables=resolved.tables)


def test_budget_uses_predicted_power_and_accounting_measured_power():
    # Each draws 50 W above idle, predicted are 100 W: the jobs run one after the other.
    _, start, energy = run_with("budget=480W", jobs([145.0, 145.0], [195.0, 195.0]))
    assert start.tolist() == [0, HOUR] and energy.peak_it_w == 3 * 95 + 145
    # Predicted are 30 W above idle: all run at once and exceed the budget.
    controls, start, energy = run_with(BUDGET, jobs([150.0, 150.0, 145.0], [125.0] * 3))
    assert start.tolist() == [0, 0, 0] and energy.peak_it_w == 95 + 150 + 150 + 145
    violation = budget_violation(energy, controls.budget_w)
    assert violation == BudgetViolation(1.0, pytest.approx(0.06), 60.0, 480.0)
    assert violation.description == "exceeded 100 % of the time, by 0.06 kW (12 %) at most"
    assert "by the predicted power of jobs" in controls.description


def test_without_predictions_controls_use_measured_power():
    controls, start, energy = run_with(BUDGET, jobs([145.0, 145.0, 145.0]))
    assert start.tolist() == [0, 0, HOUR] and budget_violation(energy, controls.budget_w).max_excess_w == 0
    assert budget_violation(energy, controls.budget_w).description == "never exceeded"
    unmeasured, unmeasured_start, _ = run_with(BUDGET, jobs([999.0] * 3, [145.0] * 3))
    np.testing.assert_array_equal(unmeasured_start, start)
    np.testing.assert_array_equal(unmeasured.controls.watts, controls.controls.watts)


def test_missing_predictions_fall_back_to_the_power_model():
    unknown = [np.nan] * 3
    controls, start, _ = run_with(BUDGET, jobs([100.0] * 3, unknown))
    assert start.tolist() == [0, HOUR, 2 * HOUR]  # 96 W above idle by the model
    assert with_planned_power(jobs([100.0] * 3, unknown))["power_w"].tolist() == pytest.approx(unknown, nan_ok=True)
    busy = jobs([100.0] * 3, unknown).with_columns(cpu_utilization=[0.1] * 3)
    assert "cpu_utilization" not in with_planned_power(busy)  # unknown before the job has run
    np.testing.assert_array_equal(resolve_controls(BUDGET, busy, NODES, TAURUS).controls.watts, controls.controls.watts)


def test_dvfs_states_are_chosen_by_predicted_power():
    # With node sleep, slowing down pays for jobs of high power and not for those of low power.
    text = "dvfs=1.5+sleep=break-even"
    hot, cool = jobs([190.0], [100.0]), jobs([190.0], [190.0])
    preferred = [resolve_controls(text, table, NODES, TAURUS).controls.preferred_level[0] for table in (hot, cool)]
    assert (
        preferred[0] != preferred[1] == resolve_controls(text, jobs([190.0]), NODES, TAURUS).controls.preferred_level[0]
    )
    tables = [resolve_controls(text, table, NODES, TAURUS).tables["nodes"].power_w for table in (hot, cool)]
    np.testing.assert_array_equal(tables[0], tables[1])


def test_load_shifting_does_not_depend_on_power():
    # Power multiplies the grams of every possible start by the same factor.
    carbon = Series([0, HOUR, 2 * HOUR, 40 * HOUR], [300, 100, 200], "g/kWh")
    for rule in ("lowest_window", "carbon_time", "lowest_slot"):
        until = [
            resolve_controls(f"shift={rule}:3h", jobs([150.0], [watts]), NODES, TAURUS, carbon=carbon).jobs[
                "hold_until_s"
            ]
            for watts in (10.0, 190.0)
        ]
        np.testing.assert_array_equal(*until)


def test_daily_budget_is_checked_per_step():
    # Measured: 475 W for two hours; budget: 480 W, and 470 W from 1 to 2 o'clock.
    table = jobs([145.0]).with_columns(runtime_s=[2 * HOUR], estimate_s=[2 * HOUR], predicted_power_w=[100.0])
    _, _, energy = run_with("budget=480W", table.with_columns(power_w=[190.0]))
    violation = budget_violation(energy, ((-math.inf, 480), (HOUR, 470), (2 * HOUR, 480)))
    assert (violation.time_share, violation.max_excess_w, violation.budget_w) == (0.5, 5.0, 470.0)
    assert violation.excess_kwh == pytest.approx(0.005)
