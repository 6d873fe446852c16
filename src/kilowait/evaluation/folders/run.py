"""The run folder: what is written down of a run, and read back by whoever draws or judges it.

=============== =============================================================================
scenario.toml   what was run, the machine written out
jobs.parquet    the jobs, a JobTable; can be simulated again as it is
log.parquet     the segments; machine size, groups and settings in the schema's metadata
records.parquet the per-job record: eligible, start, end, wait, turnaround, outcome
results.json    the metrics
manifest.json   versions, seeds, sha256 of inputs and of these files, command, date; written last
=============== =============================================================================

Needs neither Numba nor torch to be read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError, KilowaitError
from kilowait.experiments.toml import to_toml
from kilowait.jobs import JobTable, SegmentLog

__all__ = ["Run", "check_free", "load_run", "plain_json", "save_folder", "save_run"]

LAYOUT = 1
"""Number of this layout; a folder of another one is refused."""
META_KEY = b"kilowait"
_FILES = ("scenario.toml", "jobs.parquet", "log.parquet", "records.parquet", "results.json")


@dataclass(frozen=True)
class Run:
    """A run folder, opened."""

    path: Path
    scenario: dict[str, Any]
    manifest: dict[str, Any]
    results: dict[str, Any]
    log: SegmentLog


def save_run(
    path: str | PathLike[str],
    log: SegmentLog,
    *,
    scenario: Mapping[str, Any],
    results: Mapping[str, Any],
    manifest: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Path:
    """Write a run folder, whole or not at all.

    `manifest` adds to the versions what only the caller knows: command, date, seeds, sha256 of the inputs.
    A folder that holds something already is refused; `force` replaces an earlier run folder, and nothing else.
    """

    def fill(folder: Path) -> None:
        (folder / "scenario.toml").write_text(to_toml(scenario), encoding="utf-8")
        log.jobs_table.to_parquet(folder / "jobs.parquet")
        _write_log(log, folder / "log.parquet")
        log.jobs().to_parquet(folder / "records.parquet")
        (folder / "results.json").write_text(plain_json(results) + "\n", encoding="utf-8")

    return save_folder(path, fill, kind="run", manifest=manifest, force=force)


def save_folder(
    path: str | PathLike[str],
    fill: Callable[[Path], None],
    *,
    kind: str,
    manifest: Mapping[str, Any] | None = None,
    force: bool = False,
) -> Path:
    """Let `fill` write files into a new folder beside `path`, add the manifest, and rename it to `path`."""
    target = Path(path)
    check_free(target, force=force)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
        fill(part)
        files = {file.name: _sha256(file) for file in sorted(part.iterdir())}
        said = {"layout": LAYOUT, "kind": kind, "versions": _versions(), **(manifest or {}), "files": files}
        (part / "manifest.json").write_text(plain_json(said) + "\n", encoding="utf-8")
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
    return target


def check_free(path: str | PathLike[str], *, force: bool = False) -> None:
    """Raise unless a folder may be written at `path`: asked before a long run, not after it."""
    target = Path(path)
    try:
        if not target.name:
            raise InputError(f"{path} is no name for a new folder; write for instance runs/first")
        if not target.exists():
            above = next(folder for folder in target.absolute().parents if folder.exists())
            if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
                raise InputError(
                    f"cannot write the folder {target}: {above} is not a folder one may write in"
                )
            return
        if not target.is_dir():
            raise InputError(f"{target} is a file; name a folder to write the run to")
        held = sorted(file.name for file in target.iterdir())
    except OSError as problem:
        raise InputError(f"cannot write the folder {target}: {problem.strerror or problem}") from None
    if not held:
        return
    if not force:
        raise InputError(f"{target} is not empty; name another folder, or replace it with --force")
    foreign = [name for name in held if name not in (*_own_files(target), "manifest.json")]
    if foreign:
        raise InputError(
            f"{target} holds {', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}, which no run of kilowait "
            "wrote there; --force replaces run folders only: name another folder"
        )


def _own_files(target: Path) -> tuple[str, ...]:
    try:
        return tuple(json.loads((target / "manifest.json").read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def load_run(path: str | PathLike[str]) -> Run:
    """Open what `save_run` wrote; its log has the same metrics, to the bit.

    A folder that is no run folder, is half there or was changed is an InputError that says what is wrong.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(
            f"there is no run folder {folder}; write one with: kilowait simulate ... --out {folder}"
        )
    manifest = _json(folder / "manifest.json", folder)
    if manifest.get("kind") != "run" or manifest.get("layout") != LAYOUT:
        raise InputError(
            f"{folder} holds a {manifest.get('kind')!r} of layout {manifest.get('layout')!r}; this kilowait opens a "
            f"'run' of layout {LAYOUT}: write it again with kilowait simulate"
        )
    for name in _FILES:
        said = manifest.get("files", {}).get(name)
        try:
            same = _sha256(folder / name) == said
        except OSError as problem:
            raise InputError(f"{folder} is not whole: {name}: {problem.strerror or problem}") from None
        if not same:
            raise InputError(f"{folder / name} is not what was written: its sha256 has changed; run it again")
    try:
        scenario = tomllib.loads((folder / "scenario.toml").read_text(encoding="utf-8"))
        log = _read_log(folder, JobTable.from_parquet(folder / "jobs.parquet"))
    except (KilowaitError, OSError, ValueError, KeyError, TypeError) as problem:
        raise InputError(f"{folder} cannot be opened: {problem}") from None
    return Run(folder, scenario, manifest, _json(folder / "results.json", folder), log)


