"""Cache of compiled kernels: its folder, which only this user may write, and its checked files.

Loading a kernel unpickles its file and runs its machine code. So a file is read only if this user owns it and nobody
else may write it, and only if its checksum is right; every other file is ignored and compiled again. Where the folder
cannot be made or belongs to somebody else, a fresh private folder holds the kernels until the process ends.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import pickle
import shutil
import stat
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache
from platformdirs import user_cache_path

from kilowait.files import atomic_file

ENVIRONMENT = "KILOWAIT_CACHE_DIR"
"""Environment variable that names another folder for the cache."""
UNUSED_S = 30 * 86400
"""Kernels of other sources or versions are removed after this time without use, seconds."""
_LOG = logging.getLogger("kilowait")
_CHECKSUM = 32
"""Bytes of a checksum (SHA-256) at the beginning of a file."""


def usable_folder(name: str) -> Path | None:
    """The folder `name` of the cache; a private temporary one where the cache cannot be used; None without either."""
    root = os.environ.get(ENVIRONMENT)
    base = Path(root) if root else user_cache_path("kilowait", appauthor=False)
    kernels = base / "kernels"
    try:
        base.mkdir(parents=True, exist_ok=True)
        for folder in (kernels, kernels / name):
            _make_private(folder)
        os.utime(kernels / name)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        return _temporary(name, f"compiled code cannot be kept in {kernels}: {reason}")
    _remove_unused(kernels / name)
    return kernels / name


def private_folder(folder: Path) -> bool:
    """Whether this is a folder, no link, that belongs to this user and that nobody else may write.

    >>> private_folder(Path("/nowhere"))
    False
    """
    return _is_private(folder, stat.S_ISDIR)


def _make_private(folder: Path) -> None:
    """Make the folder, or close an own one to others; raise an OSError if it is somebody else's."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == _user() and found.st_mode & 0o022:
        folder.chmod(0o700)
    if not private_folder(folder):
        raise PermissionError(f"{folder} is a link or belongs to another user")


@cache
def _temporary(name: str, why: str) -> Path | None:
    """A private folder that is removed when this process ends; its child processes use it too."""
    try:
        base = Path(tempfile.mkdtemp(prefix="kilowait-kernels-"))  # mode 0700, of this user, new
        folder = base / "kernels" / name
        folder.mkdir(parents=True)
        for made in (folder.parent, folder):
            made.chmod(0o700)
    except OSError as problem:
        _LOG.warning("%s; and in no temporary folder (%s): every process compiles anew", why, problem)
        return None
    _LOG.warning("%s; kept in %s until this process ends. Set %s to another folder", why, base, ENVIRONMENT)
    os.environ[ENVIRONMENT] = str(base)
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(base, ignore_errors=True)

    atexit.register(remove)
    return folder


def _remove_unused(folder: Path) -> None:
    """Remove kernels of other sources or versions that were not used for `UNUSED_S`."""
    try:
        others = [other for other in folder.parent.iterdir() if other != folder]
        old = [other for other in others if other.lstat().st_mtime < time.time() - UNUSED_S]
    except OSError:  # another process removes them
        return
    for other in old:
        shutil.rmtree(other, ignore_errors=True)


def _user() -> int:
    """The effective user of this process; 0 on systems without users' numbers, as for the files there."""
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _is_private(path: Path, kind: Any, found: os.stat_result | None = None) -> bool:
    try:
        found = path.lstat() if found is None else found
    except OSError:
        return False
    return bool(kind(found.st_mode) and found.st_uid == _user() and not found.st_mode & 0o022)


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function with checked files; a damaged, foreign or unwritable file means compiling again."""

    def __init__(self, function: Any, folder: Path) -> None:
        super().__init__(function)
        path = Path(self._cache_path)
        self._cache_file = _CheckedFiles(path, self._impl.filename_base, self._impl.locator.get_source_stamp())
        if not path.is_relative_to(folder):  # Numba's second choice, beside the source: blind to changes of callees
            self.disable()

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store a compiled function; where its folder cannot be written it stays in memory only."""
        try:
            super().save_overload(sig, data)
        except OSError as problem:
            _LOG.warning("compiled code cannot be kept in %s: %s", self._cache_path, problem)


class _CheckedFiles:
    """One file for every signature of a function: a checksum, then what Numba stores.

    Takes the place of numba.core.caching.IndexDataCacheFile, whose files are unpickled without a check.
    """

    def __init__(self, folder: Path, base: str, stamp: Any) -> None:
        self._folder, self._base, self._stamp = folder, base, stamp

    def _path(self, key: Any) -> Path:
        return self._folder / f"{self._base}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"

    def flush(self) -> None:
        """Forget everything stored for the function."""
        for path in self._folder.glob(f"{self._base}.*.nbc"):
            path.unlink(missing_ok=True)

    def load(self, key: Any) -> Any:
        """What was stored for a signature; None if nothing was, or if its file is not to be trusted."""
        path = self._path(key)
        try:
            content = _read(path)
        except FileNotFoundError:
            return None
        except OSError as problem:
            _LOG.warning("compiled code in %s is not used (%s): compiling again", path, problem)
            return None
        if hashlib.sha256(content[_CHECKSUM:]).digest() != content[:_CHECKSUM]:
            _LOG.warning("compiled code in %s is damaged: compiling again", path)
            return None
        stamp, stored_key, data = pickle.loads(content[_CHECKSUM:])
        return data if (stamp, repr(stored_key)) == (self._stamp, repr(key)) else None

    def save(self, key: Any, data: Any) -> None:
        """Store what was compiled; without room or permission it stays in memory only."""
        path = self._path(key)
        content = pickle.dumps((self._stamp, key, data), protocol=pickle.HIGHEST_PROTOCOL)
        try:
            with atomic_file(path, private=True) as temporary:
                temporary.write_bytes(hashlib.sha256(content).digest() + content)
        except OSError as problem:
            _LOG.warning(
                "compiled code cannot be kept in %s (%s): it is compiled again next time",
                self._folder,
                problem.strerror or problem,
            )


def _read(path: Path) -> bytes:
    """Content of a plain file of this user that nobody else may write; an OSError if it is anything else."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(handle, "rb") as file:
        if not _is_private(path, stat.S_ISREG, os.fstat(handle)):
            raise PermissionError("it is no plain file, or others may write it")
        return file.read()
