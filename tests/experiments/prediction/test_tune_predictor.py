"""Hyperparameter search for predictors: order of the trials, reproducibility, ranking loss, errors."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.experiments.prediction.task import ranking_loss, tune_predictor
from kilowait.predict.dataset import make_dataset
from kilowait.predict.job_history import from_log
from kilowait.predict.models import PredictionModel, default_settings
from tests.predict.example_logs import repetitive_log

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def dataset():
    jobs = repetitive_log()
    return make_dataset(jobs, from_log(jobs), 16)


def test_first_trial_is_the_default_and_best_trial_is_returned(dataset):
    model = PredictionModel.of("boosting:mean")
    progress = []
    settings, trials = tune_predictor(dataset, model, trials=4, seed=3, progress=progress.append)
    assert progress == trials and len(trials) == 4
    default = default_settings(model)
    assert trials[0].settings == {name: getattr(default, name) for name in trials[0].settings}
    best = min(trials, key=lambda trial: trial.metric)
    assert {name: getattr(settings, name) for name in best.settings} == best.settings
    _, fewer_trials = tune_predictor(dataset, model, trials=2, seed=3)
    assert [trial.metric for trial in fewer_trials] == [trial.metric for trial in trials[:2]]


def test_ranking_loss_of_models():
    predicted, true = np.array([1.0, 7.0]), np.array([3.0, 3.0])  # 1 + t: half and twice the true value
    ln2 = np.log(2.0)
    assert ranking_loss(PredictionModel.of("boosting:mean"), predicted, true) == pytest.approx(ln2)
    assert ranking_loss(PredictionModel.of("boosting:asymmetric:3"), predicted, true) == pytest.approx(2 * ln2**2)
    assert ranking_loss(PredictionModel.of("boosting:quantile:0.9"), predicted, true) == pytest.approx(ln2 / 2)
    assert ranking_loss(PredictionModel.of("forest:quantile:0.9"), predicted[:1], true[:1]) == pytest.approx(0.9 * ln2)
    assert ranking_loss(PredictionModel.of("forest"), predicted, true) == pytest.approx(1 - (1 / 3 + 3 / 7) / 2)


def test_errors(dataset):
    with pytest.raises(InputError, match="last2 has no hyperparameters"):
        tune_predictor(dataset, PredictionModel.of("last2"), trials=3)
    with pytest.raises(InputError, match="trials is 0; it must be at least 1"):
        tune_predictor(dataset, PredictionModel.of("forest"), trials=0)
    short_log = repetitive_log()[:90]
    with pytest.raises(InputError, match="90 jobs of which 90 .* too few for tuning"):
        tune_predictor(make_dataset(short_log, from_log(short_log), 16), PredictionModel.of("forest"), trials=3)
