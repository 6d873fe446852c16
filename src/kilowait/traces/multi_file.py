"""Traces that consist of several files in a folder."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import zlib
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.compression import default_limit, size_text
from kilowait.errors import TraceError
from kilowait.traces.cleaning_report import CleaningReport, Detected
from kilowait.traces.decompress import as_text, as_utf8, file_bytes, refuse_binary, unpack
from kilowait.traces.detect import detect_format, file_head
from kilowait.traces.gpu import GPU_READERS, TraceFile

__all__ = ["folder_parts", "trace_sha256"]

_HEAD_BYTES = 1 << 18


def folder_parts(
    path: Path, format: str | None, report: CleaningReport, unpack_limit: int | None = None
) -> list[TraceFile]:
    """The files of the trace in this folder or its direct subfolders; sets the format in the report.

    Files of other kinds (utilization, machines) are left out, with a note.
    """
    if format is not None and format not in GPU_READERS:
        raise TraceError(f"{path} is a directory, but a log in format {format} is one file; name the file")
    files = _files(path)
    by_format: dict[str, list[Path]] = {}
    reasons: dict[str, str] = {}
    for file in files:
        detected = _detected(file)
        by_format.setdefault(detected.format, []).append(file)
        reasons.setdefault(detected.format, f"{file.name}: {detected.reason}")
    kinds = [kind for kind in by_format if kind in GPU_READERS and format in (None, kind)]
    if len(kinds) != 1:
        contents = "logs in " + ", ".join(sorted(kinds)) if kinds else "no files of a multi-file trace"
        raise TraceError(f"{path} is a directory with {contents}; name one log file in it")
    chosen = by_format[kinds[0]]
    if len(chosen) < len(files):
        report.add("note", f"{len(files) - len(chosen)} other files in the folder left out")
    report.decide(Detected(kinds[0], reasons[kinds[0]] if format is None else "it was given"))
    return _parts(chosen, report, unpack_limit)


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
        lines = [f"{trace_sha256(file)}  {file.relative_to(path).as_posix()}\n" for file in _files(path)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(path: Path) -> list[Path]:
    """The files in a folder and its direct subfolders, without hidden ones."""
    files = (file for file in sorted([*path.glob("*"), *path.glob("*/*")]) if file.is_file())
    return [file for file in files if not any(x.startswith(".") for x in file.relative_to(path).parts)]


def _parts(files: list[Path], report: CleaningReport, unpack_limit: int | None) -> list[TraceFile]:
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
        data = as_utf8(data, report)
        refuse_binary(data)
        parts.append(TraceFile(file.name, as_text(data, report)))
    return parts


def _detected(file: Path) -> Detected:
    """The format of a file, detected from its head because files can be large; "" if unknown."""
    size = _HEAD_BYTES
    try:
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
    with _opened(file, mark) as stream:
        try:
            while len(head) < size and (piece := stream.read(min(size - len(head), 1 << 16))):
                head += piece
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
            pass
    return head


def _opened(file: Path, mark: bytes) -> Any:
    """A stream of the decompressed bytes of a file that starts with `mark`."""
    if mark[:4] == b"\x28\xb5\x2f\xfd":
        import pyarrow as pa

        return pa.input_stream(str(file), compression="zstd")
    openers = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    opener: Any = next((opener for start, opener in openers.items() if mark.startswith(start)), open)
    return opener(file, "rb")
