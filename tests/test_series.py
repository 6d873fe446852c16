from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.errors import InputError
from kilowait.series import WEEK_S, YEAR_S, Series

DAY = 86400.0
steps = st.lists(st.tuples(st.integers(1, 50), st.integers(-100, 100)), min_size=1, max_size=12)


def series_of(steps, start=0):
    edge = start + np.concatenate(([0], np.cumsum([length for length, _ in steps])))
    return Series(edge, [value for _, value in steps], "g/kWh")


# -- validation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edge", "value", "message"),
    [
        ([0], [], "0 values and 1 edges"),
        ([0, 1], [1, 2], "2 values and 2 edges"),
        ([0, 1, 1], [1, 2], r"edge_s\[2\] = 1 follows 1; sort them"),
        ([0, math.nan], [1], r"edge_s\[1\] of a series is nan"),
        ([0, 1], [math.inf], r"value\[0\] of a series is inf"),
        ([[0, 1]], [1], r"shape \(1, 2\)"),
        ([0, 1], ["a"], "must be a list of numbers"),
    ],
)
def test_bad_series(edge, value, message):
    with pytest.raises(InputError, match=message):
        Series(edge, value)


def test_series_copies_its_input_and_is_read_only():
    edge, meta = np.array([0.0, 1.0]), {"name": "x"}
    series = Series(edge, [5], meta=meta)
    edge[0], meta["name"] = -7, "y"
    assert series.start_s == 0 and series.meta["name"] == "x"
    with pytest.raises(ValueError, match="read-only"):
        series.value[0] = 1
    copy = pickle.loads(pickle.dumps(series))
    assert float(copy.integral(0, 1)) == 5 and len(copy) == 1


# -- values and integrals -------------------------------------------------------------------------------


def test_known_values():
    series = Series([0, 10, 30], [4, 1])
    assert series.at([0, 9.5, 10, 30]).tolist() == [4, 4, 1, 1]
    assert series.at(12).shape == () and series.at([[1], [11]]).shape == (2, 1)
    assert series.integral([0, 5, 3, 30], [30, 20, 3, 30]).tolist() == [60, 30, 0, 0]
    assert series.integral(0, [10, 30]).tolist() == [40, 60]
    assert series.mean([0, 5, 10, 30], [30, 5, 20, 30]).tolist() == [2, 4, 1, 1]
    assert series.at([]).tolist() == series.integral([], []).tolist() == series.mean([], []).tolist() == []


def test_constant_is_exact_everywhere():
    series = Series.constant(0.1, "EUR/kWh", {"name": "price"})
    assert float(series.integral(1.7e9, 1.7e9 + 3)) == pytest.approx(0.3, rel=1e-15)
    assert series.covers(-1e12, 1e12)
    assert series.wrapped(0, 5).edge_s.tolist() == [0, 5]
    assert series.describe() == "price, constant 0.1 EUR/kWh"


def test_short_spans_of_long_series_are_accurate():
    year = Series(1.64e9 + 3600.0 * np.arange(8761), 300 + np.sin(np.arange(8760.0)))
    start = year.edge_s[8000] + 1800
    assert float(year.integral(start, start + 1)) == year.value[8000]
    assert float(year.integral(start, start + 1800)) == 1800 * year.value[8000]


@given(steps=steps, cuts=st.lists(st.integers(0, 600), min_size=3, max_size=3))
def test_integral_is_additive(steps, cuts):
    series = series_of(steps, start=-7)
    a, b, c = sorted(min(cut - 7, int(series.end_s)) for cut in cuts)
    whole = float(series.integral(a, c))
    assert whole == pytest.approx(float(series.integral(a, b)) + float(series.integral(b, c)), abs=1e-9)
    by_second = [value for length, value in steps for _ in range(length)]
    assert whole == pytest.approx(sum(by_second[a + 7 : c + 7]), abs=1e-9)
    if a < c:
        assert float(series.mean(a, c)) == pytest.approx(whole / (c - a))
        assert float(series.between(a, c).integral(a, c)) == pytest.approx(whole, abs=1e-9)


@given(steps=steps, by=st.integers(-1000, 1000))
def test_shifted_changes_only_the_time(steps, by):
    series = series_of(steps)
    times = np.arange(series.start_s, series.end_s, 3)
    assert series.shifted(by).at(times + by).tolist() == series.at(times).tolist()


