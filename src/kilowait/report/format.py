"""Format numbers and names for display."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import PurePath

__all__ = ["capital", "count", "listed", "number", "share", "short_name"]

_SUFFIXES = re.compile(r"(\.(swf|csv|psv|txt|parquet|json|gz|bz2|xz|zst|zip))+$")


def number(value: float) -> str:
    """A number with three significant digits and separated thousands.

    >>> [number(v) for v in (1234.5, 43.21, 25.0, 0.98765, 0.0, float("nan"))]
    ['1,234', '43.2', '25.0', '0.988', '0', '–']
    """
    if not math.isfinite(value):
        return "–"
    if value == 0 or abs(value) >= 999.5:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def count(value: float) -> str:
    """A count, or a mean of counts.

    >>> count(1240.0), count(2.5)
    ('1,240', '2.5')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def share(value: float) -> str:
    """A fraction as per cent.

    >>> share(0.8761), share(0.0004), share(float("nan"))
    ('87.6 %', '0.04 %', '–')
    """
    if not math.isfinite(value):
        return "–"
    return f"{100 * value:.1f} %" if value == 0 or value >= 0.001 else f"{100 * value:.2g} %"


def listed(parts: Sequence[str]) -> str:
    """Join the parts with commas, and *and* before the last.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def capital(text: str) -> str:
    """The text with its first letter capitalised."""
    return text[:1].upper() + text[1:]


def short_name(trace: str) -> str:
    """The name of a trace without folders and file suffixes.

    >>> short_name("logs/KTH-SP2-1996-2.1-cln.swf.gz")
    'KTH-SP2-1996-2.1-cln'
    """
    return _SUFFIXES.sub("", PurePath(trace).name) or trace
