"""Output: one process at a time writes a folder or a file (locks), and a file is replaced as a whole (atomically).

The lock file names the owner. A folder that is replaced as a whole, and a file, have it beside them,
``.NAME.kilowait-lock``; a folder whose files are written one by one, such as that of a training, has it inside,
``.kilowait-lock``: its parent may be read-only, or mounted elsewhere for other processes. `kilowait.files.lock_file`
describes creation, staleness and takeover. Blocks nest in one thread. Child processes of `multiprocessing` write under
the lock of their parent.

A file is written under a temporary name beside it, flushed to the disk and renamed: at any time the target is either
the earlier file or the complete new one, also after a crash of the machine.
"""

from __future__ import annotations

import errno
import inspect
import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from kilowait.errors import LockError
from kilowait.files.leftovers import LOCK_SUFFIX, hidden_name, partial_path, remove_leftovers
from kilowait.files.lock_file import (
    HEARTBEAT_S,
    STALE_S,
    LockFile,
    LockRecord,
    create_lock,
    locked_error,
    read_lock,
    release_lock,
)

INSIDE_LOCK = LOCK_SUFFIX
"""Name of the lock file in a folder whose files are written one by one."""

P = ParamSpec("P")
T = TypeVar("T")

_LOG = logging.getLogger("kilowait")


# -- atomic writing --------------------------------------------------------------------------------


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[Path]:
    """An empty temporary file that replaces `path` at the end of the block; after an exception it is removed.

    Missing parent folders are created. A symbolic link is followed: the file that it points to is replaced. With
    `private` only the user can read the file, and a link is replaced itself. Errors of the file system are raised as
    OSError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_file(f"{folder}/numbers.txt") as temporary:
    ...         _ = temporary.write_text("1 2 3")
    ...     Path(folder, "numbers.txt").read_text()
    '1 2 3'
    """
    target = Path(path) if private else Path(os.path.realpath(path))
    create_parents(target)
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


def create_parents(path: str | os.PathLike[str]) -> None:
    """Create the missing parent folders of a file that is about to be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     create_parents(f"{folder}/a/b/c.txt")
    ...     Path(folder, "a", "b").is_dir()
    True
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        file = next(folder for folder in Path(path).parents if folder.exists())
        raise NotADirectoryError(errno.ENOTDIR, f"{file} is a file, not a folder", str(path)) from None


def _create(path: Path, mode: int) -> int:
    """Create an empty file; returns its mode, which is `mode` without the bits of the umask."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        return os.fstat(handle).st_mode & 0o777
    finally:
        os.close(handle)


# -- locks -----------------------------------------------------------------------------------------


