"""--runtime-predictor FOLDER and --power-predictor FOLDER in simulate, compare, train and evaluate."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from kilowait.cli import main
from kilowait.jobs import JobTable
from kilowait.traces import write_trace
from tests.predict.example_logs import repetitive_log

LEAKAGE = "of the evaluated jobs had been submitted (data leakage)"
SMALL = ("--cluster", 4, "--generations", 1, "--population", 4, "--windows", 2, "--window", 50)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "habits.parquet"
    jobs = repetitive_log()
    columns = {name: jobs[name] for name in jobs.columns}
    queues = {"queue": ("short", "long")}
    joules = jobs["runtime_s"] * 150.0
    write_trace(JobTable(labels=queues, **columns, queue=(jobs["user"] == 1).astype(int), energy_j=joules), path)
    return path


def fitted(log, folder, *more_args):
    args = ["predict", "fit", log, "--cluster", 4, "--jobs", 500, "--model", "last2", "--out", folder, *more_args]
    assert main([str(word) for word in args]) == 0
    return folder


@pytest.fixture(scope="module")
def predictor(log, tmp_path_factory):
    """A predictor fitted on the first 500 of 900 jobs."""
    return fitted(log, tmp_path_factory.mktemp("saved") / "p", "--model", "boosting:median")


def test_simulate(kilowait, log, predictor, tmp_path):
    args = ("simulate", log, "--cluster", 4, "--policy", "saf", "--runtime-predictor", predictor)
    result = kilowait(*args, "--out", tmp_path / "run")
    assert f"500 {LEAKAGE}" in result.err
    record = json.loads((tmp_path / "run" / "manifest.json").read_text())["predictors"][0]
    assert record["card_sha256"] == hashlib.sha256((predictor / "card.json").read_bytes()).hexdigest()
    assert record["leaked_test_jobs"] == 500 and LEAKAGE in record["note"]
    later = kilowait(*args, "--jobs", "500:", "--out", tmp_path / "later")
    assert "judged" not in later.err
    record = json.loads((tmp_path / "later" / "manifest.json").read_text())["predictors"][0]
    assert record["leaked_test_jobs"] == 0 and record["note"] is None
    from pyarrow import parquet

    jobs = parquet.read_table(tmp_path / "later" / "jobs.parquet")
    assert {"planned_s", "overrun_planned_s", "limit_s"} <= set(jobs.column_names)
    assert not np.array_equal(jobs["estimate_s"], jobs["limit_s"])


def test_compare(kilowait, log, predictor, tmp_path):
    args = ("compare", log, "--cluster", 4, "--policies", "saf", "--runtime-predictor", predictor)
    result = kilowait(*args, "--out", tmp_path / "both")
    assert f"500 {LEAKAGE}" in result.err and "saf (users)" in result.out
    record = json.loads((tmp_path / "both" / "manifest.json").read_text())["predictors"]
    assert record[str(log)][0]["leaked_test_jobs"] == 500
    later = kilowait(*args, "--windows", 2, "--window", 100, "--split", "test")
    assert later.status == 0 and "evaluated jobs" not in later.err


def test_train_and_evaluate(kilowait, log, predictor, tmp_path):
    result = kilowait("train", log, *SMALL, "--runtime-predictor", predictor, "--out", tmp_path / "es")
    assert result.status == 0 and "evaluated jobs" not in result.err
    record = json.loads((tmp_path / "es" / "manifest.json").read_text())["predictors"][0]
    assert record["leaked_test_jobs"] == 0
    args = ("evaluate", tmp_path / "es", log, *SMALL[:2], "--windows", 2, "--window", 100)
    assert LEAKAGE in kilowait(*args, "--policies", "saf", "--test-fraction", 0.9, "--runtime-predictor", predictor).err
    assert (
        LEAKAGE
        not in kilowait(*args, "--policies", "saf", "--test-fraction", 0.3, "--runtime-predictor", predictor).err
    )


def test_error_messages(kilowait, log, predictor, tmp_path):
    args = ("simulate", log, "--cluster", 4, "--runtime-predictor")
    assert "there is no folder" in kilowait(*args, tmp_path / "none").error()
    assert "contains no predictor" in kilowait(*args, tmp_path).error()
    assert "did you mean 'forest'" in kilowait(*args, "forrest").error()
    power_predictor = fitted(log, tmp_path / "watts", "--target", "power")
    assert f"the predictor {power_predictor} predicts power, not runtime" in kilowait(*args, power_predictor).error()
    without_queue = tmp_path / "bare.parquet"
    write_trace(repetitive_log(), without_queue)
    error = kilowait("simulate", without_queue, "--cluster", 4, "--runtime-predictor", predictor).error()
    assert "features that the predictor uses (queue" in error and "or fit one on this log" in error


def test_power_budget_with_a_saved_power_predictor(kilowait, log, tmp_path):
    power_predictor = fitted(log, tmp_path / "watts", "--target", "power")
    args = (
        "simulate",
        log,
        "--cluster",
        4,
        "--power",
        "taurus",
        "--power-controls",
        "budget=480W",
        "--out",
        tmp_path / "run",
    )
    result = kilowait(*args, "--power-predictor", power_predictor)
    assert "by the predicted power of jobs" in result.out and "\npower budget " in result.out
    assert f"the predictor of power {power_predictor} was fitted on jobs of habits.parquet" in result.err
    budget = json.loads((tmp_path / "run" / "results.json").read_text())["energy"]["budget"]
    assert budget["budget_w"] == 480 and 0 <= budget["time_share"] < 1
    record = json.loads((tmp_path / "run" / "manifest.json").read_text())["predictors"][0]
    assert record["target"] == "power" and record["leaked_test_jobs"] == 500
    times = fitted(log, tmp_path / "times")
    assert (
        f"the predictor {times} predicts runtime, not power" in kilowait(*args[:-2], "--power-predictor", times).error()
    )
    error = kilowait("compare", log, "--power-predictor", "forest").error()
    assert "--power-predictor has no effect without a power model" in error


def test_prediction_features_in_training(kilowait, log, predictor, tmp_path):
    sizes = ("--num-envs", 2, "--episode-jobs", 20, "--queue-window", 8, "--window", 50, "--windows", 2, "--cluster", 4)
    args = (
        "train",
        log,
        "--algo",
        "ppo",
        "--total-timesteps",
        128,
        *sizes,
        "--out",
        tmp_path / "ppo",
        "--runtime-predictor",
        predictor,
    )
    result = kilowait(*args, "--prediction-features")
    assert result.status == 0, result.err
    results = (tmp_path / "ppo" / "results.json").read_text()
    assert "run time that reservations assume" in results
    options = ("--cluster", 4, "--windows", 2, "--window", 50, "--policies", "saf")
    assert "agent" in kilowait("evaluate", tmp_path / "ppo", log, *options, "--runtime-predictor", predictor).out
    assert (
        "the jobs have no predicted run times (column planned_s)"
        in kilowait("evaluate", tmp_path / "ppo", log, *options).err
    )
    error = kilowait("train", log, "--algo", "ppo", "--prediction-features", "--out", tmp_path / "x").error()
    assert "--prediction-features adds predictions to the observation of networks; it needs" in error
