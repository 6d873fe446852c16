"""JobTable to and from Arrow, Parquet, pandas and Polars."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from kilowait.errors import MissingExtraError, TableError
from kilowait.jobs.columns import COLUMNS, LABELLED

if TYPE_CHECKING:
    from kilowait.jobs.table import JobTable

META_KEY = b"kilowait"


def to_arrow(jobs: JobTable) -> Any:
    """Labelled columns become dictionaries of strings, so that the file reads well elsewhere."""
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    for name in jobs.columns:
        codes = jobs[name]
        if name in jobs.labels:
            indices = pa.array(codes, mask=codes < 0)
            arrays[name] = pa.DictionaryArray.from_arrays(indices, pa.array(jobs.labels[name], pa.string()))
        else:
            arrays[name] = pa.array(codes)
    note = json.dumps({"meta": dict(jobs.meta), "labels": {k: list(v) for k, v in jobs.labels.items()}})
    return pa.table(arrays).replace_schema_metadata({META_KEY: note.encode()})


def to_pandas(jobs: JobTable) -> Any:
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise MissingExtraError("pandas", "pandas") from None
    return to_arrow(jobs).to_pandas()


def to_polars(jobs: JobTable) -> Any:
    try:
        import polars
    except ImportError:
        raise MissingExtraError("polars", "polars") from None
    return polars.from_arrow(to_arrow(jobs))


def to_parquet(jobs: JobTable, path: Any) -> None:
    import pyarrow.parquet as pq

    pq.write_table(to_arrow(jobs), path)


def from_parquet(path: Any) -> JobTable:
    import pyarrow.parquet as pq

    return from_frame(pq.read_table(path))


def from_frame(frame: Any) -> JobTable:
    """From a pyarrow.Table, a pandas or a Polars frame with kilowait's column names."""
    import pyarrow as pa

    from kilowait.jobs.table import JobTable

    if not isinstance(frame, pa.Table):
        if hasattr(frame, "to_arrow"):  # Polars
            frame = frame.to_arrow()
        elif hasattr(frame, "columns") and hasattr(frame, "index"):  # pandas
            frame = pa.Table.from_pandas(frame, preserve_index=False)
        else:
            raise TableError(f"{type(frame).__name__} is not a pyarrow, pandas or Polars table")
    note = json.loads((frame.schema.metadata or {}).get(META_KEY, b"{}"))
    known = note.get("labels", {})
    columns: dict[str, Any] = {}
    labels: dict[str, tuple[str, ...]] = {}
    for name in frame.column_names:
        column = frame.column(name)
        if name in COLUMNS and _holds_words(column.type):
            if name not in LABELLED:
                raise TableError(f"column {name!r} holds {column.type}, not numbers")
            columns[name], labels[name] = encoded(column, known.get(name))
        else:
            if column.null_count:
                column = _filled(name, column)
            columns[name] = column.to_numpy()
    return JobTable(labels=labels, meta=note.get("meta", {}), **columns)


def encoded(column: Any, names: list[str] | None = None) -> tuple[Any, tuple[str, ...]]:
    """Codes and labels of an Arrow column of strings; `names` keeps an earlier numbering."""
    import pyarrow as pa
    import pyarrow.compute as pc

    words = column.cast(pa.string())
    if names is None:
        found = pc.unique(words.drop_null())
        names = found.to_pylist()
    codes = pc.index_in(words, pa.array(names, pa.string()))
    return pc.fill_null(codes, -1).to_numpy().astype(np.int32), tuple(names)


def _holds_words(kind: Any) -> bool:
    import pyarrow.types as pt

    return bool(
        pt.is_dictionary(kind) or pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    )


def _filled(name: str, column: Any) -> Any:
    import pyarrow.compute as pc

    missing = COLUMNS[name].missing if name in COLUMNS else None
    if missing is None:
        row = column.is_null().index(True).as_py()
        raise TableError(f"column {name!r}, row {row}: empty, and there is no value that means unknown")
    return pc.fill_null(column, missing)
