"""From what people write to a case, and back from a card to the same question."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.experiments.predictors import (
    PredictionTask,
    fit_predictor,
    load_dataset,
    models_for,
    task_for_predictor,
)
from kilowait.predict.forest import ForestSettings
from kilowait.predict.models import DEFAULT_MODELS, PredictionModel, predictions
from kilowait.predict.scores import score
from kilowait.traces import write_trace
from tests.predict.example_logs import habits


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The second half of the jobs was measured."""
    path = tmp_path_factory.mktemp("logs") / "habits.parquet"
    jobs = habits()
    joules = np.where(jobs["job_id"] < 450, np.nan, jobs["runtime_s"] * 200.0)
    write_trace(jobs.with_columns(energy_j=joules), path)
    return str(path)


def test_watts_come_from_where_one_says(log):
    measured = load_dataset(PredictionTask(log, target="power", cluster="16"))
    assert np.isfinite(measured.dataset.target.values).sum() == 450
    assert measured.power == {"labels": "measured", "power": None, "utilization": None}
    both = load_dataset(PredictionTask(log, target="power", cluster="16", power="taurus"))
    assert np.isfinite(both.dataset.target.values).all() and both.power["labels"] == "both"
    model = load_dataset(
        PredictionTask(
            log, target="energy", cluster="16", power="taurus", label_source="model", utilization="cpu=0"
        )
    )
    assert np.ptp(model.dataset.target.values / model.dataset.jobs["runtime_s"]) == pytest.approx(0, abs=1e-6)


def test_a_card_asks_the_same_again(log):
    prepared = load_dataset(PredictionTask(log, target="power", cluster="16", power="taurus"))
    made = fit_predictor(prepared, PredictionModel.of("recent"), data="habits")
    again = task_for_predictor(made.card, PredictionTask("later.swf"))
    assert again == PredictionTask(
        "later.swf", target="power", cluster="nodes:16", label_source="both", power="taurus"
    )
    assert task_for_predictor(made.card, PredictionTask("later.swf", cluster="32")).cluster == "32"


def test_the_usual_models_are_those_a_log_can_have(log):
    dataset = load_dataset(PredictionTask(log, cluster="16")).dataset
    assert [model.text for model in models_for(None, dataset)[0]] == list(DEFAULT_MODELS["runtime"])
    assert [model.text for model in models_for("last2, forest", dataset)[0]] == ["last2", "forest"]
    bare = load_dataset(PredictionTask("lublin:60:16")).dataset
    models, notes = models_for(None, bare)
    assert "request" not in [model.text for model in models] and "left out" in notes[0]


def test_the_first_jobs_of_a_case_are_a_case(log):
    dataset = load_dataset(PredictionTask(log, cluster="16")).dataset
    few = dataset.first(100)
    again = load_dataset(PredictionTask(log, cluster="16", jobs="100")).dataset
    np.testing.assert_array_equal(few.features.values, again.features.values)
    np.testing.assert_array_equal(few.difference, again.difference)


def test_the_forest_is_better_than_last_two_on_a_real_log(data_dir):
    path = data_dir / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz"
    dataset = load_dataset(PredictionTask(str(path), jobs="4000")).dataset
    models = [PredictionModel.of(name) for name in ("request", "last2", "class-median", "forest")]
    small = ForestSettings(trees=10, leaves=127)
    found = {
        predicted.model.text: score(predicted.values[2800:], dataset.target.values[2800:])
        for predicted in predictions(models, dataset, forest=small, since=2800)
    }
    best = found.pop("forest")
    assert best.accuracy > max(other.accuracy for other in found.values())
    assert best.log_rmse < min(other.log_rmse for other in found.values())


def test_words():
    with pytest.raises(InputError, match="for the targets power and energy, not wait"):
        PredictionTask("log", target="wait", power="taurus")
