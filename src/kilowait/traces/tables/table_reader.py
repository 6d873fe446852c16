"""Reading of CSV and Parquet files into columns of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kilowait.errors import TraceError
from kilowait.jobs import JobTable
from kilowait.traces.cell_parser import split_line
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.tables.aliases import DELIMITERS, csv_delimiter
from kilowait.traces.tables.columns import column_source, raw_columns_of

__all__ = ["own_parquet", "read_csv", "read_parquet"]


def read_csv(text: str, columns: Mapping[str, Any] | None, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read the rows of a CSV file with a header; `columns` maps kilowait's names to the file's."""
    lines = [line.rstrip("\r") for line in (text.split("\n") if "\n" in text else text.split("\r"))]
    top, delimiter = _header(lines, columns)
    names = [name.strip().lstrip("#").strip() for name in split_line(lines[top].lstrip(), delimiter)]
    names = [name.strip('"') for name in names]
    rows: list[list[str]] = []
    at: list[int] = []
    place = top + 1
    while place < len(lines):
        line, first = lines[place], place + 1
        place += 1
        if not line.strip() or line.startswith("#") or line == lines[top]:
            continue
        report.rows_read += 1
        if line.count('"') % 2 and delimiter != "|":
            line, place = _requoted(lines, place, delimiter, len(names))
        fields = split_line(line, delimiter)
        if len(fields) == len(names) + 1 and not fields[-1].strip():
            fields.pop()
        if len(fields) != len(names):
            report.add("dropped", f"number of fields differs from the {len(names)} columns", 1, first)
            continue
        rows.append(fields)
        at.append(first)
    if not report.rows_read:
        raise TraceError("there is a header, but no rows")
    cells: dict[str, list[str]] = {}
    for index, name in enumerate(names):  # Of columns with the same name the first is used.
        cells.setdefault(name, [row[index].strip() for row in rows])
    return raw_columns_of(cells, np.array(at, np.int64), columns, report)


def _requoted(lines: list[str], place: int, delimiter: str, width: int) -> tuple[str, int]:
    """Join the line before `place` with the lines inside its open quote; return it and the next line to read.

    A stray quote must not swallow the following rows: a line that is a complete row ends the search.
    """
    joined = lines[place - 1]
    for end in range(place, min(place + 50, len(lines))):
        if lines[end].count('"') % 2 == 0 and len(split_line(lines[end], delimiter)) == width:
            break
        joined = f"{joined}\n{lines[end]}"
        if joined.count('"') % 2 == 0:
            if len(split_line(joined, delimiter)) == width:
                return joined, end + 1
            break
    return lines[place - 1], place


def _header(lines: list[str], columns: Mapping[str, Any] | None) -> tuple[int, str]:
    """Line and delimiter of the header: the first line with column names, possibly commented out."""
    wanted = {column_source(value)[0] for value in columns.values()} if columns else set()
    first: int | None = None
    for index, line in enumerate(lines[:100]):
        if not line.strip():
            continue
        if wanted:
            for mark in DELIMITERS:
                if wanted <= {name.strip().strip('"') for name in split_line(line.lstrip("# "), mark)}:
                    return index, mark
        else:
            mark_found = csv_delimiter(line.lstrip("# "))
            if mark_found is not None:
                return index, mark_found
        if first is None and not line.startswith("#"):
            first = index
    if first is None:
        raise TraceError("there are no lines of jobs, only comments or blank lines")
    return first, max(DELIMITERS, key=lambda mark: len(split_line(lines[first], mark)))


def own_parquet(data: bytes, report: CleaningReport) -> JobTable | None:
    """The table written by `JobTable.to_parquet`, bit-identical; None for any other Parquet file."""
    import pyarrow as pa

    table = _arrow(data)
    if b"kilowait" not in (table.schema.metadata or {}):
        return None
    try:
        jobs = JobTable.from_arrow(table)
    except (pa.ArrowException, ValueError, TypeError, LookupError, AttributeError, OverflowError) as problem:
        raise TraceError(f"this Parquet file was written by kilowait, but cannot be read: {problem}") from None
    report.rows_read = report.jobs = len(jobs)
    return jobs


def read_parquet(
    data: bytes, columns: Mapping[str, Any] | None, report: CleaningReport
) -> tuple[RawColumns, dict[str, Any]]:
    """Read the rows of a Parquet file; dates and times become Unix seconds."""
    import pyarrow as pa
    import pyarrow.types as pt

    table = _arrow(data)
    cells: dict[str, list[str]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        try:
            if pt.is_timestamp(kind) or pt.is_duration(kind):
                fine = pa.timestamp("us", tz=kind.tz) if pt.is_timestamp(kind) else pa.duration("us")
                micro = column.cast(fine, safe=False).cast(pa.int64()).to_pylist()
                texts = ["" if value is None else repr(value / 1e6) for value in micro]
            else:
                texts = ["" if value is None else value.strip() for value in column.cast(pa.string()).to_pylist()]
        except (pa.ArrowException, UnicodeDecodeError):
            continue  # Lists and structs are not job columns.
        cells.setdefault(name, texts)
    report.rows_read = table.num_rows
    if not table.num_rows:
        raise TraceError("this Parquet file has no rows")
    return raw_columns_of(cells, np.arange(1, table.num_rows + 1), columns, report)


def _arrow(data: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise TraceError(f"this Parquet file is damaged or cut short: {reason}; get the file again") from None
