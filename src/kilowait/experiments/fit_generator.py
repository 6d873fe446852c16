"""Fit a workload generator with checkpoints, and resume after a crash."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import KilowaitError
from kilowait.evaluation.storage import save_folder
from kilowait.evaluation.storage.folder import check_writable
from kilowait.experiments.resume import check_identity, jobs_digest
from kilowait.jobs import JobTable
from kilowait.synth import Generator, fit_generator
from kilowait.synth.fidelity import column_distances
from kilowait.synth.generator import SampleProgress

__all__ = ["Checkpoint", "fit_folder"]

FILE, FORMAT = "last.safetensors", "state of a generator's training"
MEASURED_JOBS = 60_000
"""Maximum jobs for measuring the sample's distances to the log during the fit; see `kilowait synth score`."""


class Checkpoint:
    """Checkpoint of one fit in a folder; it refuses other jobs or settings."""

    def __init__(self, folder: Path, world: Mapping[str, Any], *, resume: bool) -> None:
        self.folder, self.path = folder, folder / FILE
        check_identity(folder, world, resume=resume)

    def read(self) -> dict[str, Any] | None:
        """The state to resume from; None before the first checkpoint."""
        from kilowait.agents.rl.checkpoint import read_state

        return read_state(self.path, FORMAT) if self.path.exists() else None

    def write(self, state: Mapping[str, Any]) -> None:
        """Store a state in place of the previous one."""
        from kilowait.agents.rl.checkpoint import write_state

        write_state(self.path, FORMAT, state)

    def forget(self) -> None:
        """Remove the checkpoint when the fit is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)


def fit_folder(
    jobs: JobTable,
    model: str,
    out: str | PathLike[str],
    *,
    seed: int = 0,
    names: bool = False,
    settings: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
    force: bool = False,
    told: SampleProgress | None = None,
    device: str = "cpu",
    state: Path | None = None,
    resume: bool = False,
) -> Generator:
    """Fit a generator and write its folder atomically.

    Args:
        jobs: the log.
        model: name of the generator.
        out: its folder.
        seed: same seed, same generator.
        names: keep numbers and names of users and accounts.
        settings: of the generator.
        manifest: origin of the jobs.
        force: replace an existing folder.
        told: progress callback.
        device: where a network is trained.
        state: folder of the checkpoint, removed when the fit is complete.
        resume: resume from the checkpoint.
    """
    check_writable(out, force=force or resume)
    keep = None
    if state is not None:
        world = {
            "model": model,
            "jobs": f"{len(jobs):,} (digest {jobs_digest(jobs)})",
            "seed": seed,
            "names": names,
            "device": device,
            **{f"setting {name}": value for name, value in sorted((settings or {}).items())},
        }
        keep = Checkpoint(state, world, resume=resume)
    try:
        generator = fit_generator(
            jobs,
            model,
            seed=seed,
            keep_names=names,
            progress=told,
            device=device,
            checkpoints=keep,
            **(settings or {}),
        )
    except KilowaitError:
        if keep is not None and not keep.path.exists():  # there is no checkpoint to resume from
            keep.forget()
        raise
    if generator.privacy is None:
        _measure(generator, jobs)
    elif manifest is not None:
        # A digest would allow to confirm a guess of the log.
        manifest = {name: value for name, value in manifest.items() if name not in ("inputs", "seeds")}
    save_folder(out, generator.save, kind="generator", manifest=manifest, force=force or resume)
    if keep is not None:
        keep.forget()
    return generator


def _measure(generator: Generator, jobs: JobTable) -> None:
    """Measure the distances of a sample's columns to the log's, if the log is small enough."""
    if len(jobs) <= MEASURED_JOBS:
        distances = column_distances(jobs, generator.sample(len(jobs), seed=generator.seed))
        generator.ks_distances = {one.column: round(one.ks, 4) for one in distances}
