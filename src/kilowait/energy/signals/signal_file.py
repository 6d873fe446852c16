"""Signal files: decompression, checksum, CSV and JSON content, time and value columns, and their raw samples."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.energy.signals.units import unix_seconds
from kilowait.errors import InputError
from kilowait.files.compression import decompressed
from kilowait.series import Floats

_BLANK = frozenset({"", "na", "n/a", "nan", "null", "none", "-"})


@dataclass(frozen=True)
class SignalTable:
    """Header and rows of a CSV file, and the line number of each row."""

    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    line: Sequence[int]

    def index(self, name: str) -> int:
        """The index of a column, by its exact name or else case-insensitively."""
        for normalize in (str.strip, str.lower):
            names = [normalize(column.strip()) for column in self.header]
            if normalize(name.strip()) in names:
                return names.index(normalize(name.strip()))
        raise InputError(f"there is no column {name!r}; the file has {', '.join(self.header)}")

    def where(self, column: int, word: str) -> SignalTable:
        """The rows in which the cell of a column is `word`."""
        matches = [at for at, cell in enumerate(self.words(column)) if cell == word]
        return SignalTable(self.header, [self.rows[at] for at in matches], [self.line[at] for at in matches])

    def words(self, column: int) -> list[str]:
        """The cells of a column."""
        try:
            return [row[column] for row in self.rows]
        except IndexError:
            short = next(at for at, row in enumerate(self.rows) if len(row) <= column)
            raise InputError(
                f"line {self.line[short]} has {len(self.rows[short])} cells, and {self.header[column]!r} is "
                f"column {column + 1}; correct the line or leave it out"
            ) from None

    def numbers(self, column: int) -> Floats:
        """The cells of a column as numbers; NaN for blank cells."""
        values = np.empty(len(self.rows))
        for at, word in enumerate(self.words(column)):
            try:
                values[at] = as_number(word)
            except ValueError as problem:
                raise InputError(
                    f"line {self.line[at]}, {self.header[column]!r}: {problem}; write a number such as 1.5, or leave "
                    "the cell blank"
                ) from None
        return values


@dataclass(frozen=True)
class SignalFile:
    """Text of a signal file, with its name and checksum."""

    name: str
    sha256: str
    """Checksum of the file as stored, compressed or not."""
    text: str

    def origin(self) -> dict[str, str]:
        """Name and checksum for the meta of a series."""
        return {"source": self.name, "sha256": self.sha256}

    def is_json(self) -> bool:
        """Whether the text starts like JSON."""
        return self.text.lstrip()[:1] in ("{", "[")

    def json(self) -> Any:
        """The content parsed as JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as problem:
            raise InputError(f"{self.name} is not valid JSON: {problem}; download the file again") from None

    def table(self) -> SignalTable:
        """The content parsed as CSV, separated by commas, semicolons or tabs, without # comments.

        A file whose first cell starts with a digit has no header: its columns are called time and value.
        """
        lines = self.text.splitlines()
        first = next((line for line in lines if line.strip() and line[0] != "#"), "")
        delimiter = max(",;\t", key=first.count)
        try:
            cells = list(csv.reader(lines, delimiter=delimiter))
        except csv.Error as problem:
            raise InputError(f"this is not a CSV table: {problem}; download the file again") from None
        rows = [
            (line, [cell.strip() for cell in row])
            for line, row in enumerate(cells, start=1)
            if any(cell.strip() for cell in row) and not row[0].startswith("#")
        ]
        if not rows:
            raise InputError(f"{self.name} is empty; there is nothing to read")
        header = tuple(rows[0][1])
        if header[0][:1].isdigit():
            header = ("time", "value", *(f"column {n}" for n in range(3, len(header) + 1)))[: len(header)]
        else:
            del rows[0]
        if not rows:
            raise InputError(f"{self.name} has a header but no rows; there is nothing to read")
        return SignalTable(header, [row for _, row in rows], [line for line, _ in rows])

    @contextmanager
    def named(self) -> Iterator[None]:
        """Add the file name to the message of an InputError."""
        try:
            yield
        except InputError as problem:
            if self.name in str(problem):
                raise
            raise InputError(f"cannot read {self.name}: {problem}") from None


