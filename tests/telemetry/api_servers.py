"""The GB Carbon Intensity API and Electricity Maps on the loopback, in the shapes they answer in."""

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


def said(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%dT%H:%MZ}"


class Web:
    """Both services on the loopback. `troubles` are answered first: (status, headers, body)."""

    def __init__(self) -> None:
        self.troubles: list[tuple[int, dict[str, str], bytes]] = []
        self.asked: list[str] = []
        self.tokens: list[str | None] = []
        self.actual: Callable[[float], int | None] = lambda at: int(at // 1800 % 300)
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.asked.append(self.path)
                web.tokens.append(self.headers.get("auth-token"))
                status, headers, body = (
                    web.troubles.pop(0) if web.troubles else (200, {}, web.body(self.path))
                )
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(ConnectionError):  # Whoever asked may have lost patience.
                    self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def body(self, path: str) -> bytes:
        parts = urlsplit(path)
        words = parts.path.strip("/").split("/")
        return json.dumps(
            self.maps(words, parse_qs(parts.query)) if words[0] == "v3" else self.gb(words)
        ).encode()

    def gb(self, words: list[str]) -> Any:
        region = int(words[words.index("regionid") + 1]) if "regionid" in words else None
        times = [unix(word) for word in words if "T" in word]
        begin, end = (NOW // 1800 * 1800, NOW // 1800 * 1800 + 1800) if not times else (times[0], times[-1])
        if "pt24h" in words:
            begin, end = end - 24 * HOUR_S, end
        rows = []
        for at in range(int(begin), int(end), 1800):
            intensity = {"forecast": 200, "index": "moderate"}
            if region is None:
                intensity["actual"] = self.actual(at)
            rows.append({"from": said(at), "to": said(at + 1800), "intensity": intensity})
        inner = {"regionid": region, "dnoregion": "UKPN", "shortname": "London", "data": rows}
        return {"data": rows if region is None else inner if times else [inner]}

    def maps(self, words: list[str], query: dict[str, list[str]]) -> Any:
        zone, now = query["zone"][0], NOW // HOUR_S * HOUR_S

        def row(at: float) -> dict[str, Any]:
            stamp = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S.000Z}"
            kind = query["emissionFactorType"][0]
            return {"zone": zone, "carbonIntensity": int(at // HOUR_S % 500), "datetime": stamp,
                    "emissionFactorType": kind, "isEstimated": False, "estimationMethod": None}  # fmt: skip

        if words[-1] == "latest":
            return row(now)
        if words[-1] == "history":
            return {"zone": zone, "history": [row(now - k * HOUR_S) for k in reversed(range(24))]}
        begin, end = unix(query["start"][0]), unix(query["end"][0])
        assert end - begin <= 10 * 86400
        return {"zone": zone, "data": [row(at) for at in range(int(begin), int(end) + 1, 3600)]}
