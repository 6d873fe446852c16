"""Hyperparameter search for a predictor with Optuna, on walk-forward folds.

A fold is a span of consecutive jobs; its model is fitted on data known at its first submission. The later half of the
jobs is split into folds; the jobs of the final evaluation are not part of the data. The first trial uses the default
settings, so the best trial is never worse than these on the folds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.experiments.tuning_folder import TuningTrial, best_trial, optuna_or_error
from kilowait.predict.dataset import Dataset
from kilowait.predict.fit import ModelSettings, default_settings, fit_until
from kilowait.predict.models import PredictionModel
from kilowait.predict.scores import score
from kilowait.rng import stream

__all__ = ["tune_predictor"]

Floats = npt.NDArray[np.float64]

FOLDS = 3
MIN_JOBS = 100
"""Minimum number of jobs with a known target before the first fold, and in each fold."""
RANDOM = 6
"""Number of random trials before the TPE sampler starts."""
SPACES: dict[str, dict[str, tuple[float, float]]] = {
    "forest": {"leaves": (63, 1023), "leaf_jobs": (1, 16), "sample": (0.3, 0.95), "features": (0.15, 0.8)},
    "boosting": {
        "trees": (50, 400),
        "leaves": (7, 127),
        "leaf_jobs": (2, 60),
        "rate": (0.02, 0.2),
        "sample": (0.4, 0.95),
        "features": (0.2, 0.9),
    },
}
"""Search ranges; see `ForestSettings` and `BoostingSettings` for the hyperparameters."""


def tune_predictor(
    dataset: Dataset,
    model: PredictionModel,
    *,
    trials: int,
    seed: int = 0,
    progress: Callable[[TuningTrial], None] | None = None,
) -> tuple[ModelSettings, list[TuningTrial]]:
    """The best settings, and all trials.

    Args:
        dataset: training jobs, without those of the final evaluation.
        model: a model with hyperparameters.
        trials: number of trials, including the default settings.
        seed: of the search and of the models.
        progress: called after every trial.
    """
    optuna = optuna_or_error()
    if model.family == "baseline":
        raise InputError(f"{model.text} has no hyperparameters to tune; use forest or boosting:LOSS")
    if trials < 1:
        raise InputError(f"trials is {trials}; it must be at least 1")
    spans = _folds(dataset)
    default = default_settings(model)
    space = SPACES["boosting" if model.family == "boosting" else "forest"]
    kinds = {field.name: field.type for field in fields(default)}
    ranges = {name: _distribution(optuna, kinds[name], *ends) for name, ends in space.items()}
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    finished: list[TuningTrial] = []
    try:
        number = int(stream(seed, "experiments.foresight_tuning").integers(2**31))
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=number, n_startup_trials=RANDOM))
        study.enqueue_trial({name: value for name, value in asdict(default).items() if name in space})
        while len(finished) < trials:
            start = perf_counter()
            trial = study.ask(ranges)
            loss = _mean_loss(dataset, model, replace(default, **trial.params), spans, seed)
            study.tell(trial, loss)
            finished.append(
                TuningTrial(len(finished) + 1, "finished", loss, dict(trial.params), perf_counter() - start)
            )
            if progress is not None:
                progress(finished[-1])
    finally:
        optuna.logging.set_verbosity(before)
    best: dict[str, Any] = best_trial(finished).settings
    return replace(default, **best), finished


def _distribution(optuna: Any, kind: Any, low: float, high: float) -> Any:
    if kind == "int":
        return optuna.distributions.IntDistribution(int(low), int(high), log=True)
    return optuna.distributions.FloatDistribution(low, high, log=high >= 10 * low)


def _folds(dataset: Dataset) -> list[tuple[int, int]]:
    """First and past-the-end row of each fold."""
    ends = np.linspace(len(dataset) // 2, len(dataset), FOLDS + 1).astype(int).tolist()
    spans = list(pairwise(ends))
    known = np.isfinite(dataset.target.values)
    fewest = min(int(known[: spans[0][0]].sum()), *(int(known[begin:end].sum()) for begin, end in spans))
    if fewest < MIN_JOBS:
        raise InputError(
            f"{len(dataset):,} jobs of which {int(known.sum()):,} have a known "
            f"{dataset.target.name} are too few for tuning; "
            f"each of {FOLDS} folds needs {MIN_JOBS}: use a longer log, or no tuning"
        )
    return spans


def _mean_loss(
    dataset: Dataset, model: PredictionModel, settings: ModelSettings, spans: list[tuple[int, int]], seed: int
) -> float:
    """Mean loss of the model over the folds."""
    losses = []
    features, target = dataset.features, dataset.target
    for begin, end in spans:
        fitted = fit_until(dataset, model, float(dataset.jobs["submit_s"][begin]), settings, seed=seed)
        rows = np.arange(begin, end)[np.isfinite(target.values[begin:end])]
        predicted = fitted.predict(features.values[rows], features.anchor[rows], target.max_value[rows])
        losses.append(ranking_loss(model, predicted, target.values[rows]))
    return float(np.mean(losses))


def ranking_loss(model: PredictionModel, predicted: Floats, truth: Floats) -> float:
    """Loss by which trials are ranked, smaller is better: the loss of the model, of ln(1 + value).

    >>> ranking_loss(PredictionModel.of("forest:accurate"), np.array([60.0]), np.array([120.0]))
    0.5
    """
    error = np.log1p(predicted) - np.log1p(truth)
    loss = model.loss
    level = model.level if loss is None or loss.name != "quantile" else loss.number
    if level is not None:
        return float(np.maximum(-level * error, (1 - level) * error).mean())
    if loss is not None and loss.name == "asymmetric" and loss.number is not None:
        return float((np.where(error < 0, loss.number, 1.0) * error**2).mean())
    if model.point_estimate in ("accurate", "median") or (loss is not None and loss.name == "median"):
        return 1.0 - score(predicted, truth).accuracy
    return float((error**2).mean() ** 0.5)
