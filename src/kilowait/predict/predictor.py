"""Predictors fitted once on a log, saved in a folder, and applied to later jobs of the same site.

The folder contains text and arrays, no executable code: trees.txt, leaves.npz, levels.npz, card.json. It stores no job
history: the user's earlier jobs are read from the log at prediction. `conformal.fit` creates a predictor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.files import locks_output
from kilowait.files.array_file import read_arrays
from kilowait.predict.baselines import predict_baseline
from kilowait.predict.boosting import BoostedTrees
from kilowait.predict.dataset import Dataset
from kilowait.predict.distribution import Distribution
from kilowait.predict.features import select_columns
from kilowait.predict.fit import FittedModel
from kilowait.predict.forest import REMEDY, Forest
from kilowait.predict.model_card import ModelCard, read_predictor_files, write_card
from kilowait.predict.models import METHOD, PredictionModel
from kilowait.predict.runtime_predictions import OVERRUN, PLANNED

__all__ = ["BOUNDS", "Prediction", "Predictor", "load"]

Floats = npt.NDArray[np.float64]

BOUNDS = (0.1, 0.5, 0.9)
"""Quantile levels of the bounds of a prediction."""
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

    def predict(self, dataset: Dataset) -> Prediction:
        """Predict every job from what was known at its submission; the history is that of the dataset's jobs."""
        self.check(dataset)
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
        return {
            "estimate_s": value,
            "planned_s": planned,
            "overrun_planned_s": overrun,
            "limit_s": limit_s,
            **extra_columns,
        }

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
        path = Path(folder)
        if self.trees is not None:
            self.trees.save(path)
        np.savez_compressed(path / "levels.npz", levels=self.levels)
        write_card(self.card, path)

    def _point_prediction(self, distribution: Distribution) -> Floats:
        """Point prediction of the forest, calibrated if it is a quantile."""
        if self.model.level is not None:
            return distribution.quantile(self.level(self.model.level))
        value: Floats = getattr(distribution, METHOD[self.model.point_estimate])()
        return value

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
    card, files = read_predictor_files(path)
    model = PredictionModel.of(card.model)
    trees: Forest | BoostedTrees | None = None
    if model.family == "forest":
        trees = Forest.parse(files, path)
    elif model.family != "baseline":
        trees = BoostedTrees.parse(files, path)
    if trees is not None and trees.booster.num_feature() != len(card.features):
        raise InputError(
            f"{path} has trees of {trees.booster.num_feature()} features and a card of {len(card.features)}; fit it "
            "again with kilowait predict fit"
        )
    return Predictor(card, model, trees, _levels(path / "levels.npz", card, model))


def _levels(path: Path, card: ModelCard, model: PredictionModel) -> Floats:
    """The calibration values of a file: sorted, and within their range."""
    low, high = (-0.001, 1.001) if model.family == "forest" else (-MAX_LOG_ERROR, MAX_LOG_ERROR)
    try:
        return read_arrays(path).floats("levels", card.calibration_jobs, minimum=low, maximum=high, ascending=True)
    except InputError as problem:
        raise InputError(f"{problem}; {REMEDY}") from None