@dataclass
class OutputLock:
    """A lock that this process holds."""

    target: Path
    """The locked folder or file, without symbolic links."""
    path: Path
    """The lock file."""
    record: LockRecord
    stale: LockFile | None = None
    """The stale lock that was taken over, if any."""
    thread: int = field(default_factory=threading.get_ident)
    _ended: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise a LockError if another process took over the lock: this one was stopped for longer than `STALE_S`."""
        found = read_lock(self.path)
        if found is None or found.record != self.record:
            owner = "it no longer exists" if found is None else f"it now belongs to {found.describe_owner()}"
            raise LockError(
                f"the lock of {self.target} was lost: {owner}; nothing more is written. This process was suspended "
                f"for more than {STALE_S:.0f} s, or the lock file was removed: name another folder and start again"
            )

    def refresh(self) -> None:
        """Set the time of the lock file to the current time of the file server."""
        found = read_lock(self.path)
        if found is not None and found.record == self.record:
            os.utime(self.path)

    def keep_fresh(self) -> None:
        """Refresh the lock file at intervals until the lock is released; runs in a thread of its own."""
        while not self._ended.wait(HEARTBEAT_S):
            with suppress(LockError, OSError):  # a file server that is not reachable for a while
                self.refresh()

    def release(self) -> None:
        """Remove the lock file."""
        self._ended.set()
        if self.record.owner.pid == os.getpid():  # not in a forked child
            release_lock(self.path, self.record)


_held: dict[Path, OutputLock] = {}
"""Locks of this process by lock file; a forked child inherits those of its parent."""


@contextmanager
def output_lock(path: str | os.PathLike[str] | None, *, inside: bool = False, nested: bool = True) -> Iterator[None]:
    """Hold the lock of an output folder or file during the block; files that a killed process left are removed first.

    A LockError names the owner if another process holds it, or the reason if it cannot be created. Taking over the lock
    of a process that no longer exists is logged with one line.

    Args:
        path: the folder or file, which need not exist; None: nothing is locked.
        inside: the files of the folder are written one by one; False: it is replaced as a whole.
        nested: a block inside another one of the same thread is allowed; False: it is an error too.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, output_lock(f"{folder}/first"):
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['.first.kilowait-lock']
    """
    if path is None:
        yield
        return
    target = Path(os.path.realpath(path))
    if not target.name:
        raise LockError(f"{target} cannot be locked: it is not a folder to write to; name another one")
    lock_path = _lock_path(target, inside)
    if _is_held_here(target, lock_path, nested) or _is_held_by_parent(lock_path):
        yield
        return
    folders = (lock_path.parent, *lock_path.parent.parents)
    missing = [folder for folder in folders if not folder.exists()]
    nearest = folders[len(missing)]
    if not nearest.is_dir():
        raise LockError(f"cannot write {target}: {nearest} is a file; name a folder")
    record, stale = create_lock(lock_path, str(target))
    lock = OutputLock(target, lock_path, record, stale)
    try:
        if stale is not None and not _is_reported(stale):
            _LOG.warning("%s", _takeover_text(target, stale))
        _held[lock_path] = lock
        _check_other_lock(target, lock_path, inside)
        threading.Thread(target=lock.keep_fresh, name="kilowait-lock", daemon=True).start()
        remove_leftovers(target if inside else target.parent, None if inside else target.name)
        yield
    finally:
        _held.pop(lock_path, None)
        lock.release()
        with suppress(OSError):  # remove new folders if nothing was written
            for folder in missing:
                folder.rmdir()


def locks_output(parameter: str, *, inside: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator of a function that writes the folder or file in one of its arguments: it holds the lock meanwhile.

    Args:
        parameter: name of the argument; None there means that nothing is written. An object with an attribute `folder`
            stands for that folder.
        inside: as in `output_lock`.

    >>> @locks_output("out")
    ... def listed(out):
    ...     return [file.name for file in Path(out).parent.iterdir()]
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     listed(f"{folder}/first")
    ['.first.kilowait-lock']
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @wraps(function)
        def locked(*arguments: P.args, **named: P.kwargs) -> T:
            output = signature.bind(*arguments, **named).arguments.get(parameter)
            with output_lock(getattr(output, "folder", output), inside=inside):
                return function(*arguments, **named)

        return locked

    return decorate


def check_held(path: Path) -> None:
    """Raise a LockError if this process held the lock of a folder or file at or above `path`, and lost it."""
    for lock in list(_held.values()):
        covered = lock.target == path or lock.target in path.parents
        if covered and lock.record.owner.pid == os.getpid():
            lock.check()


def _lock_path(target: Path, inside: bool) -> Path:
    return target / INSIDE_LOCK if inside else target.with_name(f"{hidden_name(target.name)}{LOCK_SUFFIX}")


def _is_held_here(target: Path, lock_path: Path, nested: bool) -> bool:
    """Whether this thread holds the lock; an error if another thread of this process does, or without `nested`."""
    held = _held.get(lock_path)
    if held is None or held.record.owner.pid != os.getpid():
        return False
    if held.thread != threading.get_ident() or not nested:
        raise LockError(
            f"{target} is being written by another part of this process, since {held.record.date}: wait until it "
            "ends, or name another folder"
        )
    return True


def _is_held_by_parent(lock_path: Path) -> bool:
    """Whether the lock belongs to the process that started this one with multiprocessing, or by a fork."""
    parent = multiprocessing.parent_process()
    inherited = _held.get(lock_path)
    if parent is None and inherited is None:
        return False
    found = read_lock(lock_path)
    if found is None or found.record is None or not found.record.owner.is_running():
        return False
    if inherited is not None and inherited.record == found.record:
        return True
    return parent is not None and found.record.owner.pid == parent.pid


def _check_other_lock(target: Path, lock_path: Path, inside: bool) -> None:
    """Raise a LockError if another process writes the same folder in the other way: its files, or as a whole."""
    other = _lock_path(target, not inside)
    if other in _held or (inside is False and not target.is_dir()) or _is_held_by_parent(other):
        return
    found = read_lock(other)
    if found is not None:
        now_s = lock_path.stat().st_mtime
        if not found.is_stale(now_s):
            raise locked_error(found, str(target), now_s)


def _is_reported(stale: LockFile) -> bool:
    """Whether this process holds another lock of the same ended process, such as that of the training of an agent."""
    others = [lock.stale.record for lock in list(_held.values()) if lock.stale is not None]
    owners = [record.owner for record in others if record is not None]
    return stale.record is not None and stale.record.owner in owners


def _takeover_text(target: Path, stale: LockFile) -> str:
    unknown = stale.record is None or stale.record.owner.is_running() is None
    reason = f"it was not refreshed for {STALE_S:.0f} s" if unknown else "that process no longer exists"
    return f"took over the lock of {target} from {stale.describe_owner()}: {reason}"
