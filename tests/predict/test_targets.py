"""Targets wait, power and energy: times at which they become known, labels, and no data leakage of features."""

from __future__ import annotations

import numpy as np
import pytest

from kilowait.energy.power import ConstantUtilization, PowerModel
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.baselines import predict_baseline
from kilowait.predict.dataset import make_dataset
from kilowait.predict.features import Features, feature_meaning, features_for
from kilowait.predict.forest import ForestSettings
from kilowait.predict.job_history import JobHistory, from_log
from kilowait.predict.models import PredictionModel, TreeSettings
from kilowait.predict.scores import score
from kilowait.predict.targets import energy, power, target_of, wait
from kilowait.predict.walk_forward import RefitSchedule, predictions_of_models
from tests.predict.example_logs import DAY, repetitive_log
from tests.predict.no_lookahead import leaking_features, random_log, with_changed_future


def with_energy(jobs: JobTable) -> JobTable:
    """The jobs with an energy that follows from the run time, so that changed run times change it."""
    joules = jobs["runtime_s"] * jobs["nodes"] * (100.0 + 10.0 * jobs["user"])
    return jobs.with_columns(energy_j=np.where(jobs["job_id"] % 7 == 0, np.nan, joules))


def wait_features(jobs: JobTable, times: JobHistory) -> Features:
    return features_for(jobs, times, 16, wait(jobs, times))


def energy_features(jobs: JobTable, times: JobHistory) -> Features:
    jobs = with_energy(jobs)
    return features_for(jobs, times, 16, energy(jobs, times))


@pytest.mark.parametrize("make", [wait_features, energy_features])
@pytest.mark.parametrize("seed", range(6))
def test_no_data_leakage(make, seed):
    jobs, times = random_log(seed)
    for last in (17, 60, 118):
        assert leaking_features(make, jobs, times, last, seed) == []


@pytest.mark.parametrize("name", ["last2", "recent", "rate"])
def test_no_data_leakage_of_energy_baselines(name):
    jobs, times = random_log(3)
    reference = predict_baseline(name, with_energy(jobs), energy(with_energy(jobs), times))
    assert np.isfinite(reference).all()
    for last in (17, 118):
        later, other_times = with_changed_future(jobs, times, last, jobs["submit_s"][last], 3)
        found = predict_baseline(name, with_energy(later), energy(with_energy(later), other_times))
        np.testing.assert_array_equal(found[: last + 1], reference[: last + 1])


def column(table, name):
    return table.values[:, table.names.index(name)]


def test_wait_features():
    jobs = JobTable(
        job_id=[1, 2, 3],
        submit_s=[0, 10, 100],
        runtime_s=[1000, 1000, 5],
        estimate_s=[3600, 3600, 60],
        nodes=[4, 4, 4],
        wait_s=[0, 20, 5],
    )
    table = wait_features(jobs, from_log(jobs))
    assert column(table, "target_everyone_last")[2] + column(table, "target_anchor")[2] == pytest.approx(np.log(20))
    assert np.exp(table.anchor).round(3).tolist() == [1, 1, round(20**0.5, 3)]  # both still run
    assert np.expm1(column(table, "queued")).round().tolist() == [0, 0, 0]
    late_starts = JobHistory("late", np.array([0.0, 200.0, 300.0]), np.array([1000.0, 1200.0, 305.0]))
    table = wait_features(jobs, late_starts)
    assert np.expm1(column(table, "queued")).round().tolist() == [0, 0, 1]
    assert np.expm1(column(table, "longest_wait")).round().tolist() == [0, 0, 90]
    # The first job has run for 100 of 3,600 s on 4 of 16 nodes.
    assert np.expm1(column(table, "remaining"))[2] == pytest.approx(3500 / 3600 * 4 / 16, rel=1e-3)


def test_every_feature_has_a_meaning():
    jobs, times = random_log(0)
    for name in wait_features(jobs, times).names:
        assert feature_meaning(name)
    with pytest.raises(UnknownNameError, match="target_user_lost"):
        feature_meaning("target_user_lost")


def test_labels_of_power_and_energy():
    jobs = JobTable(
        job_id=[1, 2, 3, 4],
        submit_s=[0, 0, 0, 0],
        runtime_s=[10, 10, 10, 10],
        nodes=[1, 2, 1, 1],
        energy_j=[1000, 0, np.nan, 1e9],
        wait_s=[0] * 4,
    )
    times, taurus = from_log(jobs), PowerModel.preset("taurus")
    full_w = float(taurus.group().node_w(1.0))
    measured = power(jobs, times)
    assert measured.values.tolist() == [
        100,
        pytest.approx(np.nan, nan_ok=True),
        *[pytest.approx(np.nan, nan_ok=True)] * 2,
    ]
    assert np.isinf(measured.known_s[1:]).all()
    assert measured.labels == (
        "measured: 1 with power from measured energy; 1 not measured; 1 measured as 0 J; 1 implausibly high"
    )
    model = power(jobs, times, labels="model", model=taurus)
    assert model.values == pytest.approx(full_w * np.array([1, 2, 1, 1]))
    assert model.labels == "power model taurus"
    both = energy(jobs, times, labels="both", model=taurus, utilization=ConstantUtilization(0.0))
    assert both.values == pytest.approx([1000, *(10 * taurus.group().idle_w * np.array([2, 1, 1]))])
    assert both.labels.endswith("implausibly high; else power model taurus")


def test_forest_learns_typical_energy():
    jobs = repetitive_log()
    jobs = jobs.with_columns(energy_j=jobs["runtime_s"] * np.choose(jobs["user"], [50.0, 200.0, 400.0]))
    dataset = make_dataset(jobs, from_log(jobs), 16, energy(jobs, from_log(jobs)))
    models = [PredictionModel.of(name) for name in ("rate", "last2", "forest:accurate")]
    predicted = {
        entry.model.text: score(entry.values[450:], dataset.target.values[450:])
        for entry in predictions_of_models(
            models,
            dataset,
            online=RefitSchedule(every_s=DAY, jobs=600, min_jobs=50),
            settings=TreeSettings(ForestSettings(trees=10, leaves=31)),
        )
    }
    assert predicted["forest:accurate"].accuracy > max(predicted["last2"].accuracy, predicted["rate"].accuracy) + 0.05


def test_invalid_arguments():
    jobs = repetitive_log()[:60]
    times = from_log(jobs)
    with pytest.raises(
        InputError, match="none of 60 jobs has usable measured energy.*60 not measured.*use a power model"
    ):
        energy(jobs, times)
    with pytest.raises(InputError, match="'both', which needs a power model"):
        power(jobs, times, labels="both")
    with pytest.raises(UnknownNameError, match="guessed"):
        power(jobs, times, labels="guessed")
    with pytest.raises(UnknownNameError, match="did you mean 'energy'"):
        target_of("enrgy", jobs, times)
    with pytest.raises(InputError, match="rate is a prediction of power and energy, not of wait"):
        predict_baseline("rate", jobs, wait(jobs, times))
    with pytest.raises(InputError, match="forest's mean is unsuitable for wait, which has no upper bound"):
        list(
            predictions_of_models([PredictionModel.of("forest:mean")], make_dataset(jobs, times, 16, wait(jobs, times)))
        )
    with pytest.raises(InputError, match="60 of 60 jobs have no request for wait"):
        predict_baseline("request", jobs, wait(jobs, times))
