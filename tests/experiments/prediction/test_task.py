"""Prediction tasks: datasets from settings, and the task of a saved predictor from its model card."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.experiments.prediction.task import (
    fit_predictor,
    load_dataset,
    models_for,
    table_columns,
    task_for_predictor,
    write_columns,
)
from kilowait.experiments.workload_settings import PredictionTask
from kilowait.predict.forest import ForestSettings
from kilowait.predict.models import DEFAULT_MODELS, PredictionModel, TreeSettings
from kilowait.predict.scores import score
from kilowait.predict.walk_forward import predictions_of_models
from kilowait.traces import write_trace
from tests.predict.example_logs import repetitive_log


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log whose second half has measured energy."""
    path = tmp_path_factory.mktemp("logs") / "habits.parquet"
    jobs = repetitive_log()
    joules = np.where(jobs["job_id"] < 450, np.nan, jobs["runtime_s"] * 200.0)
    write_trace(jobs.with_columns(energy_j=joules), path)
    return str(path)


def test_power_labels_come_from_the_given_source(log):
    measured = load_dataset(PredictionTask(log, target="power", cluster="16"))
    assert np.isfinite(measured.dataset.target.values).sum() == 450
    assert measured.power == {"labels": "measured", "power": None, "utilization": None}
    both = load_dataset(PredictionTask(log, target="power", cluster="16", power="taurus"))
    assert np.isfinite(both.dataset.target.values).all() and both.power["labels"] == "both"
    model = load_dataset(
        PredictionTask(log, target="energy", cluster="16", power="taurus", label_source="model", utilization="cpu=0")
    )
    assert np.ptp(model.dataset.target.values / model.dataset.jobs["runtime_s"]) == pytest.approx(0, abs=1e-6)


def test_model_card_gives_the_same_task(log):
    prepared = load_dataset(PredictionTask(log, target="power", cluster="16", power="taurus"))
    predictor = fit_predictor(prepared, PredictionModel.of("recent"), data="habits")
    task = task_for_predictor(predictor.card, PredictionTask("later.swf"))
    assert task == PredictionTask("later.swf", target="power", cluster="16", label_source="both", power="taurus")
    assert task_for_predictor(predictor.card, PredictionTask("later.swf", cluster="32")).cluster == "32"


def test_default_models_depend_on_the_columns_of_the_log(log):
    dataset = load_dataset(PredictionTask(log, cluster="16")).dataset
    assert [model.text for model in models_for(None, dataset)[0]] == list(DEFAULT_MODELS["runtime"])
    assert [model.text for model in models_for("last2, forest", dataset)[0]] == ["last2", "forest"]
    without_requests = load_dataset(PredictionTask("lublin:60:16")).dataset
    models, notes = models_for(None, without_requests)
    assert "request" not in [model.text for model in models] and "left out" in notes[0]


def test_dataset_of_first_jobs_equals_dataset_of_shorter_log(log):
    dataset = load_dataset(PredictionTask(log, cluster="16")).dataset
    first_jobs = dataset.first(100)
    shorter_log = load_dataset(PredictionTask(log, cluster="16", jobs="100")).dataset
    np.testing.assert_array_equal(first_jobs.features.values, shorter_log.features.values)
    np.testing.assert_array_equal(first_jobs.difference, shorter_log.difference)


def test_forest_is_better_than_baselines_on_a_real_log(data_dir):
    path = data_dir / "swf" / "KTH-SP2-1996-2.1-cln.swf.gz"
    dataset = load_dataset(PredictionTask(str(path), jobs="4000")).dataset
    models = [PredictionModel.of(name) for name in ("request", "last2", "class-median", "forest")]
    small = ForestSettings(trees=10, leaves=127)
    scores = {
        predicted.model.text: score(predicted.values[2800:], dataset.target.values[2800:])
        for predicted in predictions_of_models(models, dataset, settings=TreeSettings(small), since=2800)
    }
    best = scores.pop("forest")
    assert best.accuracy > max(other.accuracy for other in scores.values())
    assert best.log_rmse < min(other.log_rmse for other in scores.values())


def test_power_for_other_targets_is_an_error():
    with pytest.raises(InputError, match="for the targets power and energy, not wait"):
        PredictionTask("log", target="wait", power="taurus")


def test_feature_tables_contain_the_labels_and_their_source(log):
    measured = load_dataset(PredictionTask(log, target="energy", cluster="16")).dataset
    columns = table_columns(measured)
    np.testing.assert_array_equal(columns["energy_j"], measured.target.values)
    assert columns["energy_source"].tolist() == [None] * 450 + ["measured"] * 450
    both = load_dataset(PredictionTask(log, target="energy", cluster="16", power="taurus")).dataset
    columns = table_columns(both)
    np.testing.assert_array_equal(columns["energy_j"], both.target.values)
    assert np.isfinite(columns["energy_j"]).all()
    assert columns["energy_source"].tolist() == ["power model"] * 450 + ["measured"] * 450
    power = table_columns(load_dataset(PredictionTask(log, target="power", cluster="16", power="taurus")).dataset)
    assert power["power_source"].tolist() == columns["energy_source"].tolist()


def test_labels_that_are_all_of_the_power_model_are_stated_as_such(tmp_path):
    task = PredictionTask("lublin:300:16", target="energy", power="taurus")
    loaded = load_dataset(task)
    assert loaded.dataset.target.labels.endswith("else power model taurus")
    predictor = fit_predictor(loaded, PredictionModel.of("boosting:median"), data="lublin")
    assert predictor.card.power["labels"] == "model"
    assert predictor.suited_to(loaded.dataset)[0] is predictor  # predicts from values of the power model


def test_values_of_a_power_model_do_not_replace_measurements(log, tmp_path):
    """A predictor of measured power does not use the power model's values as earlier values."""
    loaded = load_dataset(PredictionTask(log, target="power", cluster="16", power="taurus"))
    predictor = fit_predictor(loaded, PredictionModel.of("boosting:median"), data="habits")
    path = tmp_path / "later.parquet"
    write_trace(repetitive_log(seed=1), path)
    later = load_dataset(task_for_predictor(predictor.card, PredictionTask(str(path))), require_measured=False)
    assert later.dataset.target.modelled.all()
    assert predictor.suited_to(later.dataset)[0] is predictor.unmetered
    assert any("no job of this log has measured power" in note for note in later.notes)


def test_energy_of_the_power_model_is_written_for_a_log_without_measurements(tmp_path):
    task = PredictionTask("lublin:60:16", target="energy", power="taurus")
    columns = table_columns(load_dataset(task).dataset)
    assert (columns["energy_j"] > 0).all() and set(columns["energy_source"]) == {"power model"}
    write_columns(columns, tmp_path / "table.csv")
    assert '"energy_j","energy_source"' in (tmp_path / "table.csv").read_text().splitlines()[0]
