"""Comparison of prediction models on one log: evaluated jobs, metrics, confidence intervals."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.prediction.evaluation import evaluate_predictors, history_of
from kilowait.predict.dataset import make_dataset
from kilowait.predict.forest import ForestSettings
from kilowait.predict.job_history import from_log
from kilowait.predict.models import PredictionModel, TreeSettings
from kilowait.predict.scores import score
from kilowait.predict.walk_forward import RefitSchedule
from tests.predict.example_logs import DAY, repetitive_log

MACHINE = Cluster.from_nodes(16)


def weekly_log():
    """The jobs of `repetitive_log`, with its days stretched to weeks."""
    jobs = repetitive_log()
    return jobs.with_columns(submit_s=jobs["submit_s"] * 7)


@pytest.fixture(scope="module")
def comparison():
    jobs = weekly_log()
    names = ("request", "last2", "forest:accurate", "forest:median")
    return jobs, evaluate_predictors(
        make_dataset(jobs, from_log(jobs), 16),
        [PredictionModel.of(name) for name in names],
        test_fraction=0.5,
        classes=("user-jobs",),
        online=RefitSchedule(every_s=7 * DAY, jobs=600, min_jobs=50, calibration_jobs=300),
        settings=TreeSettings(ForestSettings(trees=10, leaves=31)),
    )


def test_only_later_jobs_are_evaluated(comparison):
    jobs, result = comparison
    assert (result.jobs, result.evaluated_jobs, result.weeks) == (900, 450, 5)
    row = result.row("request")
    assert row.scores == score(np.full(450, 3600.0), jobs["runtime_s"][450:])
    assert row.ratio == {} and row.scores.underprediction_rate < 0.01
    assert sum(scores.jobs for scores in row.classes["user-jobs"].values()) == 450


def test_intervals_contain_values(comparison):
    _, result = comparison
    for row in result.rows:
        for name, (low, high) in row.intervals.items():
            assert low <= getattr(row.scores, name) <= high
    ratio, (low, high) = result.row("forest:accurate").ratio["accuracy"]
    last2 = result.row("last2").scores.accuracy
    assert ratio == pytest.approx(result.row("forest:accurate").scores.accuracy / last2)
    assert 1 < low < ratio < high
    assert result.row("forest:median").ratio["log_rmse"][0] < 1


def test_forest_is_fitted_once_and_quantiles_cover_their_level(comparison):
    _, result = comparison
    assert result.row("forest:accurate").seconds == result.row("forest:median").seconds > 0
    assert list(result.coverage) == [0.5, 0.9, 0.97]
    covered, covered_limited = result.coverage[0.9]
    assert covered == pytest.approx(0.9, abs=0.06) and covered <= covered_limited <= 1


def test_histories_from_log_and_simulation():
    jobs = repetitive_log()
    assert history_of(jobs, MACHINE)[1].name == "log"
    wait_s = np.where(np.arange(900) == 7, np.nan, 0.0)
    known, times, notes = history_of(jobs.with_columns(wait_s=wait_s), MACHINE)
    assert len(known) == len(times.end_s) == 899
    assert notes == ("the log has no wait time for 1 of 900 jobs: left out",)
    unknown = jobs.with_columns(wait_s=None)
    _, times, notes = history_of(unknown, MACHINE)
    assert times.name == "simulated: fcfs, backfill easy" and "simulation" in notes[0]
    assert history_of(jobs, MACHINE, "simulated")[1].name.startswith("simulated")
    with pytest.raises(InputError, match="no wait time for 900 of 900 jobs"):
        history_of(unknown, MACHINE, "log")
    with pytest.raises(UnknownNameError, match="real"):
        history_of(jobs, MACHINE, "real")


def test_errors():
    jobs = repetitive_log()
    dataset = make_dataset(jobs, from_log(jobs), 16)
    with pytest.raises(InputError, match="the test fraction is 0; it must be above 0"):
        evaluate_predictors(dataset, [PredictionModel.of("last2")], test_fraction=0)
    with pytest.raises(InputError, match="of 0 jobs none"):
        evaluate_predictors(make_dataset(jobs[:0], from_log(jobs[:0]), 16), [PredictionModel.of("last2")])
