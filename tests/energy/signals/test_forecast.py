from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.signals import forecast, read_carbon
from kilowait.errors import InputError
from kilowait.series import Series

HOUR, DAY = 3600.0, 86400.0


def hourly(values, start=0.0, zero=0.0):
    edge = start + HOUR * np.arange(len(values) + 1)
    return Series(edge, values, "g/kWh", {"name": "carbon intensity"}, unix_zero_s=zero)


def waves(days, seed=0):
    hours = np.arange(24 * days)
    return hourly(200 + 80 * np.sin(hours / 24 * 2 * np.pi) + np.random.default_rng(seed).normal(0, 20, len(hours)))


KINDS = {
    "perfect": lambda truth: forecast.perfect(truth, horizon_s=2 * DAY),
    "persistence": lambda truth: forecast.persistence(truth, horizon_s=2 * DAY),
    "noisy": lambda truth: forecast.noisy(truth, (0.1, 0.2), seed=3, horizon_s=2 * DAY),
    "odd steps": lambda truth: forecast.noisy(
        truth, (0.1, 0.2), seed=3, horizon_s=2 * DAY, issue_every_s=5000, step_s=1700
    ),
}


# -- forecasts use only past values ----------------------------------------------------------------------


@given(at=st.floats(DAY + HOUR, 4 * DAY), seed=st.integers(0, 5))
def test_persistence_uses_no_later_values(at, seed):
    truth = waves(7)
    changed = truth.value.copy()
    later = truth.edge_s[1:] > at  # values whose hour has not ended by then
    changed[later] = np.random.default_rng(seed).uniform(0, 900, later.sum())
    first, second = (forecast.persistence(series).issued(at) for series in (truth, hourly(changed)))
    assert first.edge_s.tolist() == second.edge_s.tolist()
    assert first.value.tolist() == second.value.tolist()
    assert (first.start_s, first.end_s) == (at, at + 4 * DAY)


@given(at=st.integers(0, 20), after=st.integers(1, 5))
def test_file_forecasts_use_no_later_issues(tmp_path_factory, at, after):
    rows = [(hour, hour + lead, 10 * hour + lead) for hour in range(0, 24, 4) for lead in range(8)]
    early = [row for row in rows if row[0] <= at]
    changed = early + [(issue, target, 999) for issue, target, _ in rows if issue > at]
    folder = tmp_path_factory.mktemp("forecasts")
    issued = []
    for name, table in (("a.csv", rows), ("b.csv", changed)):
        lines = [f"{3600 * issue},{3600 * target},{value}" for issue, target, value in table]
        (folder / name).write_text("\n".join(["issue_time,target_time,value", *lines]))
        issued.append(forecast.recorded_forecast(folder / name, unit="g/kWh").issued(at * HOUR))
    assert issued[0].value.tolist() == issued[1].value.tolist()
    assert issued[0].value[0] == 10 * (at - at % 4) + at % 4


# -- kinds ----------------------------------------------------------------------------------------------


def test_perfect():
    issued = forecast.perfect(hourly([1, 2, 3, 4]), horizon_s=2 * HOUR).issued(1800)
    assert issued.value.tolist() == [1, 2, 3] and issued.edge_s.tolist() == [1800, 3600, 7200, 9000]


def test_persistence_repeats_the_last_day():
    truth = hourly(np.arange(48.0))
    issued = forecast.persistence(truth, horizon_s=2 * DAY).issued(26 * HOUR)
    assert issued.value.tolist() == [2 + hour % 24 for hour in range(48)]
    # At ten past the hour the forecast of the hour is yesterday's value.
    issued = forecast.persistence(truth, horizon_s=DAY).issued(26 * HOUR + 600)
    assert issued.value[0] == 2
    weekly = forecast.persistence(hourly(np.arange(200.0)), period_s=7 * DAY, horizon_s=DAY)
    assert weekly.issued(180 * HOUR).value[0] == 12


def test_persistence_needs_earlier_values():
    with pytest.raises(InputError, match="and a persistence forecast needs it from 1969-12-31 23:00 UTC"):
        forecast.persistence(hourly(np.arange(48.0))).issued(23 * HOUR)


def test_noise_depends_only_on_seed_and_issue_time():
    truth = waves(8)
    issued = forecast.noisy(truth, seed=1)
    at = DAY + 600
    first = issued.issued(at)
    assert issued.issued(at).value.tolist() == first.value.tolist()
    assert forecast.noisy(truth, seed=1, horizon_s=DAY).issued(at).value.tolist() == pytest.approx(
        first.between(at, at + DAY).value.tolist()
    )
    assert forecast.noisy(truth, seed=2).issued(at).value.tolist() != first.value.tolist()
    # Equal in log time; every issue has its own errors.
    shifted = forecast.noisy(truth.shifted(-5000), seed=1).issued(at - 5000)
    assert shifted.value.tolist() == pytest.approx(first.value.tolist())
    ratio = first.at(2 * DAY) / truth.at(2 * DAY)
    assert issued.issued(at + HOUR).at(2 * DAY) / truth.at(2 * DAY) != pytest.approx(float(ratio))
    # A change of the truth at one hour changes the forecast of that hour alone.
    changed = truth.value.copy()
    changed[60] *= 2
    other = forecast.noisy(hourly(changed), seed=1).issued(at)
    assert np.flatnonzero(other.value != first.value).tolist() == [60 - 24]


