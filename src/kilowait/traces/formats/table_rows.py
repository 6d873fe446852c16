"""Rows of a table in CSV or Parquet as columns, for formats that are published as either; columns of lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.errors import TraceError
from kilowait.files.compression import default_limit, size_text
from kilowait.traces.clean import Floats
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.formats.csv_rows import HUGE, CsvRows, read_rows
from kilowait.traces.trace_input import TraceInput

_LEAST_CELL = 4
"""Bytes of a cell in memory at least: run-length encoding stores a million equal cells in a few bytes."""


class Lists(NamedTuple):
    """A column of lists: the values of row i are ``values[begin[i]:begin[i + 1]]``."""

    begin: npt.NDArray[np.int64]
    values: Any
    """A NumPy array of numbers or texts."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of values of each row."""
        return np.diff(self.begin)

    def means(self) -> Floats:
        """Mean of the known values of each row from 0 to `HUGE`; NaN if there are none.

        >>> Lists(np.array([0, 2, 2, 5]), np.array([1.0, 3.0, np.nan, -1.0, 7.0])).means().tolist()
        [2.0, nan, 7.0]
        """
        values = self.values.astype(np.float64)
        known = (values >= 0) & (values < HUGE)
        total, count = self._sums(np.where(known, values, 0.0)), self._sums(known.astype(np.float64))
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def _sums(self, values: Floats) -> Floats:
        """Sum of each row; each row separately, so that a large value does not affect other rows."""
        sums, filled = np.zeros(len(self.begin) - 1), self.lengths > 0
        if filled.any():
            sums[filled] = np.add.reduceat(values, self.begin[:-1][filled])
        return sums


class ParquetRows(CsvRows):
    """Columns of a Parquet table by name, in the table's own types."""

    def texts(self, name: str) -> list[str]:
        """The cells as texts, without surrounding blanks; "" for a null."""
        return self._as_text(name).texts(name)

    def numbers(self, name: str) -> Floats:
        """The numbers in the cells, NaN for nulls, other values and values above `HUGE`."""
        import pyarrow as pa
        import pyarrow.types as pt

        column = self.columns[name]
        if not (pt.is_integer(column.type) or pt.is_floating(column.type) or pt.is_boolean(column.type)):
            return self._as_text(name).numbers(name)
        if pt.is_boolean(column.type):
            column = column.cast(pa.int8())
        values: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.where(np.abs(values) < HUGE, values, np.nan)

    def moments(self, name: str) -> Floats:
        """Unix seconds of timestamps, or of dates written as texts; UTC if they have no zone."""
        import pyarrow as pa
        import pyarrow.types as pt

        column = self.columns[name]
        if not pt.is_timestamp(column.type):
            return self._as_text(name).moments(name)
        micro = (
            column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
            .cast(pa.int64())
            .cast(pa.float64(), safe=False)
        )
        values: Floats = micro.to_numpy(zero_copy_only=False)
        return values / 1e6

    def kinds(self, name: str) -> tuple[npt.NDArray[np.int64], list[str]]:
        """For every row the index of its cell among the distinct cells, and the distinct cells."""
        return self._as_text(name).kinds(name)

    def _as_text(self, name: str) -> CsvRows:
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            text = pc.fill_null(self.columns[name].cast(pa.string()), "")
        except pa.ArrowException as problem:
            raise TraceError(f"the column {name} of type {self.columns[name].type} has no texts: {problem}") from None
        return CsvRows(self.line, {name: text})


def table_rows(source: TraceInput, report: CleaningReport, what: str, used: Sequence[str]) -> CsvRows:
    """The rows of a table in Parquet, of one or several files, or in CSV with a header; names the columns not `used`.

    The bytes of `source` are removed. Of a Parquet file only the used columns are decompressed.
    """
    parts = [file.data for file in source.files] or [source.data]
    if all(data.startswith(b"PAR1") for data in parts):
        limit = unpack_limit(source)
        tables: list[Any] = []
        for data in parts:
            tables.append(arrow_table(data, limit, used))
            limit = max(limit - tables[-1].nbytes, 1)
        names = list(dict.fromkeys(name for data in parts for name in parquet_names(data)))
        source.files = ()
        source.take_bytes()
        rows: CsvRows = _parquet_rows(tables, report)
    else:
        rows = read_rows(source.take_text(report, what), report)
        names = list(rows.columns)
    left_out = [name for name in names if name not in used]
    if left_out:
        report.add("note", f"columns left out: {', '.join(left_out)}")
    return rows


