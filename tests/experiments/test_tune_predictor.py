"""Settings of predictors: the usual ones come first, the same seed finds the same, what cannot be tuned says so."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.experiments.tune_predictor import cost, tune_predictor
from kilowait.predict.dataset import make_dataset
from kilowait.predict.fit import default_settings
from kilowait.predict.known_times import from_log
from kilowait.predict.models import PredictionModel
from tests.predict.example_logs import habits

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def dataset():
    jobs = habits()
    return make_dataset(jobs, from_log(jobs), 16)


def test_the_usual_come_first_and_the_best_is_taken(dataset):
    model = PredictionModel.of("boosting:mean")
    heard = []
    found, trials = tune_predictor(dataset, model, trials=4, seed=3, progress=heard.append)
    assert heard == trials and len(trials) == 4
    usual = default_settings(model)
    assert trials[0].settings == {name: getattr(usual, name) for name in trials[0].settings}
    best = min(trials, key=lambda trial: trial.figure)
    assert {name: getattr(found, name) for name in best.settings} == best.settings
    _, others = tune_predictor(dataset, model, trials=2, seed=3)
    assert [trial.figure for trial in others] == [trial.figure for trial in trials[:2]]


def test_what_models_are_ranked_by():
    predicted, true = np.array([1.0, 7.0]), np.array([3.0, 3.0])  # ln(1 + t): half as much, twice as much
    two = np.log(2.0)
    assert cost(PredictionModel.of("boosting:mean"), predicted, true) == pytest.approx(two)
    assert cost(PredictionModel.of("boosting:asymmetric:3"), predicted, true) == pytest.approx(2 * two**2)
    assert cost(PredictionModel.of("boosting:quantile:0.9"), predicted, true) == pytest.approx(two / 2)
    assert cost(PredictionModel.of("forest:quantile:0.9"), predicted[:1], true[:1]) == pytest.approx(
        0.9 * two
    )
    assert cost(PredictionModel.of("forest"), predicted, true) == pytest.approx(1 - (1 / 3 + 3 / 7) / 2)


def test_words(dataset):
    with pytest.raises(InputError, match="last2 has no hyperparameters"):
        tune_predictor(dataset, PredictionModel.of("last2"), trials=3)
    with pytest.raises(InputError, match="trials is 0; it must be at least 1"):
        tune_predictor(dataset, PredictionModel.of("forest"), trials=0)
    few = habits()[:90]
    with pytest.raises(InputError, match="90 jobs of which 90 .* too few for tuning"):
        tune_predictor(make_dataset(few, from_log(few), 16), PredictionModel.of("forest"), trials=3)
