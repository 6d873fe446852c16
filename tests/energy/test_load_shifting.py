"""Load shifting: small examples, properties on random series, error messages."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.load_shifting import GAIA_SLACK_S, SHIFT_RULES, shift_jobs
from kilowait.energy.signals.forecast import Forecast, noisy, perfect, persistence
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.series import Series

HOUR = 3600.0
DAY = 24 * HOUR
AT_SUBMISSION = tuple(rule for rule in SHIFT_RULES if rule != "threshold")


def hourly(*values: float) -> Series:
    return Series(np.arange(len(values) + 1) * HOUR, np.array(values, float), "g/kWh")


def make_jobs(submit_s, estimate_s, **columns) -> JobTable:
    count = len(submit_s)
    defaults = {"job_id": np.arange(count), "runtime_s": np.ones(count), "nodes": np.ones(count), **columns}
    return JobTable(submit_s=submit_s, estimate_s=estimate_s, **defaults)


def start_of(signal: Series, rule: str, *, submit_s=0.0, estimate_s=HOUR, slack_s=4 * HOUR, **options) -> float:
    """The time until which one job is delayed; its submission time if it is not."""
    return float(
        max(shift_jobs(make_jobs([submit_s], [estimate_s]), signal, rule, slack_s=slack_s, **options)[0], submit_s)
    )


# -- examples ----------------------------------------------------------------------------------------


def test_lowest_window_uses_the_whole_run_time():
    signal = hourly(9, 1, 30, 5, 4, 8, 8, 8)
    assert start_of(signal, "lowest_window") == 1 * HOUR
    assert start_of(signal, "lowest_window", estimate_s=2 * HOUR) == 3 * HOUR


def test_window_may_end_with_the_clean_hours():
    """Half an hour of the job lies outside the clean hour, and before it is cleaner than after."""
    signal = hourly(9, 2, 1, 30, 30, 30, 30)
    assert start_of(signal, "lowest_window", estimate_s=1.5 * HOUR, slack_s=3 * HOUR) == 1.5 * HOUR


def test_latest_possible_start_is_considered():
    signal = hourly(9, 8, 1, 1, 9, 9)
    assert start_of(signal, "lowest_window", estimate_s=2 * HOUR, slack_s=1.25 * HOUR) == 1.25 * HOUR


def test_lowest_slot_uses_the_first_step_only():
    signal = hourly(9, 1, 30, 5, 4, 8)
    assert start_of(signal, "lowest_slot", estimate_s=2 * HOUR) == 1 * HOUR
    assert start_of(signal, "lowest_slot", submit_s=1.5 * HOUR, estimate_s=2 * HOUR) == 1.5 * HOUR


def test_carbon_time_weighs_savings_against_delay():
    signal = hourly(9, 5, 6, 6, 4, 9)
    assert start_of(signal, "lowest_window") == 4 * HOUR, "saves 5 of 9"
    assert start_of(signal, "carbon_time") == 1 * HOUR, "4 for 2 h in the system, against 5 for 5 h"
    assert start_of(hourly(9, 5, 9, 9, -1, 9), "carbon_time") == 1 * HOUR, "4 for 2 h is as good as 10 for 5 h"
    assert start_of(hourly(9, 5, 9, 9, -1.1, 9), "carbon_time") == 4 * HOUR, "and 10.1 for 5 h is better"
    seconds = Series(np.arange(7.0), [9, 5, 9, 9, -1, 9])
    assert start_of(seconds, "carbon_time", estimate_s=1, slack_s=4) == 1, "to the second"


def test_threshold_takes_the_first_hour_below_the_percentile():
    signal = hourly(9, 8, 7, 2, *[1, 5] * 20)
    assert start_of(signal, "threshold") == 4 * HOUR, "half of the hours are 1, so only hours of 1 qualify"
    assert start_of(signal, "threshold:percentile=60") == 3 * HOUR, "60 % are at 5 or below, and 2 is less"
    assert start_of(signal, "threshold", slack_s=2.5 * HOUR) == 2.5 * HOUR, "slack used up"


def test_threshold_uses_the_step_of_the_submission():
    signal = hourly(9, 1, *range(3, 40))
    assert start_of(signal, "threshold", submit_s=1.5 * HOUR) == 1.5 * HOUR
    assert start_of(signal, "threshold", submit_s=0.5 * HOUR) == 1 * HOUR


def test_wait_awhile_is_lowest_window_with_a_deadline():
    signal = hourly(9, 8, 3, 3, 1, 1)
    assert start_of(signal, "wait_awhile", estimate_s=2 * HOUR, slack_s=3 * HOUR) == 3 * HOUR
    assert start_of(signal, "wait_awhile", estimate_s=2 * HOUR, slack_s=2 * HOUR) == 2 * HOUR


@pytest.mark.parametrize("rule", SHIFT_RULES)
def test_constant_signals_shift_no_job(rule):
    """Rounding errors of sums of tenths must not count as savings."""
    flat = Series(np.arange(2001) * 700.0, np.full(2000, 0.1), "g/kWh")
    submit = np.arange(50) * 1234.5
    shift_until_s = shift_jobs(make_jobs(submit, np.geomspace(1, 1e5, 50)), flat, rule, slack_s=3 * DAY)
    assert (shift_until_s == -np.inf).all()
    assert start_of(Series.constant(412.3), rule) == 0


@pytest.mark.parametrize("rule", ["lowest_window", "lowest_slot", "carbon_time", "threshold"])
def test_earliest_of_equal_starts_is_taken(rule):
    assert start_of(hourly(9, 1, 9, 1, 9, *[9] * 30), rule) == 1 * HOUR


def test_negative_prices_are_best():
    assert start_of(hourly(3, 0, -5, -4, 2, 2), "lowest_window") == 2 * HOUR
    assert start_of(hourly(3, 0, -5, -4, 2, 2), "carbon_time") == 2 * HOUR


def test_estimate_of_zero_counts_as_one_second():
    assert start_of(hourly(3, 2, 1, 4, 4, 4), "lowest_window", estimate_s=0) == 2 * HOUR


# -- slack ------------------------------------------------------------------------------------------


def test_slack_column_overrides_the_argument():
    jobs = make_jobs([0, 0, 0], [HOUR] * 3, slack_s=[np.nan, HOUR, 0])
    shift_until_s = shift_jobs(jobs, hourly(5, 4, 3, 2, 1), "lowest_slot", slack_s=3 * HOUR)
    assert shift_until_s.tolist() == [3 * HOUR, HOUR, -np.inf]


def test_slack_by_estimate():
    signal = hourly(*range(60, 0, -1))
    jobs = make_jobs([0, 0, 0], [2 * HOUR - 1, 2 * HOUR, 20 * HOUR])
    shift_until_s = shift_jobs(jobs, signal, "lowest_slot", slack_s=GAIA_SLACK_S)
    assert shift_until_s.tolist() == [6 * HOUR, DAY, DAY]


def test_no_jobs_and_no_slack_need_no_series():
    nowhere = Series([1e9, 2e9], [1.0])
    assert shift_jobs(make_jobs([], []), nowhere, slack_s=HOUR).shape == (0,)
    assert shift_jobs(make_jobs([0], [9]), nowhere, slack_s=0).tolist() == [-np.inf]


# -- properties ---------------------------------------------------------------------------------------


@st.composite
def cases(draw):
    """A series of irregular integer steps starting at 0, and jobs that it covers."""
    jobs = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(1, 25)), min_size=1, max_size=8))
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


def brute_force_start(rule, edges, values, submit, slack, length) -> int:
    """The best of all integer starts; the mean has its breakpoints at integers, as all times are integers."""
    now = mean_of(edges, values, submit, length)
    cost = {
        "lowest_window": lambda s: mean_of(edges, values, s, length),
        "wait_awhile": lambda s: mean_of(edges, values, s, length),
        "lowest_slot": lambda s: value_at(edges, values, s),
        "carbon_time": lambda s: (mean_of(edges, values, s, length) - now) / (s - submit + length),
    }[rule]
    return min(range(submit, submit + slack + 1), key=lambda s: (cost(s), s))


def shifted(jobs, edges, values, rule, **options):
    submit, slack, length = np.array(jobs, float).T
    table = make_jobs(submit, length, slack_s=slack, **options)
    return shift_jobs(table, Series(edges, values), rule, slack_s=0)


@pytest.mark.parametrize("rule", AT_SUBMISSION)
@given(case=cases())
def test_start_is_the_earliest_optimum(rule, case):
    jobs, edges, values = case
    expected = [brute_force_start(rule, edges, values, *job) for job in jobs]
    found = np.maximum(shifted(jobs, edges, values, rule), [job[0] for job in jobs])
    assert found.tolist() == expected


@given(case=cases(), scale=st.floats(1, 1e4))
def test_shifts_stay_within_the_slack_and_never_cost_more(case, scale):
    jobs, edges, values = case
    signal = Series(np.array([*edges[:-1], edges[-1] + 1]) * scale, np.array(values) / 3)
    submit, slack, length = np.array(jobs, float).T * scale
    for rule in ("lowest_window", "carbon_time", "lowest_slot"):
        shift_until_s = shift_jobs(make_jobs(submit, length, slack_s=slack), signal, rule, slack_s=0)
        delayed = np.isfinite(shift_until_s)
        assert (shift_until_s[delayed] > submit[delayed]).all() and (
            shift_until_s[delayed] <= (submit + slack)[delayed]
        ).all()
        assert (shift_until_s[~delayed] == -np.inf).all()
        start = np.maximum(shift_until_s, submit)
        if rule == "lowest_slot":
            assert (signal.at(start) <= signal.at(submit)).all()
        else:
            assert (signal.mean(start, start + length) <= signal.mean(submit, submit + length) + 1e-7).all()


@pytest.mark.parametrize("rule", ["lowest_window", "lowest_slot", "carbon_time"])
@given(case=cases(), seed=st.integers(0, 99))
def test_true_run_times_are_not_used(rule, case, seed):
    jobs, edges, values = case
    other = np.random.default_rng(seed).integers(1, 1000, len(jobs))
    assert np.array_equal(shifted(jobs, edges, values, rule), shifted(jobs, edges, values, rule, runtime_s=other))


@given(
    values=st.lists(st.integers(0, 6), min_size=12, max_size=12),
    steps=st.lists(st.integers(1, 24), min_size=12, max_size=12),
    submit=st.integers(0, 60),
    slack=st.integers(0, 60),
    percentile=st.sampled_from([1, 25, 30, 50, 99, 100]),
)
def test_threshold_equals_a_loop_over_half_hours(values, steps, submit, slack, percentile):
    unit = 1800
    steps[-1] += 300
    edges = np.append(0, np.cumsum(steps))
    line = np.repeat(values, steps)
    expected = submit + slack
    for step_index, edge in enumerate(edges[:-1].tolist()):
        day = sorted(line[edge : edge + 48].tolist())
        limit = day[math.ceil(percentile * 48 / 100) - 1]
        qualifies = line[edge] < limit or line[edge] == day[0]
        if qualifies and edges[step_index + 1] > submit:
            expected = min(max(edge, submit), submit + slack)
            break
    jobs = make_jobs([submit * unit], [60])
    signal = Series(edges * unit, values)
    shift_until_s = shift_jobs(jobs, signal, f"threshold:percentile={percentile}", slack_s=slack * unit)
    assert max(shift_until_s[0], submit * unit) == expected * unit


def test_jobs_are_shifted_independently():
    """Jobs are computed in blocks by number of possible starts; results must stay with their jobs."""
    generator = np.random.default_rng(3)
    signal = Series(np.arange(2001) * 600.0, generator.uniform(50, 400, 2000))
    submit, estimate = generator.uniform(0, 5e5, 1500), generator.uniform(0, 1e5, 1500)
    jobs = make_jobs(submit, estimate, slack_s=generator.choice([0, 50, 7e3, 9e4, 3e5], 1500))
    for rule in SHIFT_RULES:
        together = shift_jobs(jobs, signal, rule, slack_s=0)
        for row in range(0, 1500, 50):
            assert shift_jobs(jobs[row : row + 1], signal, rule, slack_s=0)[0] == pytest.approx(together[row], abs=1e-6)


# -- forecasts --------------------------------------------------------------------------------------


class RecordingForecast(Forecast):
    """Wraps a forecast and records the times at which it was requested."""

    def __init__(self, other: Forecast) -> None:
        self.other, self.horizon_s, self.requested_s = other, other.horizon_s, []

    def issued(self, at_s: float) -> Series:
        self.requested_s.append(at_s)
        return self.other.issued(at_s)

    def describe(self) -> str:
        return "recording"

    def _issue_time_s(self, at):
        raise NotImplementedError

    def _issued_series(self, issue_s, until_s):
        raise NotImplementedError


@pytest.fixture(scope="module")
def daily_signal() -> Series:
    generator = np.random.default_rng(0)
    hour = np.arange(24 * 20)
    return Series(
        np.arange(24 * 20 + 1) * HOUR, 200 + 90 * np.sin(hour / 24 * 2 * np.pi) + generator.normal(0, 30, 480)
    )


@pytest.fixture(scope="module")
def jobs() -> JobTable:
    generator = np.random.default_rng(1)
    return make_jobs(generator.uniform(2 * DAY, 12 * DAY, 300), generator.uniform(60, DAY, 300))


@pytest.mark.parametrize("rule", SHIFT_RULES)
def test_perfect_forecast_equals_the_signal(rule, daily_signal, jobs):
    expected = shift_jobs(jobs, daily_signal, rule, slack_s=DAY)
    assert np.array_equal(shift_jobs(jobs, daily_signal, rule, slack_s=DAY, forecast=perfect(daily_signal)), expected)
    assert np.isfinite(expected).mean() > 0.5


@pytest.mark.parametrize("rule", AT_SUBMISSION)
def test_forecast_is_issued_before_the_submission(rule, daily_signal, jobs):
    for row in range(5):
        recorder = RecordingForecast(perfect(daily_signal))
        job = jobs[row : row + 1]
        shift_jobs(job, daily_signal, rule, slack_s=DAY, forecast=recorder)
        (requested_s,) = recorder.requested_s
        assert job["submit_s"][0] - HOUR < requested_s <= job["submit_s"][0]


def test_each_forecast_issue_is_requested_once(daily_signal, jobs):
    recorder = RecordingForecast(perfect(daily_signal))
    shift_jobs(jobs, daily_signal, slack_s=DAY, forecast=recorder, issue_s=6 * HOUR)
    assert sorted(recorder.requested_s) == sorted(set(recorder.requested_s))
    assert set(recorder.requested_s) == set((jobs["submit_s"] // (6 * HOUR) * 6 * HOUR).tolist())


@pytest.mark.parametrize("rule", SHIFT_RULES)
def test_later_values_do_not_affect_persistence(rule, daily_signal):
    """Persistence uses only the past: a change at noon of day 5 does not affect decisions made before.

    The threshold rule decides while a job waits, so only delays that end before the change are unaffected.
    """
    change_s = 5.5 * DAY
    other = Series(
        daily_signal.edge_s,
        np.where(daily_signal.edge_s[:-1] >= change_s, 999 - daily_signal.value, daily_signal.value),
    )
    jobs = make_jobs(np.linspace(4 * DAY, change_s, 60), np.full(60, 5 * HOUR))
    first, second = (
        shift_jobs(jobs, truth, rule, slack_s=DAY, forecast=persistence(truth)) for truth in (daily_signal, other)
    )
    known = np.minimum(first, second) < change_s if rule == "threshold" else np.full(60, True)
    assert known.sum() > 20
    assert np.array_equal(first[known], second[known])
    with_truth = [shift_jobs(jobs, truth, rule, slack_s=DAY) for truth in (daily_signal, other)]
    assert not np.array_equal(*with_truth), "with the true signal the shifts differ"


def test_forecast_errors_increase_emissions(daily_signal, jobs):
    def mean_g(forecast: Forecast | None) -> float:
        shift_until_s = shift_jobs(jobs, daily_signal, slack_s=DAY, forecast=forecast)
        start = np.maximum(shift_until_s, jobs["submit_s"])
        return float(daily_signal.mean(start, start + jobs["estimate_s"]).mean())

    without_shifting = float(daily_signal.mean(jobs["submit_s"], jobs["submit_s"] + jobs["estimate_s"]).mean())
    assert mean_g(None) < mean_g(noisy(daily_signal, [0.2], seed=0)) < without_shifting


# -- errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", SHIFT_RULES)
def test_too_short_series_error_names_the_missing_span(rule):
    signal = hourly(*[1.0] * 10)
    with pytest.raises(InputError, match=rf"load shifting by {rule} needs .* missing 36000 s to"):
        shift_jobs(make_jobs([5 * HOUR], [3 * HOUR]), signal, rule, slack_s=6 * HOUR)
    with pytest.raises(InputError, match="missing -1 s to 0 s"):
        shift_jobs(make_jobs([-1], [60]), hourly(*[1.0] * 60), rule, slack_s=HOUR)


@pytest.mark.parametrize("rule", SHIFT_RULES)
def test_too_short_forecast_is_an_error(rule, daily_signal):
    short = perfect(daily_signal, horizon_s=8 * HOUR)
    with pytest.raises(InputError, match=r"needs a forecast until .* issued at 172800 s ends at 201600 s"):
        shift_jobs(make_jobs([2 * DAY], [4 * HOUR]), daily_signal, rule, slack_s=9 * HOUR, forecast=short)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("lowest_windw", "unknown load-shifting rule 'lowest_windw'; did you mean 'lowest_window'"),
        ("threshold:percentle=3", "did you mean 'percentile'"),
        ("lowest_slot:percentile=3", "unknown parameter of rule 'lowest_slot'"),
    ],
)
def test_unknown_names(rule, message):
    with pytest.raises(UnknownNameError, match=message):
        start_of(hourly(1, 2), rule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("threshold:30", "'30' is not written as name=value"),
        ("threshold:percentile=low", "'low', which is not a number"),
        ("threshold:percentile=0", "percentile is 0; it must be above 0"),
        ("threshold:percentile=101", "percentile is 101"),
        ("threshold:percentile=nan", "percentile is nan"),
    ],
)
def test_bad_parameters(rule, message):
    with pytest.raises(InputError, match=message):
        start_of(hourly(1, 2), rule)


@pytest.mark.parametrize("slack_s", [-1, math.inf, math.nan, {math.inf: -1}])
def test_bad_slack(slack_s):
    with pytest.raises(InputError, match=r"slack_s is .* 0 or more"):
        start_of(hourly(*[1] * 20), "lowest_window", slack_s=slack_s)


def test_slack_by_estimate_must_cover_all_jobs():
    with pytest.raises(InputError, match="has no entry for estimates of 7200 s"):
        start_of(hourly(*[1] * 20), "lowest_window", estimate_s=7200, slack_s={7200: 60})
    jobs = make_jobs([0], [7200], slack_s=[60])
    assert shift_jobs(jobs, hourly(5, 5, 5), slack_s={7200: 60}).tolist() == [-np.inf], (
        "the slack column overrides the argument"
    )


def test_issue_interval_must_be_positive():
    with pytest.raises(InputError, match="issue_s is 0"):
        start_of(hourly(*[1] * 20), "lowest_window", issue_s=0)
