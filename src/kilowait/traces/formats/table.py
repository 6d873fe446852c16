"""Reader of CSV and Parquet tables with named columns: usual names are recognised, others are mapped by the caller.

The column names, units and codes of ALCF's job-composite files and their published derivatives, NREL Eagle's table,
the job table of Slurm's database and kilowait's own files are known (`table_columns`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError
from kilowait.files.csv_text import unguarded
from kilowait.jobs import JobTable
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS
from kilowait.traces.cell_parser import split_line
from kilowait.traces.clean import RawColumns
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.alcf import complete_job_composite
from kilowait.traces.formats.table_columns import (
    DELIMITERS,
    KNOWN,
    column_source,
    csv_delimiter,
    is_own_table,
    normalized_name,
    raw_columns_of,
    table_origin,
)
from kilowait.traces.formats.table_rows import arrow_table, parquet_schema, unpack_limit
from kilowait.traces.trace_input import TraceInput


def read_csv(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read the rows of a CSV file with a header; a column map has kilowait's names and the file's."""
    text, columns = source.take_text(report, "a table"), source.columns
    lines = text.split("\n") if "\n" in text else text.split("\r")
    top, delimiter = _header([line.rstrip("\r") for line in lines], columns)
    names = split_header(lines[top].rstrip("\r"), delimiter)
    own = is_own_table(names)
    guarded = own or table_origin(names) == "records"
    found = _well_formed_rows(lines, top, names, report) if own and delimiter == "," else None
    rows, at = _rows(lines, top, delimiter, len(names), report) if found is None else found
    if not report.rows_read:
        raise TraceError("there is a header, but no rows")
    _note_repeated(names, report)
    cells: dict[str, list[str]] = {}
    for index, name in enumerate(names):  # Of columns with the same name the first is used.
        if name not in cells:
            text_of = _UnguardedCells() if guarded and name in LABEL_COLUMNS else None
            column = (row[index] for row in rows)
            cells[name] = (
                [text_of[cell] for cell in column] if text_of is not None else [cell.strip() for cell in column]
            )
    return _columns(cells, np.array(at, np.int64), columns, report)


def _columns(
    cells: dict[str, list[str]], line: npt.NDArray[np.int64], columns: Mapping[str, Any] | None, report: CleaningReport
) -> tuple[RawColumns, dict[str, Any]]:
    draft, meta = raw_columns_of(cells, line, columns, report)
    if meta.get("format") == "alcf":
        meta |= complete_job_composite(draft, cells, columns or (), report)
    return draft, meta


def _note_repeated(names: Sequence[str], report: CleaningReport) -> None:
    """Note the names that more than one column has."""
    repeated = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
    if repeated:
        report.add("note", f"several columns have the same name, and the first one is read: {', '.join(repeated[:40])}")


class _UnguardedCells(dict[str, str]):
    """Texts by cell, computed once per distinct cell."""

    def __missing__(self, cell: str) -> str:
        self[cell] = unguarded(cell)
        return self[cell]


def _rows(
    lines: list[str], top: int, delimiter: str, width: int, report: CleaningReport
) -> tuple[list[list[str]], list[int]]:
    """Fields and first line of each row after the header; rows with another number of fields are dropped."""
    rows: list[list[str]] = []
    at: list[int] = []
    place = top + 1
    header = lines[top].rstrip("\r")
    while place < len(lines):
        line, first = lines[place].rstrip("\r"), place + 1
        place += 1
        if not line.strip() or line.startswith("#") or line == header:
            continue
        report.rows_read += 1
        if line.count('"') % 2 and delimiter != "|":
            line, place = _requoted(lines, place, delimiter, width)
        fields = split_line(line, delimiter)
        if len(fields) == width + 1 and not fields[-1].strip():
            fields.pop()
        if len(fields) != width:
            report.add("dropped", f"number of fields differs from the {width} columns", 1, first)
            continue
        rows.append(fields)
        at.append(first)
    return rows, at


def _well_formed_rows(
    lines: list[str], top: int, names: list[str], report: CleaningReport
) -> tuple[list[list[str]], list[int]] | None:
    """Fields and first line of each row of a table of kilowait whose quotes are all sound; None if some are not.

    Here a text may contain line breaks, even lines that look like rows. A line break in a number is a sign of damage.
    """
    numeric = [index for index, name in enumerate(names) if name not in LABEL_COLUMNS]
    reader = csv.reader(map("{}\n".format, lines[top + 1 :]), strict=True)
    rows: list[list[str]] = []
    at: list[int] = []
    first = top + 2
    try:
        for row in reader:
            begin, first = first, top + 2 + reader.line_num
            if not row or row == names or row[0].startswith("#") or (len(row) == 1 and not row[0].strip()):
                continue
            if len(row) != len(names):
                return None
            if first - begin > 1 and any("\n" in row[index] for index in numeric):
                return None
            rows.append(row)
            at.append(begin)
    except csv.Error:
        return None
    report.rows_read += len(rows)
    return rows, at


def _requoted(lines: list[str], place: int, delimiter: str, width: int) -> tuple[str, int]:
    """Join the line before `place` with the lines inside its open quote; return it and the next line to read.

    A stray quote must not swallow the following rows: a line that is a complete row ends the search.
    """
    joined = lines[place - 1].rstrip("\r")
    for end in range(place, min(place + 50, len(lines))):
        line = lines[end].rstrip("\r")
        if line.count('"') % 2 == 0 and len(split_line(line, delimiter)) == width:
            break
        joined = f"{joined}\n{line}"
        if joined.count('"') % 2 == 0:
            if len(split_line(joined, delimiter)) == width:
                return joined, end + 1
            break
    return lines[place - 1].rstrip("\r"), place


