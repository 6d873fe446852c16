"""Timestamp parsing: times in files as Unix seconds; a time whose zone is unknown is an error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError

__all__ = ["time_zone", "unix_seconds"]

_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)")
_NUMBER = re.compile(r"-?\d+(\.\d*)?")
_LATEST_S = 2**33  # The year 2242; larger numbers are not Unix seconds.


def time_zone(name: str) -> tzinfo:
    """A time zone by name (``Europe/Berlin``), as an offset (``+01:00``) or ``UTC``.

    >>> time_zone("+05:30").utcoffset(None).total_seconds()
    19800.0
    """
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    match = _OFFSET.fullmatch(name.strip())
    if match is not None and int(match[2]) < 24 and int(match[3]) < 60:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(offset if match[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InputError(
            f"unknown time zone {name!r}; write UTC, a name such as Europe/Berlin, or an offset such as +01:00"
        ) from None


def unix_seconds(
    words: Sequence[str], zone: str | None, *, line: Sequence[int] | None = None
) -> npt.NDArray[np.float64]:
    """Unix seconds of ISO 8601 times, or of numbers that are Unix seconds already.

    Times with an offset are converted. Times without one are in `zone`, and an error if that is None. In a zone with
    daylight saving time, an hour that does not exist or is ambiguous is an error.

    >>> unix_seconds(["2022-01-01 00:00", "2022-01-01T01:00"], "UTC").tolist()
    [1640995200.0, 1640998800.0]
    >>> unix_seconds(["2022-01-01T01:00+01:00"], None).tolist(), unix_seconds(["60"], None).tolist()
    ([1640995200.0], [60.0])
    """
    if words and all(_NUMBER.fullmatch(word) for word in words):
        seconds = np.array([float(word) for word in words])
        if abs(seconds).max() > _LATEST_S:
            raise InputError(
                f"the file has the time {words[int(abs(seconds).argmax())]}, too large for Unix seconds; divide "
                "milliseconds by 1000"
            )
        return seconds
    lines = range(1, len(words) + 1) if line is None else line
    read = [_moment(word, at) for word, at in zip(words, lines, strict=True)]
    naive = [at for at, moment in enumerate(read) if moment.tzinfo is None]
    if naive and len(naive) < len(read):
        raise InputError(
            f"the file mixes times with and without an offset (line {lines[naive[0]]}: {words[naive[0]]!r}); "
            "write all of them with their offset, or all in one zone"
        )
    if naive:
        if zone is None:
            raise InputError(
                f"the file does not state the time zone of its times ({words[0]!r}); give zone='UTC', or a name such "
                "as zone='Europe/Berlin'"
            )
        local = time_zone(zone)
        read = [moment.replace(tzinfo=local) for moment in read]
        if isinstance(local, ZoneInfo):
            for moment, at in zip(read, lines, strict=True):
                _check_clock_change(moment, zone, at)
    return np.array([moment.timestamp() for moment in read])


def _moment(word: str, line: int) -> datetime:
    try:
        return datetime.fromisoformat(word.removesuffix(" UTC") + ("+00:00" if word.endswith(" UTC") else ""))
    except ValueError:
        raise InputError(
            f"line {line}: {word!r:.40} is not a time; write 2022-01-31 18:00, 2022-01-31T18:00Z or Unix seconds"
        ) from None


def _check_clock_change(moment: datetime, zone: str, line: int) -> None:
    first, second = moment.utcoffset(), moment.replace(fold=1).utcoffset()
    if first == second:
        return
    exists = moment.astimezone(UTC).astimezone(moment.tzinfo).replace(tzinfo=None) == moment.replace(tzinfo=None)
    fact = "is ambiguous" if exists else "does not exist"
    raise InputError(
        f"line {line}: {moment:%Y-%m-%d %H:%M} {fact} in {zone} because of daylight saving time; use a file in UTC or "
        "with offsets, or give a fixed offset such as zone='+01:00' if its times have no daylight saving time"
    )
