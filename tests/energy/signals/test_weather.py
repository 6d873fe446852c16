from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.signals import Weather, read_weather, wet_bulb_c
from kilowait.errors import InputError
from kilowait.series import Series

NEW_YEAR = 1640995200.0  # 2022-01-01 00:00 UTC


def open_meteo(**changes):
    content = {
        "latitude": 50.1,
        "longitude": 8.6,
        "utc_offset_seconds": 3600,
        "hourly_units": {"time": "iso8601", "temperature_2m": "°C", "relative_humidity_2m": "%"},
        "hourly": {
            "time": ["2022-01-01T00:00", "2022-01-01T01:00", "2022-01-01T02:00"],
            "temperature_2m": [10, 20, None],
            "relative_humidity_2m": [50, 60, 101],
        },
    }
    content.update(changes)
    return {key: value for key, value in content.items() if value is not None}


@pytest.fixture
def write_file(tmp_path):
    def write(content):
        path = tmp_path / "weather"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


def test_open_meteo_is_converted_to_utc(write_file):
    weather = read_weather(write_file(open_meteo()))
    assert weather.temperature.edge_s.tolist() == [NEW_YEAR - 3600, NEW_YEAR, NEW_YEAR + 3600]
    assert weather.temperature.value.tolist() == [10, 20] and weather.temperature.unit == "°C"
    assert weather.humidity.value.tolist() == [50, 60, 100]
    assert weather.temperature.meta["location"] == "50.1, 8.6"
    assert "mean 15 °C" in weather.describe() and weather.describe().endswith("mean humidity 70 %")


def test_open_meteo_in_unix_time_is_utc(write_file):
    content = open_meteo()
    content["hourly"]["time"] = [1640995200, 1640998800, 1641002400]
    content["hourly_units"]["time"] = "unixtime"
    assert read_weather(write_file(content)).humidity.start_s == NEW_YEAR


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (open_meteo(utc_offset_seconds=None), "no utc_offset_seconds"),
        (open_meteo(hourly=None), "no hourly values; request hourly"),
        (open_meteo(hourly={"time": []}), "no hourly temperature_2m; the file has time"),
        (open_meteo(hourly_units={"temperature_2m": "°F"}), "temperature_2m is in °F, not °C"),
        (
            open_meteo(hourly={"time": ["2022-01-01"], "temperature_2m": ["warm"], "relative_humidity_2m": [1]}),
            "temperature_2m: 'warm' is not a number; correct",
        ),
        (
            open_meteo(hourly={"time": ["2022-01-01T00:00"], "temperature_2m": [1], "relative_humidity_2m": [-4]}),
            "relative humidity of -4 %",
        ),
        ("time,temperature\n", "neither Open-Meteo JSON nor EPW"),
    ],
)
def test_errors(write_file, content, message):
    with pytest.raises(InputError, match=message):
        read_weather(write_file(content))


def epw(rows, offset="-6.0"):
    header = [f"LOCATION,Chicago,IL,USA,TMY,725300,41.9,-87.9,{offset},201.8"]
    return "\n".join(header + ["COMMENTS"] * 7 + rows) + "\n"


def epw_row(year, month, day, hour, dry=10.0, humid=50):
    return f"{year},{month},{day},{hour},0,?9?9,{dry},5.0,{humid},99832,0,0"


def test_epw_hours_end_at_their_label(write_file):
    weather = read_weather(write_file(epw([epw_row(2022, 1, 1, 1, 10), epw_row(2022, 1, 1, 2, 20, 80)])))
    assert weather.temperature.edge_s.tolist() == [NEW_YEAR + hour * 3600 for hour in (6, 7, 8)]
    assert weather.temperature.value.tolist() == [10, 20]
    assert weather.humidity.value.tolist() == [50, 80]
    assert weather.temperature.meta["location"] == "Chicago IL USA"
    assert "note" not in weather.temperature.meta


def test_epw_typical_year_is_mapped_to_one_year(write_file):
    rows = [epw_row(2016, 1, 31, hour) for hour in (23, 24)] + [epw_row(2011, 2, 1, hour) for hour in (1, 2)]
    weather = read_weather(write_file(epw(rows, "0")))
    assert weather.temperature.moment(weather.temperature.start_s) == "2023-01-31 22:00 UTC"
    assert weather.temperature.end_s - weather.temperature.start_s == 4 * 3600
    assert "months of 2011 to 2016 mapped to 2023" in weather.describe()
    other = read_weather(write_file(epw(rows, "0")), year=2019)
    assert other.temperature.moment(other.temperature.start_s) == "2019-01-31 22:00 UTC"


def test_epw_missing_values_are_gaps(write_file):
    rows = [epw_row(2022, 1, 1, hour, 99.9 if hour == 3 else hour, 999 if hour == 4 else 50) for hour in range(1, 7)]
    weather = read_weather(write_file(epw(rows, "0")))
    assert float(weather.temperature.at(NEW_YEAR + 2.5 * 3600)) == 2
    assert float(weather.humidity.at(NEW_YEAR + 3.5 * 3600)) == 50


