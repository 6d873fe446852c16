"""Regular files: opened without following links, waiting on pipes, or reading devices."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from os import PathLike
from pathlib import Path

from kilowait.errors import InputError


def open_regular(path: str | PathLike[str]) -> io.BufferedReader:
    """Open a regular file for reading; a link, folder, pipe or device raises an InputError.

    Raises an OSError where the file does not exist or cannot be opened.

    >>> open_regular("/dev/null")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: /dev/null is a device; a regular file is needed
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except OSError:
        if os.path.islink(path):
            raise InputError(f"{os.fspath(path)} is a link; a regular file is needed") from None
        raise
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise InputError(f"{os.fspath(path)} is {_kind_of_file(mode)}; a regular file is needed")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: str | PathLike[str], *, max_bytes: int) -> bytes:
    """The contents of a regular file of at most `max_bytes` bytes.

    >>> read_bytes(__file__, max_bytes=10)
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: ...regular_file.py has ... bytes; such a file has at most 10
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(max_bytes + 1) if size <= max_bytes else b""
        size = max(size, len(data))
        if size > max_bytes:
            raise InputError(f"{os.fspath(path)} has {size:,} bytes; such a file has at most {max_bytes:,}")
        return data


def sha256(path: str | PathLike[str]) -> str:
    """SHA-256 of a regular file, in hexadecimal digits.

    >>> len(sha256(__file__))
    64
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def member_path(folder: str | PathLike[str], name: str) -> Path:
    """The path of a file directly in a folder; names of files elsewhere raise an InputError.

    >>> str(member_path("runs/first", "log.parquet"))
    'runs/first/log.parquet'
    >>> member_path("runs/first", "../second/log.parquet")
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: '../second/log.parquet' is not the name of a file in runs/first
    """
    if not name or name in (".", "..") or any(character in name for character in "/\\\0") or not name.isprintable():
        raise InputError(f"{name[:100]!r} is not the name of a file in {os.fspath(folder)}")
    return Path(folder) / name


def _kind_of_file(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return "a device"
    return "not a regular file"
