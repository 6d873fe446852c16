"""The folder of a hyperparameter search: Optuna's study in SQLite, and its trials."""

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
    "TRIAL_FOLDER",
    "TuningTrial",
    "prepare_search_folder",
    "best_trial",
    "remove_search",
    "open_study",
    "optuna_or_error",
    "ended_trials",
    "load_trials",
]

STUDY = "study.db"
FILES = (STUDY, "study.db-journal", "best.toml", "results.json")
"""Files of a search in its folder."""
TRIAL_FOLDER = "trial"
"""Folder of the running training; removed when it ends."""
UNPRUNED_PARTS = 2
"""Tenths of a training before which a trial is not pruned."""
TRIALS_BEFORE_PRUNING = 4
"""Number of finished trials before the median pruner is active."""
_EXISTS = "{} already contains a search; resume it with --resume, or start again with --force"


@dataclass(frozen=True)
class TuningTrial:
    """One training with proposed hyperparameters."""

    number: int
    """Counted from 1."""
    outcome: str
    """finished, pruned (by the median pruner) or diverged (values that are not finite)."""
    metric: float
    """Best metric on the validation jobs, smaller is better; NaN if it diverged before the first validation."""
    settings: dict[str, float]
    seconds: float


def best_trial(trials: Sequence[TuningTrial]) -> TuningTrial:
    """The finished trial with the smallest metric; the earliest of ties.

    >>> best_trial([TuningTrial(1, "finished", 3.0, {}, 1.0), TuningTrial(2, "pruned", 2.0, {}, 1.0)]).number
    1
    """
    finished = [trial for trial in trials if trial.outcome == "finished"]
    if not finished:
        raise InputError(f"none of {len(trials)} trials finished; run more with a larger --trials and --resume")
    return min(finished, key=lambda trial: trial.metric)


def optuna_or_error() -> Any:
    """The module optuna, or an error that names the extra to install."""
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("optuna", "tune") from None
    return optuna


@contextmanager
def open_study(folder: Path, identity: Mapping[str, Any] | None, *, resume: bool) -> Iterator[Any]:
    """Open the study of a folder. With `identity` a new study records it; that of an existing study must be equal."""
    optuna = optuna_or_error()
    import sqlalchemy.exc

    file = folder / STUDY
    if resume and not file.exists():
        raise InputError(f"{folder} contains no search to resume; start one without --resume")
    if not resume and file.exists():
        raise InputError(_EXISTS.format(folder))
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(file, timeout=60, check_same_thread=False)) as connection:
            # A URL could not contain every character of a folder's name.
            storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": lambda: connection})
            study = optuna.create_study(
                storage=storage,
                study_name="kilowait",
                load_if_exists=resume,
                pruner=optuna.pruners.MedianPruner(TRIALS_BEFORE_PRUNING, UNPRUNED_PARTS),
            )
            if identity is not None:
                _check_or_record_identity(study, identity, folder)
            yield study
    except (sqlite3.Error, sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError) as problem:
        raise InputError(f"cannot use {file}: {str(problem).splitlines()[0]}; name another folder") from None
    finally:
        optuna.logging.set_verbosity(verbosity)


def _check_or_record_identity(study: Any, identity: Mapping[str, Any], folder: Path) -> None:
    """Record the identity of a new study or check that of an existing one; mark interrupted trials as failed."""
    running, failed = (getattr(optuna_or_error().trial.TrialState, name) for name in ("RUNNING", "FAIL"))
    identity_now = {name: plain_json(value) for name, value in identity.items()}
    recorded = study.user_attrs.get("scenario", identity_now)
    for name, value in identity_now.items():
        if recorded.get(name) != value:
            difference = "other jobs" if name == "jobs" else f"{name} {recorded.get(name)}, not {value}"
            raise InputError(
                f"the search in {folder} was started with {difference}; resume with the same, or start again"
            )
    study.set_user_attr("scenario", identity_now)
    for trial in study.get_trials(deepcopy=False, states=(running,)):
        study.tell(trial.number, state=failed)


def ended_trials(study: Any) -> list[TuningTrial]:
    """The finished, pruned and diverged trials, in the order of their ends; without interrupted ones."""
    states = optuna_or_error().trial.TrialState
    trials: list[TuningTrial] = []
    for trial in study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)):
        metrics = [*trial.intermediate_values.values(), *([] if trial.value is None else [trial.value])]
        attributes = trial.user_attrs
        trials.append(
            TuningTrial(
                len(trials) + 1,
                attributes["outcome"],
                min(metrics, default=math.nan),
                dict(trial.params),
                attributes["seconds"],
            )
        )
    return trials


def prepare_search_folder(
    folder: str | PathLike[str], *, resume: bool = False, force: bool = False
) -> list[TuningTrial]:
    """Check, before the log is read, that a search can start or resume in a folder; returns the trials that have ended.

    With `force`, an existing search there is removed.
    """
    exists = (Path(folder) / STUDY).exists()
    if resume:
        return load_trials(folder)
    if exists and force:
        remove_search(folder)
    elif exists:
        raise InputError(_EXISTS.format(folder))
    else:
        check_writable(folder)
    return []


def remove_search(folder: str | PathLike[str]) -> None:
    """Remove the files of the search from a folder, and no others."""
    for name in FILES:
        (Path(folder) / name).unlink(missing_ok=True)
    shutil.rmtree(Path(folder) / TRIAL_FOLDER, ignore_errors=True)


def load_trials(folder: str | PathLike[str]) -> list[TuningTrial]:
    """The trials of a folder that have ended, in order."""
    with open_study(Path(folder), None, resume=True) as study:
        return ended_trials(study)
