"""Download carbon intensity from a web service into a file that ``--carbon`` reads; the HTTP client for this."""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.energy.signals.units import unix_seconds
from kilowait.errors import InputError, KilowaitError, MeterError
from kilowait.files import write_text
from kilowait.telemetry.carbon_api import Row, Service, WattTime, row_time_s
from kilowait.telemetry.credentials import Login, read_login, read_token
from kilowait.telemetry.settings import CarbonRequest

FINAL_AFTER_S = 7 * 86400.0
"""Responses about times older than this are final: services replace estimates within days."""


@dataclass(frozen=True)
class FetchResult:
    """Values and requests of one fetch."""

    values: int
    """Values in the file after the fetch."""
    added: int
    """New values."""
    changed: int
    """Existing values that were replaced, such as forecasts and estimates."""
    requests: int
    """Requests to the service."""
    cached: int
    """Responses from the cache."""


def fetch_carbon(
    service: Service,
    out: str | PathLike[str],
    client: HttpClient,
    *,
    span_s: tuple[float, float] | None = None,
    latest: bool = False,
) -> FetchResult:
    """Fetch a time span (Unix seconds), the current value, or by default the last day, and add it to `out`.

    The file is JSON in the format of the service, one row per time. It is replaced atomically: after an interruption
    it is either the old or the new one. A file with other content is not changed.
    """
    out = Path(out)
    existing = _existing_rows(service, out)
    before = client.requests, client.cached
    found = _fetch_rows(service, client, span_s, latest)
    added = changed = 0
    rows = dict(existing)
    for row in found:
        time_s = row_time_s(row, service.key)
        existing_row = rows.get(time_s)
        if existing_row is not None and service.value(row) is None and service.value(existing_row) is not None:
            continue  # Keep an existing value that the service no longer has.
        added += existing_row is None
        changed += existing_row is not None and existing_row != row
        rows[time_s] = row
    if not rows:
        raise MeterError(f"the service has no values for {service.location()} at that time; check the dates")
    if added or changed or not out.exists():
        _write(out, service.document([rows[time_s] for time_s in sorted(rows)]))
    return FetchResult(len(rows), added, changed, client.requests - before[0], client.cached - before[1])


