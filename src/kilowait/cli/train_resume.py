"""Trainings that are killed and gone on with, as ``kilowait train --resume`` shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kilowait.cli import console

__all__ = ["resumable", "state_folder"]


def state_folder(out: Path, *, resume: bool, force: bool) -> Path:
    """Where the state of a training to `out` is kept; an error where it may not begin, or cannot go on."""
    from kilowait.evaluation.storage import check_writable
    from kilowait.experiments.resume import check_begun, training_folder

    state = training_folder(out)
    check_begun(state, resume=resume, force=force)
    check_writable(out, force=force or resume)
    return state


@contextmanager
def resumable(state: Path, *, resume: bool) -> Iterator[None]:
    """A training: whether it goes on is told, and whoever interrupts it is told how to."""
    from kilowait.experiments.resume import can_resume

    if resume:
        console.note(f"going on with the training of {state}")
    try:
        yield
    except KeyboardInterrupt:
        ready = can_resume(state)
        console.note(
            "to go on, give the same command with --resume" if ready else "there was no checkpoint yet"
        )
        raise
