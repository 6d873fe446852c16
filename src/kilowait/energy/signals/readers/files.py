"""Signal files: decompression, checksum, and CSV and JSON content."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.compression import decompressed
from kilowait.errors import InputError

__all__ = ["SignalFile", "Table", "as_number", "single_value", "open_signal"]

Floats = npt.NDArray[np.float64]

_BLANK = frozenset({"", "na", "n/a", "nan", "null", "none", "-"})


@dataclass(frozen=True)
class Table:
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

    def where(self, column: int, word: str) -> Table:
        """The rows in which the cell of a column is `word`."""
        matches = [at for at, cell in enumerate(self.words(column)) if cell == word]
        return Table(self.header, [self.rows[at] for at in matches], [self.line[at] for at in matches])

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

    def table(self) -> Table:
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
        return Table(header, [row for _, row in rows], [line for line, _ in rows])

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
