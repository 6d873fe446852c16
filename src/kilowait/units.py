"""Parse and format durations such as ``2-12:30:00``, ``90m`` and ``3600``."""

from __future__ import annotations

import math
import re

from kilowait.errors import InputError

_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+(?:\.\d*)?))?")
_SUFFIX = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_duration(text: str) -> float:
    """Seconds of a duration: plain seconds, a number with s/m/h/d/w, or Slurm's ``[days-]hours:minutes:seconds``.

    As in Slurm, two fields are minutes:seconds; after days they are hours:minutes.

    >>> (
    ...     parse_duration("90m"),
    ...     parse_duration("2-12"),
    ...     parse_duration("01:30"),
    ...     parse_duration("1:00:00"),
    ...     parse_duration("45"),
    ... )
    (5400.0, 216000.0, 90.0, 3600.0, 45.0)
    """
    text = text.strip()
    try:
        seconds = _seconds(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise InputError(f"{text!r} is not a span of time; write seconds, 90m, 12h, 3d or 2-12:30:00")
    return seconds


def _seconds(text: str) -> float:
    if text and text[-1] in _SUFFIX:
        return float(text[:-1]) * _SUFFIX[text[-1]]
    match = _CLOCK.fullmatch(text)
    if match is not None:
        days, first, second, third = (None if part is None else float(part) for part in match.groups())
        assert first is not None
        if days is not None:
            return days * 86400 + first * 3600 + (second or 0) * 60 + (third or 0)
        if third is not None and second is not None:
            return first * 3600 + second * 60 + third
        if second is not None:
            return first * 60 + second
    return float(text)


def format_duration(seconds: float) -> str:
    """Format a duration with at most two units.

    >>> [format_duration(s) for s in (0.4, 59, 3700, 200000, float("nan"))]
    ['0.4 s', '59 s', '1 h 1 min', '2 d 7 h', '-']
    """
    if not math.isfinite(seconds):
        return "-"
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def short_duration(seconds: float) -> str:
    """A duration that `parse_duration` reads, in the largest unit of which it is a whole number.

    >>> [short_duration(s) for s in (30.0, 0.5, 5400.0, 14400.0)]
    ['30s', '0.5s', '90m', '4h']
    """
    for suffix in ("w", "d", "h", "m"):
        if seconds > 0 and seconds % _SUFFIX[suffix] == 0:
            return f"{seconds / _SUFFIX[suffix]:g}{suffix}"
    return f"{seconds:g}s"