def follow_carbon(
    service: Service,
    out: str | PathLike[str],
    client: HttpClient,
    *,
    every_s: float,
    duration_s: float | None,
    stop: threading.Event,
    monotonic: Callable[[], float],
    on_result: Callable[[FetchResult | KilowaitError], None],
) -> None:
    """Fetch the last day periodically; a failure is reported and the fetch repeated at the next interval.

    Each fetch covers a day, so an interruption of less than a day leaves no gap, and estimates are replaced.
    """
    if not every_s > 0:
        raise InputError(f"every is {every_s:g} s; it must be above 0, such as 30m")
    start, cycle = monotonic(), 0
    on_result(fetch_carbon(service, out, client))  # The first fetch raises its errors, such as a wrong token or zone.
    while True:
        cycle = max(cycle + 1, int((monotonic() - start) // every_s))
        if duration_s is not None and cycle * every_s > duration_s:
            return
        if stop.wait(max(start + cycle * every_s - monotonic(), 0.0)):
            return
        try:
            on_result(fetch_carbon(service, out, client))
        except MeterError as problem:
            on_result(problem)


def requested_span(
    since: str | None, until: str | None, now_s: float, *, latest: bool = False, again: bool = False
) -> tuple[float, float] | None:
    """Unix seconds of a time span given as text (UTC unless it has an offset), by default until now; None: no span.

    >>> requested_span("2026-01-01", "2026-01-02T12:00Z", 0.0)
    (1767225600.0, 1767355200.0)
    """
    if since is None and until is None:
        return None
    if since is None:
        raise InputError("--until is the end of a time span; give --since with it")
    if latest or again:
        raise InputError("a past time span is fetched once; leave out --latest, --every and --duration")
    begin, end = (None if text is None else _unix_s(text) for text in (since, until))
    assert begin is not None
    return begin, now_s if end is None else end


def _unix_s(text: str) -> float:
    try:
        return float(unix_seconds([text], "UTC")[0])
    except InputError as problem:
        raise InputError(str(problem).removeprefix("line 1: ")) from None


def _fetch_rows(service: Service, client: HttpClient, span_s: tuple[float, float] | None, latest: bool) -> list[Row]:
    if span_s is None:
        url = service.latest() if latest else service.recent(client.now())
        return service.rows(client.get_json(url))
    begin_s, end_s = span_s
    if not begin_s < end_s:
        raise InputError("the time span ends before it begins; give --since before --until")
    found: list[Row] = []
    for url, until_s in service.past(begin_s, end_s):
        final = until_s <= client.now() - FINAL_AFTER_S

        def is_final(response: Any) -> bool:
            rows = service.rows(response)
            return bool(rows) and all(service.value(row) is not None for row in rows)

        found += service.rows(client.get_json(url, is_final if final else None))
    # Responses include the partial-hours or hours at both ends of the span.
    return [row for row in found if begin_s <= row_time_s(row, service.key) < end_s]


def _existing_rows(service: Service, out: Path) -> dict[float, Row]:
    """The rows of the existing file, by time."""
    if out.suffix != ".json":
        raise InputError(f"{out} does not end in .json, but responses are saved as JSON; rename it")
    try:
        text = out.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot read {out}: {getattr(problem, 'strerror', problem)}; choose another file") from None
    try:
        document = json.loads(text)
        rows = service.rows(document)
        if service.document(rows) != document:
            raise ValueError
        return {row_time_s(row, service.key): row for row in rows}
    except (ValueError, KeyError, MeterError):
        raise InputError(
            f"{out} does not contain values of {service.location()}; it was not changed: write to another file"
        ) from None


def _write(out: Path, document: dict[str, Any]) -> None:
    try:
        write_text(out, json.dumps(document))
    except OSError as problem:
        raise MeterError(f"cannot write {out}: {problem.strerror or problem}; choose another --out") from None


# -- HTTP client of JSON services ------------------------------------------------------------------


MAX_RETRY_AFTER_S = 300.0
"""Longest Retry-After that is waited for."""
MAX_BYTES = 1 << 26
"""Maximum size of a response."""
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes that are retried."""


def default_cache() -> Path:
    """Folder of the response cache, in the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("kilowait") / "carbon"


@dataclass
class HttpClient:
    """HTTP client with retries and a cache. Clock and wait function are arguments, so that tests can replace them."""

    timeout_s: float = 30.0
    """Timeout of one request."""
    tries: int = 5
    backoff_s: float = 1.0
    """Wait before the second try; doubled before each later one."""
    cache: Path | None = None
    token: str | None = field(default=None, repr=False)
    """Sent as the header auth-token; not logged or cached."""
    login: Login | None = field(default=None, repr=False)
    """User name and password, for which the service gives a token; sent only to its login URL."""
    wait: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    on_message: Callable[[str], None] | None = None
    requests: int = 0
    """Requests sent to the service."""
    cached: int = 0
    """Responses from the cache."""

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise InputError(f"the time-out is {self.timeout_s:g} s; it must be above 0")

    def get_json(self, url: str, is_final: Callable[[Any], bool] | None = None) -> Any:
        """The JSON at `url`. It is cached if `is_final` is given and returns true for the content."""
        cache_path = None if self.cache is None or is_final is None else self._cache_path(url)
        if cache_path is not None:
            content = _cached(cache_path)
            if content is not None:
                self.cached += 1
                return content
        content = self._get_with_retries(url)
        if cache_path is not None and is_final is not None and is_final(content):
            self._write_cache(cache_path, url, content)
        return content

    def _get_with_retries(self, url: str) -> Any:
        host = urllib.parse.urlsplit(url).hostname or url
        problem = ""
        for attempt in range(self.tries):
            if attempt:
                self._report(f"{host}: {problem}; trying again ({attempt + 1} of {self.tries})")
            self.requests += 1
            pause_s = self.backoff_s * 2**attempt
            try:
                return self._get(url)
            except urllib.error.HTTPError as response:
                with response:
                    problem = _error_text(response)
                    if response.code not in _RETRIED:
                        raise MeterError(f"{host} answered {problem}{_remedy(response.code)}") from None
                    pause_s = self._retry_after_s(response.headers.get("Retry-After"), pause_s)
                if pause_s > MAX_RETRY_AFTER_S:
                    raise MeterError(
                        f"{host} answered {problem} and asks to wait {pause_s:.0f} s; try again after that"
                    ) from None
            except (OSError, http.client.HTTPException) as error:  # Time-outs and failed look-ups are OSErrors.
                problem = str(getattr(error, "reason", "") or error) or type(error).__name__
            if attempt + 1 < self.tries:
                self.wait(pause_s)
        raise MeterError(
            f"no answer from {host} in {self.tries} tries: {problem}; check the network (a proxy is taken from "
            "https_proxy), or try later"
        )

    def _get(self, url: str) -> Any:
        if self.login is None:
            return self._send(url, None if self.token is None else ("auth-token", self.token))
        if not self.login.has_token(self.now()):
            self.login.accept(self._send(self.login.url, ("Authorization", self.login.basic())), self.now())
        return self._send(url, ("Authorization", self.login.bearer()))

    def _send(self, url: str, secret: tuple[str, str] | None) -> Any:
        """The JSON at `url`, requested with a secret header."""
        request = urllib.request.Request(url, headers={"User-Agent": "kilowait", "Accept": "application/json"})
        if secret is not None:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
                raise InputError(f"the token would travel unencrypted to {parts.hostname}; use https")
            # Not sent to other hosts when the service redirects.
            request.add_unredirected_header(*secret)
        with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
            data = response.read(MAX_BYTES + 1)
            length = response.headers.get("Content-Length", "")
            if length.isdecimal() and len(data) < min(int(length), MAX_BYTES):
                raise http.client.IncompleteRead(data, int(length) - len(data))
        try:
            if len(data) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
            return json.loads(data)
        except (ValueError, RecursionError) as problem:
            raise MeterError(
                f"the response from {url} is not JSON ({problem}), perhaps a page of a proxy; check the base URL"
            ) from None

    def _retry_after_s(self, retry_after: str | None, default_s: float) -> float:
        """Seconds to wait by the Retry-After header (a number or a date), else `default_s`."""
        if retry_after is None:
            return default_s
        if retry_after.strip().isdecimal():
            return max(float(retry_after), default_s)
        try:
            return max(parsedate_to_datetime(retry_after).timestamp() - self.now(), default_s)
        except (TypeError, ValueError):
            return default_s

    def _cache_path(self, url: str) -> Path:
        assert self.cache is not None
        return self.cache / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"

    def _write_cache(self, path: Path, url: str, response: Any) -> None:
        try:
            write_text(path, json.dumps({"url": url, "answer": response}))
        except OSError as problem:
            self._report(f"the response is not cached in {path.parent}: {problem.strerror or problem}")

    def _report(self, text: str) -> None:
        if self.on_message is not None:
            self.on_message(text)


def _cached(path: Path) -> Any:
    """A cached response; None if there is none or it cannot be read, so that it is requested again."""
    try:
        return json.loads(path.read_text())["answer"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _error_text(response: urllib.error.HTTPError) -> str:
    """Status code, reason and message of an error response."""
    try:
        content = json.loads(response.read(4096))
        message = content.get("error", content.get("message", ""))
        message = message.get("message", "") if isinstance(message, dict) else message
    except (OSError, ValueError, AttributeError, http.client.HTTPException):
        message = ""
    return f"{response.code} {response.reason}" + (f" ({message!s:.120})" if message else "")


def _remedy(code: int) -> str:
    if code in (401, 403):
        return "; check the token or the login, and that it is valid for this location and time"
    return "; check the location and the dates"


def client_for(request: CarbonRequest, service: Service, on_message: Callable[[str], None] | None = None) -> HttpClient:
    """The HTTP client of a download, with a cache of past values and the token or the login of its service."""
    return HttpClient(
        timeout_s=request.timeout_s,
        cache=request.cache or default_cache(),
        token=read_token(request.token_file) if request.service == "electricity-maps" else None,
        login=read_login(request.token_file, service.login_url) if isinstance(service, WattTime) else None,
        on_message=on_message,
    )