def open_signal(path: str | PathLike[str]) -> SignalFile:
    """Read a file, plain or compressed with gzip, zstd, bzip2 or xz (detected by content)."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror or problem}; check the path") from None
    name, checksum = path.name, hashlib.sha256(data).hexdigest()
    data, _ = decompressed(data, str(path), remedy="decompress it and give the decompressed file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # Place names in older EPW files; digits are the same.
    if "\x00" in text[:4096]:
        raise InputError(f"{path} is not text; kilowait reads signals from CSV, JSON and EPW files")
    return SignalFile(name, checksum, text)


def as_number(word: Any) -> float:
    """The number in a CSV cell or a JSON value; NaN if it is blank, ValueError if it is not a number.

    >>> as_number("12.5"), as_number(""), as_number(None), as_number(3)
    (12.5, nan, nan, 3.0)
    """
    if word is None or (isinstance(word, str) and word.strip().lower() in _BLANK):
        return math.nan
    if isinstance(word, bool) or not isinstance(word, str | int | float) or "_" in str(word):
        raise ValueError(f"{word!r:.40} is not a number")
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{word!r:.40} is not a number") from None


def single_value(names: Sequence[str], wanted: str | None, what: str, remedy: str) -> str | None:
    """The location, zone or unit to use: `wanted`, or the only one in the file; None if the file names none."""
    known = sorted({name for name in names if name})
    if wanted is not None:
        if known and wanted not in known:
            raise InputError(f"the file has no {what} {wanted!r}; it has {', '.join(known[:10])}")
        return wanted
    if len(known) > 1:
        raise InputError(f"the file mixes {len(known)} {what}s ({', '.join(known[:10])}); {remedy}")
    return known[0] if known else None


def chosen_unit(file_unit: str | None, unit: str | None, factor: Callable[[str], object], examples: str) -> str:
    """The unit that the file names or the caller gives; an error if there is none, or if they differ."""
    if file_unit is None and unit is None:
        raise InputError(f"the file names no unit; give it, such as {examples}")
    if file_unit is not None and unit is not None and factor(file_unit) != factor(unit):
        raise InputError(f"mixed units: the file is in {file_unit}, but unit={unit!r} was given; leave unit out")
    return file_unit or unit or ""


_TIMES = ("datetime", "timestamp", "time", "date", "utc", "hour")
_REMEDY = "name them with columns={'time': ..., 'value': ...}"


@dataclass(frozen=True)
class PlainColumns:
    """Indices of the time and the value column."""

    time: int
    value: int


def plain_columns(
    table: SignalTable, columns: Mapping[str, str] | None, find_unit: Callable[[str], str | None]
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


def times_of(table: SignalTable, column: int, zone: str | None) -> Floats:
    """Unix seconds of a time column; times without an offset are UTC if the column's name contains "utc"."""
    if zone is None and "utc" in table.header[column].lower():
        zone = "UTC"
    return unix_seconds(table.words(column), zone, line=table.line)


def unit_of(table: SignalTable, column: int, find_unit: Callable[[str], str | None]) -> str | None:
    """The unit in the column's name or in a unit column; None if there is none."""
    for at, name in enumerate(table.header):
        if name.lower().endswith(("unit", "units")):
            unit = single_value(table.words(at), None, "unit", "convert them to one")
            return None if unit is None else find_unit(unit) or unit
    return find_unit(table.header[column])


def _time_column(table: SignalTable) -> int:
    names = [name.lower() for name in table.header]
    likely = [at for at, name in enumerate(names) if any(word in name for word in _TIMES)]
    if not likely:
        raise InputError(f"no column has the name of a time ({', '.join(table.header)}); {_REMEDY}")
    return next((at for at in likely if "utc" in names[at]), likely[0])


def _is_numeric(table: SignalTable, column: int) -> bool:
    """Whether the first cell that is not blank is a number."""
    for row in table.rows:
        try:
            if column < len(row) and not math.isnan(as_number(row[column])):
                return True
        except ValueError:
            return False
    return False


NOT_STATED = "not stated"


@dataclass(frozen=True)
class RawSamples:
    """Samples in the unit of the file, each valid from its time (Unix seconds) on; NaN for missing values."""

    time_s: Floats
    value: Floats
    unit: str | None
    """The unit named in the file; None if it names none."""
    location: str | None = None
    kind: str = NOT_STATED
    """Average or marginal."""
    carbon_scope: str = NOT_STATED
    """Direct or life-cycle."""
    step_s: float | None = None
    """How long a sample is valid, if the file gives it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Counts for the meta of the series; a `note` is printed with every result."""
