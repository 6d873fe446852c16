"""Search for the settings of an algorithm, by Optuna: train with some, look at the validation jobs, try others.

A trial is a whole training (`learning.learn`) and counts by its best figure on the validation jobs, later than those it
learned from. What an agent is judged on in the end is not handed in. The first trial is the algorithm's own
defaults, so what is found is never worse than these on the validation jobs. Later ones are proposed by a
tree-structured Parzen estimator. A trial that is worse at some tenth of its training than half of the finished ones
were there is given up.

Everything is kept in a folder: ``study.db`` (SQLite, Optuna's own), ``results.json`` with all trials, ``best.toml`` for
``kilowait train --hyperparameters``. The same seed gives the same trials, also across a kill and a resume:
a proposal depends on the seed and on the finished trials only, and a trial that was cut off is done again from its
beginning, with the same settings. Only a training on a GPU, which is not exact to the bit, may make it differ.
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
from kilowait.experiments.hyperparameters import FoundSettings, settings_toml
from kilowait.experiments.optuna_study import (
    SCRATCH,
    TuningTrial,
    best_of,
    discard,
    opened,
    optuna_or_error,
    trials_in,
)
from kilowait.experiments.train_rl import RLTraining
from kilowait.jobs import JobTable
from kilowait.rng import stream

__all__ = ["SPACES", "SearchRange", "defaults", "tune"]

PARTS = 10
"""Validations of a trial, in equal parts of its training, so that trials can be compared on the way."""
RANDOM = 8
"""Trials before the estimator has enough to go by; they are drawn at random."""


@dataclass(frozen=True)
class SearchRange:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    """Whether equal ratios are equally likely, not equal differences."""


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
"""What is searched, by algorithm: a span of numbers, or a list of them. What the settings mean is said where they are
defined (``kilowait.agents.PPOSettings`` and its like); ``width`` and ``depth`` are sizes of the network. The
evolution strategy has nothing to search: it adapts itself."""


def defaults(algo: str) -> dict[str, float]:
    """The algorithm's own values of what is searched.

    >>> defaults("ppo")["width"]
    64
    """
    if algo not in SPACES:
        raise UnknownNameError("algorithm that can be tuned", algo, SPACES)
    own = RLTraining(algo=algo).algorithm_settings()
    return {name: getattr(own.sizes if name in _SIZES else own, name) for name in SPACES[algo]}


def tune(
    jobs: JobTable,
    validation: JobTable,
    cluster: Cluster,
    how: RLTraining,
    *,
    trials: int,
    folder: str | PathLike[str],
    resume: bool = False,
    told: Mapping[str, Any] | None = None,
    progress: Callable[[TuningTrial], None] | None = None,
) -> list[TuningTrial]:
    """Try settings until there are `trials` trials, those of before counting where it is resumed.

    Args:
        jobs: what trials learn from.
        validation: later jobs of the same log, by which they are ranked.
        cluster: the machine.
        how: the training; its seed is that of the search too. Settings it names are held, the others searched.
        trials: how many, in all.
        folder: where the search is kept.
        resume: go on with the search of the folder; its arguments must be the same, but for `trials`.
        told: more for results.json: where it all comes from.
        progress: hears of every new trial.
    """
    space = {name: one for name, one in SPACES[how.algo].items() if name not in how.settings}
    if trials < 1:
        raise InputError(f"{trials} trials; give at least 1")
    place = Path(folder)
    asked = {**asdict(how), "jobs": _digest(jobs, validation), "cluster": repr(cluster)}
    with opened(place, asked, resume=resume) as study:
        done = trials_in(study)
        while len(done) < trials:
            try:
                _try(study, space, jobs, validation, cluster, how, place / SCRATCH, number=len(done) + 1)
            except KilowaitError:
                if not done:
                    discard(place)  # a first trial that cannot be played is a wrong argument, not a search
                raise
            finally:
                shutil.rmtree(place / SCRATCH, ignore_errors=True)
            done = trials_in(study)
            _write(place, how, done, told or {})
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
    """Ask for settings, train with them, tell what came out."""
    optuna = optuna_or_error()
    from kilowait.agents import TrainingError

    # Seeded anew for each, so that a proposal depends on what is finished and not on who was interrupted.
    seed = int(stream(how.seed, f"experiments.tuning.{number}").integers(2**31))
    study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM)
    waiting = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
    if number == 1 and not waiting:
        own = defaults(how.algo)
        study.enqueue_trial({name: own[name] for name in space})
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

    shutil.rmtree(scratch, ignore_errors=True)  # of one that was cut off
    outcome = "finished"
    try:
        best = train_rl.learn(jobs, validation, cluster, training, folder=scratch, progress=progress)[1][
            -1
        ].best
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
    """The training with what was proposed, validated at every tenth of it."""
    settings = {**how.settings, **_nested(proposed)}
    n_steps = agents.steps_per_update(replace(how, settings=settings).algorithm_settings())
    updates = max(1, how.steps // (n_steps * how.envs))
    once = {"validate_every": math.ceil(updates / PARTS), "checkpoint_every": updates}
    return replace(how, settings={**settings, **once})


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the network in a table of their own."""
    sizes = {name: value for name, value in flat.items() if name in _SIZES}
    plain = {name: value for name, value in flat.items() if name not in _SIZES}
    return {**plain, "sizes": sizes} if sizes else plain


def _distribution(optuna: Any, one: SearchRange | tuple[float, ...]) -> Any:
    if isinstance(one, SearchRange):
        return optuna.distributions.FloatDistribution(one.low, one.high, log=one.log)
    return optuna.distributions.CategoricalDistribution(one)


# -- what is written -------------------------------------------------------------------------------


def _digest(*tables: JobTable) -> str:
    found = hashlib.sha256()
    for jobs in tables:
        for name in jobs.columns:
            found.update(name.encode())
            found.update(np.ascontiguousarray(jobs[name]).data)
    return found.hexdigest()


def _write(place: Path, how: RLTraining, trials: Sequence[TuningTrial], told: Mapping[str, Any]) -> None:
    """results.json, and best.toml once there is a best; each whole or as it was."""
    results = {**told, "algo": how.algo, "net": how.net, "trials": [asdict(trial) for trial in trials]}
    if any(trial.outcome == "finished" for trial in trials):
        best = best_of(trials)
        results["best"] = best.number
        found = FoundSettings(how.algo, how.net, {**how.settings, **_nested(best.settings)})
        words = (
            f"# Trial {best.number} of {len(trials)} by kilowait tune, seed {how.seed}: {best.figure:.6g} on the "
            f"validation jobs after {how.steps:,} steps\n"
        )
        _replace(place / "best.toml", words + settings_toml(found))
    _replace(place / "results.json", plain_json(results) + "\n")


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