@given(left_steps=steps, right_steps=steps, offset=st.integers(0, 5))
def test_product_at_every_second(left_steps, right_steps, offset):
    left, right = series_of(left_steps), series_of(right_steps, start=offset)
    if right.start_s >= left.end_s:
        with pytest.raises(InputError, match=r"no time in common; shift or wrap"):
            left.times(right, "x")
        return
    product = left.times(right, "x")
    times = np.arange(offset, min(left.end_s, right.end_s)) + 0.5
    assert product.at(times).tolist() == (left.at(times) * right.at(times)).tolist()
    assert (product.start_s, product.end_s) == (offset, min(left.end_s, right.end_s))
    assert product.unit == "x"


def test_product_needs_equal_time_origins():
    dated = Series([0, 10], [1], "g", {"name": "carbon"}, unix_zero_s=0.0)
    with pytest.raises(InputError, match=r"the series carbon and the series have different time origins"):
        dated.times(Series([0, 10], [1], unix_zero_s=5.0), "g")
    assert dated.times(Series.constant(2), "g").unix_zero_s == 0
    assert Series.constant(2).times(dated, "g").unix_zero_s == 0


def test_scaled():
    assert Series([0, 1], [1000], "lb/MWh").scaled(0.45359237, "g/kWh").value.tolist() == [453.59237]


# -- coverage -------------------------------------------------------------------------------------------


def test_missing_span_is_named_in_utc():
    series = Series([0, DAY], [1], "g/kWh", {"name": "carbon intensity", "location": "GB"}, unix_zero_s=0.0)
    for shifted_series, zero in ((series, 0), (series.shifted(-5000), 5000)):
        with pytest.raises(InputError) as caught:
            shifted_series.require(-3600 - zero, 2 * DAY - zero, "the log KTH")
        assert str(caught.value) == (
            "the series carbon intensity GB covers 1970-01-01 00:00 UTC to 1970-01-02 00:00 UTC, and the log KTH needs "
            "it from 1969-12-31 23:00 UTC to 1970-01-03 00:00 UTC: missing 1969-12-31 23:00 UTC to 1970-01-01 00:00 "
            "UTC and 1970-01-02 00:00 UTC to 1970-01-03 00:00 UTC. Give a longer file, or ask for repeat_signals=True "
            "to repeat it by whole weeks"
        )
    series.require(0, DAY)


def test_missing_span_without_dates():
    series = Series([0, 10], [1])
    with pytest.raises(InputError, match="missing 10 s to 25 s"):
        series.at([5, 25])
    with pytest.raises(InputError, match="missing 50 s to 60 s"):
        series.integral(50, 60)
    with pytest.raises(InputError, match="NaN"):
        series.at([1, math.nan])
    with pytest.raises(InputError, match="the start must come first"):
        series.integral([1, 5], [2, 4])
    with pytest.raises(InputError, match="the start must come first"):
        series.mean(math.nan, 4)
    with pytest.raises(InputError, match="has no length"):
        series.between(3, 3)


# -- wrap-around ----------------------------------------------------------------------------------------


def hourly(days, start=0.0):
    return Series(start + 3600.0 * np.arange(24 * days + 1), np.arange(24.0 * days), "g/kWh", unix_zero_s=0.0)


