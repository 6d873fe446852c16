"""Atomic writing of result folders, with a manifest of their files.

The manifest is written last and contains the sha256 of every other file, so that incomplete
and modified folders are detected.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError
from kilowait.files import INSIDE_LOCK, check_held, output_lock, partial_path

__all__ = [
    "check_writable",
    "checked_manifest",
    "null_to_nan",
    "plain_json",
    "read_json",
    "save_folder",
    "writable_folder",
]

LAYOUT = 1
"""Version of the folder layout; folders with another version are refused."""


def save_folder(
    path: str | PathLike[str],
    fill: Callable[[Path], None],
    *,
    kind: str,
    manifest: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Path:
    """Let `fill` write files into a temporary folder next to `path`, add the manifest, and rename it to `path`."""
    with writable_folder(path, force=force):
        _replace_folder(Path(os.path.realpath(path)), fill, kind, manifest or {})
    return Path(path)


def _replace_folder(target: Path, fill: Callable[[Path], None], kind: str, manifest: Mapping[str, Any]) -> None:
    part, old = partial_path(target), partial_path(target, "old")
    try:
        part.mkdir()
        fill(part)
        files = {file.name: sha256(file) for file in sorted(part.iterdir())}
        contents = {"layout": LAYOUT, "kind": kind, "versions": _versions(), **manifest, "files": files}
        (part / "manifest.json").write_text(plain_json(contents) + "\n", encoding="utf-8")
        check_held(target)
        if target.exists():
            target.rename(old)
        part.rename(target)
    except OSError as problem:
        raise InputError(f"cannot write the folder {target}: {problem.strerror or problem}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def writable_folder(path: str | PathLike[str] | None, *, force: bool = False) -> Iterator[None]:
    """Hold the lock of a folder that is about to be written; errors as in `check_writable`. None: there is no folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, writable_folder(f"{folder}/first"):
    ...     pass
    """
    if path is None:
        yield
        return
    check_writable(path, force=force)
    with output_lock(path):
        check_writable(path, force=force)  # another process may have written it until now
        yield


def check_writable(path: str | PathLike[str], *, force: bool = False) -> None:
    """Raise an InputError unless a folder may be written at `path`: called before a long run."""
    target = Path(path)
    try:
        if not target.name:
            raise InputError(f"{path} is not a valid name for a new folder; use for instance runs/first")
        if not target.exists():
            above = next(folder for folder in target.absolute().parents if folder.exists())
            if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
                raise InputError(f"cannot write the folder {target}: {above} is not a writable folder")
            return
        if not target.is_dir():
            raise InputError(f"{target} is a file; name a folder to write the run to")
        existing = sorted(file.name for file in target.iterdir() if not file.name.startswith(INSIDE_LOCK))
    except OSError as problem:
        raise InputError(f"cannot write the folder {target}: {problem.strerror or problem}") from None
    if not existing:
        return
    if not force:
        raise InputError(f"{target} is not empty; name another folder, or replace it with --force")
    foreign = [name for name in existing if name not in (*_own_files(target), "manifest.json")]
    if foreign:
        raise InputError(
            f"{target} contains {', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}, not written "
            "by kilowait; --force replaces run folders only: name another folder"
        )


def _own_files(target: Path) -> tuple[str, ...]:
    try:
        return tuple(json.loads((target / "manifest.json").read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def checked_manifest(path: str | PathLike[str]) -> dict[str, Any]:
    """The manifest of a folder, after the checksums of all its files have been verified.

    A foreign, incomplete or modified folder raises an InputError with the reason.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"there is no run folder {folder}; write one with: kilowait simulate ... --out {folder}")
    manifest = read_json(folder / "manifest.json", folder)
    if manifest.get("layout") != LAYOUT or not isinstance(manifest.get("files"), dict):
        raise InputError(
            f"{folder} contains a {manifest.get('kind')!r} of layout {manifest.get('layout')!r}; this version of "
            f"kilowait reads layout {LAYOUT}: write it again"
        )
    for name, digest in manifest["files"].items():
        try:
            same = sha256(folder / name) == digest
        except OSError as problem:
            raise InputError(f"{folder} is incomplete: {name}: {problem.strerror or problem}") from None
        if not same:
            raise InputError(f"{folder / name} was modified after it was written: its sha256 has changed; run it again")
    return manifest


def plain_json(data: Any) -> str:
    """Standard JSON: NaN and infinities become null, NumPy values become plain numbers and lists."""
    return json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def null_to_nan(row: Mapping[str, Any]) -> dict[str, float]:
    """Numbers read back from `plain_json`: null becomes NaN.

    >>> null_to_nan({"mean": 2.5, "slowdown": None})
    {'mean': 2.5, 'slowdown': nan}
    """
    return {name: math.nan if value is None else value for name, value in row.items()}


def read_json(path: Path, folder: Path) -> dict[str, Any]:
    """Read a JSON object of a folder; InputError with the reason if that fails."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} is not a run folder, or is incomplete: it has no {path.name}") from None
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot read {path}: {problem}") from None
    if not isinstance(data, dict):
        raise InputError(f"cannot read {path}: it does not contain a JSON object")
    return data


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("kilowait", "numpy", "scipy", "numba", "pyarrow"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
