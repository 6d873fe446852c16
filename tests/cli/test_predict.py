"""kilowait predict: from a log to a table of models, a kept predictor, and why it says what it says."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from kilowait.traces import write_trace
from tests.predict.example_logs import habits


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Nine days of three users, one of them with measured joules."""
    path = tmp_path_factory.mktemp("logs") / "habits.parquet"
    jobs = habits()
    joules = np.where(jobs["user"] == 2, np.nan, jobs["runtime_s"] * 200.0)
    write_trace(jobs.with_columns(energy_j=joules), path)
    return path


@pytest.fixture(scope="module")
def kept(log, tmp_path_factory):
    """A predictor of its run times."""
    from kilowait.cli import main

    folder = tmp_path_factory.mktemp("kept") / "predictor"
    assert (
        main(["predict", "fit", str(log), "--cluster", "16", "--out", str(folder), "--model", "forest"]) == 0
    )
    return folder


def test_features(kilowait, log, tmp_path):
    said = kilowait("predict", "features", log, "--cluster", 16, "--out", tmp_path / "f.parquet")
    assert said.status == 0 and "900 jobs" in said.out and "(log)" in said.out
    table = pyarrow.parquet.read_table(tmp_path / "f.parquet")
    assert table.num_rows == 900 and table["user_last"].null_count > 0
    assert {"job_id", "request", "anchor", "runtime_s", "energy_j"} <= set(table.column_names)
    words = ("--target", "wait", "--history", "simulated", "--jobs", 50)
    said = kilowait("predict", "features", log, "-c", 16, "--out", tmp_path / "f.csv", *words)
    assert "simulated: fcfs" in said.out
    table = pyarrow.csv.read_csv(tmp_path / "f.csv")
    assert table.num_rows == 50 and {"wait_s", "target_anchor"} <= set(table.column_names)


def test_score(kilowait, log):
    words = ("--models", "request,last2,boosting:median,forest", "--by", "length", "--cluster", 16)
    said = kilowait("predict", "score", log, *words)
    assert said.status == 0
    assert "runtime of the last 270 of 900 jobs" in said.out and "accuracy by length" in said.out
    assert "within the forest's quantiles" in said.out
    found = kilowait("predict", "score", log, *words, "--json").json()
    rows = {row["model"]: row for row in found["rows"]}
    assert rows["forest"]["scores"]["accuracy"] > rows["last2"]["scores"]["accuracy"]
    assert rows["request"]["classes"]["length"]["< 1 min"]["jobs"] > 0


def test_score_of_other_targets(kilowait, log):
    said = kilowait("predict", "score", log, "-c", 16, "--target", "energy", "--models", "rate,last2")
    assert (
        "measured: 573 with power from measured energy; 327 not measured" in said.out and "MAE J" in said.out
    )
    words = ("--target", "power", "--power", "taurus", "--models", "rate,recent")
    said = kilowait("predict", "score", log, "-c", 16, *words)
    assert "else power model taurus" in said.out


def test_a_log_without_requests(kilowait, tmp_path):
    jobs = habits()
    path = tmp_path / "unasked.parquet"
    write_trace(jobs.with_columns(estimate_s=jobs["runtime_s"]), path)
    assert (
        "900 of 900 jobs have no request for runtime"
        in kilowait("predict", "score", path, "-c", 16, "--models", "request").err
    )
    said = kilowait("predict", "score", path, "-c", 16, "--test-fraction", 0.1)
    assert "note: some jobs have no request: the request baseline is left out" in said.err
    assert "last2" in said.out and "request " not in said.out


def test_a_kept_predictor_says_what_it_is(kilowait, kept):
    said = kilowait("predict", "describe", kept)
    for words in (
        "runtime by forest, fitted on habits.parquet",
        "the 90 jobs after them",
        "no record of any single user",
        "drift",
        "most important features",
    ):
        assert words in said.out
    card = kilowait("predict", "describe", kept, "--json").json()
    assert card["nodes"] == 16 and card["target"] == "runtime"


def test_it_is_asked_of_jobs(kilowait, kept, log, tmp_path):
    said = kilowait("predict", "apply", kept, log, "--out", tmp_path / "p.csv")
    assert said.out == f"900 jobs predicted by forest: {tmp_path / 'p.csv'}\n"
    table = pyarrow.csv.read_csv(tmp_path / "p.csv")
    assert table.column_names == ["job_id", "runtime_s", "predicted_s", "p10_s", "p50_s", "p90_s"]


def test_it_explains_a_job(kilowait, kept, log):
    said = kilowait("predict", "explain", kept, log, 890, "--features", 3)
    assert "job 890: runtime by forest" in said.out
    assert "the median of the last 5 of the user with the same request and nodes" in said.out
    assert "90 % quantile" in said.out and " others" in said.out
    told = kilowait("predict", "explain", kept, log, 890, "--features", 900, "--json").json()
    assert told["p10"] <= told["p50"] <= told["p90"] <= 3600
    product = told["anchor"] * told["start"] * np.prod([part["factor"] for part in told["features"]])
    assert 1 < product < 4000
    assert "a default from the request: no earlier job" in kilowait("predict", "explain", kept, log, 0).out


def test_tuned_and_simple_predictors(kilowait, log, tmp_path):
    pytest.importorskip("optuna")
    words = ("-c", 16, "--model", "boosting:mean", "--tune", 2)
    said = kilowait("predict", "fit", log, "--out", tmp_path / "tuned", *words, "--json")
    assert said.json()["settings"]["trees"] >= 50
    error = kilowait("predict", "fit", log, "--out", tmp_path / "few", *words, "--target", "energy").error()
    assert "810 jobs of which 516 have a known energy are too few for tuning" in error
    said = kilowait("predict", "fit", log, "--out", tmp_path / "last2", "-c", 16, "--model", "last2")
    assert "nothing: it is a baseline without fitted parameters" in said.out
    said = kilowait("predict", "explain", tmp_path / "last2", log, 890)
    assert "last2 uses no other features" in said.out


def test_errors(kilowait, kept, log, tmp_path):
    assert "there is no job 4711 in this log" in kilowait("predict", "explain", kept, log, 4711).error()
    assert "no job first in this log" in kilowait("predict", "explain", kept, log, "first").error()
    assert "contains no predictor" in kilowait("predict", "describe", tmp_path).error()
    assert "there is no folder" in kilowait("predict", "describe", tmp_path / "none").error()
    assert "is not empty" in kilowait("predict", "fit", log, "--out", kept).error()
    assert "did you mean 'last2'" in kilowait("predict", "score", log, "--models", "last").error()
    assert "did you mean 'length'" in kilowait("predict", "score", log, "--by", "lenght").error()
    assert "did you mean 'energy'" in kilowait("predict", "score", log, "--target", "enery").error()
    assert (
        "use the extension .parquet or .csv"
        in kilowait("predict", "features", log, "--out", tmp_path / "f.txt").error()
    )
    assert (
        "its folder does not exist"
        in kilowait("predict", "features", log, "--out", tmp_path / "no" / "f.csv").error()
    )
    assert (
        "are only for the targets power and energy"
        in kilowait("predict", "score", log, "--power", "taurus").error()
    )
    assert "unknown history 'real'" in kilowait("predict", "score", log, "--history", "real").err


def test_without_lightgbm(kilowait, log, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert kilowait("predict", "score", log, "-c", 16, "--models", "last2").status == 0
    error = kilowait("predict", "fit", log, "-c", 16, "--out", tmp_path / "made").err
    assert "this needs lightgbm, which is not installed: pip install 'kilowait[predict]'" in error
