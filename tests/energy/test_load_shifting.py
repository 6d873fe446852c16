"""Holding jobs back: tiny examples by hand, laws on random series, and the words of errors."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.load_shifting import GAIA_SLACK_S, RULES, shift_jobs
from kilowait.energy.signals.forecast import Forecast, noisy, perfect, persistence
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.series import Series

HOUR = 3600.0
DAY = 24 * HOUR
AT_SUBMISSION = tuple(rule for rule in RULES if rule != "threshold")


def hourly(*values: float) -> Series:
    return Series(np.arange(len(values) + 1) * HOUR, np.array(values, float), "g/kWh")


def some_jobs(submit_s, estimate_s, **columns) -> JobTable:
    count = len(submit_s)
    given = {"job_id": np.arange(count), "runtime_s": np.ones(count), "nodes": np.ones(count), **columns}
    return JobTable(submit_s=submit_s, estimate_s=estimate_s, **given)


def start_of(signal: Series, rule: str, *, submit_s=0.0, estimate_s=HOUR, slack_s=4 * HOUR, **how) -> float:
    """Until when one job is held; its submission if it is not."""
    return float(
        max(
            shift_jobs(some_jobs([submit_s], [estimate_s]), signal, rule, slack_s=slack_s, **how)[0], submit_s
        )
    )


# -- by hand ----------------------------------------------------------------------------------------


def test_lowest_window_looks_at_the_whole_job():
    signal = hourly(9, 1, 30, 5, 4, 8, 8, 8)
    assert start_of(signal, "lowest_window") == 1 * HOUR
    assert start_of(signal, "lowest_window", estimate_s=2 * HOUR) == 3 * HOUR


def test_a_window_may_begin_so_that_it_ends_with_the_clean_hours():
    """Half an hour of the job has to be spent outside the clean hour, and before it is better than after."""
    signal = hourly(9, 2, 1, 30, 30, 30, 30)
    assert start_of(signal, "lowest_window", estimate_s=1.5 * HOUR, slack_s=3 * HOUR) == 1.5 * HOUR


def test_the_latest_start_is_one_of_the_starts():
    signal = hourly(9, 8, 1, 1, 9, 9)
    assert start_of(signal, "lowest_window", estimate_s=2 * HOUR, slack_s=1.25 * HOUR) == 1.25 * HOUR


def test_lowest_slot_looks_at_the_first_step_only():
    signal = hourly(9, 1, 30, 5, 4, 8)
    assert start_of(signal, "lowest_slot", estimate_s=2 * HOUR) == 1 * HOUR
    assert start_of(signal, "lowest_slot", submit_s=1.5 * HOUR, estimate_s=2 * HOUR) == 1.5 * HOUR


def test_carbon_time_weighs_what_is_saved_against_the_wait():
    signal = hourly(9, 5, 6, 6, 4, 9)
    assert start_of(signal, "lowest_window") == 4 * HOUR, "saves 5 of 9"
    assert start_of(signal, "carbon_time") == 1 * HOUR, "4 for 2 h in the system, against 5 for 5 h"
    assert start_of(hourly(9, 5, 9, 9, -1, 9), "carbon_time") == 1 * HOUR, (
        "4 for 2 h is as good as 10 for 5 h"
    )
    assert start_of(hourly(9, 5, 9, 9, -1.1, 9), "carbon_time") == 4 * HOUR, "and 10.1 for 5 h is better"
    seconds = Series(np.arange(7.0), [9, 5, 9, 9, -1, 9])
    assert start_of(seconds, "carbon_time", estimate_s=1, slack_s=4) == 1, "to the second"


def test_threshold_takes_the_first_hour_below_the_percentile_of_the_day_ahead():
    signal = hourly(9, 8, 7, 2, *[1, 5] * 20)
    assert start_of(signal, "threshold") == 4 * HOUR, (
        "half of the hours are 1, so nothing is below it but 1 itself"
    )
    assert start_of(signal, "threshold:percentile=60") == 3 * HOUR, "60 % are at 5 or below, and 2 is less"
    assert start_of(signal, "threshold", slack_s=2.5 * HOUR) == 2.5 * HOUR, "slack used up"


def test_threshold_in_the_middle_of_a_step_goes_by_that_step():
    signal = hourly(9, 1, *range(3, 40))
    assert start_of(signal, "threshold", submit_s=1.5 * HOUR) == 1.5 * HOUR
    assert start_of(signal, "threshold", submit_s=0.5 * HOUR) == 1 * HOUR


def test_wait_awhile_is_lowest_window_with_the_deadline_at_submission_estimate_and_slack():
    signal = hourly(9, 8, 3, 3, 1, 1)
    assert start_of(signal, "wait_awhile", estimate_s=2 * HOUR, slack_s=3 * HOUR) == 3 * HOUR
    assert start_of(signal, "wait_awhile", estimate_s=2 * HOUR, slack_s=2 * HOUR) == 2 * HOUR


@pytest.mark.parametrize("rule", RULES)
def test_nobody_waits_for_what_does_not_change(rule):
    """Sums of tenths are rounded; that must not look like a saving."""
    flat = Series(np.arange(2001) * 700.0, np.full(2000, 0.1), "g/kWh")
    submit = np.arange(50) * 1234.5
    held = shift_jobs(some_jobs(submit, np.geomspace(1, 1e5, 50)), flat, rule, slack_s=3 * DAY)
    assert (held == -np.inf).all()
    assert start_of(Series.constant(412.3), rule) == 0


@pytest.mark.parametrize("rule", ["lowest_window", "lowest_slot", "carbon_time", "threshold"])
def test_of_equal_starts_the_earliest_is_taken(rule):
    assert start_of(hourly(9, 1, 9, 1, 9, *[9] * 30), rule) == 1 * HOUR


def test_prices_below_zero_are_the_best():
    assert start_of(hourly(3, 0, -5, -4, 2, 2), "lowest_window") == 2 * HOUR
    assert start_of(hourly(3, 0, -5, -4, 2, 2), "carbon_time") == 2 * HOUR


def test_an_estimate_of_nothing_is_planned_as_a_second():
    assert start_of(hourly(3, 2, 1, 4, 4, 4), "lowest_window", estimate_s=0) == 2 * HOUR


# -- slack ------------------------------------------------------------------------------------------


def test_the_column_comes_before_the_argument():
    jobs = some_jobs([0, 0, 0], [HOUR] * 3, slack_s=[np.nan, HOUR, 0])
    held = shift_jobs(jobs, hourly(5, 4, 3, 2, 1), "lowest_slot", slack_s=3 * HOUR)
    assert held.tolist() == [3 * HOUR, HOUR, -np.inf]


def test_slack_by_estimate():
    signal = hourly(*range(60, 0, -1))
    jobs = some_jobs([0, 0, 0], [2 * HOUR - 1, 2 * HOUR, 20 * HOUR])
    held = shift_jobs(jobs, signal, "lowest_slot", slack_s=GAIA_SLACK_S)
    assert held.tolist() == [6 * HOUR, DAY, DAY]


def test_no_jobs_and_no_slack_need_no_series():
    nowhere = Series([1e9, 2e9], [1.0])
    assert shift_jobs(some_jobs([], []), nowhere, slack_s=HOUR).shape == (0,)
    assert shift_jobs(some_jobs([0], [9]), nowhere, slack_s=0).tolist() == [-np.inf]


# -- laws -------------------------------------------------------------------------------------------


@st.composite
def cases(draw):
    """A series of irregular steps from 0 on, and jobs that it covers; whole numbers throughout."""
    jobs = draw(
        st.lists(
            st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(1, 25)), min_size=1, max_size=8
        )
    )
    end = max(sum(job) for job in jobs)
    steps = draw(st.lists(st.integers(1, 12), min_size=1, max_size=40))
    edges = [0]
    for step in steps:
        edges.append(edges[-1] + step)
    edges[-1] = max(edges[-1], end)
    values = draw(st.lists(st.integers(-5, 9), min_size=len(steps), max_size=len(steps)))
    return jobs, edges, values


def mean_of(edges, values, start, length) -> Fraction:
    area = sum(
        value * max(0, min(end, start + length) - max(begin, start))
        for begin, end, value in zip(edges, edges[1:], values, strict=False)
    )
    return Fraction(area, length)


def value_at(edges, values, time) -> int:
    return next((value for end, value in zip(edges[1:], values, strict=True) if time < end), values[-1])


def by_trying_all(rule, edges, values, submit, slack, length) -> int:
    """The best of all whole starts: bends of the mean lie at whole times, since all times are whole."""
    now = mean_of(edges, values, submit, length)
    worth = {
        "lowest_window": lambda s: mean_of(edges, values, s, length),
        "wait_awhile": lambda s: mean_of(edges, values, s, length),
        "lowest_slot": lambda s: value_at(edges, values, s),
        "carbon_time": lambda s: (mean_of(edges, values, s, length) - now) / (s - submit + length),
    }[rule]
    return min(range(submit, submit + slack + 1), key=lambda s: (worth(s), s))


def held_by(jobs, edges, values, rule, **how):
    submit, slack, length = np.array(jobs, float).T
    table = some_jobs(submit, length, slack_s=slack, **how)
    return shift_jobs(table, Series(edges, values), rule, slack_s=0)


@pytest.mark.parametrize("rule", AT_SUBMISSION)
@given(case=cases())
def test_no_start_is_better_and_no_earlier_one_as_good(rule, case):
    jobs, edges, values = case
    expected = [by_trying_all(rule, edges, values, *job) for job in jobs]
    found = np.maximum(held_by(jobs, edges, values, rule), [job[0] for job in jobs])
    assert found.tolist() == expected


@given(case=cases(), scale=st.floats(1, 1e4))
def test_held_within_the_slack_and_never_for_worse(case, scale):
    jobs, edges, values = case
    signal = Series(np.array([*edges[:-1], edges[-1] + 1]) * scale, np.array(values) / 3)
    submit, slack, length = np.array(jobs, float).T * scale
    for rule in ("lowest_window", "carbon_time", "lowest_slot"):
        held = shift_jobs(some_jobs(submit, length, slack_s=slack), signal, rule, slack_s=0)
        kept = np.isfinite(held)
        assert (held[kept] > submit[kept]).all() and (held[kept] <= (submit + slack)[kept]).all()
        assert (held[~kept] == -np.inf).all()
        start = np.maximum(held, submit)
        if rule == "lowest_slot":
            assert (signal.at(start) <= signal.at(submit)).all()
        else:
            assert (signal.mean(start, start + length) <= signal.mean(submit, submit + length) + 1e-7).all()


@pytest.mark.parametrize("rule", ["lowest_window", "lowest_slot", "carbon_time"])
@given(case=cases(), seed=st.integers(0, 99))
def test_run_times_are_not_looked_at(rule, case, seed):
    jobs, edges, values = case
    other = np.random.default_rng(seed).integers(1, 1000, len(jobs))
    assert np.array_equal(
        held_by(jobs, edges, values, rule), held_by(jobs, edges, values, rule, runtime_s=other)
    )


@given(
    values=st.lists(st.integers(0, 6), min_size=12, max_size=12),
    steps=st.lists(st.integers(1, 24), min_size=12, max_size=12),
    submit=st.integers(0, 60),
    slack=st.integers(0, 60),
    percentile=st.sampled_from([1, 25, 30, 50, 99, 100]),
)
def test_threshold_is_what_a_loop_over_half_hours_says(values, steps, submit, slack, percentile):
    unit = 1800
    steps[-1] += 300
    edges = np.append(0, np.cumsum(steps))
    line = np.repeat(values, steps)
    expected = submit + slack
    for place, edge in enumerate(edges[:-1].tolist()):
        day = sorted(line[edge : edge + 48].tolist())
        limit = day[math.ceil(percentile * 48 / 100) - 1]
        good = line[edge] < limit or line[edge] == day[0]
        if good and edges[place + 1] > submit:
            expected = min(max(edge, submit), submit + slack)
            break
    jobs = some_jobs([submit * unit], [60])
    signal = Series(edges * unit, values)
    held = shift_jobs(jobs, signal, f"threshold:percentile={percentile}", slack_s=slack * unit)
    assert max(held[0], submit * unit) == expected * unit


def test_many_jobs_are_held_like_one_at_a_time():
    """Jobs are weighed in portions by how many starts they have; nobody may get another's answer."""
    generator = np.random.default_rng(3)
    signal = Series(np.arange(2001) * 600.0, generator.uniform(50, 400, 2000))
    submit, estimate = generator.uniform(0, 5e5, 1500), generator.uniform(0, 1e5, 1500)
    jobs = some_jobs(submit, estimate, slack_s=generator.choice([0, 50, 7e3, 9e4, 3e5], 1500))
    for rule in RULES:
        together = shift_jobs(jobs, signal, rule, slack_s=0)
        for row in range(0, 1500, 50):
            assert shift_jobs(jobs[row : row + 1], signal, rule, slack_s=0)[0] == pytest.approx(
                together[row], abs=1e-6
            )


