"""Carbon intensity from a service into one growing file, which ``--carbon`` reads."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.energy.signals.readers.timestamps import unix_seconds
from kilowait.errors import InputError, KilowaitError, MeterError
from kilowait.telemetry.carbon.api import Row, Service, moment_of
from kilowait.telemetry.carbon.http import HttpClient

__all__ = ["FetchResult", "fetch_carbon", "follow_carbon", "span_asked"]

SETTLED_S = 7 * 86400.0
"""Answers about what is older than this are final: services replace estimates within days."""


@dataclass(frozen=True)
class FetchResult:
    """What a call brought."""

    values: int
    """In the file now."""
    added: int
    changed: int
    """Values that were there and are others now: forecasts and estimates that were replaced."""
    asked: int
    remembered: int
    """Answers that came from the cache."""


def fetch_carbon(
    service: Service,
    out: str | PathLike[str],
    asking: HttpClient,
    *,
    span_s: tuple[float, float] | None = None,
    latest: bool = False,
) -> FetchResult:
    """Ask for a span of time (Unix seconds), for what holds now, or by default for the last day, and add it to `out`.

    The file is JSON in the service's own shape, one row a moment. It is replaced in one step: whoever reads it, or
    stops us, finds the old one or the new one. A file that holds something else is not touched.
    """
    out = Path(out)
    held = _held(service, out)
    before = asking.asked, asking.remembered
    found = _found(service, asking, span_s, latest)
    added = changed = 0
    rows = dict(held)
    for row in found:
        at = moment_of(row, service.key)
        old = rows.get(at)
        if old is not None and service.value(row) is None and service.value(old) is not None:
            continue  # A service that has lost a value does not take ours.
        added += old is None
        changed += old is not None and old != row
        rows[at] = row
    if not rows:
        raise MeterError(f"the service has no values for {service.place()} at that time; check the dates")
    if added or changed or not out.exists():
        _write(out, service.document([rows[at] for at in sorted(rows)]))
    return FetchResult(len(rows), added, changed, asking.asked - before[0], asking.remembered - before[1])


def follow_carbon(
    service: Service,
    out: str | PathLike[str],
    asking: HttpClient,
    *,
    every_s: float,
    duration_s: float | None,
    stop: threading.Event,
    monotonic: Callable[[], float],
    heard: Callable[[FetchResult | KilowaitError], None],
) -> None:
    """Ask for the last day again and again; a service that fails is told of and asked again the next time.

    A day each time: so a stop of less than a day leaves no hole, and estimates are replaced.
    """
    if not every_s > 0:
        raise InputError(f"every is {every_s:g} s; it must be above 0, such as 30m")
    start, turn = monotonic(), 0
    heard(fetch_carbon(service, out, asking))  # The first failure is an error: a wrong token, a wrong zone.
    while True:
        turn = max(turn + 1, int((monotonic() - start) // every_s))
        if duration_s is not None and turn * every_s > duration_s:
            return
        if stop.wait(max(start + turn * every_s - monotonic(), 0.0)):
            return
        try:
            heard(fetch_carbon(service, out, asking))
        except MeterError as problem:
            heard(problem)


def span_asked(
    since: str | None, until: str | None, now_s: float, *, latest: bool = False, again: bool = False
) -> tuple[float, float] | None:
    """Unix seconds of a span in words (UTC unless they have an offset), until now by default; None: none was asked for.

    >>> span_asked("2026-01-01", "2026-01-02T12:00Z", 0.0)
    (1767225600.0, 1767355200.0)
    """
    if since is None and until is None:
        return None
    if since is None:
        raise InputError("--to says where a span ends; give --from with it")
    if latest or again:
        raise InputError("a span of the past is asked for once; leave out --latest, --every and --duration")
    begin, end = (None if text is None else _unix_s(text) for text in (since, until))
    assert begin is not None
    return begin, now_s if end is None else end


def _unix_s(text: str) -> float:
    try:
        return float(unix_seconds([text], "UTC")[0])
    except InputError as problem:
        raise InputError(str(problem).removeprefix("line 1: ")) from None


def _found(
    service: Service, asking: HttpClient, span_s: tuple[float, float] | None, latest: bool
) -> list[Row]:
    if span_s is None:
        url = service.latest() if latest else service.recent(asking.now())
        return service.rows(asking.answer(url))
    begin_s, end_s = span_s
    if not begin_s < end_s:
        raise InputError("the span asked for ends before it begins; give --from before --to")
    found: list[Row] = []
    for url, until_s in service.past(begin_s, end_s):
        final = until_s <= asking.now() - SETTLED_S

        def whole(answer: Any) -> bool:
            rows = service.rows(answer)
            return bool(rows) and all(service.value(row) is not None for row in rows)

        found += service.rows(asking.answer(url, whole if final else None))
    # Services answer with the half-hours and hours at both ends.
    return [row for row in found if begin_s <= moment_of(row, service.key) < end_s]


def _held(service: Service, out: Path) -> dict[float, Row]:
    """The rows of the file there is, by moment."""
    if out.suffix != ".json":
        raise InputError(
            f"{out} does not end in .json, and answers are kept as the service writes them; rename it"
        )
    try:
        text = out.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        raise InputError(
            f"cannot read {out}: {getattr(problem, 'strerror', problem)}; choose another file"
        ) from None
    try:
        document = json.loads(text)
        rows = service.rows(document)
        if service.document(rows) != document:
            raise ValueError
        return {moment_of(row, service.key): row for row in rows}
    except (ValueError, KeyError, MeterError):
        raise InputError(
            f"{out} holds something else than values of {service.place()}; it is not touched: write to another file"
        ) from None


def _write(out: Path, document: dict[str, Any]) -> None:
    half = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        half.write_text(json.dumps(document), encoding="utf-8")
        os.replace(half, out)
    except OSError as problem:
        half.unlink(missing_ok=True)
        raise MeterError(f"cannot write {out}: {problem.strerror or problem}; choose another --out") from None
