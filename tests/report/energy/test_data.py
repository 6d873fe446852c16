"""Energy data and sentences: lowest energy and CO2, savings, and the effect on waits."""

from __future__ import annotations

import math

from kilowait.evaluation.comparison import Comparison, EnergyResults, PolicyConfig, cut_windows, single_window
from kilowait.report.data.comparison import ComparisonData
from kilowait.report.data.control_savings import ControlSavings, control_savings, controls_of
from kilowait.report.data.energy import EnergyData, key_numbers, sentences
from kilowait.report.format import change, scaled
from tests.report.conftest import comparison_of, jobs_of

ENERGY_BY_STATE = {"jobs": 1.0, "idle": 1.0}


def data_of(rows, *, power_controls=("none", "sleep=break-even", "dvfs=1.1", "all"), windows=1, policies=None):
    """A comparison with given energy, CO2, mean wait and bounded slowdown of each policy."""
    jobs = jobs_of(300)
    cut = single_window(jobs) if windows == 1 else cut_windows(jobs, windows, window_jobs=5, seed=0)
    policies = policies or ["fcfs"] * len(rows)
    policies = tuple(
        PolicyConfig(policy, "easy", power_controls=text)
        for policy, text in zip(policies, power_controls[: len(rows)], strict=True)
    )
    names = ("energy_kwh", "co2_kg", "mean_wait_s", "mean_bsld")
    cells = tuple(
        tuple(
            dict(zip(names, (row[0] * (1 + n / 50), row[1] * (1 + n / 50), *row[2:]), strict=True))
            | {"facility_kwh": 1.5 * row[0]}
            for n in range(windows)
        )
        for row in rows
    )
    record = EnergyResults(cells, (ENERGY_BY_STATE,) * len(rows))
    comparison = Comparison("x", 32, cut, policies, lambda index, window: None, energy=record)
    comparison.__dict__["table"] = cells
    if windows == 1:  # there are no logs to take batches from
        data = ComparisonData(comparison, 0)
        data.__dict__.update(bsld=None, wait=None)
        return data
    return ComparisonData(comparison, 0)


ROWS = [(1000.0, 300.0, 3600.0, 5.0), (900.0, 270.0, 3600.0, 5.0), (950.0, 240.0, 4000.0, 6.0)]


def test_lowest_energy_and_its_effect_on_waits():
    text_lines = sentences(data_of([*ROWS, (700.0, 200.0, 7200.0, 12.5)]))
    assert text_lines.pop(0) == "fcfs, sleep=break-even saves 10.0 % of the energy of fcfs without a longer mean wait."
    assert text_lines[0] == "fcfs, all uses the least energy: 700.0 kWh, 30.0 % less than fcfs."
    assert text_lines[1] == "It also emits the least CO2: 200.0 kg, 33.3 % less than fcfs."
    assert text_lines[2] == (
        "This increases waits: with fcfs, all instead of fcfs, the mean wait increases from 1 h 0 min to 2 h 0 "
        "min, the "
        "mean bounded slowdown from 5.00 to 12.5."
    )
    assert text_lines[3] == (
        "Without a longer mean wait, fcfs, sleep=break-even saves most: 10.0 % of the energy of fcfs."
    )


def test_saving_without_longer_waits():
    text_lines = sentences(data_of([*ROWS, (700.0, 200.0, 1800.0, 4.0)]))
    assert text_lines[0] == (
        "fcfs, all saves 30.0 % of the energy of fcfs, and the mean wait decreases from 1 h 0 min to 30 min."
    )
    assert len(text_lines) == 3, "the effect on waits is not said twice"
    assert sentences(data_of(ROWS[:2]))[0] == (
        "fcfs, sleep=break-even saves 10.0 % of the energy of fcfs without a longer mean wait."
    )


def test_summary_begins_with_the_useful_saving():
    """One control saves nearly as much as all of them, which make jobs wait for hours."""
    data = data_of(
        [
            (1000.0, 300.0, 600.0, 5.0),
            (590.0, 180.0, 660.0, 5.5),
            (900.0, 1.0, 600.0, 5.0),
            (540.0, 150.0, 7200.0, 50.0),
        ]
    )
    assert sentences(data)[0] == (
        "fcfs, sleep=break-even saves 41.0 % of the energy of fcfs, and the mean wait increases by 1 min, from 10 min "
        "to 11 min."
    )
    assert key_numbers(EnergyData.of(data))[0] == (
        "−41.0 %",
        "energy",
        "fcfs, sleep=break-even against fcfs; mean wait +1 min",
    )


def test_lowest_co2_may_be_of_another_policy():
    text_lines = sentences(data_of(ROWS))
    assert text_lines[1].startswith("fcfs, sleep=break-even uses the least")
    assert text_lines[2] == "fcfs, dvfs=1.1 emits the least CO2: 240.0 kg, 20.0 % less than fcfs."


def test_sentences_without_savings():
    higher = (1100.0, 330.0, 60.0, 1.0)
    assert sentences(data_of([ROWS[0], higher])) == [
        "No policy uses less energy than fcfs: 1,000 kWh.",
        "No policy emits less CO2 than fcfs: 300.0 kg.",
    ]
    with_longer_waits = sentences(data_of([ROWS[0], higher, (900.0, 400.0, 9000.0, 9.0)]))
    assert with_longer_waits[-1] == "No policy saves energy without a longer mean wait than fcfs."


