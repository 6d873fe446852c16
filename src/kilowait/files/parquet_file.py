"""Parquet files: a bounded number of rows, and columns of the expected types and ranges."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files.documents import parse_json
from kilowait.files.fields import limits_text
from kilowait.files.regular_file import open_regular

MAX_COLUMNS = 1000
FREE_ROWS, ROWS_PER_BYTE = 2_000_000, 64
"""Maximum number of rows of a small file, and of each byte of a large one: repeated values take almost no space, so a
file of some bytes could fill the memory."""
META_KEY = b"kilowait"
"""Key of the metadata in the schemas of Parquet files."""


@dataclass(frozen=True)
class ColumnType:
    """Type and range of a column.

    >>> ColumnType(np.int16, minimum=0).expected
    'int16, at least 0'
    """

    dtype: type[np.generic]
    minimum: float = -math.inf
    maximum: float = math.inf
    nan: bool = False
    """Whether values may be NaN."""
    null: bool = False
    """Whether values may be missing."""

    @property
    def expected(self) -> str:
        """What the column must hold, as text."""
        return np.dtype(self.dtype).name + limits_text(self.minimum, self.maximum)


@dataclass(frozen=True)
class ParquetColumns:
    """Columns read from a Parquet file."""

    source: str
    rows: int
    arrays: Mapping[str, npt.NDArray[Any]]
    """Values by column; 0 where they are missing."""
    missing: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """Which values are missing, for columns that may miss some."""
    note: Any = None
    """JSON data that kilowait stored in the schema's metadata."""

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The values of a column."""
        return self.arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self.arrays


def read_parquet_columns(
    path: str | PathLike[str],
    columns: Mapping[str, ColumnType],
    *,
    optional: Sequence[str] = (),
    rows: int | None = None,
) -> ParquetColumns:
    """Read columns of a Parquet file and check their types, ranges and number.

    Raises an InputError that names the file and the column, and an OSError where the file cannot be opened.

    Args:
        path: the file.
        columns: the columns to read.
        optional: names of those that may be absent.
        rows: the number of rows the file must have; None: any, within the limits of its size.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     pq.write_table(pa.table({"start_s": [0.0, 5.0]}), file.name)
    ...     read_parquet_columns(file.name, {"start_s": ColumnType(np.float64)})["start_s"].tolist()
    [0.0, 5.0]
    """
    source = fspath(path)

    def present(schema: Any) -> list[str]:
        for name in columns:
            if name not in optional and schema.get_field_index(name) < 0:
                raise InputError(f"{source}: the column {name} is missing, or not unique")
        names = [name for name in columns if schema.get_field_index(name) >= 0]
        for name in names:
            _check_type(source, name, schema.field(name).type, columns[name])
        return names

    table = read_parquet_table(path, present, rows=rows)
    missing = {
        name: table[name].combine_chunks().is_null().to_numpy(zero_copy_only=False)
        for name in table.column_names
        if columns[name].null
    }
    arrays = {name: _array(source, name, table[name], columns[name]) for name in table.column_names}
    note = (table.schema.metadata or {}).get(META_KEY)
    parsed = None if note is None else parse_json(note, f"{source}: metadata", constants=True)
    return ParquetColumns(source, table.num_rows, arrays, missing, parsed)


def read_parquet_table(
    path: str | PathLike[str], choose: Callable[[Any], list[str]] | None = None, *, rows: int | None = None
) -> Any:
    """Read a Parquet file as a pyarrow.Table with a bounded number of rows.

    Raises an InputError that names the file, and an OSError where the file cannot be opened.

    Args:
        path: the file.
        choose: a function that returns the columns to read, given the schema; None: all columns.
        rows: the number of rows the file must have; None: any, within the limits of its size.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     pq.write_table(pa.table({"job_id": [1, 2]}), file.name)
    ...     read_parquet_table(file.name).num_rows
    2
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = fspath(path)
    with open_regular(path) as file:
        try:
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            _check_shape(source, parquet, os.fstat(file.fileno()).st_size, rows)
            table = parquet.read(columns=None if choose is None else choose(parquet.schema_arrow))
        except InputError:
            raise
        except (pa.ArrowException, OSError, MemoryError, ValueError) as problem:
            raise InputError(f"{source} cannot be read as Parquet: {_first_line(problem)}") from None
    if table.num_rows != parquet.metadata.num_rows:
        raise InputError(f"{source} has {table.num_rows:,} rows and announces {parquet.metadata.num_rows:,}")
    return table


def _check_shape(source: str, parquet: Any, size: int, rows: int | None) -> None:
    found = parquet.metadata.num_rows
    if rows is not None and found != rows:
        raise InputError(f"{source} has {found:,} rows; it must have {rows:,}")
    limit = FREE_ROWS + ROWS_PER_BYTE * size
    if rows is None and not 0 <= found <= limit:
        raise InputError(f"{source} announces {found:,} rows; a file of {size:,} bytes has at most {limit:,}")
    if parquet.metadata.num_columns > MAX_COLUMNS:
        raise InputError(f"{source} has {parquet.metadata.num_columns:,} columns; at most {MAX_COLUMNS} are read")


def _check_type(source: str, name: str, kind: Any, column: ColumnType) -> None:
    import pyarrow.types as pt

    whole = issubclass(column.dtype, np.integer)
    if not (pt.is_integer(kind) if whole else pt.is_floating(kind)):
        raise InputError(f"{source}: the column {name} holds {kind}; it must hold {column.expected}")


def _array(source: str, name: str, values: Any, column: ColumnType) -> npt.NDArray[Any]:
    if values.null_count:
        if not column.null:
            raise InputError(f"{source}: {values.null_count:,} values of the column {name} are missing")
        values = values.fill_null(0)
    array: npt.NDArray[Any] = values.to_numpy()
    fine = (array >= column.minimum) & (array <= column.maximum)
    if column.nan:
        fine |= np.isnan(array)
    if issubclass(column.dtype, np.integer):
        limits = np.iinfo(column.dtype)
        fine &= (array >= limits.min) & (array <= limits.max)
    if not fine.all():
        row = int(np.argmin(fine))
        value = array[row].item()
        raise InputError(f"{source}: row {row} of the column {name} is {value}; it must be {column.expected}")
    return array.astype(column.dtype, copy=False)


def _first_line(problem: BaseException) -> str:
    lines = str(problem).splitlines()
    return lines[0][:200] if lines else type(problem).__name__
