"""Hyperparameter tuning of RL algorithms with Optuna.

A trial is a complete training (`train_rl.train_network`); its metric is the best on the validation jobs, which are
later than the training jobs. Test jobs are not used. The first trial uses the algorithm's defaults, so the best trial
is never worse than these on the validation jobs. Later ones are proposed by a tree-structured Parzen estimator. The
median pruner stops a trial that, at some tenth of its training, is worse than half of the finished ones were.

The folder contains ``study.db`` (Optuna's SQLite storage), ``results.json`` with all trials, and ``best.toml`` for
``kilowait train --hyperparameters``. The same seed gives the same trials, also after a crash and a resume: a proposal
depends only on the seed and the finished trials, and an interrupted trial is repeated from its beginning with the same
hyperparameters. Only training on a GPU, which is not bit-reproducible, may make a difference.
"""

from __future__ import annotations

import hashlib
import math
import os
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
from kilowait.experiments.hyperparameters import HyperparameterFile, hyperparameters_toml
from kilowait.experiments.optuna_study import (
    SCRATCH,
    TuningTrial,
    best_of,
    discard,
    ended_trials,
    open_study,
    optuna_or_error,
)
from kilowait.experiments.train_rl import RLTraining
from kilowait.jobs import JobTable
from kilowait.rng import stream

__all__ = ["SPACES", "SearchRange", "defaults", "tune"]

PARTS = 10
"""Validations of a trial, at equal parts of its training, so that trials can be compared while they run."""
RANDOM = 8
"""Random trials before the estimator is used."""


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

SPACES: dict[str, dict[str, SearchRange | tuple[float, ...]]] = {
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
"""Search space by algorithm: a range, or a list of values. The hyperparameters are documented where they are defined
(``kilowait.agents.PPOSettings`` and the others); ``width`` and ``depth`` are sizes of the network. The evolution
strategy has no hyperparameters to tune: it adapts itself."""


def defaults(algo: str) -> dict[str, float]:
    """The algorithm's default hyperparameters, those in its search space.

    >>> defaults("ppo")["width"]
    64
    """
    if algo not in SPACES:
        raise UnknownNameError("algorithm that can be tuned", algo, SPACES)
    settings = RLTraining(algo=algo).algorithm_settings()
    return {name: getattr(settings.sizes if name in _SIZES else settings, name) for name in SPACES[algo]}


def tune(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    how: RLTraining,
    *,
    trials: int,
    folder: str | PathLike[str],
    resume: bool = False,
    record: Mapping[str, Any] | None = None,
    progress: Callable[[TuningTrial], None] | None = None,
) -> list[TuningTrial]:
    """Run trials until there are `trials` of them, those before a resume included.

    Args:
        jobs: training jobs.
        validation: later jobs of the same log, by which trials are ranked.
        cluster: the machine.
        how: the training; its seed is also that of the search. Hyperparameters it names are fixed, the others tuned.
        trials: total number of trials.
        folder: folder of the search.
        resume: resume the search of the folder; the other arguments must be the same, except for `trials`.
        told: further entries of results.json, such as the origin of the jobs.
        progress: called with every finished trial.
    """
    space = {name: one for name, one in SPACES[how.algo].items() if name not in how.hyperparameters}
    if trials < 1:
        raise InputError(f"{trials} trials; give at least 1")
    path = Path(folder)
    identity = {**asdict(how), "jobs": _digest(jobs, validation), "cluster": repr(cluster)}
    with open_study(path, identity, resume=resume) as study:
        done = ended_trials(study)
        while len(done) < trials:
            try:
                _try(study, space, jobs, validation, cluster, how, path / SCRATCH, number=len(done) + 1)
            except KilowaitError:
                if not done:
                    discard(path)  # if the first trial fails, an argument is wrong: leave no search
                raise
            finally:
                shutil.rmtree(path / SCRATCH, ignore_errors=True)
            done = ended_trials(study)
            _write(path, how, done, record or {})
            if progress is not None:
                progress(done[-1])
    return done


# -- a trial ---------------------------------------------------------------------------------------


def _try(
    study: Any,
    space: Mapping[str, SearchRange | tuple[float, ...]],
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    how: RLTraining,
    scratch: Path,
    *,
    number: int,
) -> None:
    """Run one trial: get a proposal, train with it, report the result."""
    optuna = optuna_or_error()
    from kilowait.agents import TrainingError

    # A new seed for each trial, so that a proposal depends only on finished trials, not on interruptions.
    seed = int(stream(how.seed, f"experiments.tuning.{number}").integers(2**31))
    study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM)
    waiting = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
    if number == 1 and not waiting:
        initial = defaults(how.algo)
        study.enqueue_trial({name: initial[name] for name in space})
    began = perf_counter()
    trial = study.ask({name: _distribution(optuna, one) for name, one in space.items()})
    training = _with(how, trial.params)
    reached = 0
    best = math.nan

    def progress(update: Any) -> None:
        nonlocal reached, best
        part = PARTS * update.number // update.of
        if math.isnan(update.validation) or part <= reached:
            return
        reached, best = part, update.best
        if math.isfinite(best):
            trial.report(best, part)
            if update.number < update.of and trial.should_prune():
                raise optuna.TrialPruned

    shutil.rmtree(scratch, ignore_errors=True)  # left by an interrupted trial
    outcome = "finished"
    try:
        best = train_rl.train_network(jobs, validation, cluster, training, folder=scratch, progress=progress)[
            1
        ][-1].best
    except optuna.TrialPruned:
        outcome = "given up"
    except TrainingError as problem:
        outcome = "diverged"
        trial.set_user_attr("problem", str(problem))
    if outcome == "finished" and not math.isfinite(best):
        outcome = "diverged"
    trial.set_user_attr("outcome", outcome)
    trial.set_user_attr("seconds", perf_counter() - began)
    if outcome == "finished":
        study.tell(trial, best)
    else:
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)


