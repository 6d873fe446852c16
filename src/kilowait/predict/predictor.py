"""Predictors fitted once on a log, saved in a folder, and applied to later jobs of the same site.

A model is fitted on the jobs whose value was known when the first job of the last tenth of the log was submitted. That
tenth is the calibration set (conformal calibration): it gives the errors, and the quantile levels of the true values.

The folder contains text and arrays, no executable code: trees.txt, leaves.npz, levels.npz, card.json. It stores no job
history: the user's earlier jobs are read from the log at prediction.

A predictor of power or energy contains a second model, fitted without the features of earlier values (files
unmetered_*). It predicts the jobs of logs in which no job was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from kilowait.errors import InputError
from kilowait.files import locks_output
from kilowait.files.array_file import read_arrays
from kilowait.predict.baselines import predict_baseline
from kilowait.predict.dataset import Dataset
from kilowait.predict.features import select_columns
from kilowait.predict.forest import REMEDY, BoostedTrees, Distribution, Forest
from kilowait.predict.job_history import Floats, Ints
from kilowait.predict.model_card import CARD_FILE, UNMETERED, ModelCard, read_predictor_files, write_card
from kilowait.predict.models import (
    FittedModel,
    ModelSettings,
    PredictionModel,
    check_model,
    default_settings,
    fit_until,
)
from kilowait.predict.scores import METRICS, coverage, score
from kilowait.predict.walk_forward import OVERRUN, PLANNED

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
BOUNDS = (0.1, 0.5, 0.9)
"""Quantile levels of the bounds of a prediction."""
METERED_TARGETS = ("power", "energy")
"""Targets that a log may not contain at all."""
LEVELS_FILE = "levels.npz"
MAX_LOG_ERROR = 100.0
"""Maximum absolute ln(truth) - ln(prediction) of a calibration job."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions for n jobs, in the target's unit."""

    value: Floats
    """(n,)."""
    low: Floats
    median: Floats
    high: Floats
    """(n,) calibrated quantiles at 10, 50 and 90 %."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A fitted model with its calibration and its model card."""

    card: ModelCard
    model: PredictionModel
    trees: Forest | BoostedTrees | None
    """None: a baseline, which has no fitted parameters."""
    levels: Floats
    """Sorted calibration values: the quantile level of each true value (the forest), or ln(truth) - ln(prediction) (all
    others)."""
    unmetered: Predictor | None = None
    """For power and energy, the predictor of logs without any known value; None for other targets and baselines."""

    def suited_to(self, dataset: Dataset) -> tuple[Predictor, Dataset]:
        """The predictor and the dataset to predict from: if no job of a log was measured, those without the features
        of earlier values; else these two.

        A predictor that was fitted on values of a power model only predicts from such values.
        """
        self.check(dataset)
        if self.card.target not in METERED_TARGETS or not len(dataset) or dataset.has_measured_values:
            return self, dataset
        if self.card.power.get("labels") == "model" and np.isfinite(dataset.target.values).any():
            return self, dataset
        if self.unmetered is None:
            raise InputError(
                f"none of these {len(dataset):,} jobs has a measured {self.card.target}, and this predictor "
                f"({self.model.text}, fitted on {self.card.data}) needs earlier values; fit it again, with forest or "
                "boosting:LOSS"
            )
        return self.unmetered, dataset.without_earlier_values(self.unmetered.card.power["node_w"])

    def predict(self, dataset: Dataset) -> Prediction:
        """Predict every job from what was known at its submission; the history is that of the dataset's jobs.

        The jobs of a log without any measured power are predicted by `unmetered`.
        """
        predictor, dataset = self.suited_to(dataset)
        if predictor is not self:
            return predictor.predict_rows(predictor.rows(dataset), dataset.features.anchor, dataset.target.max_value)
        target, features = dataset.target, dataset.features
        if self.trees is None:
            return self._with_bounds(predict_baseline(self.model.text, dataset.jobs, target), target.max_value)
        return self.predict_rows(self.rows(dataset), features.anchor, target.max_value)

    def predict_rows(self, values: Floats, anchor: Floats, max_value: Floats) -> Prediction:
        """Predict from rows of features, whose columns are those of the card.

        Args:
            values: (n, features).
            anchor: (n,) ln(value) that differences refer to (`Features.anchor`).
            max_value: (n,) upper bound of the value.
        """
        if self.trees is None:
            raise InputError(f"{self.model.text} uses no features; use predict with a dataset")
        fitted = FittedModel(self.model, self.trees, self.card.jobs)
        if isinstance(self.trees, BoostedTrees):
            return self._with_bounds(fitted.predict(values, anchor, max_value), max_value)
        distribution = fitted.distribution(values, anchor, max_value)
        return Prediction(
            self._point_prediction(distribution), *(distribution.quantile(level) for level in self.bounds)
        )

    def columns(self, dataset: Dataset) -> dict[str, Floats]:
        """Predicted run times as columns of a job table, seconds; as `RuntimePredictions.columns`, but of one fit.

        ``estimate_s``, which priority policies use, is the point prediction. ``planned_s`` and ``overrun_planned_s``,
        which reservations use, are its calibrated 60 and 97 % quantiles. ``limit_s`` is the user's request. Only the
        forest gives ``expected_inverse_runtime``.
        """
        self.check(dataset)
        max_value = dataset.target.max_value
        extra_columns: dict[str, Floats] = {}
        if isinstance(self.trees, Forest):
            fitted = FittedModel(self.model, self.trees, self.card.jobs)
            distribution = fitted.distribution(self.rows(dataset), dataset.features.anchor, max_value)
            value = self._point_prediction(distribution)
            planned, overrun = (distribution.quantile(self.level(level)) for level in (PLANNED, OVERRUN))
            extra_columns["expected_inverse_runtime"] = distribution.expected_inverse_runtime()
        else:
            value = self.predict(dataset).value
            planned, overrun = (self._shifted(value, self.level(level), max_value) for level in (PLANNED, OVERRUN))
        limit_s = np.where(np.isfinite(max_value), max_value, np.nan)
        columns = {"estimate_s": value, "planned_s": planned, "overrun_planned_s": overrun, "limit_s": limit_s}
        return columns | extra_columns

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The calibrated levels of `BOUNDS`."""
        return tuple(self.level(bound) for bound in BOUNDS)

    def level(self, share: float) -> float:
        """Calibrated level (or log error) that covers the fraction `share` of the calibration jobs."""
        rank = min(1.0, share * (len(self.levels) + 1) / len(self.levels))
        return float(np.quantile(self.levels, rank))

    def rows(self, dataset: Dataset) -> Floats:
        """(n, features) in the order of the card; categorical codes are matched by name, NaN where the name is new."""
        values = select_columns(dataset.features, self.card.features)
        for name, names in self.card.codes.items():
            if name not in self.card.features:
                continue
            code_of = {label: code for code, label in enumerate(names)}
            known_codes = np.array([code_of.get(label, np.nan) for label in dataset.jobs.labels.get(name, ())])
            number = dataset.jobs.column(name)
            codes = np.where(number < 0, -1.0, np.nan)
            has_name = (number >= 0) & (number < len(known_codes))
            codes[has_name] = known_codes[number[has_name]]
            values[:, self.card.features.index(name)] = codes
        return values

    def check(self, dataset: Dataset) -> None:
        """Raise unless the dataset has the target and the features of the predictor."""
        card = self.card
        if dataset.target.name != card.target:
            raise InputError(f"the predictor predicts {card.target}, not {dataset.target.name}; fit another")
        missing = [name for name in card.features if name not in dataset.features.names]
        if missing and self.trees is not None:
            raise InputError(
                f"the jobs lack {len(missing)} of {len(card.features)} features that the predictor uses "
                f"({', '.join(missing[:4])}{', ...' if len(missing) > 4 else ''}); use a log with the columns of "
                f"{card.data}, or fit one on this log"
            )
        if card.requests and len(dataset) and np.isnan(dataset.features.request).all():
            raise InputError(
                f"these jobs have no walltime requests, and the predictor uses those of {card.data}; "
                "fit one on this log"
            )

    @locks_output("folder", inside=True)
    def save(self, folder: str | PathLike[str]) -> None:
        """Write the files into an existing folder."""
        if self.unmetered is not None:
            self.unmetered._write(Path(folder), UNMETERED)
        self._write(Path(folder), "")

    def _write(self, folder: Path, prefix: str) -> None:
        if self.trees is not None:
            self.trees.save(folder, prefix)
        np.savez_compressed(folder / f"{prefix}{LEVELS_FILE}", levels=self.levels)
        write_card(self.card, folder, prefix)

    def _point_prediction(self, distribution: Distribution) -> Floats:
        """Point prediction of the forest, calibrated if it is a quantile."""
        if self.model.level is not None:
            return distribution.quantile(self.level(self.model.level))
        return distribution.estimate(self.model.point_estimate)

    def _with_bounds(self, value: Floats, max_value: Floats) -> Prediction:
        """Add bounds from the calibration errors."""
        return Prediction(value, *(self._shifted(value, level, max_value) for level in self.bounds))

    @staticmethod
    def _shifted(value: Floats, level: float, max_value: Floats) -> Floats:
        return np.asarray(np.minimum(np.maximum(value, 1.0) * np.exp(level), max_value), np.float64)


def load(folder: str | PathLike[str]) -> Predictor:
    """Load the predictor of a folder; raises InputError if it cannot be used."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"there is no folder {path}; create a predictor with kilowait predict fit TRACE --out {path}")
    return _load(path, "")


