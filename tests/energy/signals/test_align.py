"""Signals on a log's clock: dates, spans, units, signs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kilowait
from kilowait.cluster import Cluster
from kilowait.energy.accounting import account_energy
from kilowait.energy.power import Chiller, Economiser, LinearCop, PowerModel
from kilowait.energy.signals import Weather, read_carbon, read_price, read_weather
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.series import Series
from tests.energy.accounting.integrator import ran, table, toy

NEW_YEAR = 1640995200.0  # 2022-01-01 00:00 UTC
HOUR = 3600.0
NODES = Cluster.from_nodes(1)
JOBS = table(nodes=[1], power_w=[100], submit_s=[600], runtime_s=[2 * HOUR])
SEGMENT = [(0, 600.0, 600 + 2 * HOUR)]
GRAMS = Series(
    NEW_YEAR + HOUR * np.arange(4), [100, 200, 300], "g/kWh", {"name": "carbon intensity"}, unix_zero_s=0.0
)


def dated(unix_start_s: float, **meta: str) -> JobTable:
    columns = {name: JOBS[name] for name in JOBS.columns}
    return JobTable(meta={"unix_start_s": unix_start_s, **meta}, **columns)


def test_a_dated_log_finds_its_hours() -> None:
    # The job runs from half past midnight to half past two.
    found = account_energy(ran(dated(NEW_YEAR + 1200), SEGMENT), NODES, toy(), carbon=GRAMS)
    assert found.co2_kg == pytest.approx(0.15 * (0.5 * 100 + 200 + 0.5 * 300) / 1e3)
    hours = found.hourly()  # full hours UTC
    assert (hours.edge_s + 1200).tolist() == [1800, 3600, 7200, 9000]
    assert found.signals["carbon"].startswith(
        "carbon intensity, 2022-01-01 00:00 UTC to 2022-01-01 03:00 UTC"
    )
    assert found.it_power.moment(600) == "2022-01-01 00:30 UTC"


def test_start_is_the_moment_of_the_first_submission_and_counts_before_the_logs_own() -> None:
    for jobs in (JOBS, dated(5.0)):
        found = account_energy(ran(jobs, SEGMENT), NODES, toy(), carbon=GRAMS, start="2022-01-01 01:00")
        assert found.co2_kg == pytest.approx(0.15 * 500 / 1e3)
        assert "first submission set to 2022-01-01 01:00 UTC" in found.notes
    with pytest.raises(InputError, match="start='new year'"):
        account_energy(ran(JOBS, SEGMENT), NODES, toy(), carbon=GRAMS, start="new year")


def test_signals_without_dates_are_on_the_logs_clock() -> None:
    bare = Series([0, 600 + HOUR, 9999], [100, 200], "g/kWh")
    for jobs in (JOBS, dated(NEW_YEAR)):
        found = account_energy(ran(jobs, SEGMENT), NODES, toy(), carbon=bare)
        assert found.co2_kg == pytest.approx(0.15 * 300 / 1e3)
    shifted = GRAMS.shifted(-NEW_YEAR)  # by hand; it still knows its date
    found = account_energy(ran(dated(NEW_YEAR), SEGMENT), NODES, toy(), carbon=shifted)
    assert found.co2_kg == pytest.approx(0.15 * (100 * 5 / 6 + 200 + 300 / 6) / 1e3)


def test_dates_need_a_dated_log() -> None:
    log = ran(JOBS, SEGMENT)
    for signals in ({"carbon": GRAMS}, {"price": GRAMS.scaled(1, "EUR/MWh")}):
        with pytest.raises(InputError, match="has dates and the log has none; .* start='2022-01-01'"):
            account_energy(log, NODES, toy(), **signals)
    celsius = Series(GRAMS.edge_s, GRAMS.value / 10, "°C", unix_zero_s=0.0)
    with pytest.raises(InputError, match="the weather has dates and the log has none"):
        account_energy(log, NODES, toy(LinearCop()), weather=Weather(celsius, celsius))


def test_a_series_that_does_not_cover_the_run_is_an_error_with_the_missing_span() -> None:
    late = ran(dated(NEW_YEAR + HOUR), SEGMENT)
    missing = (
        r"missing 2022-01-01 03:00 UTC to 2022-01-01 03:10 UTC\. Give a longer file, or ask for "
        "repeat_signals=True"
    )
    with pytest.raises(InputError, match=missing):
        account_energy(late, NODES, toy(), carbon=GRAMS)
    early = ran(dated(NEW_YEAR - HOUR), SEGMENT)
    with pytest.raises(InputError, match=r"missing 2021-12-31 23:10 UTC to 2022-01-01 00:00 UTC\."):
        account_energy(early, NODES, toy(), price=GRAMS.scaled(1, "EUR/MWh"))
    celsius = Series(GRAMS.edge_s, GRAMS.value / 10, "°C", unix_zero_s=0.0)
    with pytest.raises(InputError, match="missing 2022-01-01 03:00 UTC"):
        account_energy(late, NODES, toy(LinearCop()), weather=Weather(celsius, celsius))
    with pytest.raises(InputError, match="missing 7200 s to 7800 s"):
        account_energy(ran(JOBS, SEGMENT), NODES, toy(), carbon=Series([0, 7200], [1], "g/kWh"))


def test_wrap_repeats_by_whole_weeks_and_says_so() -> None:
    week = Series(NEW_YEAR + HOUR * np.arange(169), np.arange(168.0), "g/kWh", {}, 0.0)
    jobs = dated(NEW_YEAR + 7 * 86400 - 600)  # submitted as the second week begins
    log = ran(jobs, SEGMENT)
    with pytest.raises(InputError, match="missing"):
        account_energy(log, NODES, toy(), carbon=week)
    found = account_energy(log, NODES, toy(), carbon=week, repeat_signals=True)
    assert found.co2_kg == pytest.approx(0.15 * (0 + 1) / 1e3)
    assert "repeated every 1 weeks" in found.signals["carbon"]
    air = Weather(week.scaled(0.1, "°C"), week.scaled(0.5, "%"))
    for cooling in (LinearCop(), Economiser(Chiller(500.0))):
        wrapped = account_energy(log, NODES, toy(cooling), weather=air, repeat_signals=True)
        model = toy(cooling)
        expected = [
            float(model.facility.facility_w(100.0, celsius, air.wet_bulb.at(NEW_YEAR + HOUR * hour)))
            for hour, celsius in enumerate((0.0, 0.1))
        ]
        assert wrapped.facility_kwh == pytest.approx(sum(expected) / 1e3)
        assert "repeated" in wrapped.signals["weather"]


def test_units_are_converted_or_refused() -> None:
    log = ran(JOBS, SEGMENT)

    def grams(unit: str, value: float = 0.2) -> float | None:
        return account_energy(log, NODES, toy(), carbon=Series.constant(value, unit)).co2_kg

    assert grams("kg/kWh") == pytest.approx(0.3 * 0.2)
    assert grams("g/kWh", 200) == pytest.approx(0.3 * 0.2)
    assert grams("lb/MWh", 1000) == pytest.approx(0.3 * 0.45359237)
    for unit in ("", "kg", "EUR/MWh"):
        with pytest.raises(InputError, match="carbon: unknown unit of carbon intensity"):
            grams(unit)
    with pytest.raises(InputError, match="price: unknown unit of price 'g/kWh'"):
        account_energy(log, NODES, toy(), price=Series.constant(1, "g/kWh"))
    kwh = account_energy(log, NODES, toy(), price=Series.constant(0.25, "$/kWh"))
    assert (kwh.cost, kwh.currency) == (pytest.approx(0.3 * 0.25), "USD")
    fahrenheit = Weather(Series.constant(70, "°F"), Series.constant(50, "%"))
    with pytest.raises(InputError, match="the temperature is in °F; give it in °C"):
        account_energy(log, NODES, toy(LinearCop()), weather=fahrenheit)


def test_negative_intensity_is_an_error_and_a_negative_price_is_not() -> None:
    log = ran(dated(NEW_YEAR), SEGMENT)
    below = Series(GRAMS.edge_s, [100, -5, 300], "g/kWh", unix_zero_s=0.0)
    with pytest.raises(InputError, match="-5 g/kWh at 2022-01-01 01:00 UTC; it must be 0 or more"):
        account_energy(log, NODES, toy(), carbon=below)
    assert account_energy(log, NODES, toy(), price=below.scaled(1, "EUR/MWh")).cost is not None


def test_cooling_that_needs_the_weather() -> None:
    log = ran(JOBS, SEGMENT)
    with pytest.raises(InputError, match=r"\(LinearCop\) needs the weather \(temperature\)"):
        account_energy(log, NODES, toy(LinearCop()))
    far_away = Weather(Series([1e9, 2e9], [20], "°C"), Series([1e9, 2e9], [50], "%"))
    found = account_energy(log, NODES, toy(), weather=far_away)
    assert found.notes[-1] == "the cooling model (ConstantPue) does not depend on the weather"
    assert "weather" not in found.signals


def test_a_time_zone_that_was_assumed_is_told() -> None:
    log = ran(dated(NEW_YEAR, time_zone="UTC (assumed)"), SEGMENT)
    assert (
        account_energy(log, NODES, toy(), carbon=GRAMS).notes[-1] == "times of the log taken as UTC (assumed)"
    )
    assert "assumed)" not in account_energy(log, NODES, toy()).notes[-1]


def test_a_real_year(data_dir: Path) -> None:
    """KTH's log laid on Germany's 2022: totals are those of hours and jobs, and the words name every signal."""
    jobs = kilowait.read_trace(data_dir / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz")
    nodes = Cluster.from_nodes(100)
    log = kilowait.simulate(jobs, nodes, backfill="easy")
    model = PowerModel.preset("taurus").with_cooling("economiser")
    found = account_energy(
        log,
        nodes,
        model,
        carbon=read_carbon(data_dir / "carbon" / "DE-LU_2022_hourly.csv.gz"),
        price=read_price(data_dir / "price" / "DE-LU_2022.csv.gz"),
        weather=read_weather(data_dir / "weather" / "DE-LU_2022.json.gz"),
        start="2022-01-01",
    )
    assert found.co2_kg is not None and found.cost is not None
    assert sum(found.by_state.values()) == pytest.approx(found.it_kwh, rel=1e-9)
    hours = found.hourly()
    assert hours.co2_kg is not None and hours.cost is not None
    assert hours.co2_kg.sum() == pytest.approx(found.co2_kg, rel=1e-9)
    assert 150 < found.co2_kg / found.facility_kwh * 1e3 < 900  # g/kWh, as that year had
    spent = found.per_job()
    jobs_part = found.by_state["jobs"] / found.it_kwh
    assert spent["facility_j"].sum() / 3.6e6 < found.facility_kwh
    assert spent["co2_g"].sum() / 1e3 / found.co2_kg == pytest.approx(jobs_part, abs=0.02)
    assert set(found.signals) == {"carbon", "price", "weather"}
    assert "life-cycle" in found.signals["carbon"] and "average" in found.signals["carbon"]
