"""Prediction models by name: parsing, walk-forward predictions without data leakage, and saved trees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.predict.dataset import make_dataset
from kilowait.predict.forest import (
    BoostedTrees,
    BoostingSettings,
    ForestSettings,
    Loss,
    fit_boosting,
    fit_random_forest,
)
from kilowait.predict.job_history import from_log
from kilowait.predict.models import DEFAULT_MODELS, PredictionModel, TreeSettings, fit_until
from kilowait.predict.walk_forward import RefitSchedule, predictions_of_models
from tests.predict.example_logs import DAY, repetitive_log

SCHEDULE = RefitSchedule(every_s=DAY, jobs=600, min_jobs=50)
QUICK = TreeSettings(ForestSettings(trees=10, leaves=31), BoostingSettings(trees=30, leaves=7, rate=0.2))
RUNTIME = DEFAULT_MODELS["runtime"]
LEARNED = tuple(name for name in RUNTIME if ":" in name or name == "random-forest")


def predictions_by_model(names, jobs, times, **options):
    dataset = make_dataset(jobs, times, 16)
    return {
        predicted.model.text: predicted
        for predicted in predictions_of_models(
            [PredictionModel.of(name) for name in names], dataset, online=SCHEDULE, settings=QUICK, **options
        )
    }


@pytest.fixture(scope="module")
def jobs_and_predictions():
    jobs = repetitive_log()
    names = (*RUNTIME, "boosting:quantile:0.9", "forest:quantile:0.9")
    return jobs, predictions_by_model(names, jobs, from_log(jobs))


def test_fitted_models_learn_typical_run_times(jobs_and_predictions):
    jobs, predicted = jobs_and_predictions
    late = np.arange(len(jobs)) > 450
    for name in LEARNED:
        for user, typical_s in ((0, 60.0), (1, 3000.0)):
            found = np.median(predicted[name].values[late & (jobs["user"] == user)])
            assert found == pytest.approx(typical_s, rel=0.2), name
    assert (predicted["forest:accurate"].values <= 3600).all()


def test_coverage_of_quantiles(jobs_and_predictions):
    jobs, predicted = jobs_and_predictions
    late = np.arange(len(jobs)) > 450
    for name in ("boosting:quantile:0.9", "forest:quantile:0.9"):
        covered = (jobs["runtime_s"] <= predicted[name].values * 1.011)[late].mean()
        assert covered == pytest.approx(0.9, abs=0.06)


def test_asymmetric_loss():
    rng = np.random.default_rng(0)
    values, targets = rng.random((2000, 1)), rng.normal(size=2000)
    settings = BoostingSettings(trees=40, leaves=2, leaf_jobs=500, rate=0.3, sample=1.0, features=1.0)
    error = targets - fit_boosting(values, targets, Loss.of("asymmetric:3"), settings, seed=0).difference(values)
    assert 3 * np.maximum(error, 0).sum() == pytest.approx(np.maximum(-error, 0).sum(), rel=0.01)


def test_predictions_do_not_depend_on_later_events(jobs_and_predictions):
    jobs, predicted = jobs_and_predictions
    last, times = 500, from_log(jobs)
    running = times.end_s > jobs["submit_s"][last]
    changed_jobs = jobs.with_columns(runtime_s=np.where(running, 1.0, jobs["runtime_s"]))
    changed_times = replace(times, end_s=np.where(running, times.end_s + 5e5, times.end_s))
    names = ("boosting:asymmetric:3", "random-forest")
    for name, found in predictions_by_model(names, changed_jobs, changed_times).items():
        np.testing.assert_array_equal(found.values[: last + 1], predicted[name].values[: last + 1], err_msg=name)


def test_since_skips_early_fits_and_changes_no_prediction(jobs_and_predictions):
    jobs, predicted = jobs_and_predictions
    reported = []
    names = ("boosting:mean", "forest:accurate")
    found = predictions_by_model(
        names, jobs, from_log(jobs), since=600, progress=lambda model, refit: reported.append(model.text)
    )
    assert 0 < reported.count("boosting:mean") < 6
    for name in names:
        np.testing.assert_array_equal(found[name].values[600:], predicted[name].values[600:])


def test_save_and_load_boosted_trees(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 3))
    values[5, 1] = np.nan
    for fitted in (
        fit_random_forest(values, values[:, 0], ForestSettings(trees=5, features=1.0), seed=3),
        *(
            fit_boosting(values, values[:, 0], Loss.of(text), QUICK.boosting, seed=3)
            for text in ("mean", "asymmetric:3")
        ),
    ):
        fitted.save(tmp_path)
        loaded = BoostedTrees.parse({"trees.txt": (tmp_path / "trees.txt").read_bytes()}, tmp_path)
        predicted = fitted.difference(values)
        np.testing.assert_array_equal(loaded.difference(values), predicted)
        np.testing.assert_allclose(loaded.contributions(values).sum(axis=1), predicted, atol=1e-9)
        assert len(loaded.difference(values[:0])) == 0
    with pytest.raises(InputError, match=r"trees.txt is damaged: .*fit it again"):
        BoostedTrees.parse({"trees.txt": (tmp_path / "trees.txt").read_bytes()[:-9000]}, tmp_path)


def test_fit_until_uses_only_values_known_by_the_date():
    jobs = repetitive_log().with_columns(wait_s=np.full(900, 9999.0))
    dataset = make_dataset(jobs, from_log(jobs), 16)
    until_s = float(jobs["submit_s"][300])
    fitted = fit_until(dataset, PredictionModel.of("forest"), until_s, QUICK.forest)
    assert fitted.jobs == int((dataset.target.known_s <= until_s).sum()) < 300
    with pytest.raises(InputError, match="is known for 0 jobs at the time of the fit.*longer log"):
        fit_until(dataset, PredictionModel.of("forest"), 0.0)
    with pytest.raises(InputError, match="last2 cannot be fitted"):
        fit_until(dataset, PredictionModel.of("last2"), until_s)
    with pytest.raises(InputError, match="one number and no distribution"):
        few = dataset.features.values[:1]
        fit_until(dataset, PredictionModel.of("boosting:mean"), until_s, QUICK.boosting).distribution(
            few, few[0], few[0]
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("boosting", "write boosting:LOSS with one of mean, median"),
        ("boosting:quantile", "write quantile:0.9 or asymmetric:3"),
        ("boosting:quantile:1.5", "quantile:0.9"),
        ("boosting:mean:3", "write mean"),
        ("forest:accurate:2", "write forest:accurate"),
        ("forest:quantile:x", "quantile:0.9"),
    ],
)
def test_invalid_models(text, message):
    with pytest.raises(InputError, match=message):
        PredictionModel.of(text)


@pytest.mark.parametrize(
    ("text", "near"), [("last3", "last2"), ("forest:acurate", "accurate"), ("boosting:men", "mean")]
)
def test_misspelt_names(text, near):
    with pytest.raises(UnknownNameError, match=f"did you mean '{near}'"):
        PredictionModel.of(text)
