"""The mock of the carbon-intensity services: downloads of every service, limits, and checks of secrets."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kilowait.energy.signals import read_carbon
from kilowait.errors import InputError, MeterError
from kilowait.series import Series
from kilowait.telemetry.carbon import FetchResult, HttpClient, fetch_carbon
from kilowait.telemetry.carbon_api import ElectricityMaps, GreatBritain, Service, WattTime
from kilowait.telemetry.credentials import MAX_TOKEN_AGE_S, Login
from kilowait.telemetry.mock_carbon import daily_curve, intensity_of, serve_mock_carbon

DAY_S = 86400.0
NOW = 20_530 * DAY_S + 43_500.0  # 12:05


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "*")
    with serve_mock_carbon(daily_curve, lambda: NOW) as url:
        yield url


def client(service: Service, now_s: float = NOW) -> HttpClient:
    login = Login(service.login_url, "ann", "secret") if isinstance(service, WattTime) else None
    return HttpClient(
        tries=1, token="any" if isinstance(service, ElectricityMaps) else None, login=login, now=lambda: now_s
    )


def fetched(service: Service, out: Path, **span: object) -> FetchResult:
    return fetch_carbon(service, out, client(service), **span)


SERVICES = {
    "gb": (GreatBritain, 1800, 1.0),
    "region": (lambda base_url: GreatBritain(base_url, region=13), 1800, 1.0),
    "electricity-maps": (lambda base_url: ElectricityMaps("DE", base_url), 3600, 1.0),
    "watttime": (lambda base_url: WattTime("CAISO_NORTH", base_url), 300, 0.03),
}


@pytest.mark.parametrize("name", SERVICES)
def test_downloads_have_the_values_of_the_curve(url, tmp_path, name):
    make, step_s, tolerance_g = SERVICES[name]
    service, out = make(url), tmp_path / "signal.json"
    assert fetched(service, out).values == DAY_S / step_s
    fetched(service, out, latest=True)
    first_s = NOW // DAY_S * DAY_S - 40 * DAY_S
    span = (first_s, first_s + 35 * DAY_S)  # longer than one request of every service
    result = fetched(service, out, span_s=span)
    assert result.requests >= 2 and result.added == 35 * DAY_S / step_s
    out.unlink()
    fetched(service, out, span_s=span)
    series = read_carbon(out)
    assert (series.start_s, series.end_s) == span and len(series) == 35 * DAY_S / step_s
    expected = [daily_curve(at) for at in series.edge_s[:-1]]
    np.testing.assert_allclose(series.value, expected, atol=tolerance_g)
    assert series.meta["kind"] == ("marginal" if name == "watttime" else "average")


def test_watttime_has_its_location_and_renews_its_token(url, tmp_path):
    service, out = WattTime("CAISO_NORTH", url), tmp_path / "signal.json"
    times = [NOW]
    login = Login(service.login_url, "ann", "secret")
    slow = HttpClient(tries=1, login=login, now=lambda: times[0])
    fetch_carbon(service, out, slow)
    first = login.token
    fetch_carbon(service, out, slow)
    assert login.token == first
    times[0] += MAX_TOKEN_AGE_S + 1
    fetch_carbon(service, out, slow)
    assert login.token != first
    assert read_carbon(out).meta["location"] == "CAISO_NORTH" and "secret" not in out.read_text() + repr(slow)
    with pytest.raises(InputError, match="does not contain values of region DE"):
        fetched(WattTime("DE", url), out)


def test_requests_without_secrets_are_refused(url, tmp_path):
    out = tmp_path / "signal.json"
    for service in (ElectricityMaps("DE", url), WattTime("DE", url)):
        with pytest.raises(MeterError, match="answered 401 Unauthorized .*check the token or the login"):
            fetch_carbon(service, out, HttpClient(tries=1))
    login = Login(f"{url}/login", "ann", "")
    with pytest.raises(MeterError, match="answered 403 Forbidden .no user name and password.; check the token or the"):
        fetch_carbon(WattTime("DE", url), out, HttpClient(tries=1, login=login))
    with pytest.raises(InputError, match="unencrypted to api.example.org"):
        fetch_carbon(WattTime("DE", "http://api.example.org"), out, client(WattTime("DE", "http://api.example.org")))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/intensity/2026-01-01T00:00Z/2026-02-01T00:00Z", 400),
        ("/intensity/2026-01-01Tx/2026-02-01T00:00Z", 400),
        ("/v4/carbon-intensity/past-range?zone=DE&start=2026-01-01T00:00Z&end=2026-01-12T00:00Z", 400),
        ("/v4/carbon-intensity/past-range?start=2026-01-01T00:00Z&end=2026-01-02T00:00Z", 400),
        ("/v4/carbon-intensity/latest?zone=DE&temporalGranularity=5_minutes", 400),
        ("/v4/carbon-intensity/future?zone=DE", 404),
        ("/v3/carbon-intensity/latest?zone=DE", 404),
        ("/", 404),
    ],
)
def test_invalid_requests_are_refused(url, path, status):
    request = urllib.request.Request(url + path, headers={"auth-token": "any"})
    with pytest.raises(urllib.error.HTTPError) as problem:
        urllib.request.urlopen(request, timeout=10)
    assert problem.value.code == status
    problem.value.close()


def test_values_of_a_file_are_sent_within_its_times(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    begin = NOW // 3600 * 3600 - 5 * 3600
    series = Series(np.array([begin, begin + 3600, begin + 7200]), np.array([100.0, 300.0]), "g/kWh", unix_zero_s=0.0)
    with serve_mock_carbon(intensity_of(series), lambda: NOW) as url:
        service = WattTime("DE", url)
        assert fetched(service, tmp_path / "signal.json").values == 24
    found = read_carbon(tmp_path / "signal.json")
    assert (found.start_s, found.end_s) == (begin, begin + 7200)
    assert found.mean(begin, begin + 7200) == pytest.approx(200.0, abs=0.03)


def test_response_for_another_region_or_unit_is_an_error():
    service = WattTime("CAISO_NORTH")
    for name, value in (("region", "DE"), ("units", "percentile"), ("data_point_period_seconds", 1800)):
        with pytest.raises(MeterError, match=f"requested {name} .* of WattTime, but the response has {value!r}"):
            service.rows({"data": [], "meta": {name: value}})
    with pytest.raises(InputError, match="the region is 'D E'; write one such as CAISO_NORTH"):
        WattTime("D E")


def test_port_in_use_is_an_error(url):
    port = int(url.rpartition(":")[2])
    with pytest.raises(MeterError, match=f"cannot listen on 127.0.0.1:{port}: .*choose another --port"):
        with serve_mock_carbon(daily_curve, lambda: NOW, port):
            pass
    with pytest.raises(InputError, match="the port is 70000"):
        with serve_mock_carbon(daily_curve, lambda: NOW, 70_000):
            pass
