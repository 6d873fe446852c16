"""Fit a predictor on a log and calibrate its prediction intervals on the end of the log (conformal calibration).

The model is fitted on the jobs whose value was known when the first job of the last tenth of the log was submitted.
That tenth is the calibration set: it gives the errors, and the quantile levels of the true values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.predict.baselines import predict_baseline
from kilowait.predict.dataset import Dataset
from kilowait.predict.features import select_columns
from kilowait.predict.fit import FittedModel, ModelSettings, default_settings, fit_until
from kilowait.predict.forest import Forest
from kilowait.predict.model_card import ModelCard
from kilowait.predict.models import PredictionModel, check_model
from kilowait.predict.predictor import BOUNDS, Predictor
from kilowait.predict.scores import coverage, score

__all__ = ["CALIBRATION_FRACTION", "fit"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CALIBRATION_FRACTION = 0.1
"""Fraction of the jobs, taken from the end, that quantile levels are calibrated on."""
MIN_JOBS = 20
"""Minimum number of calibration jobs whose value is known."""
MONTH_S = 30 * 86400.0
NAMED_FEATURES = ("queue", "qos")
"""Categorical features, stored as codes of names."""
PERSONAL_DATA_TEXT = (
    "no record of any single user, no names of users, accounts or jobs{names}. Leaves of the trees are counts of jobs, "
    "{least} at least: somebody who knows a user's jobs may recognize them"
)
POSITION_FEATURES = ("everyone_count", "request_count")
"""Features that depend on a job's position in its log, and so are meaningless in another log."""


def fit(
    dataset: Dataset,
    model: PredictionModel,
    *,
    nodes: int,
    data: str,
    settings: ModelSettings | None = None,
    seed: int = 0,
    threads: int = 1,
    power: Mapping[str, Any] | None = None,
) -> Predictor:
    """Fit a model on a log and calibrate it on the log's last tenth.

    Args:
        dataset: the jobs, their features and the target.
        model: any model; baselines have no parameters to fit, but are calibrated.
        nodes: number of nodes of the machine.
        data: name of the log, for the model card.
        settings: hyperparameters of the trees.
        seed: seed of the trees.
        threads: number of threads of LightGBM; it does not change the result.
        power: source of modelled watts, for the model card.
    """
    check_model(model, dataset.target)
    dataset = _without_position_features(dataset)
    target, jobs, features = dataset.target, dataset.jobs, dataset.features
    begin = len(dataset) - max(1, round(len(dataset) * CALIBRATION_FRACTION)) if len(dataset) else 0
    calibration_rows = np.arange(begin, len(dataset))[np.isfinite(target.values[begin:])]
    if len(calibration_rows) < MIN_JOBS:
        raise InputError(
            f"the {target.name} is known for {len(calibration_rows):,} of the last {len(dataset) - begin:,} jobs, and "
            "calibration "
            f"needs at least {MIN_JOBS}; use a longer log"
        )
    date_s = float(jobs["submit_s"][begin])
    truth = target.values[calibration_rows]
    fitted = (
        None if model.family == "baseline" else fit_until(dataset, model, date_s, settings, seed=seed, threads=threads)
    )
    point, levels = _levels(dataset, model, fitted, calibration_rows)
    errors = {model.text: asdict(score(point, truth))}
    for name in ("request", "last2", "class-median", "recent"):
        if name != model.text and not (name == "request" and np.isnan(target.requested).any()):
            errors[name] = asdict(score(predict_baseline(name, jobs, target)[calibration_rows], truth))
    codes = {name: jobs.labels[name] for name in NAMED_FEATURES if name in jobs.labels and name in features.names}
    params = settings or (None if fitted is None else default_settings(model))
    card = ModelCard(
        model=model.text,
        target=target.name,
        unit=target.unit,
        labels=target.labels,
        data=data,
        history=dataset.times.name,
        nodes=nodes,
        first_s=float(jobs["submit_s"][0]),
        last_s=float(jobs["submit_s"][-1]),
        unix_zero_s=jobs.meta.get("unix_start_s"),
        jobs=0 if fitted is None else fitted.jobs,
        calibration_jobs=len(calibration_rows),
        requests=bool(np.isfinite(features.request).any()),
        features=() if fitted is None else features.names,
        codes=codes,
        settings={} if params is None else asdict(params),
        seed=seed,
        errors=errors,
        coverage={} if fitted is None else _coverage(dataset, fitted, calibration_rows),
        importance={} if fitted is None else _importance(fitted, features.names),
        drift=() if fitted is None else tuple(_drift(dataset, model, settings, seed, threads)),
        version=_version(),
        personal="nothing: it is a baseline without fitted parameters"
        if params is None
        else _personal_data_text(params, codes),
        power=power or {},
    )
    return Predictor(card, model, None if fitted is None else fitted.trees, levels)