def _header(lines: list[str], columns: Mapping[str, Any] | None) -> tuple[int, str]:
    """Line and delimiter of the header; if no line has known names, the first line that is no comment."""
    wanted = {column_source(value)[0] for value in columns.values()} if columns else set()
    found = mapped_header(lines, wanted) if wanted else find_header(lines)
    if found is not None:
        return found
    first = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("#")), None)
    if first is None:
        raise TraceError("there are no lines of jobs, only comments or blank lines")
    return first, max(DELIMITERS, key=lambda mark: len(split_line(lines[first], mark)))


def own_parquet(source: TraceInput, report: CleaningReport) -> JobTable | None:
    """The table written by `JobTable.to_parquet`, bit-identical; None for any other Parquet file."""
    import pyarrow as pa

    schema = parquet_schema(source.data)
    if schema is not None and b"kilowait" not in (schema.metadata or {}):
        return None
    table = arrow_table(source.data, unpack_limit(source))  # Raises an error if the schema is damaged.
    try:
        jobs = JobTable.from_arrow(table)
    except (pa.ArrowException, ValueError, TypeError, LookupError, AttributeError, OverflowError) as problem:
        raise TraceError(f"this Parquet file was written by kilowait, but cannot be read: {problem}") from None
    report.rows_read = report.jobs = len(jobs)
    return jobs


def read_parquet(source: TraceInput, report: CleaningReport) -> tuple[RawColumns, dict[str, Any]]:
    """Read the rows of a Parquet file; dates and times become Unix seconds."""
    import pyarrow as pa
    import pyarrow.types as pt

    table = arrow_table(source.data, unpack_limit(source))
    nested: list[str] = []
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
            nested.append(name)  # Lists and structs are not job columns.
            continue
        cells.setdefault(name, texts)
    _note_repeated(table.column_names, report)
    if nested:
        report.add("note", f"columns not read, because their values are lists or structures: {', '.join(nested[:40])}")
    report.rows_read = table.num_rows
    if not table.num_rows:
        raise TraceError("this Parquet file has no rows")
    return _columns(cells, np.arange(1, table.num_rows + 1), source.columns, report)


# -- the header of a table -------------------------------------------------------------------------


_PREAMBLE = 100
"""Rows before the header at most, such as the title of a report."""


def find_header(lines: Sequence[str]) -> tuple[int, str] | None:
    """Index and delimiter of the line with known column names, possibly commented out; None if there is none.

    The first line that is no comment comes first; then a comment with as many columns as that line has, the nearest
    first; then a line after a preamble.

    >>> find_header(["# a note", "job_id;submit_s", "1;0"]), find_header(["# job_id,submit_s", "1,0"])
    ((1, ';'), (0, ','))
    """
    first = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith("#")), None)
    if first is None:
        return None
    mark = csv_delimiter(lines[first])
    if mark is not None:
        return first, mark
    widths = {mark: len(split_line(lines[first], mark)) for mark in DELIMITERS if mark in lines[first]}
    for at in range(first - 1, -1, -1):
        if any(mark in lines[at] and len(split_line(lines[at], mark)) == width for mark, width in widths.items()):
            mark = csv_delimiter(lines[at].lstrip("# "))
            if mark is not None:
                return at, mark
    for at in range(first + 1, min(first + _PREAMBLE, len(lines))):
        mark = csv_delimiter(lines[at].lstrip("# "))
        if mark is not None:
            return at, mark
    return None


def mapped_header(lines: Sequence[str], wanted: Iterable[str]) -> tuple[int, str] | None:
    """Index and delimiter of the first line with all these column names, possibly commented out."""
    names = set(wanted)
    rows = 0
    for at, line in enumerate(lines):
        if all(name in line for name in names):
            for mark in DELIMITERS:
                if names <= set(split_header(line, mark)):
                    return at, mark
        rows += bool(line.strip()) and not line.startswith("#")
        if rows > _PREAMBLE:
            break
    return None


def split_header(line: str, delimiter: str) -> list[str]:
    """The names in a header line.

    >>> split_header('# job_id, "submit_s"', ",")
    ['job_id', 'submit_s']
    """
    names = [name.strip().lstrip("#").strip() for name in split_line(line.lstrip(), delimiter)]
    return [name.strip('"') for name in names]


def header_names(lines: Sequence[str]) -> list[str]:
    """The names in the header among these lines; empty if there is none.

    >>> header_names(["job_id,submit_s,nodes", "1,0,4"]), header_names(["1,0,4"])
    (['job_id', 'submit_s', 'nodes'], [])
    """
    found = find_header(lines)
    return [] if found is None else split_header(lines[found[0]], found[1])


def own_names(names: Iterable[str]) -> list[str]:
    """Kilowait's names among these; empty if they are not those of a table that kilowait wrote or documents.

    >>> own_names(["job_id", "submit_s", "x"]), own_names(["nodes", "user"])
    (['job_id', 'submit_s'], [])
    """
    own = [name for name in names if name in COLUMNS]
    return own if len(own) > 1 and "submit_s" in own else []


def known_names(names: Iterable[str]) -> list[str]:
    """The names among these that are known, or aliases of known names."""
    return [name for name in names if normalized_name(name) in KNOWN]
