"""Atomic writing of result folders, with a manifest of their files.

The manifest is written last and contains the sha256 of every other file, so that incomplete
and modified folders are detected.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError
from kilowait.files import INSIDE_LOCK, check_held, output_lock, partial_path
from kilowait.files.documents import read_json_object, to_toml
from kilowait.files.fields import Anything, Either, Field, Flag, Null, Number, Record, Text, Values, check_fields
from kilowait.files.regular_file import member_path, sha256

LAYOUT = 2
"""Version of the folder layout; folders with another version are refused."""
MAX_FILES = 10_000
"""Maximum number of files of a folder."""
_VALUE = Either(Null(), Flag(), Number(), Text())
MANIFEST = Record(
    {"kind": Text(), "files": Values(Text())},
    {"versions": Values(_VALUE), "seeds": Anything(), "inputs": Either(Null(), Values(_VALUE))},
)
"""Fields of manifest.json, besides its layout; other entries are only displayed."""


@dataclass(frozen=True)
class ResultFolder:
    """Opened folder of any kind."""

    path: Path
    scenario: dict[str, Any]
    manifest: dict[str, Any]
    results: dict[str, Any]


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


def results_writer(scenario: Mapping[str, Any], results: Mapping[str, Any]) -> Callable[[Path], None]:
    """A function that writes scenario.toml and results.json into a folder, for `save_folder`."""

    def fill(folder: Path) -> None:
        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        (folder / "results.json").write_text(plain_json(results) + "\n", encoding="utf-8")

    return fill


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
        return tuple(read_json_object(target / "manifest.json", MANIFEST)["files"])
    except (OSError, InputError):
        return ()


def checked_manifest(path: str | PathLike[str]) -> dict[str, Any]:
    """The manifest of a folder, after the checksums of all its files have been verified.

    A foreign, incomplete or modified folder raises an InputError with the reason.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"there is no run folder {folder}; write one with: kilowait simulate ... --out {folder}")
    manifest_path = folder / "manifest.json"
    manifest = read_json(manifest_path, folder)
    if manifest.get("layout") != LAYOUT or not isinstance(manifest.get("files"), dict):
        raise InputError(
            f"{folder} contains a {str(manifest.get('kind'))[:100]!r} of layout {str(manifest.get('layout'))[:100]}; "
            f"this version of kilowait reads layout {LAYOUT}: write it again"
        )
    check_fields(manifest, MANIFEST, manifest_path, remedy="write the folder again")
    if len(manifest["files"]) > MAX_FILES:
        raise InputError(f"{manifest_path} lists {len(manifest['files']):,} files; a folder has at most {MAX_FILES:,}")
    for name, digest in manifest["files"].items():
        file = member_path(folder, name)
        try:
            same = sha256(file) == digest
        except OSError as problem:
            raise InputError(f"{folder} is incomplete: {name}: {problem.strerror or problem}") from None
        if not same:
            raise InputError(f"{file} was modified after it was written: its sha256 has changed; run it again")
    return manifest


def manifest_of_kind(folder: Path, kind: str, command: str, names: Iterable[str]) -> dict[str, Any]:
    """The checked manifest of a folder of this kind with these files; `command` writes such a folder, for the error."""
    manifest = checked_manifest(folder)
    if manifest.get("kind") != kind:
        raise InputError(f"{folder} holds a {manifest.get('kind')!r}, not a {kind}; write one with {command}")
    check_files(manifest, names, folder)
    return manifest


def check_files(manifest: Mapping[str, Any], names: Iterable[str], folder: Path) -> None:
    """Raise an InputError if the manifest lacks one of the files, whose checksums would not be verified."""
    missing = [name for name in names if name not in manifest["files"]]
    if missing:
        raise InputError(f"{folder} is incomplete: its manifest lacks {', '.join(missing[:5])}; run it again")


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


def read_json(path: Path, folder: Path, fields: Field | None = None, *, constants: bool = False) -> dict[str, Any]:
    """Read a JSON object of a folder and check its fields; InputError with the reason if that fails."""
    try:
        return read_json_object(path, fields, remedy="write the folder again", constants=constants)
    except FileNotFoundError:
        raise InputError(f"{folder} is not a run folder, or is incomplete: it has no {path.name}") from None
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror or problem}") from None


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("kilowait", "numpy", "scipy", "numba", "pyarrow"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
