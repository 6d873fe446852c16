"""Atomic writing of single files: a temporary file beside the target, fsync, then a rename over the target.

At any time the target is either the earlier file or the complete new one, also after a crash of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kilowait.files.leftovers import partial_path
from kilowait.files.locks import check_held

__all__ = ["atomic_file", "write_bytes", "write_text"]


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """An empty temporary file that replaces `path` at the end of the block; after an exception it is removed.

    Missing parent folders are created. A symbolic link is followed: the file that it points to is replaced. Errors of
    the file system are raised as OSError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_file(f"{folder}/numbers.txt") as temporary:
    ...         _ = temporary.write_text("1 2 3")
    ...     Path(folder, "numbers.txt").read_text()
    '1 2 3'
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = partial_path(target)
    mode = _create(temporary)
    try:
        yield temporary
        handle = os.open(temporary, os.O_RDWR)
        try:
            os.fchmod(handle, mode)  # some libraries create files that only their owner can read
            os.fsync(handle)
        finally:
            os.close(handle)
        check_held(target)
        os.replace(temporary, target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8 atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(f"{folder}/a.txt", "text")
    ...     Path(folder, "a.txt").read_text()
    'text'
    """
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(f"{folder}/a.bin", b"123")
    ...     Path(folder, "a.bin").read_bytes()
    b'123'
    """
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


def _create(path: Path) -> int:
    """Create an empty file with the default mode; returns the mode."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        return os.fstat(handle).st_mode & 0o777
    finally:
        os.close(handle)
