"""Checks and messages of resumable trainings, for ``--resume``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from kilowait.cli import console

__all__ = ["resumable", "state_folder"]


def state_folder(context: typer.Context, out: Path, *, resume: bool, force: bool) -> Path:
    """The folder of the training checkpoints for `out`; raises if the training may not start or cannot resume.

    Both folders are locked until the command ends.
    """
    from kilowait.evaluation.storage import check_writable
    from kilowait.experiments.resume_checks import check_can_start, training_folder
    from kilowait.files import output_lock

    state = training_folder(out)
    context.with_resource(output_lock(out))
    context.with_resource(output_lock(state, inside=True))
    check_can_start(state, resume=resume, force=force)
    check_writable(out, force=force or resume)
    return state


@contextmanager
def resumable(state: Path, *, resume: bool) -> Iterator[None]:
    """Run a training: note that it resumes, and after an interrupt note how to resume it."""
    from kilowait.experiments.resume_checks import can_resume

    if resume:
        console.note(f"resuming the training in {state}")
    try:
        yield
    except KeyboardInterrupt:
        ready = can_resume(state)
        console.note("to resume, repeat the command with --resume" if ready else "no checkpoint was written yet")
        raise
