"""Traces that consist of several files in a folder."""

from __future__ import annotations

import hashlib
import zlib
from os import PathLike
from pathlib import Path

from kilowait.errors import TraceError
from kilowait.traces.cleaning_report import CleaningReport
from kilowait.traces.decompress import as_text, as_utf8, file_bytes, refuse_binary, unpack
from kilowait.traces.detect import find_format
from kilowait.traces.gpu import GPU_READERS, TracePart

__all__ = ["folder_parts", "trace_sha256"]

_HEAD_BYTES = 1 << 18


def folder_parts(path: Path, format: str | None, report: CleaningReport) -> tuple[str, list[TracePart]]:
    """The format of the trace in this folder or its direct subfolders, and its files by name.

    Files of other kinds (utilization, machines) are left out, with a note.
    """
    if format is not None and format not in GPU_READERS:
        raise TraceError(f"{path} is a directory, but a log in format {format} is one file; name the file")
    files = _files(path)
    by_format: dict[str, list[Path]] = {}
    for file in files:
        by_format.setdefault(_format_of(file), []).append(file)
    kinds = [kind for kind in by_format if kind in GPU_READERS and format in (None, kind)]
    if len(kinds) != 1:
        contents = "logs in " + ", ".join(sorted(kinds)) if kinds else "no files of a multi-file trace"
        raise TraceError(f"{path} is a directory with {contents}; name one log file in it")
    chosen = by_format[kinds[0]]
    if len(chosen) < len(files):
        report.add("note", f"{len(files) - len(chosen)} other files in the folder left out")
    return kinds[0], [TracePart(file.name, _text_of(file, report)) for file in chosen]


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


def _text_of(file: Path, report: CleaningReport) -> str:
    data = as_utf8(unpack(file_bytes(file), str(file), report), report)
    refuse_binary(data)
    return as_text(data, report)


def _format_of(file: Path) -> str:
    """The format of a file, detected from its first bytes because files can be large; "" if unknown."""
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
        if head[:2] == b"\x1f\x8b":
            head = zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
        return find_format(as_utf8(head, CleaningReport()))
    except (TraceError, OSError, zlib.error):
        return ""
