from __future__ import annotations

import pytest

from kilowait.energy.signals import read_price
from kilowait.errors import InputError

TEXT = (
    "Datetime (UTC),Datetime (Local),Price (USD/MWh)\n"
    "2022-01-01 00:00:00+00:00,2021-12-31 19:00:00-05:00,22.5\n"
    "2022-01-01 01:00:00+00:00,2021-12-31 20:00:00-05:00,-3\n"
)


@pytest.fixture
def write_file(tmp_path):
    def write(text):
        path = tmp_path / "price.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_utc_column_is_used_and_prices_may_be_negative(write_file):
    series = read_price(write_file(TEXT), location="CA-ON")
    assert series.value.tolist() == [22.5, -3] and series.unit == "USD/MWh"
    assert series.start_s == 1640995200 and series.meta["currency"] == "USD"
    assert series.describe().startswith("electricity price, CA-ON, 2022-01-01 00:00 UTC")


@pytest.mark.parametrize(
    ("header", "unit", "expected"),
    [
        ("€/MWh", None, (100, "EUR/MWh")),
        ("price £/kWh", None, (100_000, "GBP/MWh")),
        ("price", "$/kWh", (100_000, "USD/MWh")),
        ("CHF per MWh", "chf/mwh", (100, "CHF/MWh")),
    ],
)
def test_units(write_file, header, unit, expected):
    series = read_price(write_file(f"time,{header}\n0,100\n60,100\n"), unit=unit)
    assert (series.value[0], series.unit) == expected


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("time,price\n0,1\n60,2\n", None, "names no unit; give it, such as unit='EUR/MWh'"),
        ("time,EUR/MWh\n0,1\n60,2\n", "USD/MWh", "mixed units: the file is in EUR/MWh, but unit='USD/MWh'"),
        ("time,EUR/MWh\n0,1\n60,2\n", "EUR/kWh", "mixed units"),
        ("time,price\n0,1\n60,2\n", "cheap", "unknown unit of price 'cheap'"),
        ("{}", None, "prices are read from CSV, but this is JSON"),
    ],
)
def test_errors(write_file, text, unit, message):
    with pytest.raises(InputError, match=message):
        read_price(write_file(text), unit=unit)


MEANS = {
    "CA-ON_2022": 31.494,
    "CA-ON_2023": 20.011,
    "DE-LU_2022": 253.588,
    "DE-LU_2023": 102.567,
    "US-CAL-CISO_2022": 88.923,
    "US-CAL-CISO_2023": 61.523,
    "US-MIDA-PJM_2022": 89.356,
    "US-MIDA-PJM_2023": 35.739,
    "US-TEX-ERCO_2022": 64.324,
    "US-TEX-ERCO_2023": 55.935,
}


@pytest.mark.parametrize("name", MEANS)
def test_real_prices(data_dir, name):
    series = read_price(data_dir / "price" / f"{name}.csv.gz")
    assert len(series) == 8760 and series.unit == "USD/MWh"
    assert float(series.mean(series.start_s, series.end_s)) == pytest.approx(MEANS[name], abs=6e-4)
    assert f"{series.moment(series.start_s)}" == f"{name[-4:]}-01-01 00:00 UTC"
