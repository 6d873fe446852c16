"""`read_trace`: decompress a job log, detect its format, read and clean it into a JobTable.

A trace may be a folder of several files.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import zlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import TableError, TraceError, UnknownNameError
from kilowait.files.compression import default_limit, size_text
from kilowait.jobs import JobTable
from kilowait.traces.clean import NeverRan, build_table
from kilowait.traces.cleaning_report import CleaningReport, Detected
from kilowait.traces.detect import detect_format, file_head
from kilowait.traces.formats import FORMATS
from kilowait.traces.formats.table import own_parquet
from kilowait.traces.trace_input import TraceFile, TraceInput, as_text, as_utf8, file_bytes, refuse_binary, unpack

_HEAD_BYTES = 1 << 18


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
    source, report = TraceInput(Path(path), columns, unpack_limit), CleaningReport()
    path = source.path
    try:
        read = _read_folder if path.is_dir() else _read_file
        jobs = read(source, format, never_ran, report)
    except (TraceError, UnknownNameError) as problem:
        if str(path) in str(problem) or isinstance(problem, UnknownNameError):
            raise
        raise TraceError(f"cannot read {path}: {problem}") from None
    except TableError as problem:  # A value that no rule of clean.py covers.
        raise TraceError(f"cannot make a job table of {path}: {problem}") from None
    if strict:
        report.check(str(path))
    return jobs, report


def _read_file(source: TraceInput, format: str | None, never_ran: NeverRan, report: CleaningReport) -> JobTable:
    source.data = unpack(file_bytes(source.path), str(source.path), report, source.unpack_limit)
    detected = Detected(format, "it was given") if format is not None else None
    if source.data.startswith(b"PAR1") and (format in (None, "parquet") or FORMATS[format].tables):
        report.decide(detected or Detected("parquet", "it starts with PAR1"))
        kilowait_jobs = None if source.columns or format not in (None, "parquet") else own_parquet(source, report)
        if kilowait_jobs is not None:
            return kilowait_jobs
        if detected is None and not source.columns:
            report.decide(detect_format(source.data))
        return _cleaned(source, never_ran, report)
    source.data = as_utf8(source.data, report)
    if detected is None:
        detected = Detected("csv", "columns were mapped") if source.columns else detect_format(source.data)
    report.decide(detected)
    if detected.format == "parquet":
        raise TraceError("this is not a Parquet file (it does not start with PAR1)")
    refuse_binary(source.data)
    if source.columns and detected.format != "csv":
        raise TraceError(f"a column map is for csv and parquet, but this is read as {detected.format}; omit columns")
    return _cleaned(source, never_ran, report)


def _read_folder(source: TraceInput, format: str | None, never_ran: NeverRan, report: CleaningReport) -> JobTable:
    if source.columns:
        raise TraceError(f"{source.path} is a directory, but a column map is for one file; name the file")
    source.files = _folder_files(source.path, format, report, source.unpack_limit)
    return _cleaned(source, never_ran, report)


def _cleaned(source: TraceInput, never_ran: NeverRan, report: CleaningReport) -> JobTable:
    """The table of a trace whose format is decided."""
    read = FORMATS[report.format].read
    assert read is not None
    draft, meta = read(source, report)
    meta = {"format": meta.pop("format", report.format), "source": source.path.name, **meta}
    return build_table(draft, report, never_ran=never_ran, source=str(source.path), meta=meta)


# -- folders of several files ----------------------------------------------------------------------


def _folder_files(
    path: Path, format: str | None, report: CleaningReport, unpack_limit: int | None = None
) -> list[TraceFile]:
    """The files of the trace in this folder or its direct subfolders; sets the format in the report.

    Files of other kinds (utilization, machines) are left out, with a note.
    """
    if format is not None and not FORMATS[format].in_folders:
        raise TraceError(f"{path} is a directory, but a log in format {format} is one file; name the file")
    files = _files_in(path)
    by_format: dict[str, list[Path]] = {}
    reasons: dict[str, str] = {}
    for file in files:
        detected = _detected_head(file)
        by_format.setdefault(detected.format, []).append(file)
        reasons.setdefault(detected.format, f"{file.name}: {detected.reason}")
    kinds = [kind for kind in by_format if kind and FORMATS[kind].in_folders and format in (None, kind)]
    if len(kinds) != 1:
        contents = "logs in " + ", ".join(sorted(kinds)) if kinds else "no files of a multi-file trace"
        raise TraceError(f"{path} is a directory with {contents}; name one log file in it")
    chosen = by_format[kinds[0]]
    if len(chosen) < len(files):
        report.add("note", f"{len(files) - len(chosen)} other files in the folder left out")
    report.decide(Detected(kinds[0], reasons[kinds[0]] if format is None else "it was given"))
    return _texts(chosen, report, unpack_limit)


def trace_sha256(path: str | PathLike[str]) -> str:
    """SHA-256 of the bytes of a log file; for a folder, of the names and checksums of its files.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "log"
    >>> _ = path.write_bytes(b"abc")
    >>> trace_sha256(path)[:8], trace_sha256(path.parent)[:8]
    ('ba7816bf', '622e735d')
    """
    path = Path(path)
    if path.is_dir():
        lines = [f"{trace_sha256(file)}  {file.relative_to(path).as_posix()}\n" for file in _files_in(path)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files_in(path: Path) -> list[Path]:
    """The files in a folder and its direct subfolders, without hidden ones."""
    files = (file for file in sorted([*path.glob("*"), *path.glob("*/*")]) if file.is_file())
    return [file for file in files if not any(x.startswith(".") for x in file.relative_to(path).parts)]


def _texts(files: list[Path], report: CleaningReport, unpack_limit: int | None) -> list[TraceFile]:
    """The texts of the files; the limit holds for all of them together."""
    limit = default_limit() if unpack_limit is None else unpack_limit
    size = 0
    parts: list[TraceFile] = []
    for file in files:
        data = unpack(file_bytes(file), str(file), report, limit)
        size += len(data)
        if size > limit:
            raise TraceError(
                f"the files up to {file} have {size:,} bytes, more than the limit of {size_text(limit)} ({limit:,} "
                f"bytes); if they are right, raise the limit with unpack_limit={2 * size}"
            )
        if data.startswith(b"PAR1"):
            parts.append(TraceFile(file.name, "", data))
            continue
        data = as_utf8(data, report)
        refuse_binary(data)
        parts.append(TraceFile(file.name, as_text(data, report)))
    return parts


def _detected_head(file: Path) -> Detected:
    """The format of a file, detected from its head because files can be large; "" if unknown."""
    size = _HEAD_BYTES
    try:
        if _head(file, 4) == b"PAR1":
            return detect_format(file_bytes(file))  # The schema is at the end.
        while True:
            head = as_utf8(_head(file, size), CleaningReport())
            if len(file_head(head).rows) > 1 or len(head) < size:
                return detect_format(head)
            size *= 16  # So far only comments.
    except (TraceError, OSError):
        return Detected("", "")


def _head(file: Path, size: int) -> bytes:
    """The first `size` bytes of a file, decompressed; less if the rest is damaged, which is an error only later."""
    with file.open("rb") as opened:
        mark = opened.read(6)
    head = b""
    with _opened_stream(file, mark) as stream:
        try:
            while len(head) < size and (piece := stream.read(min(size - len(head), 1 << 16))):
                head += piece
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
            pass
    return head


def _opened_stream(file: Path, mark: bytes) -> Any:
    """A stream of the decompressed bytes of a file that starts with `mark`."""
    if mark[:4] == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        return pa.input_stream(str(file), compression="zstd")
    openers = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    opener: Any = next((opener for start, opener in openers.items() if mark.startswith(start)), open)
    return opener(file, "rb")
