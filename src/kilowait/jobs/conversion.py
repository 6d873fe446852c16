"""Convert job tables to and from Arrow, Parquet, pandas and Polars."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from kilowait.errors import MissingExtraError, TableError, UnknownNameError
from kilowait.files.fields import Anything, Items, Record, Text, Values, check_fields
from kilowait.files.parquet_file import META_KEY
from kilowait.jobs.columns import COLUMNS, LABEL_COLUMNS

if TYPE_CHECKING:
    from kilowait.jobs.table import JobTable

_METADATA = Record({}, {"meta": Values(Anything()), "labels": Values(Items(Text()))})


def to_arrow(jobs: JobTable) -> Any:
    """Convert to an Arrow table; labelled columns become dictionaries of strings."""
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    for name in jobs.columns:
        codes = jobs[name]
        if name in jobs.labels:
            indices = pa.array(codes, mask=codes < 0)
            arrays[name] = pa.DictionaryArray.from_arrays(indices, pa.array(jobs.labels[name], pa.string()))
        else:
            arrays[name] = pa.array(codes)
    labels = {name: list(names) for name, names in jobs.labels.items()}
    note = json.dumps({"meta": dict(jobs.meta), "labels": labels}, default=_plain)
    return pa.table(arrays).replace_schema_metadata({META_KEY: note.encode()})


def to_pandas(jobs: JobTable) -> Any:
    """A pandas frame; labelled columns are categoricals."""
    return as_pandas(to_arrow(jobs))


def to_polars(jobs: JobTable) -> Any:
    """A Polars frame; labelled columns are categoricals."""
    return as_polars(to_arrow(jobs))


def as_pandas(table: Any) -> Any:
    """Any Arrow table as a pandas frame, or an error that names the extra."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise MissingExtraError("pandas", "pandas") from None
    return table.to_pandas()


def as_polars(table: Any) -> Any:
    """Any Arrow table as a Polars frame, or an error that names the extra."""
    try:
        import polars
    except ImportError:
        raise MissingExtraError("polars", "polars") from None
    return polars.from_arrow(table)


def to_parquet(jobs: JobTable, path: Any) -> None:
    """Write a Parquet file; labels and meta are stored in its schema."""
    import pyarrow.parquet as pq

    pq.write_table(to_arrow(jobs), path, write_page_checksum=True)


def from_parquet(path: Any) -> JobTable:
    """Read a file of `to_parquet`, or any Parquet file with kilowait's column names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as problem:
        raise TableError(f"cannot read the Parquet file {path}: {problem}") from None
    return from_frame(table)


def from_frame(frame: Any) -> JobTable:
    """Convert a pyarrow.Table, a pandas or a Polars frame with kilowait's column names."""
    from kilowait.jobs.table import JobTable

    frame = _as_arrow(frame)
    for name in frame.column_names:
        if name not in COLUMNS:
            raise UnknownNameError("job column", name, COLUMNS)
        if frame.column_names.count(name) > 1:
            raise TableError(f"the table has more than one column {name!r}")
    meta, known = _metadata(frame)
    columns: dict[str, Any] = {}
    labels: dict[str, tuple[str, ...]] = {}
    for name in frame.column_names:
        column = frame.column(name)
        if _is_text(column.type):
            if name not in LABEL_COLUMNS:
                raise TableError(f"column {name!r} holds {column.type}, not numbers")
            columns[name], labels[name] = encoded(column, known.get(name))
        else:
            if column.null_count:
                column = _filled(name, column)
            columns[name] = column.to_numpy()
    return JobTable(labels=labels, meta=meta, **columns)


def encoded(column: Any, names: list[str] | None = None) -> tuple[Any, tuple[str, ...]]:
    """Codes and labels of an Arrow column of strings; `names` keeps an earlier numbering."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = column.cast(pa.string())
    names = list(names or ())
    earlier = set(names)
    names += [word for word in pc.unique(text.drop_null()).to_pylist() if word not in earlier]
    codes = pc.index_in(text, pa.array(names, pa.string()))
    return pc.fill_null(codes, -1).to_numpy().astype(np.int32), tuple(names)


def _as_arrow(frame: Any) -> Any:
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if hasattr(frame, "columns") and hasattr(frame, "index"):  # pandas
        try:
            return pa.Table.from_pandas(frame, preserve_index=False)
        except pa.ArrowException as problem:
            raise TableError(f"cannot convert the frame to Arrow: {problem}") from None
    if hasattr(frame, "to_arrow"):  # Polars
        return frame.to_arrow()
    raise TableError(f"{type(frame).__name__} is not a pyarrow, pandas or Polars table")


def _metadata(frame: Any) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Meta and labels from the schema of a table written by kilowait."""
    try:
        note = json.loads((frame.schema.metadata or {}).get(META_KEY, b"{}"))
        check_fields(note, _METADATA, "kilowait")
    except (ValueError, RecursionError) as problem:
        raise TableError(f"the table's kilowait metadata is damaged: {problem}") from None
    return note.get("meta", {}), note.get("labels", {})


def _plain(value: Any) -> Any:
    """Convert a numpy value of meta for JSON; other objects to their string."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)


def _is_text(kind: Any) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_dictionary(kind) or pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _filled(name: str, column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    rule = COLUMNS[name]
    if rule.missing is None:
        row = column.is_null().index(True).as_py()
        raise TableError(f"column {name!r}, row {row}: empty; this column has no value for unknown")
    if issubclass(rule.dtype, np.floating) or column.type == pa.null():
        column = column.cast(pa.from_numpy_dtype(rule.dtype))
    return pc.fill_null(column, rule.missing)
