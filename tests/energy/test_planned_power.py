"""Watts that levers plan with, apart from those that are drawn: budgets by the one, accounts by the other."""

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


def jobs(drawn, planned=None) -> JobTable:
    """Jobs of one node and an hour, all at once."""
    n = len(drawn)
    made = JobTable(job_id=range(n), submit_s=[0] * n, runtime_s=[HOUR] * n, nodes=[1] * n, power_w=drawn)
    return made if planned is None else made.with_columns(predicted_power_w=planned)


def ran(text: str, table: JobTable):
    found = resolve_controls(text, table, NODES, TAURUS)
    log = kw.simulate(found.jobs, NODES, power_controls=found.controls, backfill="none")
    return found, log.jobs()["start_s"], account_energy(log, NODES, TAURUS, tables=found.tables)


def test_a_budget_is_planned_with_what_is_expected_and_accounted_with_what_is_drawn():
    # Each draws 50 W above idle; expected are 100, so one at a time: kept, and slow.
    _, start, spent = ran("budget=480W", jobs([145.0, 145.0], [195.0, 195.0]))
    assert start.tolist() == [0, HOUR] and spent.peak_it_w == 3 * 95 + 145
    # Expected are 30 W: both at once, and 20 W too much.
    found, start, spent = ran(BUDGET, jobs([150.0, 150.0, 145.0], [125.0] * 3))
    assert start.tolist() == [0, 0, 0] and spent.peak_it_w == 95 + 150 + 150 + 145
    above = budget_violation(spent, found.budget_w)
    assert above == BudgetViolation(1.0, pytest.approx(0.06), 60.0, 480.0)
    assert above.description == "exceeded 100 % of the time, by 0.06 kW (12 %) at most"
    assert "by the predicted power of jobs" in found.description


def test_without_the_column_levers_see_what_was_measured():
    found, start, spent = ran(BUDGET, jobs([145.0, 145.0, 145.0]))
    assert start.tolist() == [0, 0, HOUR] and budget_violation(spent, found.budget_w).max_excess_w == 0
    assert budget_violation(spent, found.budget_w).description == "never exceeded"
    same, again, _ = ran(BUDGET, jobs([999.0] * 3, [145.0] * 3))
    np.testing.assert_array_equal(again, start)
    np.testing.assert_array_equal(same.controls.watts, found.controls.watts)


def test_the_models_watts_where_nothing_is_expected():
    unknown = [np.nan] * 3
    found, start, _ = ran(BUDGET, jobs([100.0] * 3, unknown))
    assert start.tolist() == [0, HOUR, 2 * HOUR]  # 96 W above idle by the model
    assert with_planned_power(jobs([100.0] * 3, unknown))["power_w"].tolist() == pytest.approx(
        unknown, nan_ok=True
    )
    busy = jobs([100.0] * 3, unknown).with_columns(cpu_utilization=[0.1] * 3)
    assert "cpu_utilization" not in with_planned_power(busy)  # nobody knows it beforehand
    np.testing.assert_array_equal(
        resolve_controls(BUDGET, busy, NODES, TAURUS).controls.watts, found.controls.watts
    )


def test_levels_are_chosen_by_what_is_expected():
    # Where free nodes sleep it pays to slow down what draws much, and not what draws little.
    text = "dvfs=1.5+sleep=break-even"
    hot, cool = jobs([190.0], [100.0]), jobs([190.0], [190.0])
    preferred = [
        resolve_controls(text, one, NODES, TAURUS).controls.preferred_level[0] for one in (hot, cool)
    ]
    assert (
        preferred[0]
        != preferred[1]
        == resolve_controls(text, jobs([190.0]), NODES, TAURUS).controls.preferred_level[0]
    )
    tables = [resolve_controls(text, one, NODES, TAURUS).tables["nodes"].power_w for one in (hot, cool)]
    np.testing.assert_array_equal(tables[0], tables[1])


def test_the_hour_to_hold_to_does_not_depend_on_watts():
    # They multiply the grams of every start of a job alike.
    grams = Series([0, HOUR, 2 * HOUR, 40 * HOUR], [300, 100, 200], "g/kWh")
    for rule in ("lowest_window", "carbon_time", "lowest_slot"):
        until = [
            resolve_controls(f"shift={rule}:3h", jobs([150.0], [watts]), NODES, TAURUS, carbon=grams).jobs[
                "hold_until_s"
            ]
            for watts in (10.0, 190.0)
        ]
        np.testing.assert_array_equal(*until)


def test_a_daily_budget_is_looked_at_step_by_step():
    # Drawn: 475 W for two hours; allowed: 480 W, and 470 W from 1 to 2 o'clock.
    table = jobs([145.0]).with_columns(runtime_s=[2 * HOUR], estimate_s=[2 * HOUR], predicted_power_w=[100.0])
    _, _, spent = ran("budget=480W", table.with_columns(power_w=[190.0]))
    above = budget_violation(spent, ((-math.inf, 480), (HOUR, 470), (2 * HOUR, 480)))
    assert (above.time_share, above.max_excess_w, above.budget_w) == (0.5, 5.0, 470.0)
    assert above.excess_kwh == pytest.approx(0.005)