def test_zero_error_gives_the_true_values():
    truth = waves(6)
    issued = forecast.noisy(truth, [0.0], seed=1).issued(DAY)
    assert issued.value.tolist() == forecast.perfect(truth).issued(DAY).value.tolist()


@pytest.mark.parametrize("grid", ["CISO", "PJM"])
def test_noise_has_the_requested_error(grid):
    truth = waves(200)
    error_per_day = forecast.FORECAST_ERRORS[grid]
    at, lead = np.arange(0, 190 * 24, 3) * HOUR, np.arange(97) * HOUR
    issued = forecast.noisy(truth, error_per_day, seed=7).matrix(at, lead)
    relative = issued / forecast.perfect(truth).matrix(at, lead) - 1
    for day, size in enumerate(error_per_day):
        ahead = relative[:, 24 * day : 24 * day + 24]
        assert abs(ahead).mean() == pytest.approx(size, rel=0.1)
        assert abs(ahead.mean()) < 0.05 * size  # unbiased
    assert relative.min() > -1
    logs = np.log1p(relative)
    assert np.corrcoef(logs[:, 30], logs[:, 31])[0, 1] == pytest.approx(math.exp(-1 / 6), abs=0.05)
    assert np.corrcoef(logs[:, 30], logs[:, 36])[0, 1] == pytest.approx(math.exp(-1), abs=0.08)
    assert abs(np.corrcoef(logs[:-1, 30], logs[1:, 27])[0, 1]) < 0.08  # issues are independent


def test_published_errors_grow_with_the_lead():
    assert forecast.FORECAST_ERRORS["CISO"] == (0.065, 0.147, 0.197, 0.218)
    assert len(forecast.FORECAST_ERRORS) == 13
    for sizes in forecast.FORECAST_ERRORS.values():
        assert list(sizes) == sorted(sizes)


# -- many at once ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(
    at=st.lists(st.floats(DAY + 5000, 4 * DAY), min_size=1, max_size=6),
    leads=st.lists(st.floats(0, 2 * DAY), min_size=2, max_size=6, unique_by=lambda lead: round(lead, 1)),
)
def test_matrix_equals_issued_forecasts(kind, at, leads):
    issued, leads = KINDS[kind](waves(7)), np.sort(leads)
    matrix = issued.matrix(at, leads)
    assert matrix.shape == (len(at), len(leads) - 1)
    for row, moment in zip(matrix, at, strict=True):
        edge = moment + leads
        expected = issued.issued(moment).mean(edge[:-1], np.minimum(edge[1:], moment + issued.horizon_s))
        np.testing.assert_allclose(row, expected, rtol=1e-6)


def test_matrix_in_blocks():
    issued = forecast.noisy(waves(40), seed=0, horizon_s=DAY)
    at = np.random.default_rng(0).uniform(0, 38 * DAY, 30_000)
    matrix = issued.matrix(at, np.arange(25) * HOUR)
    for row in (0, 12_345, 29_999):
        np.testing.assert_allclose(matrix[row : row + 1], issued.matrix(at[row : row + 1], np.arange(25) * HOUR))
    assert issued.matrix([], [0, 1]).shape == (0, 1)


def test_noise_at_the_edges_of_the_truth():
    truth = waves(3).between(1800, 3 * DAY)
    issued = forecast.noisy(truth, seed=0, horizon_s=DAY)
    np.testing.assert_allclose(
        issued.matrix([1800.0, 2 * DAY], [0, DAY])[:, 0],
        [issued.issued(at).mean(at, at + DAY) for at in (1800.0, 2 * DAY)],
    )
    for request in (issued.issued, lambda at: issued.matrix([at], [0, DAY])):
        with pytest.raises(InputError, match="and a forecast needs it from"):
            request(2 * DAY + 1)


# -- files ----------------------------------------------------------------------------------------------

FORECAST_FILE = "issued,target,CI lb/MWh\n" + "\n".join(
    f"2022-01-0{day}T00:00Z,2022-01-0{day + hour // 24}T{hour % 24:02d}:00Z,{100 * day + hour}"
    for day in (1, 2)
    for hour in range(3, 48)
)
COLUMNS = {"issue_time": "issued", "target_time": "target", "value": "CI lb/MWh"}
NEW_YEAR = 1640995200.0


