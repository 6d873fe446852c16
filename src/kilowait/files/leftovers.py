"""Names of temporary files and folders, and removal of those that a killed process left.

A temporary file of ``NAME`` is ``.NAME.PID-RANDOM.part`` beside it; ``.NAME.PID-RANDOM.old`` is a folder that is being
replaced. Only such names are ever removed, and only by the holder of the lock.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

LOCK_SUFFIX = ".kilowait-lock"
LOCK_CANDIDATE_S = 300.0
"""Age of temporary lock files that are removed, seconds: other processes create new ones at any time."""

_MAX_NAME_BYTES = 200
"""Longer names are replaced by a digest: file systems allow 255 bytes, and the temporary name is longer."""
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.[0-9]+-[0-9a-f]{12}\.(?P<kind>part|old)", re.DOTALL)


def hidden_name(name: str) -> str:
    """The name with a leading dot; a digest of it if it is too long to be extended.

    >>> hidden_name("first")
    '.first'
    """
    encoded = os.fsencode(name)
    return f".{name}" if len(encoded) <= _MAX_NAME_BYTES else f".{hashlib.sha256(encoded).hexdigest()[:40]}"


def partial_path(path: Path, kind: str = "part") -> Path:
    """A new temporary name beside `path`; `kind` is part, or old for a folder that is being replaced.

    >>> partial_path(Path("runs/first")).name.startswith(".first.")
    True
    """
    return path.with_name(f"{hidden_name(path.name)}.{os.getpid()}-{secrets.token_hex(6)}.{kind}")


def remove_leftovers(folder: Path, name: str | None = None) -> int:
    """Remove temporary files and folders of killed processes from a folder; returns their number.

    Args:
        folder: the folder; subfolders are not searched.
        name: remove only those of the file or folder with this name; None: all.

    A folder that was being replaced when the process was killed is put back if there is no other of its name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     partial_path(Path(folder, "state.json")).touch()
    ...     remove_leftovers(Path(folder), "other.json"), remove_leftovers(Path(folder))
    (0, 1)
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return 0
    removed = 0
    for path in entries:
        match = _LEFTOVER.fullmatch(path.name)
        if match is None:
            continue
        locked, lock_suffix, _ = match["name"].partition(LOCK_SUFFIX)
        if name is not None and (locked if lock_suffix else f".{match['name']}") != hidden_name(name):
            continue
        with suppress(OSError):  # what cannot be removed remains and disturbs no one
            if lock_suffix and time.time() - path.lstat().st_mtime < LOCK_CANDIDATE_S:
                continue
            is_folder = path.is_dir() and not path.is_symlink()
            if match["kind"] == "old" and is_folder and name is not None and not os.path.lexists(folder / name):
                path.rename(folder / name)
            elif is_folder:
                shutil.rmtree(path)
            else:
                path.unlink()
            removed += 1
    return removed