def _parquet_rows(tables: Sequence[Any], report: CleaningReport) -> ParquetRows:
    """The rows of all files, numbered from 1."""
    import pyarrow as pa

    try:
        table = pa.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]
    except pa.ArrowException as problem:
        raise TraceError(f"the {len(tables)} files are not parts of one table: {problem}; name one file") from None
    report.rows_read = table.num_rows
    if not table.num_rows:
        raise TraceError("this Parquet file has no rows")
    if len(tables) > 1:
        report.add("note", f"{len(tables)} files; lines are counted over all of them")
    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns.setdefault(name, column)
    return ParquetRows(np.arange(1, table.num_rows + 1), columns)


def lists(rows: CsvRows, name: str) -> Lists:
    """A column of lists; in a text column each cell is a list as Python writes it: ['r1', 'r2'] or [1.5 2.5].

    >>> import pyarrow as pa
    >>> found = lists(CsvRows(np.arange(2), {"a": pa.array(["[1.5, 2.5]", ""])}), "a")
    >>> found.lengths.tolist(), found.values.tolist()
    ([2, 0], ['1.5', '2.5'])
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as pt

    column = rows.columns[name]
    if pt.is_list(column.type) or pt.is_large_list(column.type):
        flat = pc.list_flatten(column)
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        if not (pt.is_integer(flat.type) or pt.is_floating(flat.type)):
            flat = flat.cast(pa.string())
        values = flat.to_numpy(zero_copy_only=False)
    else:
        words = [_words(text) for text in rows.texts(name)]
        lengths = np.array([len(each) for each in words], np.int64)
        values = np.array([word for each in words for word in each], np.object_)
    return Lists(np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), values)


def _words(text: str) -> list[str]:
    return text.strip("[](){}").replace(",", " ").replace("'", " ").replace('"', " ").split()


def parquet_schema(data: bytes) -> Any:
    """The Arrow schema of a Parquet file; None if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(pa.BufferReader(data))
    except (pa.ArrowException, OSError, ValueError):
        return None


def parquet_names(data: bytes) -> list[str]:
    """The column names of a Parquet file; empty if its schema cannot be read."""
    schema = parquet_schema(data)
    return [] if schema is None else list(schema.names)


def unpack_limit(source: TraceInput) -> int:
    """The largest size of the decompressed file, bytes."""
    return default_limit() if source.unpack_limit is None else source.unpack_limit


def arrow_table(data: bytes, limit: int, columns: Sequence[str] | None = None) -> Any:
    """The table in a Parquet file, or these columns of it, if its own figures say that it fits into the limit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        meta = file.metadata
        groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
        if columns is None:
            size, width = sum(group.total_byte_size for group in groups), meta.num_columns
        else:
            chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
            wanted = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns]
            size, width = sum(chunk.total_uncompressed_size for chunk in wanted), len(columns)
        size = max(size, _LEAST_CELL * meta.num_rows * width)
        if size > limit:
            raise TraceError(
                f"this Parquet file ({len(data):,} bytes, {meta.num_rows:,} rows) decompresses to {size:,} bytes, more "
                f"than the limit of {size_text(limit)} ({limit:,} bytes); if the file is right, raise the limit "
                f"with unpack_limit={2 * size}"
            )
        return file.read(None if columns is None else [name for name in file.schema_arrow.names if name in columns])
    except (pa.ArrowException, OSError, ValueError) as problem:
        if isinstance(problem, TraceError):
            raise
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise TraceError(f"this Parquet file is damaged or cut short: {reason}; get the file again") from None
