"""`read_trace`: decompress a job log, detect its format, read and clean it into a JobTable."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import TableError, TraceError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.traces import slurm, swf, tables
from kilowait.traces.clean import NeverRan, build_table
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.decompress import (
    as_text,
    as_utf8,
    file_bytes,
    refuse_binary,
    unpack,
)
from kilowait.traces.detect import FORMATS, find_format
from kilowait.traces.gpu import GPU_READERS, TracePart
from kilowait.traces.multi_file import folder_parts

__all__ = ["FORMATS", "find_format", "read_trace", "read_trace_with_report", "unpack"]


def read_trace(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    columns: Mapping[str, Any] | None = None,
    strict: bool = False,
    never_ran: NeverRan = "drop",
) -> JobTable:
    """Read a job log; the format is detected from the content (`format` forces one of `FORMATS`).

    `path` is a file, or the folder of a trace of several files (PAI, Philly, Helios, Google).

    `columns` maps kilowait's columns to the file's, for CSV and Parquet: ``{"submit_s": "submitted"}``, or with a
    factor to seconds (``{"estimate_s": ("limit_min", 60)}``); ``start_s`` and ``end_s`` may replace run time and
    wait. `strict` makes every dropped or corrected row an error. `never_ran="keep"` keeps jobs that were cancelled
    while waiting, with run time 0 and `cancel_s`. The result is sorted by (submit_s, job_id), times are relative to
    the log's origin, and ``jobs.meta["ledger"]`` is the cleaning report: dropped and corrected rows with reasons.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.csv"
    >>> _ = path.write_text("id,submitted,ran,nodes\\n1,0,60,4\\n2,5,30,1\\n")
    >>> jobs = read_trace(path, columns={"job_id": "id", "submit_s": "submitted", "runtime_s": "ran"})
    >>> jobs["runtime_s"].tolist(), jobs.meta["ledger"]["rows_read"]
    ([60.0, 30.0], 2)
    """
    return read_trace_with_report(path, format=format, columns=columns, strict=strict, never_ran=never_ran)[0]


def read_trace_with_report(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    columns: Mapping[str, Any] | None = None,
    strict: bool = False,
    never_ran: NeverRan = "drop",
) -> tuple[JobTable, CleaningReport]:
    """`read_trace`, with the cleaning report as an object."""
    if format is not None and format not in FORMATS:
        raise UnknownNameError("trace format", format, FORMATS)
    path = Path(path)
    ledger = CleaningReport()
    try:
        if path.is_dir():
            jobs = _read_folder(path, format, columns, never_ran, ledger)
        else:
            data = unpack(file_bytes(path), str(path), ledger)
            jobs = _parsed(data, format, columns, never_ran, path, ledger)
    except (TraceError, UnknownNameError) as problem:
        if str(path) in str(problem) or isinstance(problem, UnknownNameError):
            raise
        raise TraceError(f"cannot read {path}: {problem}") from None
    except TableError as problem:  # A value that no rule of clean.py covers.
        raise TraceError(f"cannot make a job table of {path}: {problem}") from None
    if strict:
        ledger.check(str(path))
    return jobs, ledger


def _parsed(
    data: bytes,
    format: str | None,
    columns: Mapping[str, Any] | None,
    never_ran: NeverRan,
    path: Path,
    ledger: CleaningReport,
) -> JobTable:
    if data.startswith(b"PAR1") and format in (None, "parquet"):
        own = None if columns else tables.own_parquet(data, ledger)
        if own is not None:
            return own
        draft, meta = tables.read_parquet(data, columns, ledger)
        found = "parquet"
    else:
        data = as_utf8(data, ledger)
        found = format or ("csv" if columns else find_format(data))
        if found == "parquet":
            raise TraceError("this is not a Parquet file (it does not start with PAR1)")
        refuse_binary(data)
        if columns and found != "csv":
            raise TraceError(
                f"a column map is for csv and parquet, but this is read as {found}; omit columns"
            )
        if found == "swf":
            draft, meta = swf.read_swf(data, ledger)
        else:
            text = as_text(data, ledger)
            if found in GPU_READERS:
                draft, meta = GPU_READERS[found]([TracePart(path.name, text)], ledger)
            elif found == "sacct":
                draft, meta = slurm.read_sacct(text, ledger)
            elif found == "events":
                draft, meta = slurm.read_events(text, ledger)
            else:
                draft, meta = tables.read_csv(text, columns, ledger)
    meta = {"format": meta.pop("format", found), "source": path.name, **meta}
    return build_table(draft, ledger, never_ran=never_ran, source=str(path), meta=meta)


def _read_folder(
    path: Path,
    format: str | None,
    columns: Mapping[str, Any] | None,
    never_ran: NeverRan,
    ledger: CleaningReport,
) -> JobTable:
    if columns:
        raise TraceError(f"{path} is a directory, but a column map is for one file; name the file")
    found, parts = folder_parts(path, format, ledger)
    draft, meta = GPU_READERS[found](parts, ledger)
    return build_table(
        draft,
        ledger,
        never_ran=never_ran,
        source=str(path),
        meta={"format": found, "source": path.name, **meta},
    )