def _without_position_features(dataset: Dataset) -> Dataset:
    table = dataset.features
    names = tuple(name for name in table.names if name not in POSITION_FEATURES)
    return replace(dataset, features=replace(table, names=names, values=select_columns(table, names)))


def _levels(
    dataset: Dataset, model: PredictionModel, fitted: FittedModel | None, calibration_rows: Ints
) -> tuple[Floats, Floats]:
    """Predictions for the calibration jobs, and the sorted levels or errors of the true values."""
    target, features = dataset.target, dataset.features
    truth, max_value = target.values[calibration_rows], target.max_value[calibration_rows]
    if fitted is None:
        point = predict_baseline(model.text, dataset.jobs, target)[calibration_rows]
    else:
        point = fitted.predict(features.values[calibration_rows], features.anchor[calibration_rows], max_value)
    if fitted is not None and isinstance(fitted.trees, Forest):
        distribution = fitted.distribution(
            features.values[calibration_rows], features.anchor[calibration_rows], max_value
        )
        return point, np.sort(distribution.level_of(truth))
    return point, np.sort(np.log(np.maximum(truth, 1.0)) - np.log(np.maximum(point, 1.0)))


def _coverage(dataset: Dataset, fitted: FittedModel, calibration_rows: Ints) -> dict[str, float]:
    if not isinstance(fitted.trees, Forest):
        return {}
    distribution = fitted.distribution(
        dataset.features.values[calibration_rows],
        dataset.features.anchor[calibration_rows],
        dataset.target.max_value[calibration_rows],
    )
    return {
        str(level): coverage(distribution.quantile(level), dataset.target.values[calibration_rows]) for level in BOUNDS
    }


def _importance(fitted: FittedModel, names: tuple[str, ...]) -> dict[str, float]:
    gain = np.asarray(fitted.trees.booster.feature_importance("gain"), np.float64)
    share = gain / gain.sum() if gain.sum() > 0 else gain
    return {names[column]: float(share[column]) for column in np.argsort(-share, kind="stable") if share[column] > 0}


def _drift(
    dataset: Dataset, model: PredictionModel, settings: ModelSettings | None, seed: int, threads: int
) -> list[dict[str, float]]:
    """Errors of a model fitted on the first half of the log, by month of the second half (drift)."""
    half = len(dataset) // 2
    submit_s, target, features = dataset.jobs["submit_s"], dataset.target, dataset.features
    half_s = float(submit_s[half])
    try:
        early = fit_until(dataset, model, half_s, settings, seed=seed, threads=threads)
    except InputError:
        return []  # the first half is too short for a fit
    rows = np.arange(half, len(dataset))[np.isfinite(target.values[half:])]
    predicted = early.predict(features.values[rows], features.anchor[rows], target.max_value[rows])
    month = ((submit_s[rows] - half_s) // MONTH_S).astype(np.int64)
    rows_by_month = []
    for number in np.unique(month):
        in_month = month == number
        scores = score(predicted[in_month], target.values[rows][in_month])
        rows_by_month.append(
            {
                "month": int(number) + 1,
                "jobs": scores.jobs,
                "accuracy": scores.accuracy,
                "log_rmse": scores.log_rmse,
                "mae": scores.mae,
                "underprediction_rate": scores.underprediction_rate,
            }
        )
    return rows_by_month


def _personal_data_text(params: ModelSettings, codes: Mapping[str, Any]) -> str:
    """Personal data that a fitted predictor contains, as text."""
    nouns = {"queue": "queues", "qos": "qualities of service"}
    names = " and ".join(nouns[name] for name in codes)
    return PERSONAL_DATA_TEXT.format(names=f"; names of {names}" if names else "", least=params.leaf_jobs)


def _version() -> str:
    try:
        return version("kilowait")
    except PackageNotFoundError:
        return "unknown"
