"""Services asked over the loopback: shapes, patience, what is kept, what is never told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from kilowait.energy.signals import read_carbon
from kilowait.errors import InputError, MeterError
from kilowait.telemetry.carbon import (
    ElectricityMaps,
    GreatBritain,
    HttpClient,
    checked_base,
    fetch_carbon,
    follow_carbon,
    read_token,
)
from tests.telemetry.api_servers import (
    HOUR_S,
    NOW,
    Web,
    unix,
)

SECRET = "s3cret-token"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("no_proxy", "*")
    made = Web()
    yield made
    made.server.shutdown()
    made.server.server_close()


class Patience:
    """Waits that only remember how long they would have been."""

    def __init__(self, cache: Path | None = None, token: str | None = None, **more: Any) -> None:
        self.waits: list[float] = []
        self.heard: list[str] = []
        self.asking = HttpClient(
            cache=cache,
            token=token,
            wait=self.waits.append,
            now=lambda: NOW,
            on_message=self.heard.append,
            **more,
        )


# -- shapes ----------------------------------------------------------------------------------------


def test_the_last_day_of_great_britain(web, tmp_path):
    out = tmp_path / "gb.json"
    fetched = fetch_carbon(GreatBritain(web.url), out, Patience().asking)
    assert (fetched.values, fetched.added, fetched.requests) == (48, 48, 1)
    assert web.asked == ["/intensity/2026-03-20T12:30Z/pt24h"]
    series = read_carbon(out)
    assert (series.start_s, series.end_s) == (unix("2026-03-19T12:30Z"), unix("2026-03-20T12:30Z"))
    assert series.meta["format"] == "gb-api" and series.meta["actual"] == 48


def test_a_span_of_great_britain_in_pieces_the_service_allows(web, tmp_path):
    out = tmp_path / "gb.json"
    begin, end = unix("2026-01-01T00:00Z"), unix("2026-02-01T00:00Z")
    fetched = fetch_carbon(GreatBritain(web.url), out, Patience().asking, span_s=(begin, end))
    assert fetched.values == 31 * 48 and fetched.requests == 5
    series = read_carbon(out)
    assert (series.start_s, series.end_s, series.meta["holes"]) == (begin, end, 0)


def test_a_region_of_great_britain(web, tmp_path):
    out = tmp_path / "london.json"
    service = GreatBritain(web.url, region=13)
    fetch_carbon(service, out, Patience().asking)
    fetch_carbon(service, out, Patience().asking, latest=True)
    assert web.asked == ["/regional/intensity/2026-03-20T12:30Z/pt24h/regionid/13", "/regional/regionid/13"]
    series = read_carbon(out)
    assert series.meta["location"] == "GB, London" and series.meta["forecast"] == 48


def test_what_holds_now_grows_into_a_series(web, tmp_path):
    out = tmp_path / "gb.json"
    assert fetch_carbon(GreatBritain(web.url), out, Patience().asking, latest=True).values == 1
    assert web.asked == ["/intensity"]
    assert read_carbon(out).end_s - read_carbon(out).start_s == 1800


@pytest.mark.parametrize(("scope", "word"), [("life-cycle", "lifecycle"), ("direct", "direct")])
def test_electricity_maps_of_the_last_day_and_of_a_month(web, tmp_path, scope, word):
    out = tmp_path / "de.json"
    service = ElectricityMaps("DE", web.url, scope)
    patient = Patience(token=SECRET)
    fetch_carbon(service, out, patient.asking, latest=True)
    assert web.asked == [f"/v3/carbon-intensity/latest?zone=DE&emissionFactorType={word}"]
    assert read_carbon(out).meta["scope"] == scope
    assert fetch_carbon(service, out, patient.asking).values == 24
    span = (unix("2026-02-18T00:00Z"), unix("2026-03-20T12:00Z"))
    fetched = fetch_carbon(service, out, patient.asking, span_s=span)
    series = read_carbon(out)
    assert fetched.values == 30 * 24 + 13 and series.meta["holes"] == 0 and series.meta["location"] == "DE"
    assert set(web.tokens) == {SECRET}


def test_forecasts_are_replaced_and_values_never_lost(web, tmp_path):
    out, service = tmp_path / "gb.json", GreatBritain(web.url)
    web.actual = lambda at: None if at > NOW - HOUR_S else 100
    fetch_carbon(service, out, Patience().asking)
    assert (read_carbon(out).meta["actual"], read_carbon(out).meta["forecast"]) == (46, 2)
    web.actual = lambda at: None if at < NOW - 12 * HOUR_S else 100
    fetched = fetch_carbon(service, out, Patience().asking)
    assert (fetched.added, fetched.changed) == (0, 2)
    assert read_carbon(out).meta["actual"] == 48


# -- patience --------------------------------------------------------------------------------------


def test_troubles_pass_with_patience(web, tmp_path):
    web.troubles = [
        (503, {}, b"busy"),
        (429, {"Retry-After": "17"}, b"{}"),
        (500, {"Retry-After": format_datetime(datetime.fromtimestamp(NOW + 40, UTC), usegmt=True)}, b""),
        (200, {"Content-Length": "9999"}, b'{"data": ['),
    ]
    patient = Patience()
    assert fetch_carbon(GreatBritain(web.url), tmp_path / "gb.json", patient.asking).requests == 5
    assert patient.waits == [1.0, 17.0, 40.0, 8.0]
    assert patient.heard[0] == "127.0.0.1: 503 Service Unavailable; trying again (2 of 5)"


def test_troubles_that_stay_are_told(web, tmp_path):
    out = tmp_path / "gb.json"
    web.troubles = [(502, {}, b"")] * 5
    with pytest.raises(
        MeterError, match=r"no answer from 127\.0\.0\.1 in 5 tries: 502 Bad Gateway; check the network"
    ):
        fetch_carbon(GreatBritain(web.url), out, Patience().asking)
    assert not out.exists()
    web.troubles = [(429, {"Retry-After": "7200"}, b'{"message": "quota"}')]
    with pytest.raises(
        MeterError, match=r"429 Too Many Requests \(quota\) and asks to wait 7200 s; try again after"
    ):
        fetch_carbon(GreatBritain(web.url), out, Patience().asking)
    web.troubles = [(400, {}, b'{"error": {"code": "400", "message": "bad dates"}}')]
    with pytest.raises(
        MeterError, match=r"answered 400 Bad Request \(bad dates\); check the location and the dates"
    ):
        fetch_carbon(GreatBritain(web.url), out, Patience().asking)
    web.troubles = [(200, {}, b"<html>log in here</html>")]
    with pytest.raises(
        MeterError, match=r"is not JSON \(.*\), perhaps a page of a proxy; check the base URL"
    ):
        fetch_carbon(GreatBritain(web.url), out, Patience().asking)
    web.troubles = [(200, {}, b'{"data": "soon"}')]
    with pytest.raises(MeterError, match="unknown response of the GB Carbon Intensity API: {'data': 'soon'}"):
        fetch_carbon(GreatBritain(web.url), out, Patience().asking)
    web.troubles = [(200, {}, b'{"data": []}')]
    with pytest.raises(MeterError, match="has no values for Great Britain at that time"):
        fetch_carbon(GreatBritain(web.url), out, Patience().asking)


def test_nobody_there_and_silence(web, tmp_path):
    patient = Patience(tries=2)
    with pytest.raises(MeterError, match=r"no answer from 127\.0\.0\.1 in 2 tries: .*refused"):
        fetch_carbon(GreatBritain("http://127.0.0.1:9"), tmp_path / "gb.json", patient.asking)
    web.body = lambda path: threading.Event().wait(0.5) or b""
    with pytest.raises(MeterError, match="in 1 tries: timed out"):
        fetch_carbon(GreatBritain(web.url), tmp_path / "gb.json", Patience(tries=1, timeout_s=0.1).asking)
    with pytest.raises(InputError, match="the time-out is 0 s; it must be above 0"):
        HttpClient(timeout_s=0)


def test_following_outlives_a_service_that_is_down(web, tmp_path):
    times = iter([0.0, 0.1, 0.1, 1.0, 1.0, 2.0, 2.5])
    heard: list[Any] = []

    def hear(what: Any) -> None:
        heard.append(what)
        if len(heard) == 1:
            web.troubles = [(503, {}, b"")] * 5

    follow_carbon(
        GreatBritain(web.url), tmp_path / "gb.json", Patience().asking, every_s=0.01, duration_s=0.025,
        stop=threading.Event(), monotonic=lambda: next(times) / 100, on_result=hear,
    )  # fmt: skip
    assert [type(what).__name__ for what in heard] == ["FetchResult", "MeterError", "FetchResult"]
    stop = threading.Event()
    follow_carbon(
        GreatBritain(web.url), tmp_path / "gb.json", Patience().asking, every_s=60, duration_s=None,
        stop=stop, monotonic=lambda: 0.0, on_result=lambda what: stop.set(),
    )  # fmt: skip
    with pytest.raises(InputError, match="every is 0 s; it must be above 0"):
        follow_carbon(
            GreatBritain(web.url), tmp_path / "gb.json", Patience().asking, every_s=0, duration_s=None,
            stop=stop, monotonic=lambda: 0.0, on_result=heard.append,
        )  # fmt: skip


# -- what is kept ----------------------------------------------------------------------------------


def test_answers_about_the_past_are_asked_for_once(web, tmp_path):
    cache, service = tmp_path / "cache", GreatBritain(web.url)
    span = (unix("2026-02-24T00:00Z"), NOW // 1800 * 1800)
    first = fetch_carbon(service, tmp_path / "a.json", Patience(cache).asking, span_s=span)
    again = fetch_carbon(service, tmp_path / "b.json", Patience(cache).asking, span_s=span)
    assert (first.requests, first.cached) == (5, 0)
    assert (again.requests, again.cached) == (2, 3)  # the last week may still change
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()
    for kept in cache.iterdir():
        kept.write_text("{damaged")
    assert fetch_carbon(service, tmp_path / "c.json", Patience(cache).asking, span_s=span).requests == 5


def test_answers_with_holes_are_not_kept(web, tmp_path):
    web.actual = lambda at: None if at % 86400 == 0 else 100
    span = (unix("2026-01-01T00:00Z"), unix("2026-01-08T00:00Z"))
    for _ in range(2):
        fetched = fetch_carbon(
            GreatBritain(web.url), tmp_path / "a.json", Patience(tmp_path / "c").asking, span_s=span
        )
        assert fetched.cached == 0


def test_a_cache_that_cannot_be_written_is_no_error(web, tmp_path):
    (tmp_path / "cache").write_text("a file")
    patient = Patience(tmp_path / "cache")
    span = (unix("2026-01-01T00:00Z"), unix("2026-01-02T00:00Z"))
    assert fetch_carbon(GreatBritain(web.url), tmp_path / "a.json", patient.asking, span_s=span).values == 48
    assert "the response is not cached" in patient.heard[0]


@pytest.mark.parametrize("text", ["mine", '{"data": [1]}', '{"zone": "FR", "data": []}', "[]"])
def test_files_of_others_are_not_touched(web, tmp_path, text):
    out = tmp_path / "de.json"
    out.write_text(text)
    with pytest.raises(InputError, match=r"de\.json does not contain values of zone DE; it was not changed"):
        fetch_carbon(ElectricityMaps("DE", web.url), out, Patience(token=SECRET).asking)
    assert out.read_text() == text and not web.asked


def test_where_nothing_can_be_written(web, tmp_path):
    with pytest.raises(InputError, match=r"gb\.csv does not end in \.json"):
        fetch_carbon(GreatBritain(web.url), tmp_path / "gb.csv", Patience().asking)
    with pytest.raises(MeterError, match="cannot write .*No such file or directory; choose another --out"):
        fetch_carbon(GreatBritain(web.url), tmp_path / "no" / "gb.json", Patience().asking)


# -- tokens and places -----------------------------------------------------------------------------


def test_the_token_goes_into_its_header_and_nowhere_else(web, tmp_path):
    patient = Patience(tmp_path / "cache", SECRET)
    span = (unix("2026-01-01T00:00Z"), unix("2026-01-05T00:00Z"))
    fetch_carbon(ElectricityMaps("DE", web.url), tmp_path / "de.json", patient.asking, span_s=span)
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET not in written + "".join(web.asked) + repr(patient.asking)
    web.troubles = [(401, {}, b'{"error": "Invalid auth-token"}')]
    with pytest.raises(
        MeterError, match=r"401 Unauthorized \(Invalid auth-token\); check the token"
    ) as problem:
        fetch_carbon(ElectricityMaps("DE", web.url), tmp_path / "de.json", patient.asking)
    assert SECRET not in str(problem.value)


def test_the_token_is_not_handed_on_by_a_redirection(web, tmp_path):
    web.troubles = [
        (302, {"Location": f"{web.url}/v3/carbon-intensity/latest?zone=DE&emissionFactorType=direct"}, b"")
    ]
    fetch_carbon(
        ElectricityMaps("DE", web.url), tmp_path / "de.json", Patience(token=SECRET).asking, latest=True
    )
    assert web.tokens == [SECRET, None]


def test_the_token_does_not_travel_unencrypted(tmp_path):
    with pytest.raises(
        InputError, match=r"the token would travel unencrypted to api\.example\.org; use https"
    ):
        fetch_carbon(
            ElectricityMaps("DE", "http://api.example.org"),
            tmp_path / "x.json",
            Patience(token=SECRET).asking,
        )


def test_where_the_token_comes_from(tmp_path, monkeypatch):
    monkeypatch.delenv("ELECTRICITYMAPS_TOKEN", raising=False)
    with pytest.raises(
        InputError, match="the environment variable ELECTRICITYMAPS_TOKEN has none; .*--token-file"
    ):
        read_token(None)
    monkeypatch.setenv("ELECTRICITYMAPS_TOKEN", f" {SECRET}\n")
    assert read_token(None) == SECRET
    path = tmp_path / "token"
    with pytest.raises(InputError, match=r"cannot read the token in .*token: No such file"):
        read_token(path)
    path.write_text("from-file\n")
    assert read_token(path) == "from-file"
    path.write_text("two words")
    with pytest.raises(InputError, match="is not a token: it must be one word") as problem:
        read_token(path)
    assert "two words" not in str(problem.value)


def test_another_place_than_asked_for_is_refused(web, tmp_path):
    web.maps = lambda words, query: {"zone": "FR", "history": []}
    with pytest.raises(MeterError, match="requested zone DE, but the response is for FR"):
        fetch_carbon(ElectricityMaps("DE", web.url), tmp_path / "de.json", Patience(token=SECRET).asking)
    web.gb = lambda words: {"data": {"regionid": 3, "data": []}}
    with pytest.raises(MeterError, match="requested region 13, but the response is for 3"):
        fetch_carbon(GreatBritain(web.url, 13), tmp_path / "l.json", Patience().asking)


def test_impossible_questions_are_told(web, tmp_path):
    with pytest.raises(InputError, match="region is 18; the regions are 1 North Scotland, .* 17 Wales"):
        GreatBritain(region=18)
    with pytest.raises(InputError, match="the zone is 'D E'; write one such as DE"):
        ElectricityMaps("D E")
    with pytest.raises(InputError, match="the scope is 'both'"):
        ElectricityMaps("DE", carbon_scope="both")
    with pytest.raises(InputError, match="ends before it begins; give --since before --until"):
        fetch_carbon(GreatBritain(web.url), tmp_path / "x.json", Patience().asking, span_s=(NOW, NOW))
    for url in ("ftp://x", "api.example.org", "https://user@x.org", "https://x.org/?a=1"):
        with pytest.raises(InputError, match="the base URL is"):
            checked_base(url)
    assert checked_base("https://x.org/") == "https://x.org"
