"""kilowait predict: features, score, fit, apply, explain, describe."""

from __future__ import annotations

import json
import sys

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from kilowait.errors import install_command
from kilowait.traces import write_trace
from tests.predict.example_logs import repetitive_log


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Nine days of three users, one of them with measured joules."""
    path = tmp_path_factory.mktemp("logs") / "habits.parquet"
    jobs = repetitive_log()
    joules = np.where(jobs["user"] == 2, np.nan, jobs["runtime_s"] * 200.0)
    write_trace(jobs.with_columns(energy_j=joules), path)
    return path


@pytest.fixture(scope="module")
def predictor(log, tmp_path_factory):
    """A saved predictor of its run times."""
    from kilowait.cli import main

    folder = tmp_path_factory.mktemp("kept") / "predictor"
    assert main(["predict", "fit", str(log), "--cluster", "16", "--out", str(folder), "--model", "forest"]) == 0
    return folder


def test_features(kilowait, log, tmp_path):
    result = kilowait("predict", "features", log, "--cluster", 16, "--out", tmp_path / "f.parquet")
    assert result.status == 0 and "900 jobs" in result.out and "(log)" in result.out
    table = pyarrow.parquet.read_table(tmp_path / "f.parquet")
    assert table.num_rows == 900 and table["user_last"].null_count > 0
    assert {"job_id", "request", "anchor", "runtime_s", "energy_j"} <= set(table.column_names)
    args = ("--target", "wait", "--history-source", "simulated", "--jobs", 50)
    result = kilowait("predict", "features", log, "-c", 16, "--out", tmp_path / "f.csv", *args)
    assert "simulated: fcfs" in result.out
    table = pyarrow.csv.read_csv(tmp_path / "f.csv")
    assert table.num_rows == 50 and {"wait_s", "target_anchor"} <= set(table.column_names)


def test_apply_to_a_log_without_measurements(kilowait, log, tmp_path):
    folder = tmp_path / "energy"
    args = ("-c", 16, "--target", "energy", "--model", "boosting:median")
    fitted = kilowait("predict", "fit", log, "--out", folder, *args)
    assert "boosting:median, no job measured" in fitted.out
    card = kilowait("predict", "describe", folder, "--json").json()
    assert not [name for name in card["unmetered"]["features"] if name.startswith("target_")]
    table = pyarrow.parquet.read_table(log).drop_columns(["energy_j"])
    pyarrow.parquet.write_table(table, tmp_path / "later.parquet")
    out = tmp_path / "predicted.csv"
    result = kilowait("predict", "apply", folder, tmp_path / "later.parquet", "--out", out)
    assert result.status == 0
    assert "no job of this log has measured energy: predicted without earlier values" in " ".join(result.err.split())
    predicted = pyarrow.csv.read_csv(out)
    assert predicted["energy_source"].null_count == predicted["energy_j"].null_count == 900
    assert min(predicted["predicted_j"].to_pylist()) > 0
    explained = kilowait("predict", "explain", folder, tmp_path / "later.parquet", 700)
    assert "no job of this log was measured" in " ".join(explained.out.split())


def test_fit_uses_the_last_jobs_of_a_large_log_and_says_so(kilowait, log, tmp_path):
    result = kilowait("predict", "fit", log, "-c", 16, "--out", tmp_path / "last", "--fit-jobs", 400, "--json")
    assert "only the last 400 of 900 jobs are used" in " ".join(result.err.split()) and "--fit-jobs 0" in result.err
    last = result.json()
    used = {"jobs": 400, "of": 900, "chosen": "the last by submission"}
    assert last["fit_jobs"] == used
    assert json.loads((tmp_path / "last" / "manifest.json").read_text())["fit_jobs"] == used
    args = ("-c", 16, "--jobs", "500:900", "--fit-jobs", 0)
    same = kilowait("predict", "fit", log, "--out", tmp_path / "same", *args, "--json")
    assert "are used" not in same.err
    ignored = {"out", "fit_jobs"}
    assert {name: last[name] for name in last.keys() - ignored} == {
        name: value for name, value in same.json().items() if name not in ignored
    }
    assert same.json()["fit_jobs"]["of"] == 400


def test_score(kilowait, log):
    args = ("--models", "request,last2,boosting:median,forest", "--by", "length", "--cluster", 16)
    result = kilowait("predict", "score", log, *args)
    assert result.status == 0
    assert "runtime of the last 270 of 900 jobs" in result.out and "accuracy by length" in result.out
    assert "within the forest's quantiles" in result.out
    report = kilowait("predict", "score", log, *args, "--json").json()
    rows = {row["model"]: row for row in report["rows"]}
    assert rows["forest"]["scores"]["accuracy"] > rows["last2"]["scores"]["accuracy"]
    assert rows["request"]["classes"]["length"]["< 1 min"]["jobs"] > 0


def test_score_energy_and_power(kilowait, log):
    result = kilowait("predict", "score", log, "-c", 16, "--target", "energy", "--models", "rate,last2")
    assert "measured: 573 with power from measured energy; 327 not measured" in result.out and "MAE J" in result.out
    args = ("--target", "power", "--power", "taurus", "--models", "rate,recent")
    result = kilowait("predict", "score", log, "-c", 16, *args)
    assert "else power model taurus" in result.out


def test_log_without_requested_times(kilowait, tmp_path):
    jobs = repetitive_log()
    path = tmp_path / "unasked.parquet"
    write_trace(jobs.with_columns(estimate_s=jobs["runtime_s"]), path)
    assert (
        "900 of 900 jobs have no request for runtime"
        in kilowait("predict", "score", path, "-c", 16, "--models", "request").err
    )
    result = kilowait("predict", "score", path, "-c", 16, "--test-fraction", 0.1)
    assert "note: some jobs have no request: the request baseline is left out" in result.err
    assert "last2" in result.out and "request " not in result.out


def test_describe_a_saved_predictor(kilowait, predictor):
    result = kilowait("predict", "describe", predictor)
    for text in (
        "runtime by forest, fitted on habits.parquet",
        "the 90 jobs after them",
        "no record of any single user",
        "drift",
        "most important features",
    ):
        assert text in result.out
    card = kilowait("predict", "describe", predictor, "--json").json()
    assert card["nodes"] == 16 and card["target"] == "runtime"


def test_apply_a_saved_predictor(kilowait, predictor, log, tmp_path):
    result = kilowait("predict", "apply", predictor, log, "--out", tmp_path / "p.csv")
    assert result.out == f"900 jobs predicted by forest: {tmp_path / 'p.csv'}\n"
    table = pyarrow.csv.read_csv(tmp_path / "p.csv")
    assert table.column_names == ["job_id", "runtime_s", "predicted_s", "p10_s", "p50_s", "p90_s"]


def test_explain_one_job(kilowait, predictor, log):
    result = kilowait("predict", "explain", predictor, log, 890, "--features-shown", 3)
    assert "job 890: runtime by forest" in result.out
    assert "the median of the last 5 of the user with the same request and nodes" in result.out
    assert "90 % quantile" in result.out and " others" in result.out
    explanation = kilowait("predict", "explain", predictor, log, 890, "--features-shown", 900, "--json").json()
    assert explanation["p10"] <= explanation["p50"] <= explanation["p90"] <= 3600
    product = (
        explanation["anchor"] * explanation["start"] * np.prod([part["factor"] for part in explanation["features"]])
    )
    assert 1 < product < 4000
    assert "a default from the request: no earlier job" in kilowait("predict", "explain", predictor, log, 0).out


def test_tuned_and_simple_predictors(kilowait, log, tmp_path):
    pytest.importorskip("optuna")
    args = ("-c", 16, "--model", "boosting:mean", "--tuning-trials", 2)
    result = kilowait("predict", "fit", log, "--out", tmp_path / "tuned", *args, "--json")
    assert result.json()["settings"]["trees"] >= 50
    error = kilowait("predict", "fit", log, "--out", tmp_path / "few", *args, "--target", "energy").error()
    assert "810 jobs of which 516 have a known energy are too few for tuning" in error
    result = kilowait("predict", "fit", log, "--out", tmp_path / "last2", "-c", 16, "--model", "last2")
    assert "nothing: it is a baseline without fitted parameters" in result.out
    result = kilowait("predict", "explain", tmp_path / "last2", log, 890)
    assert "last2 uses no other features" in result.out


def test_error_messages(kilowait, predictor, log, tmp_path):
    assert "there is no job 4711 in this log" in kilowait("predict", "explain", predictor, log, 4711).error()
    assert "no job first in this log" in kilowait("predict", "explain", predictor, log, "first").error()
    assert "contains no predictor" in kilowait("predict", "describe", tmp_path).error()
    assert "there is no folder" in kilowait("predict", "describe", tmp_path / "none").error()
    assert "is not empty" in kilowait("predict", "fit", log, "--out", predictor).error()
    assert "did you mean 'last2'" in kilowait("predict", "score", log, "--models", "last").error()
    assert "did you mean 'length'" in kilowait("predict", "score", log, "--by", "lenght").error()
    assert "did you mean 'energy'" in kilowait("predict", "score", log, "--target", "enery").error()
    assert (
        "use the extension .parquet or .csv"
        in kilowait("predict", "features", log, "--out", tmp_path / "f.txt").error()
    )
    (tmp_path / "file").write_text("")
    assert (
        "is a file, not a folder" in kilowait("predict", "features", log, "--out", tmp_path / "file" / "f.csv").error()
    )
    assert "are only for the targets power and energy" in kilowait("predict", "score", log, "--power", "taurus").error()
    assert "unknown history source 'real'" in kilowait("predict", "score", log, "--history-source", "real").err


def test_without_lightgbm(kilowait, log, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert kilowait("predict", "score", log, "-c", 16, "--models", "last2").status == 0
    error = kilowait("predict", "fit", log, "-c", 16, "--out", tmp_path / "made").err
    assert f"this needs lightgbm, which is not installed: {install_command('predict')}" in error
