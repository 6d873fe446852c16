"""Features: no data leakage in any column, and the values of the columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable
from kilowait.predict.features import Features, feature_meaning, feature_table, select_columns
from kilowait.predict.job_history import JobHistory, from_log
from tests.predict.no_lookahead import leaking_features, random_log


def features_of(jobs: JobTable, times: JobHistory) -> Features:
    return feature_table(jobs, times, 16)


@pytest.mark.parametrize("seed", range(20))
def test_no_data_leakage(seed):
    jobs, times = random_log(seed)
    for last in (0, 1, 17, 60, 118):
        assert leaking_features(features_of, jobs, times, last, seed) == []


def with_leaking_column(leak):
    def make(jobs: JobTable, times: JobHistory) -> Features:
        table = feature_table(jobs, times, 16)
        return replace(table, names=(*table.names, "leak"), values=np.column_stack([table.values, leak(jobs, times)]))

    return make


LEAKS = {
    "its own run time": lambda jobs, times: jobs["runtime_s"],
    "mean of the log": lambda jobs, times: np.full(len(jobs), jobs["runtime_s"].mean()),
    "previous job, ended or not": lambda jobs, times: np.roll(jobs["runtime_s"], 1),
    "its own wait": lambda jobs, times: times.start_s - jobs["submit_s"],
    "number of users": lambda jobs, times: np.full(len(jobs), float(len(np.unique(jobs["user"])))),
    "number of later jobs": lambda jobs, times: np.arange(len(jobs))[::-1].astype(float),
}


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_detected(name):
    detected = set()
    for seed in range(4):
        jobs, times = random_log(seed)
        for last in (3, 60):
            detected |= set(leaking_features(with_leaking_column(LEAKS[name]), jobs, times, last, seed))
    assert detected == {"leak"}


def log(**columns):
    default = {"estimate_s": [3600, 3600, 3600], "user": [1, 1, 2], "wait_s": [0, 0, 0]}
    return JobTable(
        job_id=[1, 2, 3], submit_s=[0, 500, 500], runtime_s=[100, 40, 7], nodes=[4, 4, 4], **{**default, **columns}
    )


def column(table, name):
    return table.values[:, table.names.index(name)]


def test_values_of_columns():
    table = features_of(log(), from_log(log()))
    assert np.exp(table.anchor).round().tolist() == [1324, 100, 1324]  # the default, the previous job, the default
    assert column(table, "user_count").round(3).tolist() == [0, 0.693, 0]
    assert column(table, "user_last")[1] == 0.0
    assert np.isnan(column(table, "user_last")[[0, 2]]).all()
    assert column(table, "user_since")[1] == pytest.approx(np.log1p(400))
    assert column(table, "everyone_inverse")[2] == pytest.approx(0.1)
    assert column(table, "same_request").tolist() == [0, 1, 0]
    assert column(table, "utilization").tolist() == [0, 0, 0.25]  # the second job starts before the third is submitted
    assert column(table, "user_running").tolist() == [0, 0, 0]
    running = from_log(log(wait_s=[0, 0, 0]).with_columns(runtime_s=[9000, 40, 7]))
    table = features_of(log(), running)
    assert column(table, "user_running").tolist() == [0, 1, 0]
    assert column(table, "user_elapsed")[1] == pytest.approx(np.log1p(500))


def test_logs_without_users_requests_or_jobs():
    bare = JobTable(job_id=[1, 2], submit_s=[0, 50], runtime_s=[10, 20], nodes=[1, 1], wait_s=[0, 0])
    table = features_of(bare, from_log(bare))
    assert np.isnan(table.request).all()
    assert np.exp(table.anchor).round().tolist() == [3600, 10]  # without users all jobs belong to one user
    assert len(features_of(bare[:0], from_log(bare[:0]))) == 0


def test_columns_are_selected_by_name():
    table = features_of(log(), from_log(log()))
    found = select_columns(table, ["nodes", "gpus"])
    assert found[:, 0] == pytest.approx(np.log([4, 4, 4]))
    assert np.isnan(found[:, 1]).all()


def test_every_feature_has_a_meaning():
    jobs, times = random_log(0)
    table = features_of(jobs.with_columns(gpus=jobs["nodes"], cores=jobs["nodes"], qos=jobs["queue"]), times)
    for name in table.names:
        assert feature_meaning(name)
    with pytest.raises(UnknownNameError, match="user_lost"):
        feature_meaning("user_lost")


def test_invalid_jobs():
    jobs = log()
    with pytest.raises(InputError, match=r"jobs.sorted\(\)"):
        features_of(jobs[[2, 1, 0]], from_log(jobs))
    with pytest.raises(InputError, match="wait time for 1 of 3 jobs.*simulation"):
        from_log(log(wait_s=[0, np.nan, 0]))
