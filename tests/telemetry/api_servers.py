"""Test servers with the response formats of the GB Carbon Intensity API and Electricity Maps."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HOUR_S = 3600.0
NOW = datetime(2026, 3, 20, 12, 10, tzinfo=UTC).timestamp()


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def time_text(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%MZ}"


class ApiServer:
    """Both services on the loopback interface. `errors` are sent first: (status, headers, body)."""

    def __init__(self) -> None:
        self.errors: list[tuple[int, dict[str, str], bytes]] = []
        self.paths: list[str] = []
        self.tokens: list[str | None] = []
        self.actual: Callable[[float], int | None] = lambda at: int(at // 1800 % 300)
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.paths.append(self.path)
                server.tokens.append(self.headers.get("auth-token"))
                status, headers, body = server.errors.pop(0) if server.errors else (200, {}, server.body(self.path))
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(ConnectionError):  # the client may have timed out
                    self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def body(self, path: str) -> bytes:
        parts = urlsplit(path)
        segments = parts.path.strip("/").split("/")
        return json.dumps(
            self.maps(segments, parse_qs(parts.query)) if segments[0] == "v4" else self.gb(segments)
        ).encode()

    def gb(self, segments: list[str]) -> Any:
        region = int(segments[segments.index("regionid") + 1]) if "regionid" in segments else None
        times = [unix(segment) for segment in segments if "T" in segment]
        begin, end = (NOW // 1800 * 1800, NOW // 1800 * 1800 + 1800) if not times else (times[0], times[-1])
        if "pt24h" in segments:
            begin, end = end - 24 * HOUR_S, end
        rows = []
        for at in range(int(begin), int(end), 1800):
            intensity = {"forecast": 200, "index": "moderate"}
            if region is None:
                intensity["actual"] = self.actual(at)
            rows.append({"from": time_text(at), "to": time_text(at + 1800), "intensity": intensity})
        inner = {"regionid": region, "dnoregion": "UKPN", "shortname": "London", "data": rows}
        return {"data": rows if region is None else inner if times else [inner]}

    def maps(self, segments: list[str], query: dict[str, list[str]]) -> Any:
        zone, now = query["zone"][0], NOW // HOUR_S * HOUR_S

        def row(at: float) -> dict[str, Any]:
            stamp = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.000Z}"
            kind = query["emissionFactorType"][0]
            assert query["temporalGranularity"] == ["hourly"]
            return {"zone": zone, "carbonIntensity": int(at // HOUR_S % 500), "datetime": stamp,
                    "emissionFactorType": kind, "isEstimated": False, "estimationMethod": None}  # fmt: skip

        if segments[-1] == "latest":
            return row(now)
        if segments[-1] == "history":
            return {"zone": zone, "history": [row(now - k * HOUR_S) for k in reversed(range(24))]}
        begin, end = unix(query["start"][0]), unix(query["end"][0])
        assert end - begin <= 10 * 86400
        return {"zone": zone, "data": [row(at) for at in range(int(begin), int(end) + 1, 3600)]}