def _load(path: Path, prefix: str) -> Predictor:
    card, files = read_predictor_files(path, prefix)
    model = PredictionModel.of(card.model)
    trees: Forest | BoostedTrees | None = None
    if model.family == "forest":
        trees = Forest.parse(files, path, prefix)
    elif model.family != "baseline":
        trees = BoostedTrees.parse(files, path, prefix)
    if trees is not None and trees.booster.num_feature() != len(card.features):
        raise InputError(
            f"{path} has trees of {trees.booster.num_feature()} features and a card of {len(card.features)}; fit it "
            "again with kilowait predict fit"
        )
    unmetered = _load(path, UNMETERED) if f"{UNMETERED}{CARD_FILE}" in files and not prefix else None
    if unmetered is not None and (
        unmetered.trees is None or unmetered.card.target != card.target or "node_w" not in unmetered.card.power
    ):
        raise InputError(
            f"{path / f'{UNMETERED}{CARD_FILE}'} is not the card of a model of {card.target} for logs without "
            f"measurements; {REMEDY}"
        )
    return Predictor(card, model, trees, _levels(path / f"{prefix}{LEVELS_FILE}", card, model), unmetered)


def _levels(path: Path, card: ModelCard, model: PredictionModel) -> Floats:
    """The calibration values of a file: sorted, and within their range."""
    low, high = (-0.001, 1.001) if model.family == "forest" else (-MAX_LOG_ERROR, MAX_LOG_ERROR)
    try:
        return read_arrays(path).floats("levels", card.calibration_jobs, minimum=low, maximum=high, ascending=True)
    except InputError as problem:
        raise InputError(f"{problem}; {REMEDY}") from None