def test_bad_epw(write_file):
    with pytest.raises(InputError, match="this EPW file is invalid"):
        read_weather(write_file(epw(["2022,1,1"])))
    with pytest.raises(InputError, match="a header but no hours"):
        read_weather(write_file(epw([])))
    with pytest.raises(InputError, match="does not exist in 2023: day is out of range"):
        read_weather(write_file(epw([epw_row(2024, 2, 29, 1)])), year=2023)
    days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    rows = [
        epw_row(2023, month + 1, day + 1, hour + 1)
        for month, length in enumerate(days)
        for day in range(length)
        for hour in range(24)
    ]
    with pytest.raises(InputError, match="2024 is a leap year, but the file has no 29 February"):
        read_weather(write_file(epw(rows)), year=2024)
    stripped = read_weather(write_file(epw([row.replace("2023,", "2020,", 1) for row in rows])))
    assert stripped.temperature.meta["note"] == "months of 2020 mapped to 2023"
    assert stripped.temperature.end_s - stripped.temperature.start_s == 365 * 86400


# -- wet bulb -------------------------------------------------------------------------------------------


def test_wet_bulb_of_published_values():
    assert float(wet_bulb_c(20, 50)) == pytest.approx(13.699, abs=5e-4)  # Stull's own example: 13.7
    assert wet_bulb_c([0, 30], 100).tolist() == pytest.approx([0, 30], abs=0.35)


@given(temperature=st.floats(-15, 45), humidity=st.floats(10, 98))
def test_wet_bulb_rises_with_heat_and_moisture(temperature, humidity):
    wet = float(wet_bulb_c(temperature, humidity))
    assert wet <= temperature
    assert float(wet_bulb_c(temperature + 1, humidity)) > wet
    if temperature > 0:
        assert float(wet_bulb_c(temperature, humidity + 1)) >= wet


def test_wet_bulb_series_on_both_grids():
    weather = Weather(Series([0, 10, 20], [20, 30], "°C"), Series([0, 5, 20], [50, 60], "%"))
    assert weather.wet_bulb.edge_s.tolist() == [0, 5, 10, 20]
    assert weather.wet_bulb.value.tolist() == wet_bulb_c([20, 20, 30], [50, 60, 60]).tolist()
    assert weather.shifted(5).wet_bulb.start_s == 5
    week = Series(np.arange(8) * 86400.0, np.arange(7.0))
    assert Weather(week, week).wrapped(0, 10 * 86400).temperature.end_s == 10 * 86400
    with pytest.raises(InputError, match="missing 20 s to 30 s"):
        weather.require(0, 30)


# -- real files -----------------------------------------------------------------------------------------

MEANS = {
    "CA-ON_2022": 8.3475,
    "DE-LU_2022": 12.1189,
    "GB_2022": 11.9130,
    "US-CAL-CISO_2022": 15.2021,
    "US-MIDA-PJM_2022": 13.1363,
    "US-TEX-ERCO_2022": 19.8530,
    "CA-ON_2023": 9.4290,
    "DE-LU_2023": 12.0884,
    "GB_2023": 11.6222,
    "US-CAL-CISO_2023": 14.8615,
    "US-MIDA-PJM_2023": 14.0043,
    "US-TEX-ERCO_2023": 20.4090,
}


@pytest.mark.parametrize("name", MEANS)
def test_real_open_meteo(data_dir, name):
    weather = read_weather(data_dir / "weather" / f"{name}.json.gz")
    assert len(weather.temperature) == len(weather.wet_bulb) == 8760
    span = (weather.temperature.start_s, weather.temperature.end_s)
    assert float(weather.temperature.mean(*span)) == pytest.approx(MEANS[name], abs=6e-5)
    assert (weather.wet_bulb.value <= weather.temperature.value).all()
    noon = {"GB": 14, "DE": 13, "CA": 19, "US": 21}[name[:2]]  # warmest UTC hour, about
    by_hour = [
        weather.temperature.value[weather.temperature.edge_s[:-1] // 3600 % 24 == hour].mean() for hour in range(24)
    ]
    assert abs(int(np.argmax(by_hour)) - noon) <= 2


@pytest.mark.parametrize(
    ("name", "mean", "first"), [("USA_AZ_Phoenix-Sky.Harbor", 24.67, 7), ("USA_IL_Chicago.OHare", 10.76, 6)]
)
def test_real_epw(data_dir, name, mean, first):
    weather = read_weather(data_dir / "weather" / f"{name}.epw.gz")
    assert len(weather.temperature) == 8760 and weather.temperature.meta["holes"] == 0
    assert weather.temperature.value.mean() == pytest.approx(mean, abs=0.006)
    assert weather.temperature.moment(weather.temperature.start_s) == f"2023-01-01 {first:02d}:00 UTC"
