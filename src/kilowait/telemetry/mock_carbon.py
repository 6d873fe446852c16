"""A local server with the request and response formats of the carbon-intensity services, for tests and demonstrations.

It answers requests of the GB Carbon Intensity API, of Electricity Maps (version 4) and of WattTime (version 3), with
their limits and their checks of secrets: Electricity Maps needs any token, WattTime any user name and password. It
listens only on the loopback interface. The values come from a function, so the server sends no real data unless a
signal file is given.
"""

from __future__ import annotations

import base64
import json
import math
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kilowait.energy.signals.units import POUND_G
from kilowait.errors import InputError, MeterError
from kilowait.series import Series
from kilowait.telemetry.carbon_api import DAY_S, REGIONS

Intensity = Callable[[float], float | None]
"""Carbon intensity at a Unix time, g/kWh; None: no value."""
GB_STEP_S, MAPS_STEP_S, WATTTIME_STEP_S = 1800, 3600, 300
"""Seconds between the values of each service."""
GB_MAX_S, MAPS_MAX_S, WATTTIME_MAX_S = 14 * DAY_S, 10 * DAY_S, 32 * DAY_S
"""Longest time span of one request to each service."""


def daily_curve(unix_s: float) -> float:
    """A made-up carbon intensity, g/kWh: low at noon, high at 19 h UTC, and lower at weekends.

    >>> [round(daily_curve(hour * 3600.0)) for hour in (0, 12, 19)]
    [272, 157, 396]
    """
    hour = unix_s / 3600 % 24
    solar = 150 * math.exp(-(((hour - 12.0) / 3.0) ** 2))
    evening = 90 * math.exp(-(((hour - 19.0) / 2.5) ** 2))
    weekend = (unix_s // DAY_S + 3) % 7 >= 5  # 1 January 1970 was a Thursday
    return 272.0 - solar + evening + (35.0 if 6 <= hour < 22 else 0.0) - (40.0 if weekend else 0.0)


def intensity_of(series: Series) -> Intensity:
    """The values of a series of UTC times; None outside it.

    >>> intensity_of(Series.constant(200.0, "g/kWh"))(0.0)
    200.0
    """

    def value(unix_s: float) -> float | None:
        return float(series.at(unix_s)) if series.covers(unix_s, unix_s) and unix_s < series.end_s else None

    return value


@dataclass
class Refusal(Exception):
    """An error response: HTTP status and message."""

    status: int
    message: str


@dataclass
class MockServices:
    """The responses of all services; the server sends them."""

    intensity: Intensity
    now: Callable[[], float]
    """Unix time, seconds."""
    tokens: set[str] = field(default_factory=set)
    """Tokens that were given for logins of WattTime."""

    def response(self, url: str, headers: Any) -> Any:
        """The response to a GET request, as JSON content; raises a Refusal."""
        parts = urlsplit(url)
        segments = parts.path.strip("/").split("/")
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        try:
            if segments[:2] == ["v4", "carbon-intensity"] and len(segments) == 3:
                return self._electricity_maps(segments[2], query, headers)
            if segments == ["login"]:
                return self._login(headers)
            if segments[0] == "v3" and len(segments) == 2:
                return self._watttime(segments[1], query, headers)
            if segments[0] in ("intensity", "regional"):
                return self._great_britain(segments)
        except (KeyError, ValueError) as problem:
            raise Refusal(400, f"a parameter is missing or invalid: {problem}") from None
        raise Refusal(404, f"there is no {parts.path}")

    def _great_britain(self, segments: list[str]) -> Any:
        region = int(segments[segments.index("regionid") + 1]) if "regionid" in segments else None
        times = [_unix_s(segment) for segment in segments if "T" in segment]
        begin = self.now() // GB_STEP_S * GB_STEP_S
        end = begin + GB_STEP_S
        if times:
            begin, end = (times[0] - DAY_S, times[0]) if "pt24h" in segments else (times[0], times[-1])
        rows = []
        for at, value in self._values(begin, end, GB_STEP_S, GB_MAX_S):
            forecast = None if value is None else round(value)
            intensity = {"forecast": forecast, "index": "moderate"}
            if region is None:
                intensity["actual"] = forecast if at < self.now() else None
            rows.append({"from": _minute(at), "to": _minute(at + GB_STEP_S), "intensity": intensity})
        if region is None:
            return {"data": rows}
        inner = {"regionid": region, "shortname": REGIONS[region - 1], "data": rows}
        return {"data": inner if times else [inner]}

    def _electricity_maps(self, endpoint: str, query: dict[str, str], headers: Any) -> Any:
        if not headers.get("auth-token"):
            raise Refusal(401, "Invalid auth-token")
        if query.get("temporalGranularity", "hourly") != "hourly":
            raise Refusal(400, "this mock has hourly values only")
        zone, current = query["zone"], self.now() // MAPS_STEP_S * MAPS_STEP_S

        def row(at: float, value: float | None) -> dict[str, Any]:
            return {
                "zone": zone,
                "carbonIntensity": None if value is None else round(value),
                "datetime": f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.000Z}",
                "emissionFactorType": query.get("emissionFactorType", "lifecycle"),
                "isEstimated": False,
                "estimationMethod": None,
            }

        if endpoint == "latest":
            return {**row(current, self.intensity(current)), "temporalGranularity": "hourly"}
        common = {"zone": zone, "temporalGranularity": "hourly"}
        if endpoint == "history":
            values = self._values(current - 23 * MAPS_STEP_S, current + MAPS_STEP_S, MAPS_STEP_S, DAY_S)
            return {**common, "history": [row(at, value) for at, value in values]}
        if endpoint == "past-range":
            begin, end = _unix_s(query["start"]), _unix_s(query["end"])
            return {
                **common, "data": [row(at, value) for at, value in self._values(begin, end, MAPS_STEP_S, MAPS_MAX_S)]
            }  # fmt: skip
        raise Refusal(404, f"there is no carbon-intensity/{endpoint}")

    def _login(self, headers: Any) -> Any:
        kind, _, text = headers.get("Authorization", "").partition(" ")
        user, _, password = base64.b64decode(text).decode().partition(":") if kind == "Basic" else ("", "", "")
        if not user or not password:
            raise Refusal(403, "no user name and password")
        token = secrets.token_hex(16)
        self.tokens.add(token)
        return {"token": token}

    def _watttime(self, endpoint: str, query: dict[str, str], headers: Any) -> Any:
        kind, _, token = headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or token not in self.tokens:
            raise Refusal(401, "the token is missing or was not given by /login")
        if query["signal_type"] != "co2_moer":
            raise Refusal(400, "this mock has the signal co2_moer only")
        current = self.now() // WATTTIME_STEP_S * WATTTIME_STEP_S
        if endpoint == "historical":
            begin, end = _unix_s(query["start"]), min(_unix_s(query["end"]), current)
        elif endpoint == "forecast":
            begin, end = current, current + float(query["horizon_hours"]) * 3600 + WATTTIME_STEP_S
        else:
            raise Refusal(404, f"there is no /v3/{endpoint}")
        found = self._values(begin, end, WATTTIME_STEP_S, WATTTIME_MAX_S)
        data = [
            {"point_time": f"{_minute(at)[:-1]}:00+00:00", "value": round(1e3 * value / POUND_G, 1)}
            for at, value in found
            if value is not None
        ]
        meta = {
            "data_point_period_seconds": WATTTIME_STEP_S,
            "region": query["region"],
            "signal_type": "co2_moer",
            "units": "lbs_co2_per_mwh",
        }
        return {"data": data, "meta": meta}

    def _values(self, begin: float, end: float, step: int, longest: float) -> Iterator[tuple[float, float | None]]:
        """Times and values from `begin` to before `end`."""
        if end - begin > longest:
            raise Refusal(400, f"the time span is {(end - begin) / DAY_S:g} days; at most {longest / DAY_S:g} are sent")
        at = math.ceil(begin / step) * step
        while at < end:
            yield float(at), self.intensity(float(at))
            at += step


def _unix_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _minute(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%MZ}"


@contextmanager
def serve_mock_carbon(intensity: Intensity, now: Callable[[], float], port: int = 0) -> Iterator[str]:
    """Serve the services on the loopback interface, and yield the base URL; the server ends with the context.

    Args:
        intensity: carbon intensity at a Unix time.
        now: the Unix time, seconds.
        port: TCP port from 1 to 65535; 0: a free one.

    >>> import urllib.request
    >>> with serve_mock_carbon(daily_curve, lambda: 0.0) as url:
    ...     opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    ...     json.load(opener.open(f"{url}/intensity"))["data"][0]["from"]
    '1970-01-01T00:00Z'
    """
    if not 0 <= port <= 65535:
        raise InputError(f"the port is {port}; it must be 0 (any free port) to 65535")
    services = MockServices(intensity, now)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, content = 200, services.response(self.path, self.headers)
            except Refusal as refusal:
                status, content = refusal.status, {"error": refusal.message}
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as problem:
        raise MeterError(
            f"cannot listen on 127.0.0.1:{port}: {problem.strerror or problem}; choose another --port, or 0 for a free "
            "one"
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
