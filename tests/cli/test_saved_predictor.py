"""--runtime-predictor FOLDER: a kept predictor in simulate, compare, train and evaluate, and what they say of it."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from kilowait.cli import main
from kilowait.jobs import JobTable
from kilowait.traces import write_trace
from tests.predict.example_logs import habits

LEAKAGE = "of the evaluated jobs had been submitted (data leakage)"
FEW = ("--cluster", 4, "--generations", 1, "--population", 4, "--windows", 2, "--window", 50)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs") / "habits.parquet"
    jobs = habits()
    columns = {name: jobs[name] for name in jobs.columns}
    queues = {"queue": ("short", "long")}
    joules = jobs["runtime_s"] * 150.0
    write_trace(
        JobTable(labels=queues, **columns, queue=(jobs["user"] == 1).astype(int), energy_j=joules), path
    )
    return path


def fitted(log, folder, *words):
    asked = [
        "predict",
        "fit",
        log,
        "--cluster",
        4,
        "--jobs",
        500,
        "--model",
        "last2",
        "--out",
        folder,
        *words,
    ]
    assert main([str(word) for word in asked]) == 0
    return folder


@pytest.fixture(scope="module")
def kept(log, tmp_path_factory):
    """Of the first 500 of 900 jobs."""
    return fitted(log, tmp_path_factory.mktemp("kept") / "p", "--model", "boosting:median")


def test_simulate(kilowait, log, kept, tmp_path):
    words = ("simulate", log, "--cluster", 4, "--policy", "saf", "--runtime-predictor", kept)
    said = kilowait(*words, "--out", tmp_path / "run")
    assert f"500 {LEAKAGE}" in said.err
    told = json.loads((tmp_path / "run" / "manifest.json").read_text())["predictors"][0]
    assert told["card_sha256"] == hashlib.sha256((kept / "card.json").read_bytes()).hexdigest()
    assert told["leaked_test_jobs"] == 500 and LEAKAGE in told["note"]
    later = kilowait(*words, "--jobs", "500:", "--out", tmp_path / "later")
    assert "judged" not in later.err
    told = json.loads((tmp_path / "later" / "manifest.json").read_text())["predictors"][0]
    assert told["leaked_test_jobs"] == 0 and told["note"] is None
    from pyarrow import parquet

    jobs = parquet.read_table(tmp_path / "later" / "jobs.parquet")
    assert {"planned_s", "overrun_planned_s", "limit_s"} <= set(jobs.column_names)
    assert not np.array_equal(jobs["estimate_s"], jobs["limit_s"])


def test_compare(kilowait, log, kept, tmp_path):
    words = ("compare", log, "--cluster", 4, "--policies", "saf", "--runtime-predictor", kept)
    said = kilowait(*words, "--out", tmp_path / "both")
    assert f"500 {LEAKAGE}" in said.err and "saf (users)" in said.out
    told = json.loads((tmp_path / "both" / "manifest.json").read_text())["predictors"]
    assert told[str(log)][0]["leaked_test_jobs"] == 500
    later = kilowait(*words, "--windows", 2, "--window", 100, "--split", "test")
    assert later.status == 0 and "evaluated jobs" not in later.err


def test_train_and_evaluate(kilowait, log, kept, tmp_path):
    said = kilowait("train", log, *FEW, "--runtime-predictor", kept, "--out", tmp_path / "es")
    assert said.status == 0 and "evaluated jobs" not in said.err
    told = json.loads((tmp_path / "es" / "manifest.json").read_text())["predictors"][0]
    assert told["leaked_test_jobs"] == 0
    words = ("evaluate", tmp_path / "es", log, *FEW[:2], "--windows", 2, "--window", 100)
    assert (
        LEAKAGE
        in kilowait(*words, "--policies", "saf", "--test-fraction", 0.9, "--runtime-predictor", kept).err
    )
    assert (
        LEAKAGE
        not in kilowait(*words, "--policies", "saf", "--test-fraction", 0.3, "--runtime-predictor", kept).err
    )


def test_what_is_wrong_is_told(kilowait, log, kept, tmp_path):
    words = ("simulate", log, "--cluster", 4, "--runtime-predictor")
    assert "there is no folder" in kilowait(*words, tmp_path / "none").error()
    assert "contains no predictor" in kilowait(*words, tmp_path).error()
    assert "did you mean 'forest'" in kilowait(*words, "forrest").error()
    watts = fitted(log, tmp_path / "watts", "--target", "power")
    assert f"the predictor {watts} predicts power, not runtime" in kilowait(*words, watts).error()
    bare = tmp_path / "bare.parquet"
    write_trace(habits(), bare)
    error = kilowait("simulate", bare, "--cluster", 4, "--runtime-predictor", kept).error()
    assert "features that the predictor uses (queue" in error and "or fit one on this log" in error


def test_a_budget_by_a_kept_predictor_of_power(kilowait, log, tmp_path):
    watts = fitted(log, tmp_path / "watts", "--target", "power")
    words = (
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
    said = kilowait(*words, "--power-predictor", watts)
    assert "by the predicted power of jobs" in said.out and "\npower budget " in said.out
    assert f"the predictor of power {watts} was fitted on jobs of habits.parquet" in said.err
    told = json.loads((tmp_path / "run" / "results.json").read_text())["energy"]["budget"]
    assert told["budget_w"] == 480 and 0 <= told["time_share"] < 1
    kept = json.loads((tmp_path / "run" / "manifest.json").read_text())["predictors"][0]
    assert kept["target"] == "power" and kept["leaked_test_jobs"] == 500
    times = fitted(log, tmp_path / "times")
    assert (
        f"the predictor {times} predicts runtime, not power"
        in kilowait(*words[:-2], "--power-predictor", times).error()
    )
    error = kilowait("compare", log, "--power-predictor", "forest").error()
    assert "--power-predictor is of no use without a power model" in error


def test_a_network_is_told_what_predictions_know(kilowait, log, kept, tmp_path):
    small = (
        "--num-envs",
        2,
        "--episode-jobs",
        20,
        "--queue-window",
        8,
        "--window",
        50,
        "--windows",
        2,
        "--cluster",
        4,
    )
    words = (
        "train",
        log,
        "--algo",
        "ppo",
        "--total-timesteps",
        128,
        *small,
        "--out",
        tmp_path / "ppo",
        "--runtime-predictor",
        kept,
    )
    said = kilowait(*words, "--prediction-features")
    assert said.status == 0, said.err
    explained = (tmp_path / "ppo" / "results.json").read_text()
    assert "run time that reservations assume" in explained
    few = ("--cluster", 4, "--windows", 2, "--window", 50, "--policies", "saf")
    assert "agent" in kilowait("evaluate", tmp_path / "ppo", log, *few, "--runtime-predictor", kept).out
    assert (
        "the jobs have no predicted run times (column planned_s)"
        in kilowait("evaluate", tmp_path / "ppo", log, *few).err
    )
    error = kilowait("train", log, "--algo", "ppo", "--prediction-features", "--out", tmp_path / "x").error()
    assert "--prediction-features adds predictions to the observation of networks; it needs" in error
