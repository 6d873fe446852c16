"""Run times predicted through time: nobody looks ahead, habits are found, levels hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kilowait.errors import InputError
from kilowait.predict.distribution import BINS, CENTRES, Distribution, bin_of
from kilowait.predict.forest import Forest, ForestSettings, fit_forest
from kilowait.predict.known_times import from_log, request_s
from kilowait.predict.runtime import predict_runtimes
from kilowait.predict.walk_forward import RefitSchedule
from tests.predict.example_logs import DAY, habits

QUICK = {
    "online": RefitSchedule(every_s=DAY, jobs=600, min_jobs=50),
    "forest": ForestSettings(trees=10, leaves=31),
}


@pytest.fixture(scope="module")
def seen():
    jobs = habits()
    return jobs, predict_runtimes(jobs, from_log(jobs), 16, seed=0, **QUICK)


def test_habits_are_found(seen):
    jobs, found = seen
    late = np.arange(len(jobs)) > 450
    for user, usual_s in ((0, 60.0), (1, 3000.0)):
        assert np.median(found.distribution.most_accurate()[late & (jobs["user"] == user)]) == pytest.approx(
            usual_s, rel=0.1
        )
    quick = found.distribution.expected_inverse_runtime()
    assert quick[late & (jobs["user"] == 2)].mean() == pytest.approx(0.5, abs=0.1)
    assert quick[late & (jobs["user"] == 1)].max() < 0.1


def test_levels_hold(seen):
    jobs, found = seen
    late = np.arange(len(jobs)) > 450
    for level in (0.5, 0.8, 0.9):
        held = (jobs["runtime_s"] <= found.quantile(level) * 1.011)[late].mean()  # bins are 2 % wide
        assert held == pytest.approx(level, abs=0.07)


def test_columns_are_in_order_and_keep_the_limit(seen):
    jobs, found = seen
    columns = found.columns()
    assert (columns["planned_s"] <= columns["overrun_planned_s"]).all()
    assert (columns["overrun_planned_s"] <= request_s(jobs)).all()
    assert columns["limit_s"].tolist() == [pytest.approx(3600.0)] * len(jobs)
    assert (columns["planned_s"][found.told.fit < 0] == 3600).all()


def test_the_future_changes_nothing(seen):
    jobs, found = seen
    last = 500
    now_s = jobs["submit_s"][last]
    times = from_log(jobs)
    open_ = times.end_s > now_s
    other = jobs.with_columns(runtime_s=np.where(open_, 1.0, jobs["runtime_s"]))
    changed = predict_runtimes(
        other, replace(times, end_s=np.where(open_, times.end_s + 5e5, times.end_s)), 16, seed=0, **QUICK
    )
    for name, values in found.columns().items():
        np.testing.assert_array_equal(changed.columns()[name][: last + 1], values[: last + 1], err_msg=name)


def test_threads_change_nothing(seen):
    jobs, found = seen
    again = predict_runtimes(jobs, from_log(jobs), 16, seed=0, threads=2, **QUICK)
    np.testing.assert_array_equal(again.distribution.weights, found.distribution.weights)
    other = predict_runtimes(jobs, from_log(jobs), 16, seed=1, **QUICK)
    assert not np.array_equal(other.distribution.weights, found.distribution.weights)


@pytest.mark.parametrize("jobs", [habits()[:0], habits()[:1], habits()[:20]], ids=["none", "one", "few"])
def test_few_jobs_are_predicted_as_always(jobs):
    found = predict_runtimes(jobs, from_log(jobs), 16, **QUICK)
    assert (found.walk_forward.fit == -1).all()
    assert found.columns()["estimate_s"].shape == (len(jobs),)


def test_constant_and_zero_run_times():
    jobs = habits()
    for runtime_s in (np.zeros(len(jobs)), np.full(len(jobs), 77.0)):
        constant = jobs.with_columns(runtime_s=runtime_s)
        found = predict_runtimes(constant, from_log(constant), 16, **QUICK)
        assert found.distribution.most_accurate()[-1] == pytest.approx(max(runtime_s[0], 1.0), rel=0.02)


def test_a_distribution_answers():
    weights = np.zeros((1, BINS))
    weights[0, bin_of(0.0)] = 0.6
    weights[0, bin_of(np.log(100.0))] = 0.4
    two = Distribution(weights, np.log([10.0]), np.array([np.inf]))
    long_s = 10.0 * np.exp(CENTRES[bin_of(np.log(100.0))])
    assert two.median().tolist() == [pytest.approx(10.0)]
    assert two.most_accurate().tolist() == [pytest.approx(10.0)]
    assert two.quantile(0.7).tolist() == [pytest.approx(long_s)]
    assert two.mean().tolist() == [pytest.approx(0.6 * 10 + 0.4 * long_s)]
    assert two.geometric_mean().tolist() == [pytest.approx(10**0.6 * long_s**0.4)]
    assert two.expected_inverse_runtime().tolist() == [pytest.approx(0.6 + 0.4 * 10 / long_s)]
    capped = replace(two, max_s=np.array([50.0]))
    assert capped.quantile(1.0).tolist() == [50.0]
    assert two.level_of(
        np.array(
            [
                10.0,
            ]
        )
    ).tolist() == [pytest.approx(0.3)]


def test_nothing_is_quicker_than_quick():
    """Weights of 32 bits may add up to a little more than 1."""
    random = np.random.default_rng(1)
    weights = random.dirichlet(np.ones(BINS), 500).astype(np.float32)
    weights *= np.float32(1.0000001)
    at_once = Distribution(weights, np.full(500, -5.0), np.full(500, 5.0))
    assert at_once.expected_inverse_runtime().max() == 1.0


def test_a_forest_is_kept_and_read(tmp_path):
    random = np.random.default_rng(0)
    values = random.normal(size=(300, 3))
    values[5, 1] = np.nan
    forest = fit_forest(values, values[:, 0], ForestSettings(trees=5, features=1.0), seed=3)
    forest.save(tmp_path)
    again = Forest.load(tmp_path)
    np.testing.assert_array_equal(again.weights(values), forest.weights(values))
    parts = forest.contributions(values)
    assert np.abs(parts[:, 0]).mean() > 5 * np.abs(parts[:, 1]).mean()
    np.testing.assert_allclose(parts.sum(axis=1), forest.booster.predict(values))
    (tmp_path / "trees.txt").write_text("import os")
    with pytest.raises(InputError, match="no LightGBM trees"):
        Forest.load(tmp_path)
    (tmp_path / "leaves.npz").unlink()
    with pytest.raises(InputError, match="fit it again"):
        Forest.load(tmp_path)


def test_words():
    with pytest.raises(InputError, match="minimum at least 2 jobs"):
        RefitSchedule(jobs=5, min_jobs=10)
