"""Arbitrary files give a valid series or an InputError."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.signals import forecast, read_carbon, read_price, read_weather
from kilowait.errors import InputError
from tests.energy.signals.test_weather import epw, epw_row, open_meteo

cell = st.one_of(
    st.sampled_from(
        ["", "time", "g/kWh", "EUR/MWh", "unit", "2022-01-01T00:00Z", "2022-03-27 02:30", "nan", "1e400", "#"]
    ),
    st.integers(-(10**14), 10**14).map(str),
    st.text(max_size=6),
)
tables = st.lists(st.lists(cell, max_size=4).map(",".join), max_size=6).map("\n".join)
leaf = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("2022-01-01T00:00Z")
)
keys = ["data", "from", "to", "intensity", "actual", "forecast", "Time", "Rating", "Duration", "Location", "point_time",
        "value", "meta", "units", "hourly", "time", "temperature_2m", "relative_humidity_2m", "utc_offset_seconds",
        "hourly_units", "regions"]  # fmt: skip
documents = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys), inner, max_size=6)
)
READERS = [
    lambda path: read_carbon(path, zone="Europe/Berlin"),
    lambda path: read_carbon(path, unit="lb/MWh", gaps="interpolate"),
    lambda path: read_price(path, unit="EUR/MWh", zone="UTC", gaps="hold"),
    lambda path: read_weather(path).temperature,
    lambda path: forecast.recorded_forecast(path, unit="g/kWh", columns={"issue_time": "time"}).issued(0),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "file"


def read_all(path):
    for reader in READERS:
        try:
            series = reader(path)
        except InputError:
            continue
        assert np.isfinite(series.value).all() and len(series) > 0


@given(text=tables)
def test_tables(path, text):
    path.write_text(text, encoding="utf-8", errors="replace")
    read_all(path)


@given(document=documents)
def test_documents(path, document):
    path.write_text(json.dumps(document), encoding="utf-8")
    read_all(path)


@given(key=st.sampled_from(["hourly", "hourly_units", "utc_offset_seconds", "latitude"]), inner=documents)
def test_weather_with_a_strange_part(path, key, inner):
    path.write_text(json.dumps(open_meteo(**{key: inner})), encoding="utf-8")
    read_all(path)


@given(row=st.lists(cell, max_size=10).map(",".join), offset=cell)
def test_epw_with_a_strange_row(path, row, offset):
    path.write_text(epw([epw_row(2022, 1, 1, 1), row], offset), encoding="utf-8", errors="replace")
    read_all(path)


@given(
    data=st.binary(max_size=60), magic=st.sampled_from([b"", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00"])
)
def test_bytes(path, data, magic):
    path.write_bytes(magic + data)
    read_all(path)
