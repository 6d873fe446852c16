"""A predictor from a log: fitted on most of it, calibrated on the end.

It is fitted on the jobs whose value was known when the last tenth of the log's jobs began to come, and calibrated on
that tenth: there its errors are found, and at which levels the truth lay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.predict.baselines import simple
from kilowait.predict.dataset import Dataset
from kilowait.predict.features import chosen
from kilowait.predict.fit import (
    FittedModel,
    Settings,
    fit_by,
    usual_settings,
)
from kilowait.predict.forest import Forest
from kilowait.predict.model_card import ModelCard
from kilowait.predict.models import PredictionModel, check_model
from kilowait.predict.predictor import BOUNDS, Predictor
from kilowait.predict.scores import coverage, score

__all__ = ["CALIBRATION", "fit"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CALIBRATION = 0.1
"""Part of the jobs, the last ones, that levels are calibrated on."""
FEWEST = 20
"""Jobs of the calibration part whose value is known, at least."""
MONTH_S = 30 * 86400.0
LABELLED = ("queue", "qos")
"""Features that are numbers of names."""
PERSONAL = (
    "no record of any single user, no names of users, accounts or jobs{names}. Leaves of the trees are counts of jobs, "
    "{least} at least: whoever knows a user's habits may recognize them"
)
POSITION = ("everyone_count", "request_count")
"""Features that tell how far on in its log a job stands, which means nothing in another."""


def fit(
    case: Dataset,
    model: PredictionModel,
    *,
    nodes: int,
    data: str,
    settings: Settings | None = None,
    seed: int = 0,
    threads: int = 1,
    power: Mapping[str, Any] | None = None,
) -> Predictor:
    """Fit a model on a log and calibrate it on the log's last tenth.

    Args:
        case: the jobs and what is asked of them.
        model: any; simple ones learn nothing and are calibrated all the same.
        nodes: of the machine.
        data: name of the log, for the card.
        settings: of the trees.
        seed: of the trees.
        threads: of LightGBM; they do not change the result.
        power: where modelled watts come from, for the card.
    """
    check_model(model, case.target)
    case = _without_position(case)
    target, jobs, features = case.target, case.jobs, case.features
    begin = len(case) - max(1, round(len(case) * CALIBRATION)) if len(case) else 0
    late = np.arange(begin, len(case))[np.isfinite(target.values[begin:])]
    if len(late) < FEWEST:
        raise InputError(
            f"the {target.name} of {len(late):,} of the last {len(case) - begin:,} jobs is known, and a predictor is "
            f"calibrated on {FEWEST} at least; take a longer log"
        )
    date_s = float(jobs["submit_s"][begin])
    truth = target.values[late]
    fitted = (
        None
        if model.family == "simple"
        else fit_by(case, model, date_s, settings, seed=seed, threads=threads)
    )
    bare, levels = _levels(case, model, fitted, late)
    errors = {model.text: asdict(score(bare, truth))}
    for name in ("request", "last2", "class-median", "recent"):
        if name != model.text and not (name == "request" and np.isnan(target.asked).any()):
            errors[name] = asdict(score(simple(name, jobs, target)[late], truth))
    codes = {name: jobs.labels[name] for name in LABELLED if name in jobs.labels and name in features.names}
    how = settings or (None if fitted is None else usual_settings(model))
    card = ModelCard(
        model=model.text,
        target=target.name,
        unit=target.unit,
        labels=target.labels,
        data=data,
        world=case.world.name,
        nodes=nodes,
        first_s=float(jobs["submit_s"][0]),
        last_s=float(jobs["submit_s"][-1]),
        unix_zero_s=jobs.meta.get("unix_start_s"),
        jobs=0 if fitted is None else fitted.jobs,
        calibrated=len(late),
        requests=bool(np.isfinite(features.request).any()),
        features=() if fitted is None else features.names,
        codes=codes,
        settings={} if how is None else asdict(how),
        seed=seed,
        errors=errors,
        held={} if fitted is None else _held(case, fitted, late),
        importance={} if fitted is None else _importance(fitted, features.names),
        drift=() if fitted is None else tuple(_drift(case, model, settings, seed, threads)),
        version=_version(),
        personal="nothing: it has learned nothing" if how is None else _personal(how, codes),
        power=power or {},
    )
    return Predictor(card, model, None if fitted is None else fitted.trees, levels)


def _without_position(case: Dataset) -> Dataset:
    table = case.features
    names = tuple(name for name in table.names if name not in POSITION)
    return replace(case, features=replace(table, names=names, values=chosen(table, names)))


def _levels(
    case: Dataset, model: PredictionModel, fitted: FittedModel | None, late: Ints
) -> tuple[Floats, Floats]:
    """What is said of the calibration part, and where the truth lay."""
    target, features = case.target, case.features
    truth, most = target.values[late], target.most[late]
    if fitted is None:
        bare = simple(model.text, case.jobs, target)[late]
    else:
        bare = fitted.answer(features.values[late], features.anchor[late], most)
    if fitted is not None and isinstance(fitted.trees, Forest):
        found = fitted.distribution(features.values[late], features.anchor[late], most)
        return bare, np.sort(found.place_of(truth))
    return bare, np.sort(np.log(np.maximum(truth, 1.0)) - np.log(np.maximum(bare, 1.0)))


def _held(case: Dataset, fitted: FittedModel, late: Ints) -> dict[str, float]:
    if not isinstance(fitted.trees, Forest):
        return {}
    found = fitted.distribution(
        case.features.values[late], case.features.anchor[late], case.target.most[late]
    )
    return {str(level): coverage(found.quantile(level), case.target.values[late]) for level in BOUNDS}


def _importance(fitted: FittedModel, names: tuple[str, ...]) -> dict[str, float]:
    gain = np.asarray(fitted.trees.booster.feature_importance("gain"), np.float64)
    share = gain / gain.sum() if gain.sum() > 0 else gain
    return {names[at]: float(share[at]) for at in np.argsort(-share, kind="stable") if share[at] > 0}


def _drift(
    case: Dataset, model: PredictionModel, settings: Settings | None, seed: int, threads: int
) -> list[dict[str, float]]:
    """How a model ages: fitted on the first half, asked of each month of the second."""
    middle = len(case) // 2
    submit_s, target, features = case.jobs["submit_s"], case.target, case.features
    date_s = float(submit_s[middle])
    try:
        early = fit_by(case, model, date_s, settings, seed=seed, threads=threads)
    except InputError:
        return []  # the first half alone is too short
    rows = np.arange(middle, len(case))[np.isfinite(target.values[middle:])]
    said = early.answer(features.values[rows], features.anchor[rows], target.most[rows])
    month = ((submit_s[rows] - date_s) // MONTH_S).astype(np.int64)
    found = []
    for number in np.unique(month):
        mine = month == number
        scores = score(said[mine], target.values[rows][mine])
        found.append(
            {
                "month": int(number) + 1,
                "jobs": scores.jobs,
                "accuracy": scores.accuracy,
                "log_rmse": scores.log_rmse,
                "mae": scores.mae,
                "underprediction_rate": scores.underprediction_rate,
            }
        )
    return found


def _personal(how: Settings, codes: Mapping[str, Any]) -> str:
    """What of persons a predictor that has learned holds."""
    words = {"queue": "queues", "qos": "qualities of service"}
    names = " and ".join(words[name] for name in codes)
    return PERSONAL.format(names=f"; names of {names}" if names else "", least=how.leaf_jobs)


def _version() -> str:
    try:
        return version("kilowait")
    except PackageNotFoundError:
        return "unknown"
