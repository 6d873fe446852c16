"""Guesses before the clock starts: how long a job will take, what it will draw, how sure that is."""

from kilowait.predict.conformal import fit
from kilowait.predict.dataset import Case, case_of
from kilowait.predict.distribution import Distribution
from kilowait.predict.explanation import Explanation, explain
from kilowait.predict.features import Features, feature_table
from kilowait.predict.known_times import World, recorded, simulated
from kilowait.predict.models import Model, Said, predictions
from kilowait.predict.predictor import Forecast, Predictor, load
from kilowait.predict.runtime import Foreseen, foresee
from kilowait.predict.scores import Scores, score
from kilowait.predict.target_features import meaning
from kilowait.predict.targets import Target, target_of
from kilowait.predict.walk_forward import Online

__all__ = [
    "Case",
    "Distribution",
    "Explanation",
    "Features",
    "Forecast",
    "Foreseen",
    "Model",
    "Online",
    "Predictor",
    "Said",
    "Scores",
    "Target",
    "World",
    "case_of",
    "explain",
    "feature_table",
    "fit",
    "foresee",
    "load",
    "meaning",
    "predictions",
    "recorded",
    "score",
    "simulated",
    "target_of",
]