@given(
    days=st.sampled_from([7, 13, 100, 364, 365, 366, 387, 730]),
    start=st.integers(-900, 900),
    length=st.integers(1, 900),
)
def test_wrapping_keeps_hour_and_weekday(days, start, length):
    series = hourly(days)
    wrapped = series.wrapped(start * DAY, (start + length) * DAY)
    assert (wrapped.start_s, wrapped.end_s) == (start * DAY, (start + length) * DAY)
    times = np.arange(start * DAY, (start + length) * DAY, 7 * 3600) + 1800
    source = wrapped.at(times)  # the hour of the original series of each value
    assert ((source - times // 3600) % (7 * 24) == 0).all()
    inside = (times >= 0) & (times < series.end_s)
    assert source[inside].tolist() == (times[inside] // 3600).tolist()


def test_wrapping_a_year_repeats_52_weeks():
    year = hourly(365)
    wrapped = year.wrapped(year.end_s, year.end_s + 10 * DAY)
    assert wrapped.at(year.end_s) == 24  # the 366th day equals the second, 364 days earlier
    assert float(year.wrapped(-DAY, 0).at(-1)) == 364 * 24 - 1
    assert wrapped.meta["wrapped"] == "repeated every 52 weeks"
    assert "repeated every 52 weeks" in wrapped.describe()
    assert year.wrapped(0, DAY).meta.get("wrapped") is None
    assert (YEAR_S, WEEK_S) == (364 * DAY, 7 * DAY)


def test_bad_wrapping():
    with pytest.raises(InputError, match=r"is 6 days long; to be repeated it must cover at least one week"):
        hourly(6).wrapped(0, 10 * DAY)
    with pytest.raises(InputError, match="two finite times"):
        hourly(7).wrapped(0, math.inf)


# -- from samples ---------------------------------------------------------------------------------------


def test_steps_may_change():
    series = Series.from_samples([0, 30, 60, 75, 90], [1, 2, 3, 4, 5])
    assert series.edge_s.tolist() == [0, 30, 60, 75, 90, 105]  # the last step has the length of the one before
    assert series.meta == {"samples": 5, "step_s": 22.5, "holes": 0}


def test_unsorted_duplicate_and_missing_samples():
    series = Series.from_samples([60, 0, 60, 180, 120], [2, 1, 2, 4, math.nan])
    assert series.edge_s.tolist() == [0, 60, 180, 270]
    assert series.value.tolist() == [1, 2, 4]
    with pytest.raises(InputError, match=r"1 time\(s\) occur twice with different values, first 60 s with 2 and 3"):
        Series.from_samples([0, 60, 60], [1, 2, 3])


def test_gaps():
    time, value = [0, 60, 120, 420, 480], [1, 2, 4, 14, 9]
    with pytest.raises(InputError) as caught:
        Series.from_samples(time, value, unix_zero_s=0.0)
    assert str(caught.value) == (
        "1 gap(s) longer than 180 s (the typical step is 60 s): 1970-01-01 00:02 UTC to 1970-01-01 00:07 UTC. "
        "Complete the file, or use gaps='hold', gaps='interpolate' or a larger longest_s"
    )
    with_hold = Series.from_samples(time, value, gaps="hold")
    assert float(with_hold.at(419)) == 4 and with_hold.meta["holes"] == 1
    interpolated = Series.from_samples(time, value, gaps="interpolate")
    assert interpolated.edge_s.tolist() == [0, 60, 120, 180, 240, 300, 360, 420, 480, 540]
    assert interpolated.value.tolist() == pytest.approx([1, 2, 4, 6, 8, 10, 12, 14, 9])
    assert float(Series.from_samples(time, value, longest_s=300).at(419)) == 4
    for step in (240, 120):  # a sample is valid for up to three steps
        assert len(Series.from_samples([0, 60, 120, 120 + step, 180 + step], np.arange(5), longest_s=240)) == 5
    with pytest.raises(InputError, match="and 2 more"):
        Series.from_samples([0, 1, 2, 3, 4, 5, 6, 7, 17, 27, 37, 47, 57], np.arange(13))


@pytest.mark.parametrize(
    ("time", "value", "options", "message"),
    [
        ([0], [1], {}, "the duration of a single sample is unknown"),
        ([0, 1], [1], {}, "2 times and 1 values"),
        ([0, 1], [1, math.inf], {}, "sample 1 is inf at 1.0"),
        ([0, math.nan], [1, 2], {}, "sample 1 is 2.0 at nan"),
        ([0, 1], [math.nan, math.nan], {}, "none of the 2 samples has a value"),
        ([0, 1], [1, 2], {"step_s": 0}, "step_s is 0 and"),
        ([0, 1], [1, 2], {"longest_s": -1}, "longest_s -1"),
        ([0, 1], [1, 2], {"gaps": "guess"}, "gaps is 'guess'"),
    ],
)
def test_bad_samples(time, value, options, message):
    with pytest.raises(InputError, match=message):
        Series.from_samples(time, value, **options)


def test_one_sample_with_a_step():
    assert Series.from_samples([5], [1], step_s=10).edge_s.tolist() == [5, 15]


def test_description():
    meta = {
        "name": "carbon intensity",
        "location": "GB",
        "kind": "average",
        "scope": "not stated",
        "source": "gb.csv",
        "sha256": "ab" * 32,
    }
    assert Series([0, DAY], [200], "g/kWh", meta, unix_zero_s=0.0).describe() == (
        "carbon intensity, GB, average, scope not stated, 1970-01-01 00:00 UTC to 1970-01-02 00:00 UTC, mean 200 "
        "g/kWh, gb.csv (sha256 abababababab)"
    )
    assert Series([0, 1e14], [2], unix_zero_s=0.0).describe() == "1970-01-01 00:00 UTC to 1e+14 s, mean 2"
