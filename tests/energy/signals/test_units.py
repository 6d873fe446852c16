from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilowait.energy.signals.units import time_zone, unix_seconds
from kilowait.errors import InputError

NEW_YEAR = 1640995200.0


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2022-01-01", "UTC", 0),
        ("2022-01-01 00:00", "UTC", 0),
        ("2022-01-01T00:00Z", None, 0),
        ("2022-01-01 00:00:00 UTC", None, 0),
        ("2022-01-01T00:00:00-05:00", None, 5 * 3600),
        ("2022-01-01T00:00:00-05:00", "Europe/Berlin", 5 * 3600),  # the offset in the file counts
        ("2022-01-01 00:00", "Europe/Berlin", -3600),
        ("2022-07-01 00:00", "Europe/Berlin", 181 * 86400 - 7200),
        ("2022-01-01 00:00", "+05:30", -19800),
        ("2022-01-01 00:00", "-0500", 5 * 3600),
        ("1640995200", None, 0),
        ("1640995200.5", None, 0.5),
    ],
)
def test_known_times(text, zone, expected):
    assert unix_seconds([text], zone).tolist() == [NEW_YEAR + expected]


@pytest.mark.parametrize(
    ("texts", "zone", "message"),
    [
        (["2022-03-27 02:30"], "Europe/Berlin", "line 1: 2022-03-27 02:30 does not exist in Europe/Berlin because"),
        (["2022-10-30 01:30", "2022-10-30 02:30"], "Europe/Berlin", "line 2: 2022-10-30 02:30 is ambiguous in Europe"),
        (["2022-01-01 00:00", "2022-01-01T01:00Z"], "UTC", "mixes times with and without an offset .line 1"),
        (["2022-01-01 00:00"], None, "does not state the time zone"),
        (["2022-01-01 00:00"], "Mars/Olympus", "unknown time zone 'Mars/Olympus'; write UTC"),
        (["2022-01-01 00:00"], "../etc", "unknown time zone"),
        (["2022-13-01 00:00"], "UTC", "line 1: '2022-13-01 00:00' is not a time"),
        (["1640995200000"], None, "too large for Unix seconds; divide milliseconds by 1000"),
        (["10", "x"], None, "line 1: '10' is not a time"),
    ],
)  # fmt: skip
def test_errors(texts, zone, message):
    with pytest.raises(InputError, match=message):
        unix_seconds(texts, zone)


@given(hours=st.lists(st.integers(0, 3 * 8784), min_size=1, max_size=5))
def test_local_times_round_trip_or_are_refused(hours):
    zone = ZoneInfo("America/Los_Angeles")
    naive = [datetime(2022, 1, 1) + timedelta(hours=hour) for hour in hours]
    changes = {(3, 13), (11, 6), (3, 12), (11, 5), (3, 10), (11, 3)}
    texts = [f"{moment:%Y-%m-%d %H:%M}" for moment in naive]
    try:
        seconds = unix_seconds(texts, "America/Los_Angeles")
    except InputError:
        assert any((moment.month, moment.day) in changes for moment in naive)
        return
    back = [datetime.fromtimestamp(second, UTC).astimezone(zone).replace(tzinfo=None) for second in seconds]
    assert back == naive


def test_zone_names():
    assert time_zone("utc") is UTC and time_zone("Z") is UTC
    with pytest.raises(InputError, match="'\\+25:00'"):
        time_zone("+25:00")
