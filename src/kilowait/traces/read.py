"""A file becomes a JobTable: unpacked, its format found by its content, read, and accounted for."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import TableError, TraceError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.traces import slurm, swf, tables
from kilowait.traces.ledger import Ledger
from kilowait.traces.mend import NeverRan, finish

__all__ = ["FORMATS", "find_format", "read_trace", "read_trace_with_ledger", "unpack"]

FORMATS: dict[str, str] = {
    "swf": "Standard Workload Format, 18 to 21 fields",
    "sacct": "dump of Slurm's accounting, sacct -P",
    "events": "events of the Slurm simulator",
    "csv": "any table of text with a header, ALCF's and NREL's among them",
    "parquet": "any Parquet table",
}
"""Names for ``format=``."""

_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"%PDF": "a PDF document",
    b"ARROW1": "an Arrow IPC file",
    b"SQLite format": "an SQLite database",
}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def read_trace(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    columns: Mapping[str, Any] | None = None,
    strict: bool = False,
    never_ran: NeverRan = "drop",
) -> JobTable:
    """Read a job log; the format is found by content (`format` forces one of `FORMATS`).

    `columns` maps kilowait's columns to the file's, for CSV and Parquet: ``{"submit_s": "submitted"}``, or with a
    factor to seconds (``{"estimate_s": ("limit_min", 60)}``); ``start_s`` and ``end_s`` may stand for run time and
    wait. `strict` makes every dropped or mended row an error. `never_ran="keep"` keeps jobs that were withdrawn
    while they waited, with run time 0 and `cancel_s`. The result is sorted by (submit_s, job_id), its clock is the
    log's own, and ``jobs.meta["ledger"]`` says what was dropped or mended and why.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.csv"
    >>> _ = path.write_text("id,submitted,ran,nodes\\n1,0,60,4\\n2,5,30,1\\n")
    >>> jobs = read_trace(path, columns={"job_id": "id", "submit_s": "submitted", "runtime_s": "ran"})
    >>> jobs["runtime_s"].tolist(), jobs.meta["ledger"]["rows_read"]
    ([60.0, 30.0], 2)
    """
    return read_trace_with_ledger(path, format=format, columns=columns, strict=strict, never_ran=never_ran)[0]


def read_trace_with_ledger(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    columns: Mapping[str, Any] | None = None,
    strict: bool = False,
    never_ran: NeverRan = "drop",
) -> tuple[JobTable, Ledger]:
    """`read_trace`, and the ledger as an object."""
    if format is not None and format not in FORMATS:
        raise UnknownNameError("trace format", format, FORMATS)
    path = Path(path)
    ledger = Ledger()
    data = unpack(_bytes(path), str(path), ledger)
    try:
        jobs = _parsed(data, format, columns, never_ran, path, ledger)
    except (TraceError, UnknownNameError) as problem:
        if str(path) in str(problem) or isinstance(problem, UnknownNameError):
            raise
        raise TraceError(f"cannot read {path}: {problem}") from None
    except TableError as problem:  # A value that no rule of mend.py foresaw: refused, not guessed.
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
    ledger: Ledger,
) -> JobTable:
    if data.startswith(b"PAR1") and format in (None, "parquet"):
        own = None if columns else tables.own_parquet(data, ledger)
        if own is not None:
            return own
        draft, meta = tables.read_parquet(data, columns, ledger)
        found = "parquet"
    else:
        data = _as_utf8(data, ledger)
        found = format or ("csv" if columns else find_format(data))
        if found == "parquet":
            raise TraceError("this is not a Parquet file (it does not start with PAR1)")
        _refuse_binary(data)
        if columns and found != "csv":
            raise TraceError(
                f"a column map is for csv and parquet, and this is read as {found}; leave columns out"
            )
        if found == "swf":
            draft, meta = swf.read_swf(data, ledger)
        else:
            text = _text(data, ledger)
            if found == "sacct":
                draft, meta = slurm.read_sacct(text, ledger)
            elif found == "events":
                draft, meta = slurm.read_events(text, ledger)
            else:
                draft, meta = tables.read_csv(text, columns, ledger)
    meta = {"format": meta.pop("format", found), "source": path.name, **meta}
    return finish(draft, ledger, never_ran=never_ran, source=str(path), meta=meta)


# -- bytes ---------------------------------------------------------------------------------------


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise TraceError(
            f"there is no file {path}; check the path, or fetch an archived log with: kilowait traces fetch NAME"
        ) from None
    except IsADirectoryError:
        raise TraceError(f"{path} is a directory; name one log file in it") from None
    except (OSError, ValueError) as problem:
        raise TraceError(f"cannot read {path}: {problem}") from None
    if not data:
        raise TraceError(f"{path} is empty (0 bytes)")
    return data


def unpack(data: bytes, source: str, ledger: Ledger | None = None) -> bytes:
    """The bytes behind gzip, zstd, bzip2 or xz; whatever else comes back as it is.

    >>> import gzip
    >>> unpack(gzip.compress(b"1 2 3"), "x.gz")
    b'1 2 3'
    """
    for _ in range(3):  # Files packed twice are seen in the wild.
        if data[:2] == b"\x1f\x8b":
            data = _gunzip(data, source, ledger)
        elif data[:4] == b"\x28\xb5\x2f\xfd":
            data = _unzstd(data, source)
        elif data[:3] == b"BZh" or data[:6] == b"\xfd7zXZ\x00":
            try:
                data = bz2.decompress(data) if data[:3] == b"BZh" else lzma.decompress(data)
            except (OSError, ValueError, EOFError, lzma.LZMAError) as problem:
                raise TraceError(f"{source} is damaged or cut short: {problem}; get the file again") from None
        else:
            return data
        if not data:
            raise TraceError(f"{source} is empty once unpacked")
    return data


def _gunzip(data: bytes, source: str, ledger: Ledger | None) -> bytes:
    parts: list[bytes] = []
    rest = data
    while rest[:2] == b"\x1f\x8b":
        member = zlib.decompressobj(31)
        try:
            parts.append(member.decompress(rest) + member.flush())
        except zlib.error as problem:
            got = sum(map(len, parts))
            raise TraceError(
                f"{source} is damaged gzip: {problem}, after {got:,} good bytes; get the file again"
            ) from None
        if not member.eof:
            whole = b"".join(parts)
            lines = whole.count(b"\n")
            raise TraceError(
                f"{source} is cut short: its gzip data stop after {len(whole):,} bytes ({lines:,} lines); "
                "get the file again"
            )
        rest = member.unused_data
    if rest.strip(b"\x00") and ledger is not None:
        ledger.add("note", f"{len(rest):,} bytes after the end of the gzip data: left out")
    return b"".join(parts)


def _unzstd(data: bytes, source: str) -> bytes:
    import pyarrow as pa

    parts: list[bytes] = []
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while part := stream.read(1 << 24):
                parts.append(part)
    except (OSError, pa.ArrowException) as problem:
        got = sum(map(len, parts))
        raise TraceError(
            f"{source} is damaged or cut short: zstd says {problem}, after {got:,} good bytes; get the file again"
        ) from None
    return b"".join(parts)


def _as_utf8(data: bytes, ledger: Ledger) -> bytes:
    """UTF-8 bytes without a mark; UTF-16 is told by its mark."""
    if data[:3] == b"\xef\xbb\xbf":
        return data[3:]
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            text = data.decode("utf-16")
        except UnicodeDecodeError as problem:
            raise TraceError(f"it starts like UTF-16 but is not: {problem}; save it as UTF-8") from None
        ledger.add("note", "the file is UTF-16")
        return text.encode("utf-8", "replace")
    return data


def _refuse_binary(data: bytes) -> None:
    for mark, what in _OTHER_FILES.items():
        if data.startswith(mark):
            raise TraceError(f"this is {what}, not a job log; unpack or convert it first")
    if data[257:262] == b"ustar":
        raise TraceError("this is a tar archive; unpack it and name one log file")
    place = data.find(b"\x00")
    if place >= 0:
        raise TraceError(
            f"byte {place:,} is 0: this is binary data or damaged, not text (text must be UTF-8)"
        )


def _text(data: bytes, ledger: Ledger) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        ledger.add("note", f"{text.count(chr(0xFFFD)):,} characters are not UTF-8: replaced")
        return text


# -- what it is ----------------------------------------------------------------------------------


def find_format(data: bytes) -> str:
    """The name in `FORMATS` of what these bytes look like.

    >>> find_format(b"; Version: 2\\n1 0 -1 60 4 -1 -1 4 60 -1 1 1 1 1 1 -1 -1 -1\\n")
    'swf'
    """
    if data.startswith(b"PAR1"):
        return "parquet"
    _refuse_binary(data)
    head = data[:262_144].decode("utf-8", "replace")
    lines = [line for line in re.split(r"\r\n|\n|\r", head) if line.strip()]
    if not lines:
        raise TraceError("there is nothing in it but blanks")
    plain = [line for line in lines if line.lstrip()[0] not in ";#"]
    if any(line.lstrip().startswith(";") for line in lines) and not plain:
        raise TraceError("there is not one line of jobs, only comments")
    sample = plain[:50]
    if Counter("submit_batch_job" in line or line.lstrip().startswith("-dt") for line in sample)[
        True
    ] * 2 > len(sample):
        return "events"
    likely = sum(_swf_like(line) for line in sample)
    if sample and likely * 2 >= len(sample):
        return "swf"
    if any(slurm.sacct_delimiter(line) is not None for line in lines[:20]):
        return "sacct"
    if likely or any(
        re.match(r"\s*;\s*(Version|MaxJobs|MaxNodes|MaxProcs|UnixStartTime)\s*:", x) for x in lines
    ):
        return "swf"
    if any(tables.csv_delimiter(line) is not None for line in lines[:20]) or tables.is_table(plain[:10]):
        return "csv"
    raise TraceError(
        f"this looks like none of the formats kilowait reads ({', '.join(FORMATS)}); it starts with "
        f"{lines[0][:60]!r}. Force one with format=, or map columns with columns="
    )


def _swf_like(line: str) -> bool:
    words = line.split()[: swf.FIELDS]
    if len(words) < swf.FIELDS - 3:
        return False
    return sum(len(word) < 40 and _NUMBER.fullmatch(word) is not None for word in words) >= swf.FIELDS - 4
