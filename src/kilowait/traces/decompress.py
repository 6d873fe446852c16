"""Reading of files: decompression, decoding to UTF-8, rejection of binary data."""

from __future__ import annotations

import bz2
import lzma
import zlib
from pathlib import Path

from kilowait.errors import TraceError
from kilowait.traces.cleaning_report import CleaningReport

__all__ = ["as_text", "as_utf8", "file_bytes", "refuse_binary", "unpack"]

_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"%PDF": "a PDF document",
    b"ARROW1": "an Arrow IPC file",
    b"SQLite format": "an SQLite database",
}


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


def unpack(data: bytes, source: str, report: CleaningReport | None = None) -> bytes:
    """Decompress gzip, zstd, bzip2 or xz data; other data is returned unchanged.

    >>> import gzip
    >>> unpack(gzip.compress(b"1 2 3"), "x.gz")
    b'1 2 3'
    """
    for _ in range(3):  # Some files are compressed twice.
        if data[:2] == b"\x1f\x8b":
            data = _gunzip(data, source, report)
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
            raise TraceError(f"{source} is empty after decompression")
    return data


def _gunzip(data: bytes, source: str, report: CleaningReport | None) -> bytes:
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
            decompressed = b"".join(parts)
            lines = decompressed.count(b"\n")
            raise TraceError(
                f"{source} is cut short: its gzip data stop after {len(decompressed):,} bytes ({lines:,} lines); "
                "get the file again"
            )
        rest = member.unused_data
    if rest.strip(b"\x00") and report is not None:
        report.add("note", f"{len(rest):,} bytes after the end of the gzip data: left out")
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
