"""Crash-safe sample files (CSV, or a folder of daily Parquet files), which are never overwritten.

A CSV file is appended by complete lines, one write per sample. A ``.parquet`` is a folder with one file per day (UTC):
the current one is CSV and is converted to Parquet when the day or the sampling ends; a CSV file left by a crash is
converted by the next run.
"""

from __future__ import annotations

import csv
import fcntl
import io
import math
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from kilowait.errors import InputError, MeterError, UnknownNameError

__all__ = ["OPEN", "PIECE", "Recorder", "Row", "TEXTS", "arrow_types", "open_recorder", "whole_lines"]

Row = tuple[str | float, ...]
"""Cells by the meter's columns; the first is the time in Unix seconds."""

TEXTS = frozenset({"host", "meter", "uuid", "name"})
"""Text columns; the others are numbers, except for the timestamp `time`."""
PIECE = re.compile(r"\d{4}-\d\d-\d\d(-\d+)?\.parquet")
OPEN = re.compile(r"_\d{4}-\d\d-\d\d(-\d+)?\.csv")
"""File names in a folder: converted to Parquet, and being written. Other programs ignore names that begin with _."""


class Recorder(Protocol):
    """Writes the rows of each sample."""

    def write(self, rows: Sequence[Row]) -> None:
        """Write these rows; when it returns they survive the end of this process."""
        ...

    def close(self) -> None:
        """Finish the files."""
        ...


def open_recorder(path: str | PathLike[str], columns: Sequence[str]) -> Recorder:
    """A recorder that appends to a ``.csv`` file or a ``.parquet`` folder.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "node7.csv"
    >>> recorder = open_recorder(path, ("time", "host", "power_w"))
    >>> recorder.write([(0.25, "node7", 71.5), (1.25, "node7", math.nan)])
    >>> recorder.close()
    >>> path.read_text().splitlines()
    ['time,host,power_w', '1970-01-01T00:00:00.250000Z,node7,71.5', '1970-01-01T00:00:01.250000Z,node7,']
    """
    path = Path(path)
    kinds: dict[str, Callable[[Path, tuple[str, ...]], Recorder]] = {".csv": _Csv, ".parquet": _Folder}
    if path.suffix not in kinds:
        raise UnknownNameError("suffix of a sample file", path.suffix or str(path), kinds)
    try:
        return kinds[path.suffix](path, tuple(columns))
    except OSError as problem:
        raise MeterError(
            f"cannot write to {path}: {problem.strerror or problem}; choose another --out"
        ) from None


def arrow_types(columns: Sequence[str]) -> dict[str, Any]:
    """The Arrow type of each column."""
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    return {
        name: moment if name == "time" else pa.string() if name in TEXTS else pa.float64() for name in columns
    }


def whole_lines(file: int) -> int:
    """Bytes of an open file up to the end of its last complete line.

    Only the last line can be incomplete, if the machine fails during a write.
    """
    end = os.fstat(file).st_size
    while end > 0:
        begin = max(end - 4096, 0)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


