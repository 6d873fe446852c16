"""What is said of energy: who draws least, by how much, and what that costs in waiting."""

from __future__ import annotations

import math

from kilowait.evaluation.comparison import (
    Comparison,
    EnergyResults,
    PolicyConfig,
    cut_windows,
    single_window,
)
from kilowait.report.comparison_data import ComparisonData
from kilowait.report.energy.data import (
    ControlSavings,
    EnergyData,
    change,
    levers_of,
    scaled,
    sentences,
)
from tests.report.conftest import contest_of, jobs_of

SPENT = {"jobs": 1.0, "idle": 1.0}


def told(rows, *, levers=("none", "sleep=break-even", "dvfs=1.1", "all"), windows=1, policies=None):
    """A contest of given metrics: of each contender energy, CO2, mean wait and bounded slowdown."""
    jobs = jobs_of(300)
    cut = single_window(jobs) if windows == 1 else cut_windows(jobs, windows, window_jobs=5, seed=0)
    policies = policies or ["fcfs"] * len(rows)
    contenders = tuple(
        PolicyConfig(policy, "easy", levers=text)
        for policy, text in zip(policies, levers[: len(rows)], strict=True)
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
    record = EnergyResults(cells, (SPENT,) * len(rows))
    contest = Comparison("x", 32, cut, contenders, lambda who, window: None, energy=record)
    contest.__dict__["table"] = cells
    if windows == 1:  # there are no logs to take batches from
        found = ComparisonData(contest, 0)
        found.__dict__.update(bsld=None, wait=None)
        return found
    return ComparisonData(contest, 0)


ROWS = [(1000.0, 300.0, 3600.0, 5.0), (900.0, 270.0, 3600.0, 5.0), (950.0, 240.0, 4000.0, 6.0)]


def test_who_draws_least_and_what_it_costs_in_waiting():
    said = sentences(told([*ROWS, (700.0, 200.0, 7200.0, 12.5)]))
    assert said[0] == "fcfs, all draws least energy: 700.0 kWh, 30.0 % less than fcfs."
    assert said[1] == "It also emits least CO2: 200.0 kg, 33.3 % less than fcfs."
    assert said[2] == (
        "That costs waiting: under fcfs, all instead of fcfs the mean wait rises from 1 h 0 min to 2 h 0 min, the mean "
        "bounded slowdown from 5.00 to 12.5."
    )
    assert said[3] == (
        "At no longer a mean wait fcfs, sleep=break-even saves most: 10.0 % of the energy of fcfs."
    )


def test_a_saving_that_costs_nothing():
    assert sentences(told([*ROWS, (700.0, 200.0, 1800.0, 4.0)]))[2] == (
        "Jobs wait no longer for that: the mean wait falls from 1 h 0 min to 30 min."
    )
    assert sentences(told(ROWS[:2]))[2] == "Jobs wait no longer for that: 1 h 0 min on average."


def test_the_least_co2_may_be_anothers():
    said = sentences(told(ROWS))
    assert said[0].startswith("fcfs, sleep=break-even draws least")
    assert said[1] == "fcfs, dvfs=1.1 emits least CO2: 240.0 kg, 20.0 % less than fcfs."


def test_nothing_saved_is_said_to_be_so():
    more = (1100.0, 330.0, 60.0, 1.0)
    assert sentences(told([ROWS[0], more])) == [
        "Nobody draws less energy than fcfs: 1,000 kWh.",
        "Nobody emits less CO2 than fcfs: 300.0 kg.",
    ]
    dear = sentences(told([ROWS[0], more, (900.0, 400.0, 9000.0, 9.0)]))
    assert dear[-1] == "Nobody saves energy at no longer a mean wait than fcfs."


def test_windows_give_a_verdict():
    said = sentences(told(ROWS[:2], windows=24))
    assert said[0].startswith("fcfs, sleep=break-even draws least energy: 1,107 kWh a window. fcfs, ")
    assert "fcfs, sleep=break-even has 10 % lower energy than fcfs, 95 % interval" in said[0]
    assert "wins 24 of 24 windows" in said[0]


def test_one_contender_is_told_by_itself():
    said = sentences(told(ROWS[:1]))
    assert said == ["The nodes draw 1,000 kWh, with the building 1,500 kWh; that is 300.0 kg of CO2."]


def test_without_a_record_nothing_is_said(contest):
    assert sentences(ComparisonData(contest, 0)) == []
    assert EnergyData.of(ComparisonData(contest, 0)) is None


def test_the_front_is_whom_nobody_beats_in_both():
    rows = [
        (1000.0, 1.0, 100.0, 1.0),
        (900.0, 1.0, 150.0, 1.0),
        (950.0, 1.0, 160.0, 1.0),  # beaten by the one before
        (800.0, 1.0, 150.0, 1.0),  # beats it at the same wait
        (800.0, 1.0, 170.0, 1.0),
        (990.0, 1.0, math.nan, 1.0),
    ]
    texts = ("none", "dvfs=1.1", "dvfs=1.2", "dvfs=1.3", "dvfs=1.4", "dvfs=1.5")
    drew = EnergyData.of(told(rows, levers=texts))
    assert drew.front("energy_kwh") == (3, 0)
    brute = {
        a
        for a, (energy, _, wait, _) in enumerate(rows[:5])
        if not any(
            e <= energy and w <= wait and (e, w) != (energy, wait)
            for b, (e, _, w, _) in enumerate(rows[:5])
            if b != a
        )
    }
    assert set(drew.front("energy_kwh")) == brute


def test_levers_alone_and_together():
    rows = [*ROWS, (700.0, 200.0, 7200.0, 12.5)]
    assert EnergyData.of(told(rows)).levers == (ControlSavings(0, (1, 2), (3,), True),)
    both = ("none", "sleep=break-even", "dvfs=1.1", "sleep=break-even+dvfs=1.1")
    assert EnergyData.of(told(rows, levers=both)).levers == (ControlSavings(0, (1, 2), (3,), True),)
    assert EnergyData.of(told(rows[:2])).levers == (), "one lever is no split"
    assert EnergyData.of(told(rows[1:], levers=both[1:])).levers == (), "nobody without levers"
    twice = ("none", "sleep=break-even", "sleep=timeout:60", "all")
    assert not EnergyData.of(told(rows, levers=twice)).levers[0].added, "two ways to sleep do not add up"
    apart = EnergyData.of(told(rows, policies=["fcfs", "saf", "saf", "saf"]))
    assert apart.levers == (), "another rule is another scheduler"
    assert levers_of(PolicyConfig("fcfs", "easy")) == ()


def test_units_fit_the_largest():
    assert [scaled([value], "kWh").unit for value in (9_999.0, 10_000.0, 2e7, 3e13)] == [
        "kWh",
        "MWh",
        "GWh",
        "GWh",
    ]
    scale = scaled([12_000.0, 150_000.0], "kg")
    assert [scale.told(value) for value in (12_000.0, 150_000.0, math.nan)] == ["12.0", "150.0", "–"]
    assert scaled([0.0, math.nan], "kWh").told(0.0) == "0"
    assert scaled([5e6], "").unit == "", "money has no larger unit"
    assert [change(ratio) for ratio in (math.nan, 0.99999, 0.5, 3.0)] == ["–", "0 %", "−50.0 %", "+200 %"]


def test_savers_are_drawn_too():
    names = ("fcfs", "sjf", "saf", "f1", "lxf", "wfp3", "unicef", "smallest")
    rows = [(1000.0 - 10 * n, 1.0, 60.0, 10.0 - (n == 1) - 2.0 * (n in (2, 3, 4, 5, 6))) for n in range(8)]
    found = told(rows, levers=("none",) * 8, policies=names)
    assert {0, 7} <= set(found.shown), "the first, and who draws least"


def test_names_in_figures_are_short_where_only_levers_differ():
    assert told(ROWS).names == ("no lever", "sleep=break-even", "dvfs=1.1")
    assert told(ROWS, policies=["fcfs", "fcfs", "saf"]).names[2] == "saf, dvfs=1.1"
    assert ComparisonData(contest_of(jobs_of(40), ("fcfs",)), 0).names == ("fcfs",)


def test_first_come_first_served_is_the_one_without_levers():
    found = told(ROWS[::-1], levers=("dvfs=1.1", "sleep=break-even", "none"))
    assert found.plain == 2
    assert EnergyData.of(found).first == 0, "savings are against the first"


def test_how_much_can_be_saved_at_all(powered):
    found = ComparisonData(powered, 0)
    drew = EnergyData.of(found)
    most = 100 * (1 - drew.bound_kwh / drew.means("energy_kwh")[0])
    assert sentences(found)[-1].startswith(
        f"No schedule can save more than {most:.1f} % of the energy of fcfs"
    )
    assert math.isnan(EnergyData.of(told(ROWS)).bound_kwh)


def test_the_last_digits_make_nobody_better():
    noisy = (ROWS[0][0] - 1e-11, *ROWS[0][1:])
    assert sentences(told([ROWS[0], noisy]))[0] == "Nobody draws less energy than fcfs: 1,000 kWh."
