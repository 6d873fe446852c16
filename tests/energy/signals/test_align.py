"""Alignment of signals with the time of a log: dates, time spans, units, signs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kilowait
from kilowait.cluster import Cluster
from kilowait.energy.accounting import account_energy
from kilowait.energy.power import Chiller, Economiser, LinearCop, PowerModel
from kilowait.energy.signals import Weather, read_carbon, read_price, read_weather
from kilowait.energy.signals.align import ExternalSignals
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.series import Series
from tests.energy.accounting.integrator import execution_log, small_model, table

NEW_YEAR = 1640995200.0  # 2022-01-01 00:00 UTC
HOUR = 3600.0
NODES = Cluster.from_nodes(1)
JOBS = table(nodes=[1], power_w=[100], submit_s=[600], runtime_s=[2 * HOUR])
SEGMENT = [(0, 600.0, 600 + 2 * HOUR)]
CARBON = Series(NEW_YEAR + HOUR * np.arange(4), [100, 200, 300], "g/kWh", {"name": "carbon intensity"}, unix_zero_s=0.0)


def dated(unix_start_s: float, **meta: str) -> JobTable:
    columns = {name: JOBS[name] for name in JOBS.columns}
    return JobTable(meta={"unix_start_s": unix_start_s, **meta}, **columns)


def test_dated_log_uses_the_matching_hours() -> None:
    # The job runs from half past midnight to half past two.
    accounts = account_energy(
        execution_log(dated(NEW_YEAR + 1200), SEGMENT), NODES, small_model(), signals=ExternalSignals(carbon=CARBON)
    )
    assert accounts.co2_kg == pytest.approx(0.15 * (0.5 * 100 + 200 + 0.5 * 300) / 1e3)
    hours = accounts.hourly()  # full hours UTC
    assert (hours.edge_s + 1200).tolist() == [1800, 3600, 7200, 9000]
    assert accounts.signals["carbon"].startswith("carbon intensity, 2022-01-01 00:00 UTC to 2022-01-01 03:00 UTC")
    assert accounts.it_power.moment(600) == "2022-01-01 00:30 UTC"


def test_start_overrides_the_date_of_the_log() -> None:
    for jobs in (JOBS, dated(5.0)):
        accounts = account_energy(
            execution_log(jobs, SEGMENT),
            NODES,
            small_model(),
            signals=ExternalSignals(carbon=CARBON, start="2022-01-01 01:00"),
        )
        assert accounts.co2_kg == pytest.approx(0.15 * 500 / 1e3)
        assert "first submission set to 2022-01-01 01:00 UTC" in accounts.notes
    with pytest.raises(InputError, match="start='new year'"):
        account_energy(
            execution_log(JOBS, SEGMENT), NODES, small_model(), signals=ExternalSignals(carbon=CARBON, start="new year")
        )


def test_signals_without_dates_use_log_time() -> None:
    undated = Series([0, 600 + HOUR, 9999], [100, 200], "g/kWh")
    for jobs in (JOBS, dated(NEW_YEAR)):
        accounts = account_energy(
            execution_log(jobs, SEGMENT), NODES, small_model(), signals=ExternalSignals(carbon=undated)
        )
        assert accounts.co2_kg == pytest.approx(0.15 * 300 / 1e3)
    shifted = CARBON.shifted(-NEW_YEAR)  # shifted by hand; the series still has its date
    accounts = account_energy(
        execution_log(dated(NEW_YEAR), SEGMENT), NODES, small_model(), signals=ExternalSignals(carbon=shifted)
    )
    assert accounts.co2_kg == pytest.approx(0.15 * (100 * 5 / 6 + 200 + 300 / 6) / 1e3)


def test_dates_need_a_dated_log() -> None:
    log = execution_log(JOBS, SEGMENT)
    for signals in ({"carbon": CARBON}, {"price": CARBON.scaled(1, "EUR/MWh")}):
        with pytest.raises(InputError, match="has dates and the log has none; .* start='2022-01-01'"):
            account_energy(log, NODES, small_model(), signals=ExternalSignals(**signals))
    celsius = Series(CARBON.edge_s, CARBON.value / 10, "°C", unix_zero_s=0.0)
    with pytest.raises(InputError, match="the weather has dates and the log has none"):
        account_energy(log, NODES, small_model(LinearCop()), signals=ExternalSignals(weather=Weather(celsius, celsius)))


def test_missing_span_of_a_short_series_is_named() -> None:
    late_log = execution_log(dated(NEW_YEAR + HOUR), SEGMENT)
    missing = (
        r"missing 2022-01-01 03:00 UTC to 2022-01-01 03:10 UTC\. Give a longer file, or ask for "
        "repeat_signals=True"
    )
    with pytest.raises(InputError, match=missing):
        account_energy(late_log, NODES, small_model(), signals=ExternalSignals(carbon=CARBON))
    early_log = execution_log(dated(NEW_YEAR - HOUR), SEGMENT)
    with pytest.raises(InputError, match=r"missing 2021-12-31 23:10 UTC to 2022-01-01 00:00 UTC\."):
        account_energy(early_log, NODES, small_model(), signals=ExternalSignals(price=CARBON.scaled(1, "EUR/MWh")))
    celsius = Series(CARBON.edge_s, CARBON.value / 10, "°C", unix_zero_s=0.0)
    with pytest.raises(InputError, match="missing 2022-01-01 03:00 UTC"):
        account_energy(
            late_log, NODES, small_model(LinearCop()), signals=ExternalSignals(weather=Weather(celsius, celsius))
        )
    with pytest.raises(InputError, match="missing 7200 s to 7800 s"):
        account_energy(
            execution_log(JOBS, SEGMENT),
            NODES,
            small_model(),
            signals=ExternalSignals(carbon=Series([0, 7200], [1], "g/kWh")),
        )


def test_repeat_signals_repeats_by_whole_weeks() -> None:
    week = Series(NEW_YEAR + HOUR * np.arange(169), np.arange(168.0), "g/kWh", {}, 0.0)
    jobs = dated(NEW_YEAR + 7 * 86400 - 600)  # submitted as the second week begins
    log = execution_log(jobs, SEGMENT)
    with pytest.raises(InputError, match="missing"):
        account_energy(log, NODES, small_model(), signals=ExternalSignals(carbon=week))
    accounts = account_energy(log, NODES, small_model(), signals=ExternalSignals(carbon=week, repeat_signals=True))
    assert accounts.co2_kg == pytest.approx(0.15 * (0 + 1) / 1e3)
    assert "repeated every 1 weeks" in accounts.signals["carbon"]
    weather = Weather(week.scaled(0.1, "°C"), week.scaled(0.5, "%"))
    for cooling in (LinearCop(), Economiser(Chiller(500.0))):
        wrapped = account_energy(
            log, NODES, small_model(cooling), signals=ExternalSignals(weather=weather, repeat_signals=True)
        )
        model = small_model(cooling)
        expected = [
            float(model.facility.facility_w(100.0, celsius, weather.wet_bulb.at(NEW_YEAR + HOUR * hour)))
            for hour, celsius in enumerate((0.0, 0.1))
        ]
        assert wrapped.facility_kwh == pytest.approx(sum(expected) / 1e3)
        assert "repeated" in wrapped.signals["weather"]


def test_units_are_converted_or_refused() -> None:
    log = execution_log(JOBS, SEGMENT)

    def grams(unit: str, value: float = 0.2) -> float | None:
        return account_energy(
            log, NODES, small_model(), signals=ExternalSignals(carbon=Series.constant(value, unit))
        ).co2_kg

    assert grams("kg/kWh") == pytest.approx(0.3 * 0.2)
    assert grams("g/kWh", 200) == pytest.approx(0.3 * 0.2)
    assert grams("lb/MWh", 1000) == pytest.approx(0.3 * 0.45359237)
    for unit in ("", "kg", "EUR/MWh"):
        with pytest.raises(InputError, match="carbon: unknown unit of carbon intensity"):
            grams(unit)
    with pytest.raises(InputError, match="price: unknown unit of price 'g/kWh'"):
        account_energy(log, NODES, small_model(), signals=ExternalSignals(price=Series.constant(1, "g/kWh")))
    kwh = account_energy(log, NODES, small_model(), signals=ExternalSignals(price=Series.constant(0.25, "$/kWh")))
    assert (kwh.cost, kwh.currency) == (pytest.approx(0.3 * 0.25), "USD")
    fahrenheit = Weather(Series.constant(70, "°F"), Series.constant(50, "%"))
    with pytest.raises(InputError, match="the temperature is in °F; give it in °C"):
        account_energy(log, NODES, small_model(LinearCop()), signals=ExternalSignals(weather=fahrenheit))


def test_negative_intensity_is_an_error_and_a_negative_price_is_not() -> None:
    log = execution_log(dated(NEW_YEAR), SEGMENT)
    negative = Series(CARBON.edge_s, [100, -5, 300], "g/kWh", unix_zero_s=0.0)
    with pytest.raises(InputError, match="-5 g/kWh at 2022-01-01 01:00 UTC; it must be 0 or more"):
        account_energy(log, NODES, small_model(), signals=ExternalSignals(carbon=negative))
    assert (
        account_energy(log, NODES, small_model(), signals=ExternalSignals(price=negative.scaled(1, "EUR/MWh"))).cost
        is not None
    )


def test_cooling_models_that_need_the_weather() -> None:
    log = execution_log(JOBS, SEGMENT)
    with pytest.raises(InputError, match=r"\(LinearCop\) needs the weather \(temperature\)"):
        account_energy(log, NODES, small_model(LinearCop()))
    far_away = Weather(Series([1e9, 2e9], [20], "°C"), Series([1e9, 2e9], [50], "%"))
    accounts = account_energy(log, NODES, small_model(), signals=ExternalSignals(weather=far_away))
    assert accounts.notes[-1] == "the cooling model (ConstantPue) does not depend on the weather"
    assert "weather" not in accounts.signals


def test_assumed_time_zone_is_noted() -> None:
    log = execution_log(dated(NEW_YEAR, time_zone="UTC (assumed)"), SEGMENT)
    assert (
        account_energy(log, NODES, small_model(), signals=ExternalSignals(carbon=CARBON)).notes[-1]
        == "times of the log taken as UTC (assumed)"
    )
    assert "assumed)" not in account_energy(log, NODES, small_model()).notes[-1]


def test_real_year(data_dir: Path) -> None:
    """The KTH log with the German signals of 2022: totals equal sums over hours and jobs; every signal is named."""
    jobs = kilowait.read_trace(data_dir / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz")
    nodes = Cluster.from_nodes(100)
    log = kilowait.simulate(jobs, nodes, backfill="easy")
    model = PowerModel.preset("taurus").with_cooling("economiser")
    accounts = account_energy(
        log,
        nodes,
        model,
        signals=ExternalSignals(
            carbon=read_carbon(data_dir / "carbon" / "DE-LU_2022_hourly.csv.gz"),
            price=read_price(data_dir / "price" / "DE-LU_2022.csv.gz"),
            weather=read_weather(data_dir / "weather" / "DE-LU_2022.json.gz"),
            start="2022-01-01",
        ),
    )
    assert accounts.co2_kg is not None and accounts.cost is not None
    assert sum(accounts.by_state.values()) == pytest.approx(accounts.it_kwh, rel=1e-9)
    hours = accounts.hourly()
    assert hours.co2_kg is not None and hours.cost is not None
    assert hours.co2_kg.sum() == pytest.approx(accounts.co2_kg, rel=1e-9)
    assert 150 < accounts.co2_kg / accounts.facility_kwh * 1e3 < 900  # g/kWh, as that year had
    per_job = accounts.per_job()
    jobs_part = accounts.by_state["jobs"] / accounts.it_kwh
    assert per_job["facility_j"].sum() / 3.6e6 < accounts.facility_kwh
    assert per_job["co2_g"].sum() / 1e3 / accounts.co2_kg == pytest.approx(jobs_part, abs=0.02)
    assert set(accounts.signals) == {"carbon", "price", "weather"}
    assert "life-cycle" in accounts.signals["carbon"] and "average" in accounts.signals["carbon"]
