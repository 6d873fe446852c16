"""Numbers and names as text, and tables of text, without any markup: a page escapes and arranges them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

_SUFFIXES = re.compile(r"(\.(swf|csv|psv|txt|parquet|json|gz|bz2|xz|zst|zip))+$")
NumberFormat = Callable[[float], str]
"""A function that formats a number."""
Metric = tuple[str, str, str, NumberFormat]
"""Key, heading, which values are better (less, more, or empty), and format."""


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


# -- quantities ----------------------------------------------------------------------------------------


_LARGER = {"kWh": "MWh", "MWh": "GWh", "kg": "t", "t": "kt", "W": "kW", "kW": "MW", "MW": "GW"}


@dataclass(frozen=True)
class UnitScale:
    """A display unit in which the largest of some values has few digits."""

    factor: float
    """Multiply a value in its original unit by this to get `unit`."""
    unit: str
    decimals: int

    def format(self, value: float) -> str:
        """The value in `unit`, without the unit; all values of a scale have the same number of decimals."""
        return f"{value * self.factor:,.{self.decimals}f}" if math.isfinite(value) else "–"


def scaled(values: Sequence[float], unit: str) -> UnitScale:
    """The display scale for values in `unit`.

    >>> scale = scaled([12_345.0, 20_000.0], "kWh")
    >>> scale.format(12_345.0), scale.unit
    ('12.35', 'MWh')
    """
    top = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    factor = 1.0
    while top * factor >= 10_000 and unit in _LARGER:
        factor, unit = factor / 1000, _LARGER[unit]
    digits = math.floor(math.log10(top * factor)) if top > 0 else 0
    return UnitScale(factor, unit, min(max(3 - digits, 0), 6) if top > 0 else 0)


def change(ratio: float) -> str:
    """A ratio as a relative change in per cent.

    >>> change(0.876), change(1.0), change(1.0204), change(2.5)
    ('−12.4 %', '0 %', '+2.0 %', '+150 %')
    """
    if not math.isfinite(ratio):
        return "–"
    percent = 100 * (ratio - 1)
    size = f"{abs(percent):.0f}" if abs(percent) >= 99.5 else f"{abs(percent):.1f}"
    return "0 %" if float(size) == 0 else f"{'−' if percent < 0 else '+'}{size} %"


# -- tables ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    best: bool = False
    """Whether it is the best of its column."""
    small: tuple[str, ...] = ()
    """Further text, in small type."""
    kind: str = ""
    """`code` for commands and checksums; the verdict of a significance test."""


@dataclass(frozen=True)
class ReportTable:
    """A table; the first cell of every row is its head. A cell without marks is a text."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    groups: Sequence[tuple[str, int]] = ()
    """A row above the head: names and the number of columns that each spans."""
    text_columns: Sequence[int] = ()
    """Numbers of the columns of text."""
    marked: Sequence[int] = ()
    """Numbers of highlighted rows."""
    faint: Sequence[int] = ()
    """Numbers of rows that are greyed out."""
    folded: Sequence[int] = ()
    """Numbers of the rows of policies with perfect estimates, which are hidden until the reader unfolds them."""
    note: str = ""
    """Explanation below the table."""


@dataclass(frozen=True)
class ReportColumn:
    """A column of a table with a row for each policy."""

    label: str
    cells: Sequence[Cell | str]


def best_of(values: Any, candidates: Iterable[int], better: str) -> set[int]:
    """Indices of the best finite value; empty where all values are equal."""
    finite = {place: float(values[place]) for place in candidates if math.isfinite(values[place])}
    if len(finite) < 2 or min(finite.values()) == max(finite.values()):
        return set()
    top = min(finite.values()) if better == "less" else max(finite.values())
    return {place for place, value in finite.items() if value == top}


def column(
    label: str,
    values: Any,
    cell: NumberFormat,
    *,
    better: str = "less",
    order: Sequence[int] | None = None,
    candidates: Iterable[int] | None = None,
    small: Callable[[int], str] | None = None,
) -> ReportColumn:
    """A column of numbers whose best value is marked.

    `order` are the places of the values in the order of the rows (by default all), `candidates` those among which the
    best is chosen (by default `order`); `better` is less, more, or empty. `small` gives the text in small type.

    >>> [(cell.text, cell.best) for cell in column("wait", [2.0, 1.0], count).cells]
    [('2', False), ('1', True)]
    """
    shown = range(len(values)) if order is None else order
    best = best_of(values, shown if candidates is None else candidates, better) if better else set()
    small_of: Callable[[int], str] = small if small is not None else (lambda _: "")
    return ReportColumn(
        label,
        [
            Cell(cell(float(values[place])), place in best, (extra,) if (extra := small_of(place)) else ())
            for place in shown
        ],
    )


def table_of_columns(
    caption: str, head: str, labels: Sequence[str], columns: Sequence[ReportColumn], **marks: Any
) -> ReportTable:
    """A table with the labels as its first column; `marks` are further fields of `ReportTable`."""
    rows = [[label, *(each.cells[place] for each in columns)] for place, label in enumerate(labels)]
    return ReportTable(caption, [head, *(each.label for each in columns)], rows, **marks)


def interval_text(low: float, high: float, cell: NumberFormat) -> str:
    """A confidence interval; empty where it is unknown.

    >>> interval_text(1.0, 2.0, count), interval_text(float("nan"), 2.0, count)
    ('1 – 2', '')
    """
    return f"{cell(low)} – {cell(high)}" if math.isfinite(low) else ""