# -- forecasts --------------------------------------------------------------------------------------


class Told(Forecast):
    """Hands on what another forecast says, and writes down when it was asked."""

    def __init__(self, other: Forecast) -> None:
        self.other, self.horizon_s, self.asked = other, other.horizon_s, []

    def issued(self, at_s: float) -> Series:
        self.asked.append(at_s)
        return self.other.issued(at_s)

    def describe(self) -> str:
        return "told"

    def _issue_time_s(self, at):
        raise NotImplementedError

    def _issued_series(self, issue_s, until_s):
        raise NotImplementedError


@pytest.fixture(scope="module")
def wavy() -> Series:
    generator = np.random.default_rng(0)
    hour = np.arange(24 * 20)
    return Series(
        np.arange(24 * 20 + 1) * HOUR, 200 + 90 * np.sin(hour / 24 * 2 * np.pi) + generator.normal(0, 30, 480)
    )


@pytest.fixture(scope="module")
def crowd() -> JobTable:
    generator = np.random.default_rng(1)
    return some_jobs(generator.uniform(2 * DAY, 12 * DAY, 300), generator.uniform(60, DAY, 300))


@pytest.mark.parametrize("rule", RULES)
def test_a_perfect_forecast_is_the_signal_itself(rule, wavy, crowd):
    plain = shift_jobs(crowd, wavy, rule, slack_s=DAY)
    assert np.array_equal(shift_jobs(crowd, wavy, rule, slack_s=DAY, forecast=perfect(wavy)), plain)
    assert np.isfinite(plain).mean() > 0.5


