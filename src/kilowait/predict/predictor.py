"""A predictor that is fitted once on a log, kept in a folder, and asked about later jobs of the same site.

The folder holds text and arrays, nothing that could run: trees.txt, leaves.npz, levels.npz, card.json. It keeps no
history: what a job's user did before is taken from the log that is asked about. `calibrating.fit` makes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError
from kilowait.predict.baselines import simple
from kilowait.predict.boosting import BoostedTrees
from kilowait.predict.dataset import Dataset
from kilowait.predict.distribution import Distribution
from kilowait.predict.features import chosen
from kilowait.predict.fit import FittedModel
from kilowait.predict.forest import Forest
from kilowait.predict.model_card import ModelCard, read_card, write_card
from kilowait.predict.models import METHOD, PredictionModel
from kilowait.predict.runtime import LATER, PLANNED

__all__ = ["BOUNDS", "Prediction", "Predictor", "load"]

Floats = npt.NDArray[np.float64]

BOUNDS = (0.1, 0.5, 0.9)
"""Levels of the bounds of a forecast."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is said of n jobs, in the target's unit."""

    value: Floats
    """(n,)."""
    low: Floats
    middle: Floats
    high: Floats
    """(n,) what it is at most with probabilities of 10, 50 and 90 %, calibrated."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model, how far its levels can be trusted, and its card."""

    card: ModelCard
    model: PredictionModel
    trees: Forest | BoostedTrees | None
    """None: a simple prediction, which has learned nothing."""
    levels: Floats
    """Of the calibration part, in order: the level of its distribution at which the truth lay (the forest), or
    ln(truth) - ln(prediction) (all others)."""

    def predict(self, case: Dataset) -> Prediction:
        """What is said of every job, from what was known at its submission; history is that of the jobs handed in."""
        self.check(case)
        target, features = case.target, case.features
        if self.trees is None:
            return self._around(simple(self.model.text, case.jobs, target), target.most)
        return self.of_rows(self.rows(case), features.anchor, target.most)

    def of_rows(self, values: Floats, anchor: Floats, most: Floats) -> Prediction:
        """The same from ready rows of features, whose columns are those of the card.

        Args:
            values: (n, features).
            anchor: (n,) ln(value) that the differences are told from (`Features.anchor`).
            most: (n,) what the value cannot be beyond.
        """
        if self.trees is None:
            raise InputError(f"{self.model.text} looks at no features; ask it of jobs")
        fitted = FittedModel(self.model, self.trees, self.card.jobs)
        if isinstance(self.trees, BoostedTrees):
            return self._around(fitted.answer(values, anchor, most), most)
        found = fitted.distribution(values, anchor, most)
        return Prediction(self._answer(found), *(found.quantile(level) for level in self.bounds))

    def columns(self, case: Dataset) -> dict[str, Floats]:
        """Predicted run times as columns of a job table, seconds; as `Foreseen.columns`, of one fit.

        ``estimate_s``, which rules order by, is what the predictor says; ``planned_s`` and ``overrun_planned_s``, which
        reservations are made with, are its 60 and 97 % bounds: what held for such a part of the jobs it was calibrated
        on; ``limit_s`` is the user's request. Only the forest knows ``expected_inverse_runtime``.
        """
        self.check(case)
        most = case.target.most
        own: dict[str, Floats] = {}
        if isinstance(self.trees, Forest):
            fitted = FittedModel(self.model, self.trees, self.card.jobs)
            found = fitted.distribution(self.rows(case), case.features.anchor, most)
            value = self._answer(found)
            planned, later = (found.quantile(self.level(one)) for one in (PLANNED, LATER))
            own["expected_inverse_runtime"] = found.expected_inverse_runtime()
        else:
            value = self.predict(case).value
            planned, later = (self._off(value, self.level(one), most) for one in (PLANNED, LATER))
        limit_s = np.where(np.isfinite(most), most, np.nan)
        return {
            "estimate_s": value,
            "planned_s": planned,
            "overrun_planned_s": later,
            "limit_s": limit_s,
            **own,
        }

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The calibrated levels of `BOUNDS`."""
        return tuple(self.level(one) for one in BOUNDS)

    def level(self, wanted: float) -> float:
        """The calibrated one: what held for a part `wanted` of the calibration part."""
        rank = min(1.0, wanted * (len(self.levels) + 1) / len(self.levels))
        return float(np.quantile(self.levels, rank))

    def rows(self, case: Dataset) -> Floats:
        """(n, features) in the order of the card; queues and qualities of service by name, NaN where unheard of."""
        values = chosen(case.features, self.card.features)
        for name, names in self.card.codes.items():
            if name not in self.card.features:
                continue
            at = {word: place for place, word in enumerate(names)}
            own = np.array([at.get(word, np.nan) for word in case.jobs.labels.get(name, ())])
            number = case.jobs.column(name)
            found = np.where(number < 0, -1.0, np.nan)
            named = (number >= 0) & (number < len(own))
            found[named] = own[number[named]]
            values[:, self.card.features.index(name)] = found
        return values

    def check(self, case: Dataset) -> None:
        """Raise unless these jobs tell what the predictor looks at."""
        card = self.card
        if case.target.name != card.target:
            raise InputError(
                f"the predictor says {card.target}, and {case.target.name} is asked for; fit another"
            )
        absent = [name for name in card.features if name not in case.features.names]
        if absent and self.trees is not None:
            raise InputError(
                f"the jobs lack {len(absent)} of {len(card.features)} features that the predictor looks at "
                f"({', '.join(absent[:4])}{', ...' if len(absent) > 4 else ''}); ask it of a log with the columns of "
                f"{card.data}, or fit one on this log"
            )
        if card.requests and len(case) and np.isnan(case.features.request).all():
            raise InputError(
                f"nobody asked for a time in these jobs, and users of {card.data} did, which the predictor looks at; "
                "fit one on this log"
            )

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the files into a folder that is there."""
        place = Path(folder)
        if self.trees is not None:
            self.trees.save(place)
        np.savez_compressed(place / "levels.npz", levels=self.levels)
        write_card(self.card, place)

    def _answer(self, found: Distribution) -> Floats:
        """What the forest is asked for."""
        if self.model.level is not None:
            return found.quantile(self.level(self.model.level))
        value: Floats = getattr(found, METHOD[self.model.way])()
        return value

    def _around(self, value: Floats, most: Floats) -> Prediction:
        """With bounds from how far such predictions were off."""
        return Prediction(value, *(self._off(value, level, most) for level in self.bounds))

    @staticmethod
    def _off(value: Floats, level: float, most: Floats) -> Floats:
        return np.asarray(np.minimum(np.maximum(value, 1.0) * np.exp(level), most), np.float64)


def load(folder: str | PathLike[str]) -> Predictor:
    """The predictor that a folder holds; an InputError says why where it holds none that can be used."""
    place = Path(folder)
    if not place.is_dir():
        raise InputError(
            f"there is no folder {place}; make a predictor with kilowait predict fit TRACE --out {place}"
        )
    card = read_card(place)
    model = PredictionModel.of(card.model)
    trees: Forest | BoostedTrees | None = None
    if model.family == "forest":
        trees = Forest.load(place)
    elif model.family != "simple":
        trees = BoostedTrees.load(place)
    if trees is not None and trees.booster.num_feature() != len(card.features):
        raise InputError(
            f"{place} has trees of {trees.booster.num_feature()} features and a card of {len(card.features)}; fit it "
            "again with kilowait predict fit"
        )
    try:
        with np.load(place / "levels.npz", allow_pickle=False) as kept:
            levels = np.asarray(kept["levels"], np.float64)
    except (OSError, ValueError, KeyError) as problem:
        raise InputError(f"{place / 'levels.npz'} cannot be read ({problem}); fit it again") from None
    return Predictor(card, model, trees, levels)
