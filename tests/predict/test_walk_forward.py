"""Walk-forward run-time predictions: no data leakage, accuracy, calibration, distributions and forests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.predict.forest import BIN_CENTERS, BIN_COUNT, Distribution, Forest, ForestSettings, bin_of, fit_forest
from kilowait.predict.job_history import from_log, request_s
from kilowait.predict.walk_forward import RefitSchedule, predict_runtimes
from tests.predict.example_logs import DAY, repetitive_log

QUICK = {"online": RefitSchedule(every_s=DAY, jobs=600, min_jobs=50), "forest": ForestSettings(trees=10, leaves=31)}


@pytest.fixture(scope="module")
def jobs_and_predictions():
    jobs = repetitive_log()
    return jobs, predict_runtimes(jobs, from_log(jobs), 16, seed=0, **QUICK)


def test_typical_run_times_are_learned(jobs_and_predictions):
    jobs, predictions = jobs_and_predictions
    late = np.arange(len(jobs)) > 450
    for user, typical_s in ((0, 60.0), (1, 3000.0)):
        assert np.median(predictions.distribution.most_accurate()[late & (jobs["user"] == user)]) == pytest.approx(
            typical_s, rel=0.1
        )
    inverse_runtime = predictions.distribution.expected_inverse_runtime()
    assert inverse_runtime[late & (jobs["user"] == 2)].mean() == pytest.approx(0.5, abs=0.1)
    assert inverse_runtime[late & (jobs["user"] == 1)].max() < 0.1


def test_coverage_of_quantiles(jobs_and_predictions):
    jobs, predictions = jobs_and_predictions
    late = np.arange(len(jobs)) > 450
    for level in (0.5, 0.8, 0.9):
        covered = (jobs["runtime_s"] <= predictions.quantile(level) * 1.011)[late].mean()  # bins are 2 % wide
        assert covered == pytest.approx(level, abs=0.07)


def test_columns_are_ordered_and_limited(jobs_and_predictions):
    jobs, predictions = jobs_and_predictions
    columns = predictions.columns()
    assert (columns["planned_s"] <= columns["overrun_planned_s"]).all()
    assert (columns["overrun_planned_s"] <= request_s(jobs)).all()
    assert columns["limit_s"].tolist() == [pytest.approx(3600.0)] * len(jobs)
    assert (columns["planned_s"][predictions.walk_forward.fit < 0] == 3600).all()


def test_predictions_do_not_depend_on_later_events(jobs_and_predictions):
    jobs, predictions = jobs_and_predictions
    last = 500
    now_s = jobs["submit_s"][last]
    times = from_log(jobs)
    running = times.end_s > now_s
    changed_jobs = jobs.with_columns(runtime_s=np.where(running, 1.0, jobs["runtime_s"]))
    changed = predict_runtimes(
        changed_jobs, replace(times, end_s=np.where(running, times.end_s + 5e5, times.end_s)), 16, seed=0, **QUICK
    )
    for name, values in predictions.columns().items():
        np.testing.assert_array_equal(changed.columns()[name][: last + 1], values[: last + 1], err_msg=name)


def test_threads_do_not_change_predictions(jobs_and_predictions):
    jobs, predictions = jobs_and_predictions
    with_threads = predict_runtimes(jobs, from_log(jobs), 16, seed=0, threads=2, **QUICK)
    np.testing.assert_array_equal(with_threads.distribution.weights, predictions.distribution.weights)
    other_seed = predict_runtimes(jobs, from_log(jobs), 16, seed=1, **QUICK)
    assert not np.array_equal(other_seed.distribution.weights, predictions.distribution.weights)


@pytest.mark.parametrize(
    "jobs", [repetitive_log()[:0], repetitive_log()[:1], repetitive_log()[:20]], ids=["none", "one", "few"]
)
def test_few_jobs_without_a_fit(jobs):
    predictions = predict_runtimes(jobs, from_log(jobs), 16, **QUICK)
    assert (predictions.walk_forward.fit == -1).all()
    assert predictions.columns()["estimate_s"].shape == (len(jobs),)


def test_constant_and_zero_run_times():
    jobs = repetitive_log()
    for runtime_s in (np.zeros(len(jobs)), np.full(len(jobs), 77.0)):
        constant = jobs.with_columns(runtime_s=runtime_s)
        predictions = predict_runtimes(constant, from_log(constant), 16, **QUICK)
        assert predictions.distribution.most_accurate()[-1] == pytest.approx(max(runtime_s[0], 1.0), rel=0.02)


def test_point_estimates_of_a_distribution():
    weights = np.zeros((1, BIN_COUNT))
    weights[0, bin_of(0.0)] = 0.6
    weights[0, bin_of(np.log(100.0))] = 0.4
    distribution = Distribution(weights, np.log([10.0]), np.array([np.inf]))
    long_s = 10.0 * np.exp(BIN_CENTERS[bin_of(np.log(100.0))])
    assert distribution.median().tolist() == [pytest.approx(10.0)]
    assert distribution.most_accurate().tolist() == [pytest.approx(10.0)]
    assert distribution.quantile(0.7).tolist() == [pytest.approx(long_s)]
    assert distribution.mean().tolist() == [pytest.approx(0.6 * 10 + 0.4 * long_s)]
    assert distribution.geometric_mean().tolist() == [pytest.approx(10**0.6 * long_s**0.4)]
    assert distribution.expected_inverse_runtime().tolist() == [pytest.approx(0.6 + 0.4 * 10 / long_s)]
    limited = replace(distribution, max_s=np.array([50.0]))
    assert limited.quantile(1.0).tolist() == [50.0]
    assert distribution.level_of(np.array([10.0])).tolist() == [pytest.approx(0.3)]


def test_expected_inverse_runtime_is_at_most_1():
    """Weights in single precision may sum to slightly more than 1."""
    rng = np.random.default_rng(1)
    weights = rng.dirichlet(np.ones(BIN_COUNT), 500).astype(np.float32)
    weights *= np.float32(1.0000001)
    short_times = Distribution(weights, np.full(500, -5.0), np.full(500, 5.0))
    assert short_times.expected_inverse_runtime().max() == 1.0


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_save_and_load_forest(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 3))
    values[5, 1] = np.nan
    forest = fit_forest(values, values[:, 0], ForestSettings(trees=5, features=1.0), seed=3)
    forest.save(tmp_path)
    loaded = Forest.parse(contents(tmp_path), tmp_path)
    np.testing.assert_array_equal(loaded.weights(values), forest.weights(values))
    contributions = forest.contributions(values)
    assert np.abs(contributions[:, 0]).mean() > 5 * np.abs(contributions[:, 1]).mean()
    np.testing.assert_allclose(contributions.sum(axis=1), forest.booster.predict(values))
    (tmp_path / "trees.txt").write_text("import os")
    with pytest.raises(InputError, match="no LightGBM trees"):
        Forest.parse(contents(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"leaves": lambda leaves: leaves[:-1]}, r"leaves holds float32 of shape \(\d+, 79\); it must be"),
        ({"leaves": lambda leaves: leaves.astype(np.float64)}, "leaves holds float64 of shape"),
        ({"leaves": lambda leaves: leaves * np.float32(np.nan)}, "leaves has rows that are not shares of a sum of 1"),
        ({"leaves": lambda leaves: -leaves}, "leaves has rows that are not shares of a sum of 1"),
        ({"leaves": lambda leaves: 2 * leaves}, "leaves has rows that are not shares of a sum of 1"),
        ({"first": lambda first: first + 1}, "first does not follow from the leaves of the trees"),
        ({"first": lambda first: first[None]}, "first has the shape"),
    ],
)
def test_leaves_that_do_not_fit_the_trees_are_errors(tmp_path, change, message):
    values = np.random.default_rng(0).normal(size=(300, 3))
    forest = fit_forest(values, values[:, 0], ForestSettings(trees=2, features=1.0), seed=3)
    forest.save(tmp_path)
    arrays = {"leaves": forest.leaves, "first": forest.first}
    arrays |= {name: apply(arrays.get(name)) for name, apply in change.items()}
    np.savez_compressed(tmp_path / "leaves.npz", **arrays)
    with pytest.raises(InputError, match=rf"leaves.npz: {message}.*fit it again"):
        Forest.parse(contents(tmp_path), tmp_path)


def test_invalid_refit_schedule():
    with pytest.raises(InputError, match="minimum at least 2 jobs"):
        RefitSchedule(jobs=5, min_jobs=10)