class _Csv:
    """One CSV file, locked while it is written."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        self.path = path
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the name of a CSV file")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _lock(self._file, path)
            header = ",".join(columns) + "\n"
            whole = whole_lines(self._file)
            first = os.pread(self._file, len(header.encode()), 0).decode("utf-8", "replace")
            if first != (header if whole else header[: len(first)]):
                raise InputError(
                    f"{path} has other columns ({first.splitlines()[0]} ...); it was not changed: write to another file"
                )
            os.ftruncate(self._file, whole)
            if not whole:
                _all(self._file, header)
        except BaseException:
            os.close(self._file)
            raise

    def write(self, rows: Sequence[Row]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_cells(row) for row in rows])
        try:
            _all(self._file, text.getvalue())
        except OSError as problem:
            raise MeterError(
                f"cannot write to {self.path} any more: {problem.strerror or problem}; the samples so far are saved"
            ) from None

    def close(self) -> None:
        os.close(self._file)


class _Folder:
    """A folder of daily files, locked while it is written."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        if path.is_file():
            raise InputError(
                f"{path} is a file, but samples need a folder of that name; it was not changed: choose another name"
            )
        path.mkdir(parents=True, exist_ok=True)
        self.path, self.columns = path, columns
        self._piece: _Csv | None = None
        self._day = ""
        self._folder = os.open(path, os.O_RDONLY)
        try:
            _lock(self._folder, path)
            self._settle()
        except BaseException:
            os.close(self._folder)
            raise

    def _settle(self) -> None:
        """Refuse a folder with other content; convert files that an earlier run left open."""
        names = sorted(each.name for each in self.path.iterdir())
        unknown = [
            name for name in names if not (PIECE.fullmatch(name) or OPEN.fullmatch(name) or name[0] == ".")
        ]
        if unknown:
            raise InputError(
                f"{self.path} contains {unknown[0]}, which is not a sample file; choose another folder"
            )
        packed = [name for name in names if PIECE.fullmatch(name)]
        if packed:
            import pyarrow.parquet as pq

            held = tuple(pq.read_schema(self.path / packed[-1]).names)
            if held != self.columns:
                raise InputError(
                    f"{self.path} has other columns ({', '.join(held[:5])} ...); it was not changed: write to another "
                    "folder"
                )
        for name in names:
            if OPEN.fullmatch(name):
                left = _Csv(
                    self.path / name, self.columns
                )  # Removes an incomplete line, and refuses other columns.
                left.close()
                _pack(left.path, self.columns)

    def write(self, rows: Sequence[Row]) -> None:
        for day, same in groupby(rows, lambda row: _moment(row).strftime("%Y-%m-%d")):
            if day != self._day or self._piece is None:
                self._finish()
                self._day, self._piece = day, _Csv(self._free(day), self.columns)
            self._piece.write(list(same))

    def _free(self, day: str) -> Path:
        """An unused file name of that day: sampling may have been restarted."""
        number, name = 1, day
        while (self.path / f"{name}.parquet").exists() or (self.path / f"_{name}.csv").exists():
            number, name = number + 1, f"{day}-{number + 1}"
        return self.path / f"_{name}.csv"

    def _finish(self) -> None:
        if self._piece is not None:
            piece, self._piece = self._piece, None
            piece.close()
            _pack(piece.path, self.columns)

    def close(self) -> None:
        self._finish()
        os.close(self._folder)


def _pack(path: Path, columns: tuple[str, ...]) -> None:
    """Convert ``_DAY.csv`` to ``DAY.parquet`` atomically, then delete the CSV file."""
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    target = path.with_name(path.name[1:]).with_suffix(".parquet")
    partial = target.with_name(f".{target.name}.part")
    types = arrow_types(columns)
    try:
        if not target.exists():
            options = pc.ConvertOptions(column_types=types, strings_can_be_null=True)
            # A power failure may leave a line of zeros, which must not prevent the next run.
            parse = pc.ParseOptions(invalid_row_handler=lambda row: "skip")
            rows = 0
            # In batches: a day of eight GPUs then takes a few megabytes of memory.
            with (
                pc.open_csv(path, parse_options=parse, convert_options=options) as reader,
                pq.ParquetWriter(partial, pa.schema(types), compression="zstd") as out,
            ):
                for batch in reader:
                    out.write_batch(batch)
                    rows += batch.num_rows
            if rows:
                with partial.open("rb") as file:
                    os.fsync(file.fileno())
                os.replace(partial, target)
            else:
                partial.unlink()
        path.unlink()
    except (OSError, pa.ArrowException) as problem:
        raise MeterError(
            f"cannot convert {path} to Parquet: {problem}; the samples are still in the CSV file"
        ) from None


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"{path} is being written by another process; stop that one, or write to another file"
        ) from None
    except OSError:  # The file system has no locks: concurrent writers cannot be detected.
        pass


def _all(file: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(file, data) :]


def _cells(row: Row) -> list[str]:
    return [
        _moment(row).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        *(cell if isinstance(cell, str) else _number(float(cell)) for cell in row[1:]),
    ]


def _moment(row: Row) -> datetime:
    return datetime.fromtimestamp(float(row[0]), UTC)


def _number(value: float) -> str:
    """A number with 6 decimals (no meter is more precise); blank for NaN."""
    return "" if math.isnan(value) else f"{value:.6f}".rstrip("0").rstrip(".")
