"""Models on one log: which jobs count, what is said of them, how sure it is."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.cluster import Cluster
from kilowait.errors import InputError, UnknownNameError
from kilowait.experiments.evaluate_predictors import evaluate_predictors, history_of
from kilowait.predict.dataset import make_dataset
from kilowait.predict.forest import ForestSettings
from kilowait.predict.known_times import from_log
from kilowait.predict.models import PredictionModel
from kilowait.predict.scores import score
from kilowait.predict.walk_forward import RefitSchedule
from tests.predict.example_logs import DAY, habits

MACHINE = Cluster.from_nodes(16)


def weeks_of_habits():
    """The days of `habits` as weeks."""
    jobs = habits()
    return jobs.with_columns(submit_s=jobs["submit_s"] * 7)


@pytest.fixture(scope="module")
def done():
    jobs = weeks_of_habits()
    names = ("request", "last2", "forest:accurate", "forest:median")
    return jobs, evaluate_predictors(
        make_dataset(jobs, from_log(jobs), 16),
        [PredictionModel.of(name) for name in names],
        part=0.5,
        classes=("user-jobs",),
        online=RefitSchedule(every_s=7 * DAY, jobs=600, min_jobs=50, calibration_jobs=300),
        forest=ForestSettings(trees=10, leaves=31),
    )


def test_the_later_jobs_count(done):
    jobs, found = done
    assert (found.jobs, found.evaluated_jobs, found.weeks) == (900, 450, 5)
    row = found.row("request")
    assert row.scores == score(np.full(450, 3600.0), jobs["runtime_s"][450:])
    assert row.ratio == {} and row.scores.underprediction_rate < 0.01
    assert sum(one.jobs for one in row.classes["user-jobs"].values()) == 450


def test_intervals_lie_around_the_values(done):
    _, found = done
    for row in found.rows:
        for name, (low, high) in row.intervals.items():
            assert low <= getattr(row.scores, name) <= high
    ratio, (low, high) = found.row("forest:accurate").ratio["accuracy"]
    last2 = found.row("last2").scores.accuracy
    assert ratio == pytest.approx(found.row("forest:accurate").scores.accuracy / last2)
    assert 1 < low < ratio < high
    assert found.row("forest:median").ratio["log_rmse"][0] < 1


def test_the_forest_is_timed_once_and_keeps_its_levels(done):
    _, found = done
    assert found.row("forest:accurate").seconds == found.row("forest:median").seconds > 0
    assert list(found.coverage) == [0.5, 0.9, 0.97]
    ran, kept = found.coverage[0.9]
    assert ran == pytest.approx(0.9, abs=0.06) and ran <= kept <= 1


def test_worlds():
    jobs = habits()
    assert history_of(jobs, MACHINE)[1].name == "log"
    one = np.where(np.arange(900) == 7, np.nan, 0.0)
    left, times, notes = history_of(jobs.with_columns(wait_s=one), MACHINE)
    assert len(left) == len(times.end_s) == 899
    assert notes == ("the log has no wait time for 1 of 900 jobs: left out",)
    unknown = jobs.with_columns(wait_s=None)
    _, times, notes = history_of(unknown, MACHINE)
    assert times.name == "simulated: fcfs, backfill easy" and "simulation" in notes[0]
    assert history_of(jobs, MACHINE, "simulated")[1].name.startswith("simulated")
    with pytest.raises(InputError, match="no wait time for 900 of 900 jobs"):
        history_of(unknown, MACHINE, "log")
    with pytest.raises(UnknownNameError, match="real"):
        history_of(jobs, MACHINE, "real")


def test_words():
    jobs = habits()
    dataset = make_dataset(jobs, from_log(jobs), 16)
    with pytest.raises(InputError, match="the test fraction is 0; it must be above 0"):
        evaluate_predictors(dataset, [PredictionModel.of("last2")], part=0)
    with pytest.raises(InputError, match="of 0 jobs none"):
        evaluate_predictors(make_dataset(jobs[:0], from_log(jobs[:0]), 16), [PredictionModel.of("last2")])
