"""Identity of a training, stored in its folder, so that it is resumed only with the same jobs, machine and settings.

The checkpoint itself checks weights, hyperparameters and seed; this module checks log, machine, reward and power
model. It also checks that the observations of a training fit into memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kilowait.agents.evolution.checkpoint import FILE, CheckpointDir
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.storage import plain_json
from kilowait.evaluation.storage.folder import read_json
from kilowait.jobs import JobTable

if TYPE_CHECKING:
    from kilowait.experiments.train_rl import RLTraining

__all__ = [
    "can_resume",
    "check_can_start",
    "check_memory",
    "jobs_digest",
    "check_identity",
    "search_checkpoint_dir",
    "training_folder",
    "training_identity",
]

BEGUN = "begun.json"
STATES = ("last.safetensors", "warm/last.safetensors", FILE)
"""Checkpoints of a network, of its warm start, and of an evolution strategy."""
OLD = (*STATES, "agent.pt", "explained.json", "warm.json", BEGUN)


def training_folder(out: str | PathLike[str]) -> Path:
    """Folder of a training's checkpoints, beside the agent's folder.

    >>> training_folder("runs/first").name
    'first.training'
    """
    return Path(out).with_name(f"{Path(out).name}.training")


def can_resume(folder: Path) -> bool:
    """Whether a folder contains a checkpoint, at least of the warm start."""
    return any((folder / name).exists() for name in STATES)


def check_can_start(folder: Path, *, resume: bool, force: bool) -> None:
    """Raise an error if an existing training would be overwritten, or if there is none to resume."""
    begun = can_resume(folder)
    if begun and not resume and not force:
        raise InputError(
            f"{folder} already holds a training; continue it with --resume, or start again with --force"
        )
    if resume and not begun:
        raise InputError(f"{folder} holds no training to resume; start one without --resume")


def training_identity(
    env: str,
    decision_settings: Mapping[str, Any],
    parts: Mapping[str, JobTable],
    cluster: Cluster,
    how: RLTraining,
) -> dict[str, Any]:
    """Environment, jobs, machine and settings of a training, with digests. `how` is an `RLTraining`."""
    return {
        "environment": env,
        **_jobs_and_machine(parts, cluster),
        "reward": how.reward,
        "objectives": how.objectives,
        "constraint": how.constraint,
        "sla_s": how.sla_s,
        "load_curriculum": how.load_curriculum,
        "episode_jobs": how.episode_jobs,
        "windows": how.windows,
        "window_jobs": how.window_jobs,
        **{f"asking {name}": value for name, value in decision_settings.items()},
    }


def search_checkpoint_dir(
    folder: Path | None,
    parts: Mapping[str, JobTable],
    cluster: Cluster,
    *,
    resume: bool,
    more: Mapping[str, Any] | None = None,
) -> CheckpointDir | None:
    """The checkpoint folder of an evolution strategy, which checks its identity; None without a folder."""
    if folder is None:
        return None
    world = {
        "environment": "none (cma-es, a search of weights)",
        **_jobs_and_machine(parts, cluster),
        **(more or {}),
    }
    return CheckpointDir(folder, resume, lambda: check_identity(folder, world, resume=resume))


def _jobs_and_machine(parts: Mapping[str, JobTable], cluster: Cluster) -> dict[str, Any]:
    """Jobs and machine, with their digests."""
    return {
        **{f"{name} jobs": f"{len(jobs):,} (digest {jobs_digest(jobs)})" for name, jobs in parts.items()},
        "machine": f"{cluster.name} (digest {hashlib.sha256(repr(cluster).encode()).hexdigest()[:12]})",
    }


def check_identity(folder: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
    """Record the identity of a new training, or raise an error if that of a resumed training differs.

    A new training removes the files of an earlier one: if it is killed at once, `resume` must not find the old
    checkpoints.
    """
    text = plain_json(dict(identity))
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
                "resume with the same, or start again with --force"
            )


def check_memory(seen: Any, *, envs: int, stored: int, settings: Any, free: int | None = None) -> None:
    """Raise an error if the stored observations of a training do not fit into memory.

    Args:
        seen: the observation spec.
        envs: number of parallel environments, those of the validation included.
        stored: observations stored at a time: a rollout, or the replay buffer.
        settings: hyperparameters of the algorithm; decides which remedy the error names.
        free: bytes of free memory; None asks the operating system, without a check where that is unknown.
    """
    numbers = 4 * (seen.slots * len(seen.features) + len(seen.summary)) + seen.actions
    observation_bytes = numbers + (seen.slots * seen.slots if seen.graph else 0)
    wanted = observation_bytes * (2 * envs + stored)
    free = _free_bytes() if free is None else free
    if free is not None and wanted > free:
        remedy = (
            "a smaller --num-envs"
            if not hasattr(settings, "buffer_size")
            else "a smaller --num-envs, or a smaller buffer_size in --hyperparameters"
        )
        raise InputError(
            f"{envs:,} environments with a queue window of {seen.slots:,} and {stored:,} stored observations need "
            f"{wanted / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free; take a smaller --queue-window or "
            f"{remedy}"
        )


def _free_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


def jobs_digest(jobs: JobTable) -> str:
    """The first twelve digits of a SHA-256 digest of a job table."""
    digest = hashlib.sha256()
    for name in jobs.columns:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(jobs[name]).data)
    return digest.hexdigest()[:12]


def _as_read(text: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text)
    return data