def _with(how: RLTraining, proposed: Mapping[str, Any]) -> RLTraining:
    """The training with the proposed hyperparameters, validated at every tenth of it."""
    settings = {**how.hyperparameters, **_nested(proposed)}
    n_steps = agents.steps_per_update(replace(how, hyperparameters=settings).algorithm_settings())
    updates = max(1, how.total_timesteps // (n_steps * how.num_envs))
    once = {"validate_every": math.ceil(updates / PARTS), "checkpoint_every": updates}
    return replace(how, hyperparameters={**settings, **once})


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters with the sizes of the network in a nested table."""
    sizes = {name: value for name, value in flat.items() if name in _SIZES}
    plain = {name: value for name, value in flat.items() if name not in _SIZES}
    return {**plain, "sizes": sizes} if sizes else plain


def _distribution(optuna: Any, one: SearchRange | tuple[float, ...]) -> Any:
    if isinstance(one, SearchRange):
        return optuna.distributions.FloatDistribution(one.low, one.high, log=one.log)
    return optuna.distributions.CategoricalDistribution(one)


# -- what is written -------------------------------------------------------------------------------


def _digest(*tables: JobTable) -> str:
    digest = hashlib.sha256()
    for jobs in tables:
        for name in jobs.columns:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(jobs[name]).data)
    return digest.hexdigest()


def _write(path: Path, how: RLTraining, trials: Sequence[TuningTrial], record: Mapping[str, Any]) -> None:
    """Write results.json, and best.toml once a trial is finished, each atomically."""
    results = {
        **record,
        "algo": how.algo,
        "network": how.network,
        "trials": [asdict(trial) for trial in trials],
    }
    if any(trial.outcome == "finished" for trial in trials):
        best = best_of(trials)
        results["best"] = best.number
        found = HyperparameterFile(how.algo, how.network, {**how.hyperparameters, **_nested(best.settings)})
        header = (
            f"# Trial {best.number} of {len(trials)} by kilowait tune, seed {how.seed}: {best.figure:.6g} on the "
            f"validation jobs after {how.total_timesteps:,} steps\n"
        )
        _replace(path / "best.toml", header + hyperparameters_toml(found))
    _replace(path / "results.json", plain_json(results) + "\n")


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
