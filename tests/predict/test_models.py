"""Models by name: they are what they are said to be, through time, and nobody looks ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.predict.boosting import BoostedTrees, BoostingSettings, Loss, fit_boosting, fit_random_forest
from kilowait.predict.dataset import make_dataset
from kilowait.predict.fit import fit_until
from kilowait.predict.forest import ForestSettings
from kilowait.predict.known_times import from_log
from kilowait.predict.models import DEFAULT_MODELS, PredictionModel, predictions
from kilowait.predict.walk_forward import RefitSchedule
from tests.predict.example_logs import DAY, habits

QUICK = {
    "online": RefitSchedule(every_s=DAY, jobs=600, min_jobs=50),
    "forest": ForestSettings(trees=10, leaves=31),
    "boosting": BoostingSettings(trees=30, leaves=7, rate=0.2),
}
RUNTIME = DEFAULT_MODELS["runtime"]
LEARNED = tuple(name for name in RUNTIME if ":" in name or name == "random-forest")


def requested(names, jobs, times, **more):
    dataset = make_dataset(jobs, times, 16)
    return {
        predicted.model.text: predicted
        for predicted in predictions([PredictionModel.of(name) for name in names], dataset, **QUICK, **more)
    }


@pytest.fixture(scope="module")
def told():
    jobs = habits()
    names = (*RUNTIME, "boosting:quantile:0.9", "forest:quantile:0.9")
    return jobs, requested(names, jobs, from_log(jobs))


def test_habits_are_found_by_all_that_learn(told):
    jobs, predicted = told
    late = np.arange(len(jobs)) > 450
    for name in LEARNED:
        for user, usual_s in ((0, 60.0), (1, 3000.0)):
            found = np.median(predicted[name].values[late & (jobs["user"] == user)])
            assert found == pytest.approx(usual_s, rel=0.2), name
    assert (predicted["forest:accurate"].values <= 3600).all()


def test_quantiles_hold(told):
    jobs, predicted = told
    late = np.arange(len(jobs)) > 450
    for name in ("boosting:quantile:0.9", "forest:quantile:0.9"):
        held = (jobs["runtime_s"] <= predicted[name].values * 1.011)[late].mean()
        assert held == pytest.approx(0.9, abs=0.06)


def test_too_small_costs_three_times_as_much():
    random = np.random.default_rng(0)
    values, targets = random.random((2000, 1)), random.normal(size=2000)
    few = BoostingSettings(trees=40, leaves=2, leaf_jobs=500, rate=0.3, sample=1.0, features=1.0)
    error = targets - fit_boosting(values, targets, Loss.of("asymmetric:3"), few, seed=0).difference(values)
    assert 3 * np.maximum(error, 0).sum() == pytest.approx(np.maximum(-error, 0).sum(), rel=0.01)


def test_the_future_changes_nothing(told):
    jobs, predicted = told
    last, times = 500, from_log(jobs)
    open_ = times.end_s > jobs["submit_s"][last]
    other = jobs.with_columns(runtime_s=np.where(open_, 1.0, jobs["runtime_s"]))
    later = replace(times, end_s=np.where(open_, times.end_s + 5e5, times.end_s))
    names = ("boosting:asymmetric:3", "random-forest")
    for name, found in requested(names, other, later).items():
        np.testing.assert_array_equal(
            found.values[: last + 1], predicted[name].values[: last + 1], err_msg=name
        )


def test_rows_of_no_interest_cost_nothing_and_change_nothing(told):
    jobs, predicted = told
    heard = []
    names = ("boosting:mean", "forest:accurate")
    found = requested(
        names, jobs, from_log(jobs), since=600, progress=lambda model, refit: heard.append(model.text)
    )
    assert 0 < heard.count("boosting:mean") < 6
    for name in names:
        np.testing.assert_array_equal(found[name].values[600:], predicted[name].values[600:])


def test_boosted_trees_are_kept_and_read(tmp_path):
    random = np.random.default_rng(0)
    values = random.normal(size=(300, 3))
    values[5, 1] = np.nan
    for fitted in (
        fit_random_forest(values, values[:, 0], ForestSettings(trees=5, features=1.0), seed=3),
        *(
            fit_boosting(values, values[:, 0], Loss.of(text), QUICK["boosting"], seed=3)
            for text in ("mean", "asymmetric:3")
        ),
    ):
        fitted.save(tmp_path)
        again = BoostedTrees.load(tmp_path)
        predicted = fitted.difference(values)
        np.testing.assert_array_equal(again.difference(values), predicted)
        np.testing.assert_allclose(again.contributions(values).sum(axis=1), predicted, atol=1e-9)
        assert len(again.difference(values[:0])) == 0
    (tmp_path / "trees.txt").unlink()
    with pytest.raises(InputError, match="cannot be read.*fit it again"):
        BoostedTrees.load(tmp_path)


def test_a_fit_by_a_date_knows_what_had_ended_by_then():
    jobs = habits().with_columns(wait_s=np.full(900, 9999.0))
    dataset = make_dataset(jobs, from_log(jobs), 16)
    until_s = float(jobs["submit_s"][300])
    fitted = fit_until(dataset, PredictionModel.of("forest"), until_s, QUICK["forest"])
    assert fitted.jobs == int((dataset.target.known_s <= until_s).sum()) < 300
    with pytest.raises(InputError, match="of 0 jobs is known by then.*longer log"):
        fit_until(dataset, PredictionModel.of("forest"), 0.0)
    with pytest.raises(InputError, match="last2 cannot be fitted"):
        fit_until(dataset, PredictionModel.of("last2"), until_s)
    with pytest.raises(InputError, match="one number and no distribution"):
        few = dataset.features.values[:1]
        fit_until(dataset, PredictionModel.of("boosting:mean"), until_s, QUICK["boosting"]).distribution(
            few, few[0], few[0]
        )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("boosting", "write boosting:LOSS with one of mean, median"),
        ("boosting:quantile", "write quantile:0.9 or asymmetric:3"),
        ("boosting:quantile:1.5", "quantile:0.9"),
        ("boosting:mean:3", "write mean"),
        ("forest:accurate:2", "write forest:accurate"),
        ("forest:quantile:x", "quantile:0.9"),
    ],
)
def test_words(text, words):
    with pytest.raises(InputError, match=words):
        PredictionModel.of(text)


@pytest.mark.parametrize(
    ("text", "near"), [("last3", "last2"), ("forest:acurate", "accurate"), ("boosting:men", "mean")]
)
def test_misspelt_names(text, near):
    with pytest.raises(UnknownNameError, match=f"did you mean '{near}'"):
        PredictionModel.of(text)