def _write_log(log: SegmentLog, path: Path) -> None:
    import pyarrow.parquet as pq

    note = {
        "groups": log.groups,
        "run": log.run,
        # The first step begins before all time; JSON has no infinity.
        "capacity_s": [None if math.isinf(step) else step for step in log.capacity_s.tolist()],
        "capacity_nodes": log.capacity_nodes.tolist(),
    }
    pq.write_table(log.to_arrow().replace_schema_metadata({META_KEY: json.dumps(note).encode()}), path)


def _read_log(folder: Path, jobs: JobTable) -> SegmentLog:
    import pyarrow.parquet as pq

    segments = pq.read_table(folder / "log.parquet")
    records = pq.read_table(folder / "records.parquet", columns=["job_id", "eligible_s", "outcome"])
    note = json.loads(segments.schema.metadata[META_KEY])
    ids = jobs["job_id"]
    if not np.array_equal(records["job_id"].to_numpy(), ids):
        raise ValueError("records.parquet and jobs.parquet speak of different jobs")
    order = np.argsort(ids, kind="stable")
    run_ids = segments["job_id"].to_numpy()
    place = np.minimum(np.searchsorted(ids[order], run_ids), max(len(ids) - 1, 0))
    job = order[place] if len(ids) else place
    if not np.array_equal(ids[job], run_ids):
        raise ValueError("log.parquet has segments of jobs that jobs.parquet lacks")
    return SegmentLog(
        jobs_table=jobs,
        job=job,
        **{name: segments[name].to_numpy() for name in ("start_s", "end_s", "group", "level", "outcome")},
        eligible_s=records["eligible_s"].to_numpy(),
        job_outcome=records["outcome"].to_numpy(),
        capacity_s=np.array([-math.inf if step is None else step for step in note["capacity_s"]]),
        capacity_nodes=np.array(note["capacity_nodes"], np.int64),
        groups=tuple(note["groups"]),
        run=note["run"],
    )


def plain_json(data: Any) -> str:
    """JSON that every reader takes: NaN and infinities are null, numpy's numbers are numbers."""
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


def _json(path: Path, folder: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder} is no run folder, or was not written to the end: it has no {path.name}"
        ) from None
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot read {path}: {problem}") from None
    if not isinstance(data, dict):
        raise InputError(f"cannot read {path}: it holds no JSON object")
    return data


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("kilowait", "numpy", "numba", "pyarrow"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
