"""`read_trace`: decompress a job log, detect its format, read and clean it into a JobTable."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import TableError, TraceError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.traces import slurm, swf, swf_lines, tables
from kilowait.traces.clean import NeverRan, RawColumns, build_table
from kilowait.traces.cleaning_report import CleaningReport, Detected
from kilowait.traces.decompress import as_text, as_utf8, file_bytes, refuse_binary, unpack
from kilowait.traces.detect import FORMATS, detect_format
from kilowait.traces.gpu import GPU_READERS, TraceFile
from kilowait.traces.multi_file import folder_parts

__all__ = ["FORMATS", "read_trace", "read_trace_with_report"]


def read_trace(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    columns: Mapping[str, Any] | None = None,
    strict: bool = False,
    never_ran: NeverRan = "drop",
    unpack_limit: int | None = None,
) -> JobTable:
    """Read a job log; the format is detected from the content (`format` forces one of `FORMATS`).

    `path` is a file, or the folder of a trace of several files (PAI, Philly, Helios, Google).

    `columns` maps kilowait's columns to the file's, for CSV and Parquet: ``{"submit_s": "submitted"}``, or with a
    factor to seconds (``{"estimate_s": ("limit_min", 60)}``); ``start_s`` and ``end_s`` may replace run time and
    wait. `strict` makes every dropped or corrected row an error. `never_ran="keep"` keeps jobs that were cancelled
    while waiting, with run time 0 and `cancel_s`. The result is sorted by (submit_s, job_id), times are relative to
    the log's origin, and ``jobs.meta["ledger"]`` is the cleaning report: dropped and corrected rows with reasons.
    `unpack_limit` is the largest size of a decompressed file in bytes, by default a quarter of the machine's memory.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.csv"
    >>> _ = path.write_text("id,submitted,ran,nodes\\n1,0,60,4\\n2,5,30,1\\n")
    >>> jobs = read_trace(path, columns={"job_id": "id", "submit_s": "submitted", "runtime_s": "ran"})
    >>> jobs["runtime_s"].tolist(), jobs.meta["ledger"]["rows_read"]
    ([60.0, 30.0], 2)
    """
    return read_trace_with_report(
        path, format=format, columns=columns, strict=strict, never_ran=never_ran, unpack_limit=unpack_limit
    )[0]


def read_trace_with_report(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    columns: Mapping[str, Any] | None = None,
    strict: bool = False,
    never_ran: NeverRan = "drop",
    unpack_limit: int | None = None,
) -> tuple[JobTable, CleaningReport]:
    """Like `read_trace`, with the cleaning report as an object."""
    if unpack_limit is not None and unpack_limit < 1:
        raise TraceError(f"unpack_limit is {unpack_limit}; give a number of bytes, at least 1")
    if format is not None and format not in FORMATS:
        raise UnknownNameError("trace format", format, FORMATS)
    path = Path(path)
    report = CleaningReport()
    try:
        if path.is_dir():
            jobs = _read_folder(path, format, columns, never_ran, unpack_limit, report)
        else:
            # No variable of this function holds the bytes: `_parsed` frees them before it builds the table.
            jobs = _parsed(
                unpack(file_bytes(path), str(path), report, unpack_limit),
                format,
                columns,
                never_ran,
                path,
                unpack_limit,
                report,
            )
    except (TraceError, UnknownNameError) as problem:
        if str(path) in str(problem) or isinstance(problem, UnknownNameError):
            raise
        raise TraceError(f"cannot read {path}: {problem}") from None
    except TableError as problem:  # A value that no rule of clean.py covers.
        raise TraceError(f"cannot make a job table of {path}: {problem}") from None
    if strict:
        report.check(str(path))
    return jobs, report


def _parsed(
    data: bytes,
    format: str | None,
    columns: Mapping[str, Any] | None,
    never_ran: NeverRan,
    path: Path,
    unpack_limit: int | None,
    report: CleaningReport,
) -> JobTable:
    detected = Detected(format, "it was given") if format is not None else None
    if data.startswith(b"PAR1") and format in (None, "parquet"):
        report.decide(detected or Detected("parquet", "it starts with PAR1"))
        kilowait_jobs = None if columns else tables.own_parquet(data, report, unpack_limit)
        if kilowait_jobs is not None:
            return kilowait_jobs
        draft, meta = tables.read_parquet(data, columns, report, unpack_limit)
    else:
        data = as_utf8(data, report)
        if detected is None:
            detected = Detected("csv", "columns were mapped") if columns else detect_format(data)
        report.decide(detected)
        if detected.format == "parquet":
            raise TraceError("this is not a Parquet file (it does not start with PAR1)")
        refuse_binary(data)
        if columns and detected.format != "csv":
            raise TraceError(
                f"a column map is for csv and parquet, but this is read as {detected.format}; omit columns"
            )
        if detected.format == "swf":
            rows = swf_lines.parse_lines(data, report)
            del data
            draft, meta = swf.read_swf(rows, report)
            del rows
        else:
            text = as_text(data, report)
            del data
            draft, meta = _columns(text, detected.format, columns, path, report)
            del text
    meta = {"format": meta.pop("format", report.format), "source": path.name, **meta}
    return build_table(draft, report, never_ran=never_ran, source=str(path), meta=meta)


def _columns(
    text: str, format: str, columns: Mapping[str, Any] | None, path: Path, report: CleaningReport
) -> tuple[RawColumns, dict[str, Any]]:
    if format in GPU_READERS:
        return GPU_READERS[format]([TraceFile(path.name, text)], report)
    if format == "sacct":
        return slurm.read_sacct(text, report)
    if format == "events":
        return slurm.read_events(text, report)
    return tables.read_csv(text, columns, report)


def _read_folder(
    path: Path,
    format: str | None,
    columns: Mapping[str, Any] | None,
    never_ran: NeverRan,
    unpack_limit: int | None,
    report: CleaningReport,
) -> JobTable:
    if columns:
        raise TraceError(f"{path} is a directory, but a column map is for one file; name the file")
    parts = folder_parts(path, format, report, unpack_limit)
    draft, meta = GPU_READERS[report.format](parts, report)
    return build_table(
        draft,
        report,
        never_ran=never_ran,
        source=str(path),
        meta={"format": report.format, "source": path.name, **meta},
    )
