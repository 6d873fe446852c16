"""Hyperparameter tuning of RL algorithms with Optuna.

A trial is a complete training (`train_network`). Its metric is the best on the validation jobs, which are
later than the training jobs. Test jobs are not used. The first trial uses the algorithm's defaults, so the best trial
is never worse than the defaults on the validation jobs. Later trials are proposed by a tree-structured Parzen estimator
(TPE). The median pruner stops a trial that is worse than the median of the finished trials at the same tenth of its
training.

The folder contains ``study.db`` (Optuna's SQLite storage), ``results.json`` with all trials, and ``best.toml`` for
``kilowait train --hyperparameters``. The same seed gives the same trials, also after a crash and a resume: a proposal
depends only on the seed and the finished trials, and an interrupted trial is repeated from its beginning with the same
hyperparameters. An exception is training on a GPU, which is not bit-reproducible.
"""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

from kilowait import agents
from kilowait.cluster import Cluster
from kilowait.errors import InputError, KilowaitError, MissingExtraError, UnknownNameError
from kilowait.evaluation.comparison import split
from kilowait.evaluation.storage import check_writable, plain_json
from kilowait.experiments.oversized import without_oversized
from kilowait.experiments.scenario import Console, prepare_scenario
from kilowait.experiments.scenario_inputs import jobs_sha256
from kilowait.experiments.settings import Scenario
from kilowait.experiments.training.network import train_network
from kilowait.experiments.training.rl_settings import HyperparameterFile, RLTraining, hyperparameters_toml
from kilowait.files import locks_output, output_lock, write_text
from kilowait.jobs import JobTable
from kilowait.rng import stream

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


PARTS = 10
"""Number of validations of a trial, at equal parts of its training, so that the pruner can compare trials."""
RANDOM = 8
"""Number of random trials before the TPE sampler starts."""


