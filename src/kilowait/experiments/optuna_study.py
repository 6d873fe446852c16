"""The folder of a search: Optuna's study in SQLite, and the trials in it."""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import InputError, MissingExtraError
from kilowait.evaluation.storage import check_writable, plain_json

__all__ = [
    "SCRATCH",
    "TuningTrial",
    "begin",
    "best_of",
    "discard",
    "opened",
    "optuna_or_error",
    "trials_in",
    "trials_of",
]

STUDY = "study.db"
FILES = (STUDY, "study.db-journal", "best.toml", "results.json")
"""What a search leaves in its folder."""
SCRATCH = "trial"
"""The folder of the training that is under way; gone when it is over."""
FIRST_PARTS = 2
"""Parts in which none is given up."""
BEFORE_PRUNING = 4
"""Finished trials before any is given up."""
_BEGUN = "{} holds a search that was begun before; go on with --resume, or begin anew with --force"


@dataclass(frozen=True)
class TuningTrial:
    """One training with settings that were proposed."""

    number: int
    """From 1."""
    outcome: str
    """finished, given up (others were better at that point) or diverged (numbers that are not finite)."""
    figure: float
    """The best on the validation jobs, smaller is better; NaN where it diverged before the first."""
    settings: dict[str, float]
    seconds: float


def best_of(trials: Sequence[TuningTrial]) -> TuningTrial:
    """The finished trial with the least figure, the earliest of equals.

    >>> best_of([TuningTrial(1, "finished", 3.0, {}, 1.0), TuningTrial(2, "given up", 2.0, {}, 1.0)]).number
    1
    """
    finished = [trial for trial in trials if trial.outcome == "finished"]
    if not finished:
        raise InputError(f"none of {len(trials)} trials came to an end; take more --trials, with --resume")
    return min(finished, key=lambda trial: trial.figure)


def optuna_or_error() -> Any:
    """Optuna, or what to install."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("optuna", "tune") from None
    return optuna


@contextmanager
def opened(place: Path, asked: Mapping[str, Any] | None, *, resume: bool) -> Iterator[Any]:
    """The study of a folder; with `asked`, made for these arguments or seen to have been."""
    optuna = optuna_or_error()
    import sqlalchemy.exc

    file = place / STUDY
    if resume and not file.exists():
        raise InputError(f"{place} holds no search to resume; begin one without --resume")
    if not resume and file.exists():
        raise InputError(_BEGUN.format(place))
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file, timeout=60, check_same_thread=False)) as connection:
            # Not by an address, in which the name of a folder could have characters that mean something.
            storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": lambda: connection})
            study = optuna.create_study(
                storage=storage,
                study_name="kilowait",
                load_if_exists=resume,
                pruner=optuna.pruners.MedianPruner(BEFORE_PRUNING, FIRST_PARTS),
            )
            if asked is not None:
                _settle(study, asked, place)
            yield study
    except (sqlite3.Error, sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as problem:
        raise InputError(f"cannot use {file}: {str(problem).splitlines()[0]}; name another folder") from None
    finally:
        optuna.logging.set_verbosity(before)


def _settle(study: Any, asked: Mapping[str, Any], place: Path) -> None:
    """Write down what a new study is for, or see that an old one is for the same; close what was cut off."""
    running, failed = (getattr(optuna_or_error().trial.TrialState, name) for name in ("RUNNING", "FAIL"))
    now = {name: plain_json(value) for name, value in asked.items()}
    was = study.user_attrs.get("asked", now)
    for name, value in now.items():
        if was.get(name) != value:
            what = "other jobs" if name == "jobs" else f"{name} {was.get(name)}, and this is {value}"
            raise InputError(
                f"the search in {place} was begun with {what}; resume with the same, or begin anew"
            )
    study.set_user_attr("asked", now)
    for trial in study.get_trials(deepcopy=False, states=(running,)):
        study.tell(trial.number, state=failed)


def trials_in(study: Any) -> list[TuningTrial]:
    """What is over, in the order it came to its end; trials that were cut off are not there."""
    states = optuna_or_error().trial.TrialState
    found: list[TuningTrial] = []
    for trial in study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)):
        figures = [*trial.intermediate_values.values(), *([] if trial.value is None else [trial.value])]
        told = trial.user_attrs
        found.append(
            TuningTrial(
                len(found) + 1,
                told["outcome"],
                min(figures, default=math.nan),
                dict(trial.params),
                told["seconds"],
            )
        )
    return found


def begin(folder: str | PathLike[str], *, resume: bool = False, force: bool = False) -> list[TuningTrial]:
    """See that a search may begin, or go on, in a folder: asked before a long read. What is over in it comes back.

    With `force`, a search that was begun there before is removed.
    """
    begun = (Path(folder) / STUDY).exists()
    if resume:
        return trials_of(folder)
    if begun and force:
        discard(folder)
    elif begun:
        raise InputError(_BEGUN.format(folder))
    else:
        check_writable(folder)
    return []


def discard(folder: str | PathLike[str]) -> None:
    """Remove the search of a folder; anything else there stays."""
    for name in FILES:
        (Path(folder) / name).unlink(missing_ok=True)
    shutil.rmtree(Path(folder) / SCRATCH, ignore_errors=True)


def trials_of(folder: str | PathLike[str]) -> list[TuningTrial]:
    """The trials of a folder that are over, in their order."""
    with opened(Path(folder), None, resume=True) as study:
        return trials_in(study)