# -- fit and calibrate ---------------------------------------------------------------------------


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
    if dataset.target.name in METERED_TARGETS and not dataset.has_measured_values:
        power = {**(power or {}), "labels": "model"}
    options: dict[str, Any] = {
        "nodes": nodes,
        "data": data,
        "settings": settings,
        "seed": seed,
        "threads": threads,
        "power": power,
    }
    predictor = _fit_one(dataset, model, **options)
    if dataset.target.name not in METERED_TARGETS or predictor.trees is None:
        return predictor
    node_w = dataset.typical_node_w(_calibration_begin(dataset))
    options["power"] = {**(power or {}), "node_w": node_w}
    return replace(predictor, unmetered=_fit_one(dataset.without_earlier_values(node_w), model, **options))


def _calibration_begin(dataset: Dataset) -> int:
    """Index of the first calibration job."""
    return len(dataset) - max(1, round(len(dataset) * CALIBRATION_FRACTION)) if len(dataset) else 0


def _fit_one(
    dataset: Dataset,
    model: PredictionModel,
    *,
    nodes: int,
    data: str,
    settings: ModelSettings | None,
    seed: int,
    threads: int,
    power: Mapping[str, Any] | None,
) -> Predictor:
    """Fit and calibrate one model on the features of a dataset."""
    target, jobs, features = dataset.target, dataset.jobs, dataset.features
    begin = _calibration_begin(dataset)
    calibration_rows = np.arange(begin, len(dataset))[np.isfinite(target.values[begin:])]
    if len(calibration_rows) < MIN_JOBS:
        raise InputError(
            f"the {target.name} is known for {len(calibration_rows):,} of the last {len(dataset) - begin:,} jobs, and "
            f"calibration needs at least {MIN_JOBS}; use a longer log"
        )
    date_s = float(jobs["submit_s"][begin])
    truth = target.values[calibration_rows]
    fitted = (
        None if model.family == "baseline" else fit_until(dataset, model, date_s, settings, seed=seed, threads=threads)
    )
    point, levels, shares = _calibration(dataset, model, fitted, calibration_rows)
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
        coverage=shares,
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


