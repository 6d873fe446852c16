"""Append carbon intensity from a web service to a file that ``--carbon`` reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.energy.signals.units import unix_seconds
from kilowait.errors import InputError, KilowaitError, MeterError
from kilowait.files import write_text
from kilowait.telemetry.carbon_api import Row, Service, row_time_s
from kilowait.telemetry.http_client import HttpClient

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
