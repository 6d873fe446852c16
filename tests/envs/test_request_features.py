"""Request features of observations: memory, priority, queue and account, off by default."""

from __future__ import annotations

import numpy as np
import pytest

import kilowait as kw
from kilowait.envs.batch_env import BatchVectorEnv, DecisionSettings
from kilowait.envs.observation_spec import FEATURES, REQUEST_FEATURES, energy_feature_names, request_features
from tests.envs.energy_workloads import energy, quiet


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


REQUESTS = {
    "memory_mb": [0, 8 * 64e3, 4 * 1000],
    "priority": [0, 4, -1],
    "queue": [0, 1, -1],
    "account": [3, 3, 4],
    "labels": {"queue": ("batch", "debug")},
}


def batch(table: kw.JobTable, **arguments) -> BatchVectorEnv:
    """One copy on 16 nodes."""
    return BatchVectorEnv(1, jobs=table, cluster=kw.Cluster.from_nodes(16), threads=1, episode_jobs=3, **arguments)


def test_values_of_waiting_jobs():
    vec = batch(jobs(**REQUESTS), queue_window=4, request_features=True)
    observation, _ = vec.reset()
    assert vec.observation_spec.features == (*FEATURES, *REQUEST_FEATURES)
    first, second = (dict(zip(vec.observation_spec.features, row, strict=True)) for row in observation["jobs"][0, :2])
    assert first["memory"] == pytest.approx(np.log(65) / 5) and second["memory"] == pytest.approx(np.log(2) / 5)
    assert first["priority"] == pytest.approx(0.8) and second["priority"] == pytest.approx(-0.5)
    assert first["queue_cos"] ** 2 + first["queue_sin"] ** 2 == pytest.approx(1)
    assert second["queue_cos"] == second["queue_sin"] == 0
    assert (first["account_cos"], first["account_sin"]) != (second["account_cos"], second["account_sin"])
    plain, _ = batch(jobs(**REQUESTS), queue_window=4).reset()
    np.testing.assert_array_equal(observation["jobs"][:, :, : len(FEATURES)], plain["jobs"])


def test_a_name_has_the_same_numbers_on_every_log():
    one = request_features(jobs(queue=[0, 1, 0], labels={"queue": ("batch", "debug")}))
    other = request_features(jobs(queue=[1, 0, 0], labels={"queue": ("debug", "batch")}))
    np.testing.assert_array_equal(one[:2], other[:2])
    assert (one[0] != one[1]).any()


def test_logs_without_these_columns_have_zeros():
    assert not request_features(jobs()).any()


def test_request_features_are_off_by_default():
    assert DecisionSettings().observation_spec.features == tuple(FEATURES)
    assert len(energy_feature_names(True, True)) == len(energy_feature_names(True)) + len(REQUEST_FEATURES)


def test_request_features_with_power():
    log = quiet(60, 1)
    log = log.with_columns(priority=np.arange(len(log)))
    plain, requests = energy(log, episode_jobs=40), energy(log, episode_jobs=40, request_features=True)
    names = requests.observation_spec.features
    assert names[len(FEATURES) : len(FEATURES) + len(REQUEST_FEATURES)] == tuple(REQUEST_FEATURES)
    one, two = plain.reset(seed=1)[0]["jobs"], requests.reset(seed=1)[0]["jobs"]
    kept = [index for index, name in enumerate(names) if name not in REQUEST_FEATURES]
    np.testing.assert_array_equal(one, two[:, :, kept])
    assert two[0, :, names.index("priority")].any()
