"""What a training was begun with, kept in its folder, so that it is gone on with on the same jobs or not at all.

Weights, settings and seed are looked at by the checkpoint itself; here it is the world: log, machine, reward, power.
Also: whether that world, with so many copies, fits into this machine's memory at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.agents.evolution.checkpoint import FILE, CheckpointDir
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.storage import plain_json
from kilowait.evaluation.storage.folder import read_json
from kilowait.jobs import JobTable

__all__ = [
    "can_resume",
    "check_begun",
    "check_memory",
    "jobs_digest",
    "mark_begun",
    "search_in",
    "training_folder",
    "world_of",
]

BEGUN = "begun.json"
STATES = ("last.safetensors", "warm/last.safetensors", FILE)
"""Of a network, of its warm start, of a search."""
OLD = (*STATES, "agent.pt", "explained.json", "warm.json", BEGUN)
STEERING = ("reward", "preferences", "limit", "sla_s", "ease", "episode_jobs", "windows", "window_jobs")
"""Fields of `Learning` that make another training of it, and that no checkpoint knows."""


def training_folder(out: str | PathLike[str]) -> Path:
    """Where the state of a training is kept while it runs, and after: beside the folder of the agent.

    >>> training_folder("runs/first").name
    'first.training'
    """
    return Path(out).with_name(f"{Path(out).name}.training")


def can_resume(folder: Path) -> bool:
    """Whether a folder holds a training that was begun, if only its warm start."""
    return any((folder / name).exists() for name in STATES)


def check_begun(folder: Path, *, resume: bool, force: bool) -> None:
    """An error where a training would be lost that could be gone on with, or none is there to be gone on with."""
    begun = can_resume(folder)
    if begun and not resume and not force:
        raise InputError(
            f"{folder} holds a training that was begun before; go on with --resume, or begin anew with --force"
        )
    if resume and not begun:
        raise InputError(f"{folder} holds no training to resume; begin one without --resume")


def world_of(
    env: str, asked: Mapping[str, Any], parts: Mapping[str, JobTable], cluster: Cluster, how: Any
) -> dict[str, Any]:
    """What a training sees, in words and digests. `how` is a `Learning`."""
    return {
        "environment": env,
        **_seen(parts, cluster),
        **{name: getattr(how, name) for name in STEERING},
        **{f"asking {name}": value for name, value in asked.items()},
    }


def search_in(
    folder: Path | None,
    parts: Mapping[str, JobTable],
    cluster: Cluster,
    *,
    resume: bool,
    more: Mapping[str, Any] | None = None,
) -> CheckpointDir | None:
    """Where an evolution strategy is kept, in the world it was begun in; None, without a folder, is nowhere."""
    if folder is None:
        return None
    world = {"environment": "none (es, a search of weights)", **_seen(parts, cluster), **(more or {})}
    return CheckpointDir(folder, resume, lambda: mark_begun(folder, world, resume=resume))


def _seen(parts: Mapping[str, JobTable], cluster: Cluster) -> dict[str, Any]:
    """Jobs and machine, with their digests."""
    return {
        **{f"{name} jobs": f"{len(jobs):,} (digest {jobs_digest(jobs)})" for name, jobs in parts.items()},
        "machine": f"{cluster.name} (digest {hashlib.sha256(repr(cluster).encode()).hexdigest()[:12]})",
    }


def mark_begun(folder: Path, world: Mapping[str, Any], *, resume: bool) -> None:
    """Note what a training begins with, or refuse to go on with one that was begun with something else.

    What an earlier training left there is removed by a new one: if that is killed at once, `resume` must not find the
    old one in its place.
    """
    text = plain_json(dict(world))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not resume:
            for name in OLD:
                (folder / name).unlink(missing_ok=True)
        if not (folder / BEGUN).exists():
            (folder / BEGUN).write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise InputError(
            f"cannot write in {folder}: {problem.strerror or problem}; name another folder"
        ) from None
    was = read_json(folder / BEGUN, folder)
    now = _as_read(text)
    for name in [*now, *(name for name in was if name not in now)]:
        if was.get(name) != now.get(name):
            raise InputError(
                f"{folder} was begun with {name} {was.get(name)}, and this is {now.get(name)}; "
                "resume with the same, or begin anew with --force"
            )


def check_memory(seen: Any, *, envs: int, kept: int, settings: Any, free: int | None = None) -> None:
    """An error unless what a training keeps of its observations can fit into memory.

    Args:
        seen: the shape of an observation.
        envs: copies that play side by side, those of the validation included.
        kept: observations that are learned from at a time: a rollout, or what is replayed.
        settings: the algorithm's; its name for the number of kept ones is told.
        free: bytes; None asks this machine, and does not check where it cannot say.
    """
    numbers = 4 * (seen.slots * len(seen.features) + len(seen.summary)) + seen.actions
    one = numbers + (seen.slots * seen.slots if seen.graph else 0)
    wanted = one * (2 * envs + kept)
    free = _free_bytes() if free is None else free
    if free is not None and wanted > free:
        keeps = (
            "--num-envs"
            if not hasattr(settings, "buffer_size")
            else "--num-envs, or a smaller buffer_size in --hyperparameters"
        )
        raise InputError(
            f"{envs:,} environments of {seen.slots:,} slots, {kept:,} observations of them kept, want "
            f"{wanted / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free; take fewer --queue-window or {keeps}"
        )


def _free_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


def jobs_digest(jobs: JobTable) -> str:
    """Twelve digits that tell one table of jobs from another."""
    found = hashlib.sha256()
    for name in jobs.columns:
        found.update(name.encode())
        found.update(np.ascontiguousarray(jobs[name]).data)
    return found.hexdigest()[:12]


def _as_read(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found
