"""Prediction features of observations: values, off by default, in both environments."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.envs.batch_env import BatchVectorEnv, DecisionSettings
from kilowait.envs.observation_spec import ENERGY_FEATURES as OF_ENERGY
from kilowait.envs.observation_spec import FEATURES, PREDICTION_FEATURES, prediction_features
from kilowait.envs.observation_spec import energy_feature_names as feature_names
from kilowait.errors import InputError
from tests.envs.energy_workloads import energy, quiet

NAN = float("nan")


def batch(table: kw.JobTable, **arguments) -> BatchVectorEnv:
    """One copy on 16 nodes."""
    return BatchVectorEnv(1, jobs=table, cluster=kw.Cluster.from_nodes(16), threads=1, **arguments)


def jobs(**columns) -> kw.JobTable:
    """At 7,200 s one job runs and two wait, of which one fits."""
    return kw.JobTable(
        job_id=[1, 2, 3],
        submit_s=[0, 3600, 7200],
        runtime_s=[36000, 60, 60],
        estimate_s=[36000, 3600, 1800],
        nodes=[12, 8, 4],
        **columns,
    )


PREDICTIONS = {
    "planned_s": [40000, 7200, 2700],
    "expected_inverse_runtime": [0.1, 0.25, NAN],
    "limit_s": [50000, 14400, NAN],
}


def test_prediction_feature_values():
    vec = batch(jobs(**PREDICTIONS), episode_jobs=3, queue_window=4, prediction_features=True)
    observation, _ = vec.reset()
    assert vec.observation_spec.features == (*FEATURES, *PREDICTION_FEATURES)
    rows = [dict(zip(vec.observation_spec.features, row.tolist(), strict=True)) for row in observation["jobs"][0]]
    assert rows[0]["bound"] == pytest.approx(np.log(2) / 3)
    assert rows[1]["bound"] == pytest.approx(np.log(0.75) / 3)
    assert rows[0]["expected_inverse_runtime"] == 0.25
    assert rows[1]["expected_inverse_runtime"] == pytest.approx(
        10 / 1800
    )  # from the estimate, where there is no prediction
    assert rows[0]["cut"] == pytest.approx(np.log(0.25) / 3) and rows[1]["cut"] == 0
    assert rows[0]["place"] == 0 and rows[1]["place"] == 0.5 and rows[1]["fits"] == 1
    assert not observation["jobs"][0, 2:].any()
    plain, _ = batch(jobs(**PREDICTIONS), episode_jobs=3, queue_window=4).reset()
    np.testing.assert_array_equal(observation["jobs"][:, :, : len(FEATURES)], plain["jobs"])


def test_planned_run_time_is_at_most_the_request():
    features = prediction_features(jobs(**{**PREDICTIONS, "planned_s": [40000, 99999, NAN]}))
    assert features[1, 0] == pytest.approx(np.log(4) / 3)
    assert features[2, 0] == pytest.approx(np.log(0.5) / 3)  # the estimate, where nothing is planned


def test_prediction_features_are_off_by_default():
    assert DecisionSettings().observation_spec.features == tuple(FEATURES)
    assert batch(jobs(**PREDICTIONS), episode_jobs=3).observation_spec.features == tuple(FEATURES)
    assert feature_names(False) == tuple(OF_ENERGY)


def test_jobs_without_predictions_raise_an_error():
    with pytest.raises(InputError, match="no predicted run times .column planned_s.; predict run times"):
        batch(jobs(), episode_jobs=3, prediction_features=True)


def test_prediction_features_with_power():
    log = quiet(60, 1)
    log = log.with_columns(
        planned_s=log["estimate_s"] * 2, limit_s=log["estimate_s"] * 4, expected_inverse_runtime=np.full(60, 0.5)
    )
    plain, with_predictions = (energy(log, episode_jobs=40), energy(log, episode_jobs=40, prediction_features=True))
    assert with_predictions.observation_spec.features == feature_names(True)
    observation, extended = plain.reset(seed=1)[0], with_predictions.reset(seed=1)[0]
    checked_jobs = 0
    for _ in range(200):
        columns_by_name = {
            name: extended["jobs"][0][:, at] for at, name in enumerate(with_predictions.observation_spec.features)
        }
        for at, name in enumerate(plain.observation_spec.features):
            np.testing.assert_array_equal(columns_by_name[name], observation["jobs"][0][:, at])
        there = observation["jobs"][0].any(axis=1)
        np.testing.assert_allclose(
            (columns_by_name["bound"] - columns_by_name["length"])[there], np.log(2) / 3, atol=1e-6
        )
        np.testing.assert_allclose(columns_by_name["cut"][there], -np.log(4) / 3, atol=1e-6)
        assert (columns_by_name["expected_inverse_runtime"] == np.where(there, 0.5, 0)).all()
        checked_jobs += int(there.sum())
        action = observation["mask"].argmax(axis=1)
        observation, _, over, *_ = plain.step(action)
        extended = with_predictions.step(action)[0]
        if over[0]:
            break
    assert checked_jobs > 20


def test_power_features_use_predicted_power():
    log = quiet(60, 1)
    watts = np.full(60, 300.0)
    log = log.with_columns(power_w=watts, predicted_power_w=watts / 2)
    half = energy(
        log.with_columns(power_w=watts / 2, predicted_power_w=None), episode_jobs=40, power_controls="dvfs=1.2"
    )
    vec = energy(log, episode_jobs=40, power_controls="dvfs=1.2")
    np.testing.assert_array_equal(vec.power_setup.power_tables.features, half.power_setup.power_tables.features)
    assert (
        vec.power_setup.power_tables.above_w > half.power_setup.power_tables.above_w
    ).any()  # the reward uses the actual power
