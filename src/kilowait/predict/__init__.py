"""Predictions at job submission: run time, wait, power and energy, with prediction intervals."""

from kilowait.predict.dataset import Dataset, make_dataset
from kilowait.predict.explanation import Explanation, explain
from kilowait.predict.features import Features, feature_meaning, feature_table
from kilowait.predict.forest import Distribution
from kilowait.predict.job_history import JobHistory, from_log, from_run
from kilowait.predict.models import PredictionModel, TreeSettings
from kilowait.predict.predictor import Prediction, Predictor, fit, load
from kilowait.predict.scores import PredictionScores, score
from kilowait.predict.targets import Target, target_of
from kilowait.predict.walk_forward import (
    ModelPredictions,
    RefitSchedule,
    RuntimePredictions,
    predict_runtimes,
    predictions_of_models,
)

__all__ = [
    "Dataset",
    "Distribution",
    "Explanation",
    "Features",
    "Prediction",
    "RuntimePredictions",
    "PredictionModel",
    "RefitSchedule",
    "Predictor",
    "ModelPredictions",
    "PredictionScores",
    "Target",
    "TreeSettings",
    "JobHistory",
    "make_dataset",
    "explain",
    "feature_table",
    "fit",
    "predict_runtimes",
    "load",
    "feature_meaning",
    "predictions_of_models",
    "from_log",
    "score",
    "from_run",
    "target_of",
]