def test_forecast_file(tmp_path):
    (tmp_path / "forecasts.csv").write_text(FORECAST_FILE)
    issued = forecast.recorded_forecast(tmp_path / "forecasts.csv", columns=COLUMNS)
    assert issued.horizon_s == DAY  # the horizon of the first issue when the second is issued
    first = issued.issued(NEW_YEAR + 600)
    assert (first.unit, first.value[0]) == ("g/kWh", pytest.approx(103 * 0.45359237))  # from the time of issue on
    assert float(issued.issued(NEW_YEAR + DAY - 1).at(NEW_YEAR + DAY)) == pytest.approx(124 * 0.45359237)
    assert float(issued.issued(NEW_YEAR + DAY).at(NEW_YEAR + DAY + 4 * HOUR)) == pytest.approx(204 * 0.45359237)
    assert issued.describe() == "forecasts of forecasts.csv (2 issues)"
    on_log = forecast.recorded_forecast(tmp_path / "forecasts.csv", columns=COLUMNS, unix_start_s=NEW_YEAR)
    assert on_log.issued(600).value.tolist() == first.value.tolist()
    matrix = on_log.matrix([DAY, 600.0], [0, HOUR, 4 * HOUR])
    assert matrix[1].tolist() == on_log.issued(600).mean([600, 4200], [4200, 15000]).tolist()
    with pytest.raises(InputError, match=r"no forecast of forecasts.csv was issued by 2021-12-31 23:00 UTC; the first"):
        on_log.issued(-HOUR)
    with pytest.raises(InputError, match=r"and a forecast issued at 2022-01-02 00:00 UTC needs it from"):
        on_log.issued(2.5 * DAY)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (FORECAST_FILE, {}, "there is no column 'issue_time'; the file has issued, target"),
        (FORECAST_FILE, {"columns": {**COLUMNS, "x": "y"}}, "columns has the keys"),
        (FORECAST_FILE, {"columns": COLUMNS, "unit": "g/kWh"}, "mixed units: the file is in lb/MWh"),
        (FORECAST_FILE.replace("lb/MWh", "?"), {"columns": {**COLUMNS, "value": "CI ?"}}, "the file names no unit"),
        ("issue_time,target_time,value\n7200,0,1\n7200,3600,1\n", {"unit": "g/kWh"}, "has no later target time"),
        ("issue_time,target_time,value\n0,0,1\n0,10,1\n99,99,1\n99,109,2", {"unit": "g/kWh"}, "ends before the next"),
        ("issue_time,target_time,value\n0,0,1\n", {"unit": "parsec"}, "unknown unit 'parsec'"),
    ],
)
def test_bad_files(tmp_path, text, options, message):
    (tmp_path / "forecasts.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        forecast.recorded_forecast(tmp_path / "forecasts.csv", **options)


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda truth: forecast.perfect(truth, horizon_s=0), "horizon_s is 0; it must be a finite number"),
        (lambda truth: forecast.persistence(truth, period_s=math.nan), "period_s is nan"),
        (lambda truth: forecast.noisy(truth, seed=0, issue_every_s=-1), "issue_every_s is -1"),
        (lambda truth: forecast.noisy(truth, [6.5], seed=0), r"error_per_day is \(6.5,\); give one share"),
        (lambda truth: forecast.noisy(truth, [], seed=0), r"error_per_day is \(\)"),
        (lambda truth: forecast.noisy(truth, seed=-1), "the seed is -1"),
        (lambda truth: forecast.perfect(truth).matrix([0], [0]), "two or more increasing leads"),
        (lambda truth: forecast.perfect(truth).matrix([0], [0, 0]), "two or more increasing leads"),
        (
            lambda truth: forecast.perfect(truth).matrix([0], [0, 5 * DAY]),
            "a lead of 432000 s exceeds the forecast horizon of",
        ),
        (lambda truth: forecast.perfect(truth).issued(5 * DAY), "missing"),
    ],
)
def test_argument_errors(make, message):
    with pytest.raises(InputError, match=message):
        make(waves(7))


@pytest.mark.parametrize("kind", KINDS)
def test_forecasts_can_be_pickled(kind):
    issued = KINDS[kind](waves(5))
    copy = pickle.loads(pickle.dumps(issued))
    assert copy.issued(2 * DAY).value.tolist() == issued.issued(2 * DAY).value.tolist()


def test_descriptions():
    truth = waves(1)
    assert forecast.perfect(truth).describe() == "perfect forecast"
    assert forecast.persistence(truth).describe() == "persistence forecast (as 24 h before)"
    assert forecast.noisy(truth, seed=4).describe() == (
        "forecast with errors of 6.5/14.7/19.7/21.8 % by day ahead (seed 4)"
    )


def test_real_error_of_persistence(data_dir):
    truth = read_carbon(data_dir / "carbon" / "US-CAL-CISO_2022_hourly.csv.gz")
    at, lead = truth.start_s + DAY * np.arange(1, 360), np.arange(25) * HOUR
    relative = forecast.persistence(truth).matrix(at, lead) / forecast.perfect(truth).matrix(at, lead) - 1
    assert abs(relative).mean() == pytest.approx(0.094, abs=0.01)
