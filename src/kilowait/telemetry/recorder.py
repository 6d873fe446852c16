"""Crash-safe sample files (CSV, or a folder of daily Parquet files), which are never overwritten.

A CSV file is appended by complete lines, one write per sample. A ``.parquet`` is a folder with one file per day (UTC):
the current one is CSV and is converted to Parquet when the day or the sampling ends; a CSV file left by a crash is
converted by the next run.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from kilowait.errors import InputError, MeterError, UnknownNameError
from kilowait.files import atomic_file, create_parents, output_lock
from kilowait.files.csv_text import guarded, unguarded

Row = tuple[str | float, ...]
"""Cells by the meter's columns; the first is the time in Unix seconds."""

TEXT_COLUMNS = frozenset({"host", "meter", "uuid", "name"})
"""Text columns; the others are numbers, except for the timestamp `time`."""
PARQUET_FILE = re.compile(r"\d{4}-\d\d-\d\d(-\d+)?\.parquet")
OPEN_FILE = re.compile(r"_\d{4}-\d\d-\d\d(-\d+)?\.csv")
"""File names in a folder: converted to Parquet, and being written. Parquet readers skip names that begin with _."""


class Recorder(Protocol):
    """Writer of the rows of each sample."""

    def write(self, rows: Sequence[Row]) -> None:
        """Write these rows; after it returns they are not lost if the process is killed."""
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
    recorders: dict[str, Callable[[Path, tuple[str, ...]], Recorder]] = {
        ".csv": _CsvRecorder,
        ".parquet": _ParquetFolderRecorder,
    }
    if path.suffix not in recorders:
        raise UnknownNameError("suffix of a sample file", path.suffix or str(path), recorders)
    try:
        return recorders[path.suffix](path, tuple(columns))
    except OSError as problem:
        raise MeterError(f"cannot write to {path}: {problem.strerror or problem}; choose another --out") from None


def arrow_types(columns: Sequence[str]) -> dict[str, Any]:
    """The Arrow type of each column."""
    import pyarrow as pa

    timestamp = pa.timestamp("us", tz="UTC")
    return {
        name: timestamp if name == "time" else pa.string() if name in TEXT_COLUMNS else pa.float64() for name in columns
    }


def unguarded_batch(batch: Any) -> Any:
    """A batch of rows of a CSV file of samples, its texts without the guards of `kilowait.files.csv_text`."""
    import pyarrow as pa

    for at, name in enumerate(batch.schema.names):
        if name in TEXT_COLUMNS:
            encoded = batch.column(at).dictionary_encode()
            texts = pa.array([unguarded(text) for text in encoded.dictionary.to_pylist()], pa.string())
            batch = batch.set_column(at, name, texts.take(encoded.indices))
    return batch


def complete_bytes(file: int) -> int:
    """Number of bytes of an open file up to the end of its last complete line.

    Only the last line can be incomplete, if the machine fails during a write.
    """
    end = os.fstat(file).st_size
    while end > 0:
        begin = max(end - 4096, 0)
        newline = os.pread(file, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


class _CsvRecorder:
    """One CSV file, locked while it is written unless its folder is."""

    def __init__(self, path: Path, columns: tuple[str, ...], *, locked: bool = True) -> None:
        self.path = path
        if path.is_dir():
            raise InputError(f"{path} is a folder; give the name of a CSV file")
        create_parents(path)
        self._open = ExitStack()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._open.callback(os.close, self._file)
            self._open.enter_context(output_lock(path if locked else None, nested=False))
            header = ",".join(columns) + "\n"
            complete = complete_bytes(self._file)
            first = os.pread(self._file, len(header.encode()), 0).decode("utf-8", "replace")
            if first != (header if complete else header[: len(first)]):
                raise InputError(
                    f"{path} has other columns ({first.splitlines()[0]} ...); it was not changed: write to another file"
                )
            os.ftruncate(self._file, complete)
            if not complete:
                _write_all(self._file, header)
        except BaseException:
            self._open.close()
            raise

    def write(self, rows: Sequence[Row]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_cells(row) for row in rows])
        try:
            _write_all(self._file, text.getvalue())
        except OSError as problem:
            raise MeterError(
                f"cannot write to {self.path} any more: {problem.strerror or problem}; the samples so far are saved"
            ) from None

    def close(self) -> None:
        self._open.close()


