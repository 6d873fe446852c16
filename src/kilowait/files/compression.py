"""Decompression of gzip, zstd, bzip2 and xz data up to a limit of memory.

A few kilobytes can decompress to more than any memory, so the result has a limit: by default a quarter of the memory
that this process can have.
"""

from __future__ import annotations

import bz2
import lzma
import os
import re
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from kilowait.errors import InputError

_PIECE = 1 << 22
_DICTIONARY = 1 << 26
"""Memory that xz may use for its dictionary, even if the limit is smaller."""
_LAYERS = 3
"""Some files are compressed twice."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_FACTOR = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@cache
def default_limit() -> int:
    """The default limit in bytes: a quarter of the machine's memory, or of the container's if that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUP_LIMITS:
        try:
            memory = min(memory, int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return memory // 4


def parse_size(text: str) -> int:
    """Bytes of a size such as 500M or 64G, in powers of 1024.

    >>> parse_size("64G"), parse_size("1.5 KiB"), parse_size("1000")
    (68719476736, 1536, 1000)
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _FACTOR[match[2].upper()]) if match else 0
    if size < 1:
        raise InputError(f"{text!r} is not a size; write bytes, or a number with K, M, G or T, for instance 64G")
    return size


def size_text(size: int) -> str:
    """A number of bytes in powers of 1024.

    >>> size_text(999), size_text(1536), size_text(68719476736)
    ('999 bytes', '1.5 KiB', '64 GiB')
    """
    if size < 1024:
        return f"{size} bytes"
    unit = min((size.bit_length() - 1) // 10, 4)
    return f"{size / 1024**unit:.3g} {'KMGT'[unit - 1]}iB"


def decompressed(data: bytes, source: str, limit: int | None = None, remedy: str = "") -> tuple[bytes, int]:
    """The data without compression, and the number of bytes after its end; other data is returned unchanged.

    `limit` is in bytes, by default `default_limit`. A larger result is an InputError, whose message ends in `remedy`,
    by default the argument `unpack_limit` of the readers of logs.

    >>> decompressed(bz2.compress(b"1 2 3"), "x.bz2"), decompressed(b"1 2 3", "x")
    ((b'1 2 3', 0), (b'1 2 3', 0))
    """
    limit = default_limit() if limit is None else limit
    rest = 0
    for _ in range(_LAYERS):
        kind = _kind(data)
        if kind is None:
            break
        parts: list[bytes] = []
        size = 0
        for part, after in _parts(data, kind, source, limit):
            size += len(part)
            rest += after
            if size > limit:
                raise InputError(
                    f"{source} decompresses to more than the limit of {size_text(limit)} ({limit:,} bytes): "
                    f"{len(data):,} bytes of {kind} data gave {size:,} bytes so far; if the file is right, "
                    + (remedy or f"raise the limit with unpack_limit={2 * limit}")
                )
            parts.append(part)
        data = b"".join(parts)
        if not data:
            raise InputError(f"{source} is empty after decompression")
    return data, rest


def _kind(data: bytes) -> str | None:
    if data[:2] == b"\x1f\x8b":
        return "gzip"
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return "zstd"
    if data[:3] == b"BZh" and data[4:10] in (b"1AY&SY", b"\x17rE8P\x90", b""):
        return "bzip2"
    return "xz" if data[:6] == b"\xfd7zXZ\x00" else None


def _parts(data: bytes, kind: str, source: str, limit: int) -> Iterator[tuple[bytes, int]]:
    """Pieces of the result; with each the number of bytes that follow the end of the compressed data."""
    if kind == "zstd":
        yield from _zstd(data, source)
        return
    view, start, good, lines = memoryview(data), 0, 0, 0
    while start < len(data) and _kind(data[start : start + 10]) == kind:
        member = _decompressor(kind, limit)
        try:
            while not member.eof:
                piece = view[start : start + (1 << 20)]
                part = member.decompress(piece, _PIECE)
                start += len(piece)
                while part or len(piece):
                    good, lines = good + len(part), lines + part.count(b"\n")
                    yield part, 0
                    waiting = member.unconsumed_tail if kind == "gzip" else b""
                    if member.eof or not (waiting or (kind != "gzip" and not member.needs_input)):
                        break
                    part = member.decompress(waiting, _PIECE)
                if not len(piece):
                    break
        except (zlib.error, OSError, ValueError, EOFError, lzma.LZMAError) as problem:
            raise InputError(
                f"{source} is damaged {kind}: {problem}, after {good:,} good bytes; get the file again"
                if kind == "gzip"
                else f"{source} is damaged or cut short: {kind} says {problem}; get the file again"
            ) from None
        if not member.eof:
            raise InputError(
                f"{source} is cut short: its gzip data stop after {good:,} bytes ({lines:,} lines); get the file again"
                if kind == "gzip"
                else f"{source} is damaged or cut short: its {kind} data stop after {good:,} bytes; get the file again"
            )
        start -= len(member.unused_data)
    yield b"", len(data) - start if data[start:].strip(b"\x00") else 0


def _decompressor(kind: str, limit: int) -> Any:
    if kind == "gzip":
        return zlib.decompressobj(31)
    return bz2.BZ2Decompressor() if kind == "bzip2" else lzma.LZMADecompressor(memlimit=max(limit, _DICTIONARY))


def _zstd(data: bytes, source: str) -> Iterator[tuple[bytes, int]]:
    import pyarrow as pa

    good = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while part := stream.read(_PIECE):
                good += len(part)
                yield part, 0
    except (OSError, pa.ArrowException) as problem:
        raise InputError(
            f"{source} is damaged or cut short: zstd says {problem}, after {good:,} good bytes; get the file again"
        ) from None
