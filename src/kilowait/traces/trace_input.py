"""What a trace reader gets: bytes and text of files, decompressed and in UTF-8; binary data is rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kilowait.errors import InputError, TraceError
from kilowait.files.compression import decompressed
from kilowait.traces.cleaning_report import CleaningReport

_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"%PDF": "a PDF document",
    b"ARROW1": "an Arrow IPC file",
    b"SQLite format": "an SQLite database",
}


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One file of a trace."""

    name: str
    text: str
    data: bytes = b""
    """The bytes of a Parquet file, which has no text."""


@dataclass(slots=True)
class TraceInput:
    """A trace, and what the caller chose for its reader.

    The bytes are taken out, not copied, so that a large log does not exist twice.
    """

    path: Path
    columns: Mapping[str, Any] | None = None
    """The column map of a CSV or Parquet file."""
    unpack_limit: int | None = None
    data: bytes = b""
    """The bytes of the file, decompressed."""
    files: Sequence[TraceFile] = ()
    """The files of a folder; empty for a single file."""

    def take_bytes(self) -> bytes:
        """The bytes, which are removed."""
        data, self.data = self.data, b""
        return data

    def take_files(self, report: CleaningReport) -> Sequence[TraceFile]:
        """The texts of all files; the bytes are removed."""
        return self.files or (TraceFile(self.path.name, as_text(self.take_bytes(), report)),)

    def take_text(self, report: CleaningReport, what: str) -> str:
        """The text of a trace that must consist of one file; the bytes are removed."""
        files = self.take_files(report)
        if len(files) != 1 or files[0].data:
            named = ", ".join(file.name for file in files[:5])
            raise TraceError(f"{what} is one file, and there are {len(files)} ({named}); name one of them")
        return files[0].text


def file_bytes(path: Path) -> bytes:
    """The bytes of a file; TraceError with the reason if it cannot be read."""
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


def unpack(data: bytes, source: str, report: CleaningReport | None = None, limit: int | None = None) -> bytes:
    """Decompress gzip, zstd, bzip2 or xz data to at most `limit` bytes; other data is returned unchanged.

    >>> import gzip
    >>> unpack(gzip.compress(b"1 2 3"), "x.gz")
    b'1 2 3'
    """
    try:
        data, rest = decompressed(data, source, limit)
    except InputError as problem:
        raise TraceError(str(problem)) from None
    if rest and report is not None:
        report.add("note", f"{rest:,} bytes after the end of the compressed data: left out")
    return data


def as_utf8(data: bytes, report: CleaningReport) -> bytes:
    """UTF-8 bytes without a byte order mark; UTF-16 is recognised by its mark."""
    if data[:3] == b"\xef\xbb\xbf":
        return data[3:]
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            text = data.decode("utf-16")
        except UnicodeDecodeError as problem:
            raise TraceError(f"it starts like UTF-16 but is not: {problem}; save it as UTF-8") from None
        report.add("note", "the file is UTF-16")
        return text.encode("utf-8", "replace")
    return data


def refuse_binary(data: bytes) -> None:
    """Raise a TraceError that names the file type if the data is not text."""
    for mark, file_type in _OTHER_FILES.items():
        if data.startswith(mark):
            raise TraceError(f"this is {file_type}, not a job log; unpack or convert it first")
    if data[257:262] == b"ustar":
        raise TraceError("this is a tar archive; unpack it and name one log file")
    place = data.find(b"\x00")
    if place >= 0:
        raise TraceError(f"byte {place:,} is 0: this is binary data or damaged, not text (text must be UTF-8)")


def as_text(data: bytes, report: CleaningReport) -> str:
    """The text in UTF-8; other bytes are replaced and noted."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        report.add("note", f"{text.count(chr(0xFFFD)):,} characters are not UTF-8: replaced")
        return text
