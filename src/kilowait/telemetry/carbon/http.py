"""HTTP client for JSON services, with retries, a timeout and a disk cache of final responses."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
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

__all__ = ["HttpClient", "checked_base", "default_cache"]

LONGEST_WAIT_S = 300.0
"""Longest Retry-After that is waited for."""
MOST_BYTES = 1 << 26
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Status codes that are retried."""


def default_cache() -> Path:
    """Folder of the response cache, in the user's cache directory."""
    from platformdirs import user_cache_path

    return user_cache_path("kilowait") / "carbon"


def checked_base(url: str) -> str:
    """A validated base URL of a service, without a trailing slash."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise InputError(f"the base URL is {url!r}; write it as https://api.example.org")
    return url.rstrip("/")


@dataclass
class HttpClient:
    """HTTP client with retries and a cache. Time and waiting are arguments, for tests."""

    timeout_s: float = 30.0
    """Timeout of one request."""
    tries: int = 5
    backoff_s: float = 1.0
    """Wait before the second try; doubled before each later one."""
    cache: Path | None = None
    token: str | None = field(default=None, repr=False)
    """Sent as the header auth-token, and not used otherwise."""
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

    def answer(self, url: str, is_final: Callable[[Any], bool] | None = None) -> Any:
        """The JSON at `url`; cached if `is_final` is given and returns true for it (a final response)."""
        kept = None if self.cache is None or is_final is None else self._place(url)
        if kept is not None:
            found = _cached(kept)
            if found is not None:
                self.cached += 1
                return found
        found = self._asked(url)
        if kept is not None and is_final is not None and is_final(found):
            self._keep(kept, url, found)
        return found

    def _asked(self, url: str) -> Any:
        host = urllib.parse.urlsplit(url).hostname or url
        problem = ""
        for turn in range(self.tries):
            if turn:
                self._say(f"{host}: {problem}; trying again ({turn + 1} of {self.tries})")
            self.requests += 1
            pause = self.backoff_s * 2**turn
            try:
                return self._once(url)
            except urllib.error.HTTPError as answer:
                with answer:
                    problem = _error_text(answer)
                    if answer.code not in _AGAIN:
                        raise MeterError(f"{host} answered {problem}{_remedy(answer.code)}") from None
                    pause = self._retry_after_s(answer.headers.get("Retry-After"), pause)
                if pause > LONGEST_WAIT_S:
                    raise MeterError(
                        f"{host} answered {problem} and asks to wait {pause:.0f} s; try again after that"
                    ) from None
            except (
                OSError,
                http.client.HTTPException,
            ) as broken:  # Time-outs and failed look-ups are OSErrors.
                problem = str(getattr(broken, "reason", "") or broken) or type(broken).__name__
            if turn + 1 < self.tries:
                self.wait(pause)
        raise MeterError(
            f"no answer from {host} in {self.tries} tries: {problem}; check the network (a proxy is taken from "
            "https_proxy), or try later"
        )

    def _once(self, url: str) -> Any:
        request = urllib.request.Request(
            url, headers={"User-Agent": "kilowait", "Accept": "application/json"}
        )
        if self.token is not None:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
                raise InputError(f"the token would travel unencrypted to {parts.hostname}; use https")
            # Not sent to other hosts when the service redirects.
            request.add_unredirected_header("auth-token", self.token)
        with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
            data = answer.read(MOST_BYTES + 1)
            length = answer.headers.get("Content-Length", "")
            if length.isdecimal() and len(data) < min(int(length), MOST_BYTES):
                raise http.client.IncompleteRead(data, int(length) - len(data))
        try:
            if len(data) > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
            return json.loads(data)
        except (ValueError, RecursionError) as problem:
            raise MeterError(
                f"the response from {url} is not JSON ({problem}), perhaps a page of a proxy; check the base URL"
            ) from None

    def _retry_after_s(self, retry_after: str | None, usual: float) -> float:
        """Seconds to wait by the Retry-After header (a number or a date), else `usual`."""
        if retry_after is None:
            return usual
        if retry_after.strip().isdecimal():
            return max(float(retry_after), usual)
        try:
            return max(parsedate_to_datetime(retry_after).timestamp() - self.now(), usual)
        except (TypeError, ValueError):
            return usual

    def _place(self, url: str) -> Path:
        assert self.cache is not None
        return self.cache / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"

    def _keep(self, place: Path, url: str, answer: Any) -> None:
        partial = place.with_name(f".{place.name}.{os.getpid()}.part")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps({"url": url, "answer": answer}))
            os.replace(partial, place)
        except OSError as problem:
            self._say(f"the response is not cached in {place.parent}: {problem.strerror or problem}")

    def _say(self, text: str) -> None:
        if self.on_message is not None:
            self.on_message(text)


def _cached(place: Path) -> Any:
    """A cached response; None if there is none or it cannot be read, so that it is requested again."""
    try:
        return json.loads(place.read_text())["answer"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _error_text(answer: urllib.error.HTTPError) -> str:
    """Status code, reason and message of an error response."""
    try:
        content = json.loads(answer.read(4096))
        words = content.get("error", content.get("message", ""))
        words = words.get("message", "") if isinstance(words, dict) else words
    except (OSError, ValueError, AttributeError, http.client.HTTPException):
        words = ""
    return f"{answer.code} {answer.reason}" + (f" ({words!s:.120})" if words else "")


def _remedy(code: int) -> str:
    if code in (401, 403):
        return "; check the token, and that it is valid for this location and time"
    return "; check the location and the dates"