class _ParquetFolderRecorder:
    """A folder of daily files, locked while it is written."""

    def __init__(self, path: Path, columns: tuple[str, ...]) -> None:
        if path.is_file():
            raise InputError(
                f"{path} is a file, but samples need a folder of that name; it was not changed: choose another name"
            )
        path.mkdir(parents=True, exist_ok=True)
        self.path, self.columns = path, columns
        self._day_file: _CsvRecorder | None = None
        self._day = ""
        self._open = ExitStack()
        try:
            self._open.enter_context(output_lock(path, inside=True, nested=False))
            self._prepare()
        except BaseException:
            self._open.close()
            raise

    def _prepare(self) -> None:
        """Check that the folder has no other content, and convert the CSV files of an interrupted run."""
        names = sorted(entry.name for entry in self.path.iterdir())
        unknown = [
            name for name in names if not (PARQUET_FILE.fullmatch(name) or OPEN_FILE.fullmatch(name) or name[0] == ".")
        ]
        if unknown:
            raise InputError(f"{self.path} contains {unknown[0]}, which is not a sample file; choose another folder")
        parquet_files = [name for name in names if PARQUET_FILE.fullmatch(name)]
        if parquet_files:
            import pyarrow.parquet as pq

            columns_found = tuple(pq.read_schema(self.path / parquet_files[-1]).names)
            if columns_found != self.columns:
                raise InputError(
                    f"{self.path} has other columns ({', '.join(columns_found[:5])} ...); it was not changed: "
                    "write to another folder"
                )
        for name in names:
            if OPEN_FILE.fullmatch(name):
                # Opening removes an incomplete line, and checks the columns.
                leftover = _CsvRecorder(self.path / name, self.columns, locked=False)
                leftover.close()
                _convert_to_parquet(leftover.path, self.columns)

    def write(self, rows: Sequence[Row]) -> None:
        for day, day_rows in groupby(rows, lambda row: _moment(row).strftime("%Y-%m-%d")):
            if day != self._day or self._day_file is None:
                self._close_day_file()
                self._day, self._day_file = day, _CsvRecorder(self._unused_path(day), self.columns, locked=False)
            self._day_file.write(list(day_rows))

    def _unused_path(self, day: str) -> Path:
        """An unused file name of that day: sampling may have been restarted."""
        number, name = 1, day
        while (self.path / f"{name}.parquet").exists() or (self.path / f"_{name}.csv").exists():
            number, name = number + 1, f"{day}-{number + 1}"
        return self.path / f"_{name}.csv"

    def _close_day_file(self) -> None:
        if self._day_file is not None:
            day_file, self._day_file = self._day_file, None
            day_file.close()
            _convert_to_parquet(day_file.path, self.columns)

    def close(self) -> None:
        with self._open:
            self._close_day_file()


def _convert_to_parquet(path: Path, columns: tuple[str, ...]) -> None:
    """Convert ``_DAY.csv`` to ``DAY.parquet`` atomically, then delete the CSV file."""
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    target = path.with_name(path.name[1:]).with_suffix(".parquet")
    types = arrow_types(columns)
    try:
        if not target.exists():
            options = pc.ConvertOptions(column_types=types, strings_can_be_null=True)
            # After a power failure the file may contain a line of zeros, which must not prevent the next run.
            parse = pc.ParseOptions(invalid_row_handler=lambda row: "skip")
            rows = 0
            # In batches: a day of eight GPUs then takes a few megabytes of memory.
            with suppress(_NoRowsError), atomic_file(target) as temporary:
                with (
                    pc.open_csv(path, parse_options=parse, convert_options=options) as reader,
                    pq.ParquetWriter(temporary, pa.schema(types), compression="zstd") as out,
                ):
                    for batch in reader:
                        out.write_batch(unguarded_batch(batch))
                        rows += batch.num_rows
                if not rows:
                    raise _NoRowsError
        path.unlink()
    except (OSError, pa.ArrowException) as problem:
        raise MeterError(
            f"cannot convert {path} to Parquet: {problem}; the samples are still in the CSV file"
        ) from None


class _NoRowsError(Exception):
    """A CSV file has no rows: no Parquet file is written."""


def _write_all(file: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(file, data) :]


def _cells(row: Row) -> list[str]:
    return [
        _moment(row).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        *(guarded(cell) if isinstance(cell, str) else _number(float(cell)) for cell in row[1:]),
    ]


def _moment(row: Row) -> datetime:
    return datetime.fromtimestamp(float(row[0]), UTC)


def _number(value: float) -> str:
    """A number with 6 decimals (no meter is more precise); blank for NaN."""
    return "" if math.isnan(value) else f"{value:.6f}".rstrip("0").rstrip(".")
