"""Models by name, each asked of every job through time: simple ones, the forest, boosted trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.predict.baselines import SIMPLE, simple
from kilowait.predict.boosting import LOSSES, BoostingSettings, Loss, boost, plain_forest
from kilowait.predict.dataset import Dataset
from kilowait.predict.forest import ForestSettings
from kilowait.predict.runtime import RuntimePredictions, foresee_case
from kilowait.predict.targets import Target
from kilowait.predict.walk_forward import (
    Learn,
    Refit,
    RefitSchedule,
    walk_forward,
)

__all__ = ["FAMILIES", "USUAL", "POINT_ESTIMATES", "PredictionModel", "ModelPredictions", "predictions"]

Floats = npt.NDArray[np.float64]

POINT_ESTIMATES = {
    "accurate": "the value with the highest expected accuracy",
    "median": "as often below as above",
    "geomean": "the geometric mean",
    "mean": "the mean; of run times alone, which a request bounds",
    "quantile": "quantile:Q, what it is at most with probability Q, calibrated",
}
"""What may be asked of the forest's distributions."""
FAMILIES = {
    "forest": "a random forest whose leaves keep distributions: forest or forest:WAY",
    "boosting": "boosted trees, one number: boosting:LOSS",
    "random-forest": "a random forest that says a mean of logarithms",
}
"""Models that learn."""
METHOD = {"accurate": "most_accurate", "median": "median", "geomean": "geometric_mean", "mean": "mean"}
"""Method of `Distribution` that computes each point estimate."""
_LEARNED = ("boosting:mean", "boosting:median", "forest:accurate", "forest:median")
USUAL = {
    "runtime": (
        "request",
        "last2",
        "user-median",
        "class-median",
        "recent",
        "random-forest",
        "boosting:mean",
        "boosting:median",
        "boosting:asymmetric:3",
        "forest:accurate",
        "forest:median",
        "forest:geomean",
    ),
    "wait": ("last2", "class-median", "recent", *_LEARNED),
    "power": ("rate", "last2", "class-median", "recent", *_LEARNED),
    "energy": ("rate", "last2", "class-median", "recent", *_LEARNED),
}
"""Those a table shows unless one says otherwise, by target."""


@dataclass(frozen=True)
class PredictionModel:
    """A model by name."""

    text: str
    family: str
    """One of `FAMILIES`, or simple."""
    way: str = ""
    """Of the forest: one of `WAYS`."""
    level: float | None = None
    """Of the forest's quantile."""
    loss: Loss | None = None
    """Of boosted trees."""

    @classmethod
    def of(cls, text: str) -> PredictionModel:
        """As people write it.

        >>> (
        ...     PredictionModel.of("forest").way,
        ...     PredictionModel.of("boosting:quantile:0.9").loss.number,
        ...     PredictionModel.of("last2").family,
        ... )
        ('accurate', 0.9, 'simple')
        """
        text = text.strip().lower()
        family, colon, rest = text.partition(":")
        if family in SIMPLE and not colon:
            return cls(text, "simple")
        if family == "boosting":
            if not rest:
                raise InputError(
                    f"the model is {text!r}; write boosting:LOSS with one of {', '.join(LOSSES)}"
                )
            return cls(text, family, loss=Loss.of(rest))
        if family == "random-forest" and not colon:
            return cls(text, family)
        if family == "forest":
            way, _, number = rest.partition(":")
            if (way or "accurate") not in POINT_ESTIMATES:
                raise UnknownNameError("way to ask the forest", way, POINT_ESTIMATES)
            level = Loss.of(rest).number if way == "quantile" else None
            if number and way != "quantile":
                raise InputError(f"the model is {text!r}; write forest:{way}")
            return cls(text, family, way or "accurate", level)
        raise UnknownNameError("model", text, (*SIMPLE, *FAMILIES))


@dataclass(frozen=True, eq=False)
class ModelPredictions:
    """What a model said of every job, in the target's unit."""

    model: PredictionModel
    values: Floats
    foreseen: RuntimePredictions | None = None
    """The distributions, of the forest."""


def predictions(
    models: Sequence[PredictionModel],
    case: Dataset,
    *,
    seed: int = 0,
    online: RefitSchedule | None = None,
    forest: ForestSettings | None = None,
    boosting: BoostingSettings | None = None,
    since: int = 0,
    threads: int = 1,
    progress: Callable[[PredictionModel, Refit], None] | None = None,
) -> Iterator[ModelPredictions]:
    """Let each model predict every job from what was known at its submission, in turn.

    What is said of the forest in several ways is computed once. `since` is the first row that is of interest.
    """
    for model in models:
        check_model(model, case.target)
    foreseen: RuntimePredictions | None = None
    for model in models:

        def heard(refit: Refit, model: PredictionModel = model) -> None:
            if progress is not None:
                progress(model, refit)

        if model.family == "simple":
            yield ModelPredictions(model, simple(model.text, case.jobs, case.target))
        elif model.family == "forest":
            foreseen = foreseen or foresee_case(
                case, seed=seed, online=online, forest=forest, since=since, threads=threads, progress=heard
            )
            yield ModelPredictions(model, answer(model, foreseen), foreseen)
        else:
            told = walk_forward(
                case.features,
                case.difference,
                case.jobs["submit_s"],
                case.target.known_s,
                learner(model, seed=seed, forest=forest, boosting=boosting),
                1,
                online,
                since=since,
                threads=threads,
                progress=heard,
            )
            values = np.exp(case.features.anchor + told.values[:, 0])
            yield ModelPredictions(model, np.minimum(values, case.target.most))


def check_model(model: PredictionModel, target: Target) -> None:
    """Raise where a model is of no use for a target.

    The forest mixes differences of jobs from their anchors. A job that waited a thousand times as long as usual is then
    a chance of a thousand times any wait, which is nothing to the middle and everything to a mean without a bound.
    """
    if model.way == "mean" and not np.isfinite(target.most).all():
        raise InputError(
            f"the mean of the forest is of no use for {target.name}, which nothing bounds; take forest:accurate, "
            "forest:median or boosting:mean"
        )


def learner(
    model: PredictionModel, *, seed: int, forest: ForestSettings | None, boosting: BoostingSettings | None
) -> Learn:
    """How a model that says one number learns."""

    def learn(values: Floats, came: Floats) -> Callable[[Floats], Floats]:
        if model.loss is None:
            made = plain_forest(values, came, forest, seed=seed)
        else:
            made = boost(values, came, model.loss, boosting, seed=seed)
        return lambda rows: made.difference(rows)[:, None]

    return learn


def answer(model: PredictionModel, foreseen: RuntimePredictions) -> Floats:
    """The number that is asked of the forest's distributions."""
    if model.level is not None:
        return foreseen.quantile(model.level)
    found: Floats = getattr(foreseen.distribution, METHOD[model.way])()
    return found