def test_windows_give_a_significance_result():
    text_lines = sentences(data_of(ROWS[:2], windows=24))[1:]
    assert text_lines[0].startswith("fcfs, sleep=break-even uses the least energy: 1,107 kWh per window. fcfs, ")
    assert "fcfs, sleep=break-even has 10 % lower energy than fcfs (95 % interval" in text_lines[0]
    assert "wins 24 of 24 windows" in text_lines[0]


def test_sentence_of_a_single_policy():
    text_lines = sentences(data_of(ROWS[:1]))
    assert text_lines == ["The nodes use 1,000 kWh, the facility 1,500 kWh; that is 300.0 kg of CO2."]


def test_no_sentences_without_energy_results(comparison):
    assert sentences(ComparisonData(comparison, 0)) == []
    assert EnergyData.of(ComparisonData(comparison, 0)) is None


def test_pareto_front():
    rows = [
        (1000.0, 1.0, 100.0, 1.0),
        (900.0, 1.0, 150.0, 1.0),
        (950.0, 1.0, 160.0, 1.0),  # dominated by the previous one
        (800.0, 1.0, 150.0, 1.0),  # dominates it at the same wait
        (800.0, 1.0, 170.0, 1.0),
        (990.0, 1.0, math.nan, 1.0),
    ]
    texts = ("none", "dvfs=1.1", "dvfs=1.2", "dvfs=1.3", "dvfs=1.4", "dvfs=1.5")
    energy_data = EnergyData.of(data_of(rows, power_controls=texts))
    assert energy_data.pareto_front("energy_kwh") == (3, 0)
    brute_force = {
        a
        for a, (energy, _, wait, _) in enumerate(rows[:5])
        if not any(
            e <= energy and w <= wait and (e, w) != (energy, wait) for b, (e, _, w, _) in enumerate(rows[:5]) if b != a
        )
    }
    assert set(energy_data.pareto_front("energy_kwh")) == brute_force


def test_control_savings():
    rows = [*ROWS, (700.0, 200.0, 7200.0, 12.5)]
    assert control_savings(EnergyData.of(data_of(rows))) == (ControlSavings(0, (1, 2), (3,), True),)
    combined = ("none", "sleep=break-even", "dvfs=1.1", "sleep=break-even+dvfs=1.1")
    assert control_savings(EnergyData.of(data_of(rows, power_controls=combined))) == (
        ControlSavings(0, (1, 2), (3,), True),
    )
    assert control_savings(EnergyData.of(data_of(rows[:2]))) == (), "a single control cannot be split"
    assert control_savings(EnergyData.of(data_of(rows[1:], power_controls=combined[1:]))) == (), "no baseline"
    two_sleep_policies = ("none", "sleep=break-even", "sleep=timeout:60", "all")
    assert not control_savings(EnergyData.of(data_of(rows, power_controls=two_sleep_policies)))[0].additive, (
        "two sleep policies"
    )
    other = EnergyData.of(data_of(rows, policies=["fcfs", "saf", "saf", "saf"]))
    assert control_savings(other) == (), "another policy is another scheduler"
    assert controls_of(PolicyConfig("fcfs", "easy")) == ()


def test_units_fit_the_largest_value():
    assert [scaled([value], "kWh").unit for value in (9_999.0, 10_000.0, 2e7, 3e13)] == ["kWh", "MWh", "GWh", "GWh"]
    scale = scaled([12_000.0, 150_000.0], "kg")
    assert [scale.format(value) for value in (12_000.0, 150_000.0, math.nan)] == ["12.0", "150.0", "–"]
    assert scaled([0.0, math.nan], "kWh").format(0.0) == "0"
    assert scaled([5e6], "").unit == "", "money has no larger unit"
    assert [change(ratio) for ratio in (math.nan, 0.99999, 0.5, 3.0)] == ["–", "0 %", "−50.0 %", "+200 %"]


def test_policy_with_the_lowest_energy_is_drawn():
    names = ("fcfs", "sjf", "saf", "f1", "lxf", "wfp3", "unicef", "smallest")
    rows = [(1000.0 - 10 * n, 1.0, 60.0, 10.0 - (n == 1) - 2.0 * (n in (2, 3, 4, 5, 6))) for n in range(8)]
    data = data_of(rows, power_controls=("none",) * 8, policies=names)
    assert {0, 7} <= set(data.shown), "the first policy and the one with the lowest energy"


def test_names_in_figures_are_short_where_only_power_controls_differ():
    assert data_of(ROWS).names == ("no power control", "sleep=break-even", "dvfs=1.1")
    assert data_of(ROWS, policies=["fcfs", "fcfs", "saf"]).names[2] == "saf, dvfs=1.1"
    assert ComparisonData(comparison_of(jobs_of(40), ("fcfs",)), 0).names == ("fcfs",)


def test_fcfs_is_the_policy_without_power_controls():
    data = data_of(ROWS[::-1], power_controls=("dvfs=1.1", "sleep=break-even", "none"))
    assert data.fcfs == 2
    assert EnergyData.of(data).first == 0, "savings are against the first"


def test_highest_possible_saving(energy_run):
    data = ComparisonData(energy_run, 0)
    energy_data = EnergyData.of(data)
    max_saving = 100 * (1 - energy_data.bound_kwh / energy_data.means("energy_kwh")[0])
    assert sentences(data)[-1].startswith(f"No schedule can save more than {max_saving:.1f} % of the energy of fcfs")
    assert math.isnan(EnergyData.of(data_of(ROWS)).bound_kwh)


def test_rounding_errors_do_not_affect_ranks():
    noisy = (ROWS[0][0] - 1e-11, *ROWS[0][1:])
    assert sentences(data_of([ROWS[0], noisy]))[0] == "No policy uses less energy than fcfs: 1,000 kWh."
