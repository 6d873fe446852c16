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
def atomic_file(path: str | os.PathLike[str], *, parents: bool = False, private: bool = False) -> Iterator[Path]:
    """An empty temporary file that replaces `path` at the end of the block; after an exception it is removed.

    A symbolic link is followed: the file that it points to is replaced. With `parents` missing parent folders are
    created. With `private` only the user can read the file, and a link is replaced itself. Errors of the file system
    are raised as OSError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_file(f"{folder}/numbers.txt") as temporary:
    ...         _ = temporary.write_text("1 2 3")
    ...     Path(folder, "numbers.txt").read_text()
    '1 2 3'
    """
    target = Path(path) if private else Path(os.path.realpath(path))
    if parents:
        target.parent.mkdir(parents=True, exist_ok=True)
    temporary = partial_path(target)
    mode = _create(temporary, 0o600 if private else 0o666)
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


def write_text(path: str | os.PathLike[str], text: str, *, parents: bool = False) -> None:
    """Write a text file in UTF-8 atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(f"{folder}/a.txt", "text")
    ...     Path(folder, "a.txt").read_text()
    'text'
    """
    write_bytes(path, text.encode(), parents=parents)


def write_bytes(path: str | os.PathLike[str], content: bytes, *, parents: bool = False) -> None:
    """Write a file atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(f"{folder}/a.bin", b"123")
    ...     Path(folder, "a.bin").read_bytes()
    b'123'
    """
    with atomic_file(path, parents=parents) as temporary:
        temporary.write_bytes(content)


def _create(path: Path, mode: int) -> int:
    """Create an empty file; returns its mode, which is `mode` without the bits of the umask."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        return os.fstat(handle).st_mode & 0o777
    finally:
        os.close(handle)
