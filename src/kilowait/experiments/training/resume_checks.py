"""Checks before a training starts or resumes: equal jobs, machine and settings, and enough memory.

The identity of a training (log, machine, reward, power model) is stored in its folder; resuming with another one is an
error. The checkpoint itself contains hyperparameters and seed, which are checked when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilowait import checkpoint
from kilowait.agents.evolution.search import CHECKPOINT_FILE, CheckpointDir
from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.storage import check_writable, plain_json
from kilowait.evaluation.storage.folder import read_json
from kilowait.experiments.scenario_inputs import jobs_sha256
from kilowait.files import output_lock, write_text
from kilowait.jobs import JobTable

if TYPE_CHECKING:
    from kilowait.experiments.scenario import Console
    from kilowait.experiments.training.rl_settings import RLTraining

IDENTITY_FILE = "identity.json"
STATES = ("last.safetensors", "warm/last.safetensors", CHECKPOINT_FILE)
"""Checkpoint files of a network, of its warm start, and of an evolution strategy."""
TRAINING_FILES = (*STATES, "agent.pt", "agent.json", "explained.json", "warm.json", IDENTITY_FILE)


def training_folder(out: str | PathLike[str]) -> Path:
    """Folder of a training's checkpoints, beside the agent's folder.

    >>> training_folder("runs/first").name
    'first.training'
    """
    if Path(out).name in ("", ".."):
        raise InputError(f"{str(out)!r} is not the name of a new folder; name one, such as runs/first")
    return Path(out).with_name(f"{Path(out).name}.training")


def can_resume(folder: Path) -> bool:
    """Whether a folder contains a checkpoint, at least of the warm start."""
    return any((folder / name).exists() for name in STATES)


def check_can_start(folder: Path, *, resume: bool, force: bool) -> None:
    """Raise an error if an existing training would be overwritten, or if there is none to resume."""
    exists = can_resume(folder)
    if exists and not resume and not force:
        raise InputError(f"{folder} already contains a training; resume it with --resume, or start again with --force")
    if resume and not exists:
        raise InputError(f"{folder} contains no training to resume; start one without --resume")


@contextmanager
def resumable(out: Path, *, resume: bool, force: bool, console: Console) -> Iterator[Path]:
    """Run a training that writes `out`, with the folder of its checkpoints; notes say that it resumes, or how to.

    Raises before anything runs if the training may not start or cannot resume. Both folders are locked meanwhile.
    """
    folder = training_folder(out)
    with output_lock(out), output_lock(folder, inside=True):
        check_can_start(folder, resume=resume, force=force)
        check_writable(out, force=force or resume)
        if resume:
            console.note(f"resuming the training in {folder}")
        try:
            yield folder
        except KeyboardInterrupt:
            ready = can_resume(folder)
            console.note("to resume, repeat the command with --resume" if ready else "no checkpoint was written yet")
            raise


def training_identity(
    env: str,
    decision_settings: Mapping[str, Any],
    parts: Mapping[str, JobTable],
    cluster: Cluster,
    training: RLTraining,
) -> dict[str, Any]:
    """Environment, jobs, machine and settings of a training, with digests."""
    return {
        "environment": env,
        **_jobs_and_machine(parts, cluster),
        "reward": training.reward,
        "objectives": training.objectives,
        "constraint": training.constraint,
        "sla_s": training.sla_s,
        "load_curriculum": training.load_curriculum,
        "episode_jobs": training.episode_jobs,
        "windows": training.windows,
        "window_jobs": training.window_jobs,
        **{f"decision setting {name}": value for name, value in decision_settings.items()},
    }


def search_checkpoint_dir(
    folder: Path | None,
    parts: Mapping[str, JobTable],
    cluster: Cluster,
    *,
    resume: bool,
    extra: Mapping[str, Any] | None = None,
) -> CheckpointDir | None:
    """Checkpoint folder of an evolution strategy, which checks the identity of the training; None without a folder."""
    if folder is None:
        return None
    identity = {
        "environment": "none (cma-es searches the weights)",
        **_jobs_and_machine(parts, cluster),
        **(extra or {}),
    }
    return CheckpointDir(folder, resume, lambda: check_identity(folder, identity, resume=resume))


def _jobs_and_machine(parts: Mapping[str, JobTable], cluster: Cluster) -> dict[str, Any]:
    """Number of jobs and name of the machine, with digests."""
    return {
        **{f"{name} jobs": f"{len(jobs):,} (digest {jobs_digest(jobs)})" for name, jobs in parts.items()},
        "machine": f"{cluster.name} (digest {hashlib.sha256(repr(cluster).encode()).hexdigest()[:12]})",
    }


def check_identity(folder: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
    """Record the identity of a new training, or raise an error if that of a resumed training differs.

    A new training first removes the files of an earlier one: if it is killed before its first checkpoint, `resume` must
    not find the earlier checkpoints.
    """
    text = plain_json(dict(identity))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not resume:
            for name in TRAINING_FILES:
                (folder / name).unlink(missing_ok=True)
        if not (folder / IDENTITY_FILE).exists():
            write_text(folder / IDENTITY_FILE, text + "\n")
    except OSError as problem:
        raise InputError(f"cannot write in {folder}: {problem.strerror or problem}; name another folder") from None
    recorded = read_json(folder / IDENTITY_FILE, folder)
    checkpoint.check_identity(recorded, json.loads(text), folder, remedy="start again with --force")


def check_memory(observation_spec: Any, *, envs: int, stored: int, settings: Any, free: int | None = None) -> None:
    """Raise an error if the stored observations of a training do not fit into memory.

    Args:
        observation_spec: shapes of the observations.
        envs: number of parallel environments, including those of the validation.
        stored: number of stored observations, of a rollout or the replay buffer.
        settings: hyperparameters of the algorithm; the remedy in the error depends on them.
        free: bytes of free memory; None reads it from the operating system, and without that value nothing is checked.
    """
    numeric_bytes = (
        4 * (observation_spec.slots * len(observation_spec.features) + len(observation_spec.summary))
        + observation_spec.actions
    )
    observation_bytes = numeric_bytes + (
        observation_spec.slots * observation_spec.slots if observation_spec.graph else 0
    )
    required_bytes = observation_bytes * (2 * envs + stored)
    free = _free_bytes() if free is None else free
    if free is not None and required_bytes > free:
        remedy = (
            "a smaller --num-envs"
            if not hasattr(settings, "buffer_size")
            else "a smaller --num-envs, or a smaller buffer_size in --hyperparameters"
        )
        raise InputError(
            f"{envs:,} environments with a queue window of {observation_spec.slots:,} and {stored:,} stored "
            f"observations need {required_bytes / 1e9:,.1f} GB, but {free / 1e9:,.1f} GB are free; use a smaller "
            f"--queue-window or {remedy}"
        )


def _free_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


def jobs_digest(jobs: JobTable) -> str:
    """The first twelve digits of a SHA-256 digest of a job table."""
    return str(jobs_sha256(jobs).hexdigest()[:12])
