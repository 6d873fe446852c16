"""Fitting of a workload generator with checkpoints, which can be resumed after a crash."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import KilowaitError
from kilowait.evaluation.storage import save_folder
from kilowait.evaluation.storage.folder import check_writable
from kilowait.experiments.resume_checks import check_identity, jobs_digest
from kilowait.files import locks_output
from kilowait.jobs import JobTable
from kilowait.synth import Generator, fit_generator
from kilowait.synth.fidelity import column_distances
from kilowait.synth.generator import SampleProgress

__all__ = ["FitCheckpoint", "fit_folder"]

FILE, FORMAT = "last.safetensors", "state of a generator's training"
MEASURED_JOBS = 60_000
"""Maximum number of jobs of a log for which the fit also measures a sample's distances to the log; for longer logs use
`kilowait synth score`."""


class FitCheckpoint:
    """Checkpoint of one fit in a folder; resuming with other jobs or settings is an error."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
        self.folder, self.path = folder, folder / FILE
        check_identity(folder, identity, resume=resume)

    def read(self) -> dict[str, Any] | None:
        """The state to resume from; None before the first checkpoint."""
        from kilowait.agents.rl.state_file import read_state

        return read_state(self.path, FORMAT) if self.path.exists() else None

    def write(self, state: Mapping[str, Any]) -> None:
        """Write a state in place of the previous one."""
        from kilowait.agents.rl.state_file import write_state

        write_state(self.path, FORMAT, state)

    def delete(self) -> None:
        """Remove the checkpoint when the fit is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)


@locks_output("out")
@locks_output("state", inside=True)
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
    progress: SampleProgress | None = None,
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
        names: keep the numbers and names of users and accounts.
        settings: hyperparameters of the generator.
        manifest: origin of the jobs.
        force: replace an existing folder.
        progress: progress callback.
        device: where a network is trained.
        state: folder of the checkpoint; removed when the fit is complete.
        resume: resume from the checkpoint.
    """
    check_writable(out, force=force or resume)
    checkpoint = None
    if state is not None:
        identity = {
            "model": model,
            "jobs": f"{len(jobs):,} (digest {jobs_digest(jobs)})",
            "seed": seed,
            "names": names,
            "device": device,
            **{f"setting {name}": value for name, value in sorted((settings or {}).items())},
        }
        checkpoint = FitCheckpoint(state, identity, resume=resume)
    try:
        generator = fit_generator(
            jobs,
            model,
            seed=seed,
            keep_names=names,
            progress=progress,
            device=device,
            checkpoints=checkpoint,
            **(settings or {}),
        )
    except KilowaitError:
        if checkpoint is not None and not checkpoint.path.exists():  # the fit failed before its first checkpoint
            checkpoint.delete()
        raise
    if generator.privacy is None:
        _measure(generator, jobs)
    elif manifest is not None:
        # A digest of the log would let others verify a guess of its content.
        manifest = {name: value for name, value in manifest.items() if name not in ("inputs", "seeds")}
    save_folder(out, generator.save, kind="generator", manifest=manifest, force=force or resume)
    if checkpoint is not None:
        checkpoint.delete()
    return generator


def _measure(generator: Generator, jobs: JobTable) -> None:
    """Measure the distances of a sample's columns to the log's, if the log is small enough."""
    if len(jobs) <= MEASURED_JOBS:
        distances = column_distances(jobs, generator.sample(len(jobs), seed=generator.seed))
        generator.ks_distances = {distance.column: round(distance.ks, 4) for distance in distances}