@dataclass(frozen=True)
class SearchRange:
    """A continuous range from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    """Whether to sample uniformly in the logarithm."""


_SIZES: dict[str, SearchRange | tuple[float, ...]] = {"width": (32, 64, 128), "depth": (1, 2, 3)}
_RATE = SearchRange(1e-4, 3e-3, log=True)
_ENTROPY = SearchRange(1e-4, 3e-2, log=True)
_FAR = (0.99, 0.997, 0.999, 1.0)
_NEAR = (0.95, 0.99, 0.997, 0.999)

SEARCH_SPACES: dict[str, dict[str, SearchRange | tuple[float, ...]]] = {
    "ppo": {
        "learning_rate": _RATE,
        "ent_coef": _ENTROPY,
        "gamma": _FAR,
        "n_steps": (16, 32, 64, 128),
        "n_minibatches": (4, 8, 16),
        "n_epochs": (1, 2, 3, 4, 6),
        "clip_range": SearchRange(0.1, 0.3),
        **_SIZES,
    },
    "a2c": {
        "learning_rate": _RATE,
        "ent_coef": _ENTROPY,
        "gamma": _FAR,
        "n_steps": (8, 16, 32, 64),
        "n_step_return": (4, 8, 16, 32),
        **_SIZES,
    },
    "d3qn": {
        "learning_rate": _RATE,
        "gamma": _NEAR,
        "n_steps": (1, 3, 5),
        "gradient_steps": (4, 8, 16),
        "batch_size": (128, 256, 512),
        "target_update_interval": (50, 200, 1000),
        "per_alpha": SearchRange(0.0, 0.8),
        "exploration_fraction": SearchRange(0.1, 0.5),
        **_SIZES,
    },
    "sac": {
        "learning_rate": _RATE,
        "gamma": _NEAR,
        "gradient_steps": (4, 8, 16),
        "batch_size": (128, 256, 512),
        "tau": SearchRange(0.002, 0.05, log=True),
        "target_entropy": SearchRange(0.05, 0.5),
        "initial_ent_coef": SearchRange(0.02, 1.0, log=True),
        **_SIZES,
    },
}
"""Search spaces by algorithm: a range or a list of values for each hyperparameter (see ``kilowait.agents.PPOSettings``
and the others); ``width`` and ``depth`` are sizes of the network. CMA-ES has no hyperparameters to tune: it adapts its
step size itself."""


def default_hyperparameters(algo: str) -> dict[str, float]:
    """Default values of the hyperparameters in an algorithm's search space.

    >>> default_hyperparameters("ppo")["width"]
    64
    """
    if algo not in SEARCH_SPACES:
        raise UnknownNameError("algorithm that can be tuned", algo, SEARCH_SPACES)
    settings = RLTraining(algo=algo).algorithm_settings()
    return {name: getattr(settings.sizes if name in _SIZES else settings, name) for name in SEARCH_SPACES[algo]}


@locks_output("folder", inside=True)
def tune(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    training: RLTraining,
    *,
    trials: int,
    folder: str | PathLike[str],
    resume: bool = False,
    record: Mapping[str, Any] | None = None,
    progress: Callable[[TuningTrial], None] | None = None,
) -> list[TuningTrial]:
    """Run trials until there are `trials` of them, including those before a resume.

    Args:
        jobs: training jobs.
        validation: later jobs of the same log, on which trials are ranked.
        cluster: the machine.
        training: settings of the training; its seed is also that of the search. Hyperparameters it sets are not tuned.
        trials: total number of trials.
        folder: folder of the search.
        resume: resume the search of the folder; the other arguments must be the same, except for `trials`.
        record: further entries of results.json, such as the provenance of the jobs.
        progress: called after every trial.
    """
    search_space = {
        name: choice for name, choice in SEARCH_SPACES[training.algo].items() if name not in training.hyperparameters
    }
    if trials < 1:
        raise InputError(f"{trials} trials; give at least 1")
    path = Path(folder)
    identity = {**asdict(training), "jobs": jobs_sha256(jobs, validation).hexdigest(), "cluster": repr(cluster)}
    with open_study(path, identity, resume=resume) as study:
        trials_done = ended_trials(study)
        while len(trials_done) < trials:
            try:
                _run_trial(
                    study,
                    search_space,
                    jobs,
                    validation,
                    cluster,
                    training,
                    path / TRIAL_FOLDER,
                    number=len(trials_done) + 1,
                )
            except KilowaitError:
                if not trials_done:
                    remove_search(path)  # if the first trial fails, an argument is wrong: remove the search
                raise
            finally:
                shutil.rmtree(path / TRIAL_FOLDER, ignore_errors=True)
            trials_done = ended_trials(study)
            _write(path, training, trials_done, record or {})
            if progress is not None:
                progress(trials_done[-1])
    return trials_done


@dataclass(frozen=True)
class TuningTask:
    """A search for hyperparameters on the log of a scenario, and its folder."""

    training: RLTraining
    scenario: Scenario
    out: Path
    trials: int = 20
    resume: bool = False
    force: bool = False


def run_tuning(task: TuningTask, console: Console, command: Sequence[str]) -> list[TuningTrial]:
    """Read the log, search on its first 80 %, and show every trial; all trials, including those before a resume."""
    scenario, out = task.scenario, task.out
    with output_lock(out, inside=True):
        before = prepare_search_folder(out, resume=task.resume, force=task.force)
        with console.busy(f"reading {scenario.trace} ..."):
            workload, cluster, notes = prepare_scenario(scenario)
            workload, more = without_oversized(workload, cluster, scenario.on_oversized)
        for note in (*notes, *more):
            console.note(note)
        parts = split(workload.jobs)
        if task.resume:
            noun = "trial" if len(before) == 1 else "trials"
            console.note(f"resuming the search in {out}: {len(before):,} {noun} of {task.trials} done")
        done = list(before)
        with console.steps(task.trials) as step:
            for trial in before:
                step(_trial_text(trial, done, console), False)

            def progress(trial: TuningTrial) -> None:
                done.append(trial)
                step(_trial_text(trial, done, console), True)

            return tune(
                parts.train,
                parts.validation,
                cluster,
                task.training,
                trials=task.trials,
                folder=out,
                resume=task.resume,
                record={
                    "scenario": scenario.to_dict(),
                    **workload.provenance(scenario.trace, command, console.today()),
                },
                progress=progress,
            )


def _trial_text(trial: TuningTrial, done: Sequence[TuningTrial], console: Console) -> str:
    finished = [one.metric for one in done if one.outcome == "finished"]
    best = f", best so far {console.number(min(finished))}" if finished else ""
    return f"{console.number(trial.metric)}, {trial.outcome} after {console.span(trial.seconds)}{best}"


# -- a trial ---------------------------------------------------------------------------------------


def _run_trial(
    study: Any,
    search_space: Mapping[str, SearchRange | tuple[float, ...]],
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    training: RLTraining,
    scratch: Path,
    *,
    number: int,
) -> None:
    """Run one trial: get proposed hyperparameters, train with them, and report the result to the study."""
    optuna = optuna_or_error()
    from kilowait.agents import TrainingError

    # A new seed for each trial, so that a proposal depends only on finished trials, not on interruptions.
    seed = int(stream(training.seed, f"experiments.tuning.{number}").integers(2**31))
    study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM)
    enqueued = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
    if number == 1 and not enqueued:
        initial = default_hyperparameters(training.algo)
        study.enqueue_trial({name: initial[name] for name in search_space})
    start = perf_counter()
    trial = study.ask({name: _distribution(optuna, choice) for name, choice in search_space.items()})
    trial_training = _trial_training(training, trial.params)
    reached_part = 0
    best = math.nan

    def progress(update: Any) -> None:
        nonlocal reached_part, best
        part = PARTS * update.number // update.of
        if math.isnan(update.validation) or part <= reached_part:
            return
        reached_part, best = part, update.best
        if math.isfinite(best):
            trial.report(best, part)
            if update.number < update.of and trial.should_prune():
                raise optuna.TrialPruned

    shutil.rmtree(scratch, ignore_errors=True)  # of an interrupted trial
    outcome = "finished"
    try:
        best = train_network(jobs, validation, cluster, trial_training, folder=scratch, progress=progress)[1][-1].best
    except optuna.TrialPruned:
        outcome = "pruned"
    except TrainingError as problem:
        outcome = "diverged"
        trial.set_user_attr("problem", str(problem))
    if outcome == "finished" and not math.isfinite(best):
        outcome = "diverged"
    trial.set_user_attr("outcome", outcome)
    trial.set_user_attr("seconds", perf_counter() - start)
    if outcome == "finished":
        study.tell(trial, best)
    else:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)


def _trial_training(training: RLTraining, proposed: Mapping[str, Any]) -> RLTraining:
    """The training with the proposed hyperparameters, and a validation after every tenth of it."""
    settings = {**training.hyperparameters, **_nested(proposed)}
    n_steps = agents.steps_per_update(replace(training, hyperparameters=settings).algorithm_settings())
    updates = max(1, training.total_timesteps // (n_steps * training.num_envs))
    validation_settings = {"validate_every": math.ceil(updates / PARTS), "checkpoint_every": updates}
    return replace(training, hyperparameters={**settings, **validation_settings})


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters with the sizes of the network in a nested table."""
    sizes = {name: value for name, value in flat.items() if name in _SIZES}
    plain = {name: value for name, value in flat.items() if name not in _SIZES}
    return {**plain, "sizes": sizes} if sizes else plain


def _distribution(optuna: Any, choice: SearchRange | tuple[float, ...]) -> Any:
    if isinstance(choice, SearchRange):
        return optuna.distributions.FloatDistribution(choice.low, choice.high, log=choice.log)
    return optuna.distributions.CategoricalDistribution(choice)


# -- files -----------------------------------------------------------------------------------------


def _write(path: Path, training: RLTraining, trials: Sequence[TuningTrial], record: Mapping[str, Any]) -> None:
    """Write results.json and, if a trial has finished, best.toml, each atomically."""
    results = {
        **record,
        "algo": training.algo,
        "network": training.network,
        "trials": [asdict(trial) for trial in trials],
    }
    if any(trial.outcome == "finished" for trial in trials):
        best = best_trial(trials)
        results["best"] = best.number
        best_file = HyperparameterFile(
            training.algo, training.network, {**training.hyperparameters, **_nested(best.settings)}
        )
        header = (
            f"# Trial {best.number} of {len(trials)} by kilowait tune, seed {training.seed}: {best.metric:.6g} on the "
            f"validation jobs after {training.total_timesteps:,} steps\n"
        )
        write_text(path / "best.toml", header + hyperparameters_toml(best_file))
    write_text(path / "results.json", plain_json(results) + "\n")
