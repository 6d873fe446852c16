"""Carbon-intensity services on local test servers: response formats, retries, cache, tokens."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from kilowait.energy.signals import read_carbon
from kilowait.errors import InputError, MeterError
from kilowait.telemetry.carbon import HttpClient, fetch_carbon, follow_carbon
from kilowait.telemetry.carbon_api import ElectricityMaps, GreatBritain, check_base_url
from tests.telemetry.api_servers import HOUR_S, NOW, ApiServer, unix

SECRET = "s3cret-token"


@pytest.fixture
def api_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.setenv("no_proxy", "*")
    api = ApiServer()
    yield api
    api.server.shutdown()
    api.server.server_close()


class RecordingClient:
    """An HTTP client whose waits and messages are recorded."""

    def __init__(self, cache: Path | None = None, token: str | None = None, **options: Any) -> None:
        self.waits: list[float] = []
        self.messages: list[str] = []
        self.client = HttpClient(
            cache=cache,
            token=token,
            wait=self.waits.append,
            now=lambda: NOW,
            on_message=self.messages.append,
            **options,
        )


# -- response formats ------------------------------------------------------------------------------


def test_last_day_of_great_britain(api_server, tmp_path):
    out = tmp_path / "gb.json"
    fetched = fetch_carbon(GreatBritain(api_server.url), out, RecordingClient().client)
    assert (fetched.values, fetched.added, fetched.requests) == (48, 48, 1)
    assert api_server.paths == ["/intensity/2026-03-20T12:30Z/pt24h"]
    series = read_carbon(out)
    assert (series.start_s, series.end_s) == (unix("2026-03-19T12:30Z"), unix("2026-03-20T12:30Z"))
    assert series.meta["format"] == "gb-api" and series.meta["actual"] == 48


def test_span_of_great_britain_is_split_into_allowed_requests(api_server, tmp_path):
    out = tmp_path / "gb.json"
    begin, end = unix("2026-01-01T00:00Z"), unix("2026-02-01T00:00Z")
    fetched = fetch_carbon(GreatBritain(api_server.url), out, RecordingClient().client, span_s=(begin, end))
    assert fetched.values == 31 * 48 and fetched.requests == 5
    series = read_carbon(out)
    assert (series.start_s, series.end_s, series.meta["holes"]) == (begin, end, 0)


def test_region_of_great_britain(api_server, tmp_path):
    out = tmp_path / "london.json"
    service = GreatBritain(api_server.url, region=13)
    fetch_carbon(service, out, RecordingClient().client)
    fetch_carbon(service, out, RecordingClient().client, latest=True)
    assert api_server.paths == ["/regional/intensity/2026-03-20T12:30Z/pt24h/regionid/13", "/regional/regionid/13"]
    series = read_carbon(out)
    assert series.meta["location"] == "GB, London" and series.meta["forecast"] == 48


def test_latest_value_is_a_series_of_one_value(api_server, tmp_path):
    out = tmp_path / "gb.json"
    assert fetch_carbon(GreatBritain(api_server.url), out, RecordingClient().client, latest=True).values == 1
    assert api_server.paths == ["/intensity"]
    assert read_carbon(out).end_s - read_carbon(out).start_s == 1800


@pytest.mark.parametrize(("scope", "factor_type"), [("life-cycle", "lifecycle"), ("direct", "direct")])
def test_electricity_maps_last_day_and_month(api_server, tmp_path, scope, factor_type):
    out = tmp_path / "de.json"
    service = ElectricityMaps("DE", api_server.url, scope)
    recording = RecordingClient(token=SECRET)
    fetch_carbon(service, out, recording.client, latest=True)
    assert api_server.paths == [
        f"/v4/carbon-intensity/latest?zone=DE&emissionFactorType={factor_type}"
        "&temporalGranularity=hourly&disableCallerLookup=true"
    ]
    assert read_carbon(out).meta["scope"] == scope
    assert fetch_carbon(service, out, recording.client).values == 24
    span = (unix("2026-02-18T00:00Z"), unix("2026-03-20T12:00Z"))
    fetched = fetch_carbon(service, out, recording.client, span_s=span)
    series = read_carbon(out)
    assert fetched.values == 30 * 24 + 13 and series.meta["holes"] == 0 and series.meta["location"] == "DE"
    assert set(api_server.tokens) == {SECRET}


def test_forecasts_are_replaced_and_values_kept(api_server, tmp_path):
    out, service = tmp_path / "gb.json", GreatBritain(api_server.url)
    api_server.actual = lambda at: None if at > NOW - HOUR_S else 100
    fetch_carbon(service, out, RecordingClient().client)
    assert (read_carbon(out).meta["actual"], read_carbon(out).meta["forecast"]) == (46, 2)
    api_server.actual = lambda at: None if at < NOW - 12 * HOUR_S else 100
    fetched = fetch_carbon(service, out, RecordingClient().client)
    assert (fetched.added, fetched.changed) == (0, 2)
    assert read_carbon(out).meta["actual"] == 48


# -- retries ---------------------------------------------------------------------------------------


def test_transient_errors_are_retried(api_server, tmp_path):
    api_server.errors = [
        (503, {}, b"busy"),
        (429, {"Retry-After": "17"}, b"{}"),
        (500, {"Retry-After": format_datetime(datetime.fromtimestamp(NOW + 40, UTC), usegmt=True)}, b""),
        (200, {"Content-Length": "9999"}, b'{"data": ['),
    ]
    recording = RecordingClient()
    assert fetch_carbon(GreatBritain(api_server.url), tmp_path / "gb.json", recording.client).requests == 5
    assert recording.waits == [1.0, 17.0, 40.0, 8.0]
    assert recording.messages[0] == "127.0.0.1: 503 Service Unavailable; trying again (2 of 5)"


def test_permanent_errors_are_reported(api_server, tmp_path):
    out = tmp_path / "gb.json"
    api_server.errors = [(502, {}, b"")] * 5
    with pytest.raises(MeterError, match=r"no answer from 127\.0\.0\.1 in 5 tries: 502 Bad Gateway; check the network"):
        fetch_carbon(GreatBritain(api_server.url), out, RecordingClient().client)
    assert not out.exists()
    api_server.errors = [(429, {"Retry-After": "7200"}, b'{"message": "quota"}')]
    with pytest.raises(MeterError, match=r"429 Too Many Requests \(quota\) and asks to wait 7200 s; try again after"):
        fetch_carbon(GreatBritain(api_server.url), out, RecordingClient().client)
    api_server.errors = [(400, {}, b'{"error": {"code": "400", "message": "bad dates"}}')]
    with pytest.raises(MeterError, match=r"answered 400 Bad Request \(bad dates\); check the location and the dates"):
        fetch_carbon(GreatBritain(api_server.url), out, RecordingClient().client)
    api_server.errors = [(200, {}, b"<html>log in here</html>")]
    with pytest.raises(MeterError, match=r"is not JSON \(.*\), perhaps a page of a proxy; check the base URL"):
        fetch_carbon(GreatBritain(api_server.url), out, RecordingClient().client)
    api_server.errors = [(200, {}, b'{"data": "soon"}')]
    with pytest.raises(MeterError, match="unknown response of the GB Carbon Intensity API: {'data': 'soon'}"):
        fetch_carbon(GreatBritain(api_server.url), out, RecordingClient().client)
    api_server.errors = [(200, {}, b'{"data": []}')]
    with pytest.raises(MeterError, match="has no values for Great Britain at that time"):
        fetch_carbon(GreatBritain(api_server.url), out, RecordingClient().client)


def test_refused_connection_and_timeout(api_server, tmp_path):
    recording = RecordingClient(tries=2)
    with pytest.raises(MeterError, match=r"no answer from 127\.0\.0\.1 in 2 tries: .*refused"):
        fetch_carbon(GreatBritain("http://127.0.0.1:9"), tmp_path / "gb.json", recording.client)
    api_server.body = lambda path: threading.Event().wait(0.5) or b""
    with pytest.raises(MeterError, match="in 1 tries: timed out"):
        fetch_carbon(GreatBritain(api_server.url), tmp_path / "gb.json", RecordingClient(tries=1, timeout_s=0.1).client)
    with pytest.raises(InputError, match="the time-out is 0 s; it must be above 0"):
        HttpClient(timeout_s=0)


def test_following_continues_after_a_service_error(api_server, tmp_path):
    times = iter([0.0, 0.1, 0.1, 1.0, 1.0, 2.0, 2.5])
    results: list[Any] = []

    def on_result(result: Any) -> None:
        results.append(result)
        if len(results) == 1:
            api_server.errors = [(503, {}, b"")] * 5

    follow_carbon(
        GreatBritain(api_server.url), tmp_path / "gb.json", RecordingClient().client, every_s=0.01, duration_s=0.025,
        stop=threading.Event(), monotonic=lambda: next(times) / 100, on_result=on_result,
    )  # fmt: skip
    assert [type(result).__name__ for result in results] == ["FetchResult", "MeterError", "FetchResult"]
    stop = threading.Event()
    follow_carbon(
        GreatBritain(api_server.url), tmp_path / "gb.json", RecordingClient().client, every_s=60, duration_s=None,
        stop=stop, monotonic=lambda: 0.0, on_result=lambda result: stop.set(),
    )  # fmt: skip
    with pytest.raises(InputError, match="every is 0 s; it must be above 0"):
        follow_carbon(
            GreatBritain(api_server.url), tmp_path / "gb.json", RecordingClient().client, every_s=0, duration_s=None,
            stop=stop, monotonic=lambda: 0.0, on_result=results.append,
        )  # fmt: skip


# -- cache and files -------------------------------------------------------------------------------


def test_final_responses_are_cached(api_server, tmp_path):
    cache, service = tmp_path / "cache", GreatBritain(api_server.url)
    span = (unix("2026-02-24T00:00Z"), NOW // 1800 * 1800)
    first = fetch_carbon(service, tmp_path / "a.json", RecordingClient(cache).client, span_s=span)
    again = fetch_carbon(service, tmp_path / "b.json", RecordingClient(cache).client, span_s=span)
    assert (first.requests, first.cached) == (5, 0)
    assert (again.requests, again.cached) == (2, 3)  # the last week may still change
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()
    for file in cache.iterdir():
        file.write_text("{damaged")
    assert fetch_carbon(service, tmp_path / "c.json", RecordingClient(cache).client, span_s=span).requests == 5


def test_responses_with_missing_values_are_not_cached(api_server, tmp_path):
    api_server.actual = lambda at: None if at % 86400 == 0 else 100
    span = (unix("2026-01-01T00:00Z"), unix("2026-01-08T00:00Z"))
    for _ in range(2):
        fetched = fetch_carbon(
            GreatBritain(api_server.url), tmp_path / "a.json", RecordingClient(tmp_path / "c").client, span_s=span
        )
        assert fetched.cached == 0


def test_unwritable_cache_is_no_error(api_server, tmp_path):
    (tmp_path / "cache").write_text("a file")
    recording = RecordingClient(tmp_path / "cache")
    span = (unix("2026-01-01T00:00Z"), unix("2026-01-02T00:00Z"))
    assert fetch_carbon(GreatBritain(api_server.url), tmp_path / "a.json", recording.client, span_s=span).values == 48
    assert "the response is not cached" in recording.messages[0]


@pytest.mark.parametrize("text", ["mine", '{"data": [1]}', '{"zone": "FR", "data": []}', "[]"])
def test_files_with_other_content_are_not_changed(api_server, tmp_path, text):
    out = tmp_path / "de.json"
    out.write_text(text)
    with pytest.raises(InputError, match=r"de\.json does not contain values of zone DE; it was not changed"):
        fetch_carbon(ElectricityMaps("DE", api_server.url), out, RecordingClient(token=SECRET).client)
    assert out.read_text() == text and not api_server.paths


def test_unwritable_output_is_an_error(api_server, tmp_path):
    with pytest.raises(InputError, match=r"gb\.csv does not end in \.json"):
        fetch_carbon(GreatBritain(api_server.url), tmp_path / "gb.csv", RecordingClient().client)


def test_full_disk_is_an_error(api_server, tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("kilowait.telemetry.carbon.write_text", full)
    with pytest.raises(MeterError, match="cannot write .*No space left on device; choose another --out"):
        fetch_carbon(GreatBritain(api_server.url), tmp_path / "new" / "gb.json", RecordingClient().client)


# -- tokens and locations --------------------------------------------------------------------------


def test_token_is_only_in_its_header(api_server, tmp_path):
    recording = RecordingClient(tmp_path / "cache", SECRET)
    span = (unix("2026-01-01T00:00Z"), unix("2026-01-05T00:00Z"))
    fetch_carbon(ElectricityMaps("DE", api_server.url), tmp_path / "de.json", recording.client, span_s=span)
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET not in written + "".join(api_server.paths) + repr(recording.client)
    api_server.errors = [(401, {}, b'{"error": "Invalid auth-token"}')]
    with pytest.raises(MeterError, match=r"401 Unauthorized \(Invalid auth-token\); check the token") as problem:
        fetch_carbon(ElectricityMaps("DE", api_server.url), tmp_path / "de.json", recording.client)
    assert SECRET not in str(problem.value)


def test_token_is_not_sent_after_a_redirect(api_server, tmp_path):
    latest = "/v4/carbon-intensity/latest?zone=DE&emissionFactorType=direct&temporalGranularity=hourly"
    api_server.errors = [(302, {"Location": f"{api_server.url}{latest}"}, b"")]
    fetch_carbon(
        ElectricityMaps("DE", api_server.url), tmp_path / "de.json", RecordingClient(token=SECRET).client, latest=True
    )
    assert api_server.tokens == [SECRET, None]


def test_token_is_not_sent_unencrypted(tmp_path):
    with pytest.raises(InputError, match=r"the token would travel unencrypted to api\.example\.org; use https"):
        fetch_carbon(
            ElectricityMaps("DE", "http://api.example.org"), tmp_path / "x.json", RecordingClient(token=SECRET).client
        )


def test_response_for_another_location_is_an_error(api_server, tmp_path):
    api_server.maps = lambda segments, query: {"zone": "FR", "history": []}
    with pytest.raises(MeterError, match="requested zone DE, but the response is for FR"):
        fetch_carbon(ElectricityMaps("DE", api_server.url), tmp_path / "de.json", RecordingClient(token=SECRET).client)
    api_server.gb = lambda segments: {"data": {"regionid": 3, "data": []}}
    with pytest.raises(MeterError, match="requested region 13, but the response is for 3"):
        fetch_carbon(GreatBritain(api_server.url, 13), tmp_path / "l.json", RecordingClient().client)


def test_invalid_requests_are_errors(api_server, tmp_path):
    with pytest.raises(InputError, match="region is 18; the regions are 1 North Scotland, .* 17 Wales"):
        GreatBritain(region=18)
    with pytest.raises(InputError, match="the zone is 'D E'; write one such as DE"):
        ElectricityMaps("D E")
    with pytest.raises(InputError, match="the scope is 'both'"):
        ElectricityMaps("DE", carbon_scope="both")
    with pytest.raises(InputError, match="ends before it begins; give --since before --until"):
        fetch_carbon(GreatBritain(api_server.url), tmp_path / "x.json", RecordingClient().client, span_s=(NOW, NOW))
    for url in ("ftp://x", "api.example.org", "https://user@x.org", "https://x.org/?a=1"):
        with pytest.raises(InputError, match="the base URL is"):
            check_base_url(url)
    assert check_base_url("https://x.org/") == "https://x.org"
