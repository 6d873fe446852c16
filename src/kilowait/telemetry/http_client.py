"""HTTP client for JSON services, with retries, a timeout and a disk cache of final responses."""

from __future__ import annotations

import hashlib
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from kilowait.errors import InputError, MeterError
from kilowait.files import write_text

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


def check_base_url(url: str) -> str:
    """A validated base URL of a service, without a trailing slash."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise InputError(f"the base URL is {url!r}; write it as https://api.example.org")
    return url.rstrip("/")


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
        request = urllib.request.Request(url, headers={"User-Agent": "kilowait", "Accept": "application/json"})
        if self.token is not None:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
                raise InputError(f"the token would travel unencrypted to {parts.hostname}; use https")
            # Not sent to other hosts when the service redirects.
            request.add_unredirected_header("auth-token", self.token)
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
            write_text(path, json.dumps({"url": url, "answer": response}), parents=True)
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
        return "; check the token, and that it is valid for this location and time"
    return "; check the location and the dates"
