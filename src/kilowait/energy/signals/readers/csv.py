"""Time and value columns of plain CSV tables, and their unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.energy.signals.readers.files import Table, as_number, single_value
from kilowait.energy.signals.readers.timestamps import unix_seconds
from kilowait.errors import InputError

__all__ = ["plain_columns", "times_of", "unit_of"]

Floats = npt.NDArray[np.float64]

_TIMES = ("datetime", "timestamp", "time", "date", "utc", "hour")
_REMEDY = "name them with columns={'time': ..., 'value': ...}"


@dataclass(frozen=True)
class PlainColumns:
    """Indices of the time and the value column."""

    time: int
    value: int


def plain_columns(
    table: Table, columns: Mapping[str, str] | None, find_unit: Callable[[str], str | None]
) -> PlainColumns:
    """The columns named in `columns`; by default the first with a time-like name and the only numeric one.

    If several columns are numeric, the only one whose header names a unit is taken.
    """
    columns = columns or {}
    unknown = sorted(set(columns) - {"time", "value"})
    if unknown:
        raise InputError(f"columns has the key {unknown[0]!r}; its keys are 'time' and 'value'")
    time = table.index(columns["time"]) if "time" in columns else _time_column(table)
    if "value" in columns:
        return PlainColumns(time, table.index(columns["value"]))
    others = [at for at in range(len(table.header)) if at != time]
    numeric = [at for at in others if len(others) == 1 or _is_numeric(table, at)]
    with_unit = [at for at in numeric if find_unit(table.header[at]) is not None]
    candidates = with_unit if len(with_unit) == 1 else numeric
    if len(candidates) != 1:
        names = ", ".join(table.header[at] for at in candidates) or "none"
        raise InputError(f"{len(candidates)} columns could be the value ({names}); {_REMEDY}")
    return PlainColumns(time, candidates[0])


def times_of(table: Table, column: int, zone: str | None) -> Floats:
    """Unix seconds of a time column; times without an offset are UTC if the column's name contains "utc"."""
    if zone is None and "utc" in table.header[column].lower():
        zone = "UTC"
    return unix_seconds(table.words(column), zone, line=table.line)


def unit_of(table: Table, column: int, find_unit: Callable[[str], str | None]) -> str | None:
    """The unit in the column's name or in a unit column; None if there is none."""
    for at, name in enumerate(table.header):
        if name.lower().endswith(("unit", "units")):
            unit = single_value(table.words(at), None, "unit", "convert them to one")
            return None if unit is None else find_unit(unit) or unit
    return find_unit(table.header[column])


def _time_column(table: Table) -> int:
    names = [name.lower() for name in table.header]
    likely = [at for at, name in enumerate(names) if any(word in name for word in _TIMES)]
    if not likely:
        raise InputError(f"no column has the name of a time ({', '.join(table.header)}); {_REMEDY}")
    return next((at for at in likely if "utc" in names[at]), likely[0])


def _is_numeric(table: Table, column: int) -> bool:
    """Whether the first cell that is not blank is a number."""
    for row in table.rows:
        try:
            if column < len(row) and not math.isnan(as_number(row[column])):
                return True
        except ValueError:
            return False
    return False
