"""Hyperparameter tuning of RL algorithms with Optuna.

A trial is a complete training (`train_rl.train_network`). Its metric is the best on the validation jobs, which are
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

import hashlib
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from kilowait import agents
from kilowait.cluster import Cluster
from kilowait.errors import InputError, KilowaitError, UnknownNameError
from kilowait.evaluation.storage import plain_json
from kilowait.experiments import train_rl
from kilowait.experiments.hyperparameter_file import HyperparameterFile, hyperparameters_toml
from kilowait.experiments.train_rl import RLTraining
from kilowait.experiments.tuning_folder import (
    TRIAL_FOLDER,
    TuningTrial,
    best_trial,
    ended_trials,
    open_study,
    optuna_or_error,
    remove_search,
)
from kilowait.files import locks_output, write_text
from kilowait.jobs import JobTable
from kilowait.rng import stream

__all__ = ["SEARCH_SPACES", "SearchRange", "default_hyperparameters", "tune"]

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
    identity = {**asdict(training), "jobs": _digest(jobs, validation), "cluster": repr(cluster)}
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
        best = train_rl.train_network(jobs, validation, cluster, trial_training, folder=scratch, progress=progress)[1][
            -1
        ].best
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


def _digest(*tables: JobTable) -> str:
    digest = hashlib.sha256()
    for jobs in tables:
        for name in jobs.columns:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(jobs[name]).data)
    return digest.hexdigest()


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