def _calibration(
    dataset: Dataset, model: PredictionModel, fitted: FittedModel | None, rows: Ints
) -> tuple[Floats, Floats, dict[str, float]]:
    """Predictions for the calibration jobs, the sorted levels or errors of the true values, and the coverage."""
    truth, inputs = dataset.target.values[rows], dataset.inputs(rows)
    if fitted is None:
        point = predict_baseline(model.text, dataset.jobs, dataset.target)[rows]
    else:
        point = fitted.predict(*inputs)
        if isinstance(fitted.trees, Forest):
            distribution = fitted.distribution(*inputs)
            shares = {str(level): coverage(distribution.quantile(level), truth) for level in BOUNDS}
            return point, np.sort(distribution.level_of(truth)), shares
    return point, np.sort(np.log(np.maximum(truth, 1.0)) - np.log(np.maximum(point, 1.0))), {}


def _importance(fitted: FittedModel, names: tuple[str, ...]) -> dict[str, float]:
    gain = np.asarray(fitted.trees.booster.feature_importance("gain"), np.float64)
    share = gain / gain.sum() if gain.sum() > 0 else gain
    return {names[column]: float(share[column]) for column in np.argsort(-share, kind="stable") if share[column] > 0}


def _drift(
    dataset: Dataset, model: PredictionModel, settings: ModelSettings | None, seed: int, threads: int
) -> list[dict[str, float]]:
    """Errors of a model fitted on the first half of the log, by month of the second half (drift)."""
    half = len(dataset) // 2
    submit_s, target = dataset.jobs["submit_s"], dataset.target
    half_s = float(submit_s[half])
    try:
        early = fit_until(dataset, model, half_s, settings, seed=seed, threads=threads)
    except InputError:
        return []  # the first half is too short for a fit
    rows = np.arange(half, len(dataset))[np.isfinite(target.values[half:])]
    predicted = early.predict(*dataset.inputs(rows))
    month = ((submit_s[rows] - half_s) // MONTH_S).astype(np.int64)
    rows_by_month = []
    for number in np.unique(month):
        in_month = month == number
        scores = score(predicted[in_month], target.values[rows][in_month])
        rows_by_month.append({"month": int(number) + 1, **{name: getattr(scores, name) for name in ("jobs", *METRICS)}})
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