@pytest.mark.parametrize("rule", AT_SUBMISSION)
def test_a_job_is_told_one_forecast_issued_before_it_came(rule, wavy, crowd):
    for row in range(5):
        told = Told(perfect(wavy))
        job = crowd[row : row + 1]
        shift_jobs(job, wavy, rule, slack_s=DAY, forecast=told)
        (asked,) = told.asked
        assert job["submit_s"][0] - HOUR < asked <= job["submit_s"][0]


def test_each_issue_is_asked_for_once(wavy, crowd):
    told = Told(perfect(wavy))
    shift_jobs(crowd, wavy, slack_s=DAY, forecast=told, issue_s=6 * HOUR)
    assert sorted(told.asked) == sorted(set(told.asked))
    assert set(told.asked) == set((crowd["submit_s"] // (6 * HOUR) * 6 * HOUR).tolist())


@pytest.mark.parametrize("rule", RULES)
def test_what_comes_after_the_forecast_changes_nothing(rule, wavy):
    """Persistence knows the past alone: where the future changes at noon of day 5, holds decided by then are the same.

    The threshold rule goes on deciding while a job waits, so of its holds only those that end by then are.
    """
    change_s = 5.5 * DAY
    other = Series(wavy.edge_s, np.where(wavy.edge_s[:-1] >= change_s, 999 - wavy.value, wavy.value))
    jobs = some_jobs(np.linspace(4 * DAY, change_s, 60), np.full(60, 5 * HOUR))
    one, two = (
        shift_jobs(jobs, truth, rule, slack_s=DAY, forecast=persistence(truth)) for truth in (wavy, other)
    )
    known = np.minimum(one, two) < change_s if rule == "threshold" else np.full(60, True)
    assert known.sum() > 20
    assert np.array_equal(one[known], two[known])
    seen = [shift_jobs(jobs, truth, rule, slack_s=DAY) for truth in (wavy, other)]
    assert not np.array_equal(*seen), "a look at the signal itself would show"


def test_a_wrong_forecast_costs(wavy, crowd):
    def mean_g(forecast: Forecast | None) -> float:
        held = shift_jobs(crowd, wavy, slack_s=DAY, forecast=forecast)
        start = np.maximum(held, crowd["submit_s"])
        return float(wavy.mean(start, start + crowd["estimate_s"]).mean())

    at_once = float(wavy.mean(crowd["submit_s"], crowd["submit_s"] + crowd["estimate_s"]).mean())
    assert mean_g(None) < mean_g(noisy(wavy, [0.2], seed=0)) < at_once


# -- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_a_series_too_short_names_what_is_missing(rule):
    signal = hourly(*[1.0] * 10)
    with pytest.raises(InputError, match=rf"load shifting by {rule} needs .* missing 36000 s to"):
        shift_jobs(some_jobs([5 * HOUR], [3 * HOUR]), signal, rule, slack_s=6 * HOUR)
    with pytest.raises(InputError, match="missing -1 s to 0 s"):
        shift_jobs(some_jobs([-1], [60]), hourly(*[1.0] * 60), rule, slack_s=HOUR)


@pytest.mark.parametrize("rule", RULES)
def test_a_forecast_too_short_says_so(rule, wavy):
    short = perfect(wavy, horizon_s=8 * HOUR)
    with pytest.raises(InputError, match=r"needs a forecast until .* issued at 172800 s ends at 201600 s"):
        shift_jobs(some_jobs([2 * DAY], [4 * HOUR]), wavy, rule, slack_s=9 * HOUR, forecast=short)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("lowest_windw", "unknown load-shifting rule 'lowest_windw'; did you mean 'lowest_window'"),
        ("threshold:percentle=3", "did you mean 'percentile'"),
        ("lowest_slot:percentile=3", "unknown parameter of rule 'lowest_slot'"),
    ],
)
def test_unknown_names(rule, says):
    with pytest.raises(UnknownNameError, match=says):
        start_of(hourly(1, 2), rule)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("threshold:30", "'30' is not written as name=value"),
        ("threshold:percentile=low", "'low', which is not a number"),
        ("threshold:percentile=0", "percentile is 0; it must be above 0"),
        ("threshold:percentile=101", "percentile is 101"),
        ("threshold:percentile=nan", "percentile is nan"),
    ],
)
def test_bad_parameters(rule, says):
    with pytest.raises(InputError, match=says):
        start_of(hourly(1, 2), rule)


@pytest.mark.parametrize("slack_s", [-1, math.inf, math.nan, {math.inf: -1}])
def test_bad_slack(slack_s):
    with pytest.raises(InputError, match=r"slack_s is .* 0 or more"):
        start_of(hourly(*[1] * 20), "lowest_window", slack_s=slack_s)


def test_slack_by_estimate_must_cover_all_jobs():
    with pytest.raises(InputError, match="has no entry for estimates of 7200 s"):
        start_of(hourly(*[1] * 20), "lowest_window", estimate_s=7200, slack_s={7200: 60})
    jobs = some_jobs([0], [7200], slack_s=[60])
    assert shift_jobs(jobs, hourly(5, 5, 5), slack_s={7200: 60}).tolist() == [-np.inf], "its own is known"


def test_forecasts_must_be_issued_now_and_then():
    with pytest.raises(InputError, match="issue_s is 0"):
        start_of(hourly(*[1] * 20), "lowest_window", issue_s=0)
