"""kilowait synth: fit, sample, score, list."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from kilowait.synth.registry import EXTERNAL_GENERATORS, GENERATORS
from kilowait.traces import read_trace

TRACE = "lublin:400:32:0.8:7"
QUICK = "passes=1,width=16,layers=1,draws=2"


@pytest.fixture
def folder(kilowait, tmp_path):
    """A fitted bootstrap."""
    path = tmp_path / "model"
    assert kilowait("synth", "fit", TRACE, "--model", "bootstrap", "--out", path).status == 0
    return path


def test_fit_and_sample(kilowait, tmp_path):
    model, sample = tmp_path / "model", tmp_path / "new" / "made.swf.gz"
    fitted = kilowait("synth", "fit", TRACE, "--out", model, "--set", QUICK, "--seed", 3)
    assert fitted.out == f"transformer fitted to 400 jobs of {TRACE}, written to {model}\n"
    manifest = json.loads((model / "manifest.json").read_text())
    assert manifest["kind"] == "generator" and manifest["inputs"] == {TRACE: None}
    result = kilowait("synth", "sample", model, "--jobs", 300, "--seed", 1, "--load", 0.7, "--out", sample)
    assert result.out.startswith("300 jobs over ") and "offered load 0.70, written to" in result.out
    jobs = read_trace(sample)
    assert len(jobs) == 300 and jobs.meta["max_procs"] == 32


def test_the_same_seed_gives_the_same_file(kilowait, folder, tmp_path):
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        kilowait("synth", "sample", folder, "-n", 200, "--seed", seed, "-o", tmp_path / f"{name}.csv")
    first, second, other = ((tmp_path / f"{name}.csv").read_bytes() for name in "abc")
    assert first == second != other


def test_sample_with_a_condition(kilowait, folder, tmp_path):
    out = tmp_path / "small.parquet"
    kilowait("synth", "sample", folder, "-n", 50, "--where", "nodes=1:4", "-o", out)
    assert read_trace(out)["nodes"].max() <= 4
    message = kilowait("synth", "sample", folder, "-n", 50, "--where", "nodes=64", "-o", out).error()
    assert "condition nodes=64: no job of the log matches" in message


def test_sample_with_other_load_nodes_and_job_mix(kilowait, folder, tmp_path):
    out = tmp_path / "what.parquet"
    args = ["--days", 20, "--load", 0.6, "--nodes", 64, "--job-mix", "nodes=1*0.5,8:16*2", "--seed", 2, "-o", out]
    result = kilowait("synth", "sample", folder, *args)
    assert "offered load 0.60, written to" in result.out and result.err == ""
    sample = read_trace(out)
    assert sample.meta["max_procs"] == 64 and sample["nodes"].max() <= 64
    assert 15 < np.ptp(sample["submit_s"]) / 86400 < 21
    kilowait("synth", "sample", folder, *args[:-1], tmp_path / "again.csv")
    again = read_trace(tmp_path / "again.csv", format="csv")
    assert np.array_equal(sample["submit_s"], again["submit_s"]) and np.array_equal(sample["nodes"], again["nodes"])
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = kilowait("synth", "sample", folder, "-n", 300, "--load", 1.3, "-o", out)
    assert result.err.startswith("warning: a load of 1.3 exceeds the machine's capacity")


def test_scale_jobs(kilowait, folder, tmp_path):
    sizes = []
    for grow in ("queue=0*0.5", "queue=0*3"):
        out = tmp_path / "grown.parquet"
        kilowait("synth", "sample", folder, "--days", 30, "--scale-jobs", grow, "-o", out)
        sizes.append(len(read_trace(out)))
    assert sizes[1] > 4 * sizes[0]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--jobs", 10, "--days", 3], "both of jobs and days are given; give the number of jobs or of days"),
        ([], "neither of jobs and days are given"),
        (["--days", 0], "the number of days is 0"),
        (["--jobs", 10, "--load", 3], "a load of 3 is 3 times the machine's capacity"),
        (["--jobs", 10, "--nodes", 0], "the machine's nodes are 0; give a whole number of at least 1"),
        (["--jobs", 10, "--nodes", 8, "-c", "nodes:4"], "a cluster and a number of nodes are given"),
        (["--jobs", 10, "--job-mix", "nodes=33:64*2"], "job mix nodes=33:64: no job of the log matches"),
        (["--jobs", 10, "--job-mix", "nodes"], "the job mix has 'nodes'; write column=value*factor"),
        (["--jobs", 10, "--scale-jobs", "queue=long*3"], "unknown queue 'long'; known: combined"),
        (["--jobs", 10, "--scale-jobs", "account=1*3"], "group scaling account=1: the log has no column account"),
        (["--jobs", 10, "--where", "queue=7"], "condition queue=7: no job of the log matches; its values are combined"),
    ],
)
def test_sample_errors(kilowait, folder, tmp_path, args, message):
    out = tmp_path / "never.parquet"
    assert message in kilowait("synth", "sample", folder, *args, "-o", out).error()
    assert list(tmp_path.iterdir()) == [folder]  # no partial file


def test_score(kilowait, folder, tmp_path):
    sample, other = tmp_path / "made.parquet", tmp_path / "other.swf"
    kilowait("synth", "sample", folder, "-n", 400, "-o", sample)
    kilowait("traces", "convert", "lublin:400:32:0.8:8", other)
    result = kilowait("synth", "score", TRACE, sample)
    assert "classifier" in result.out and "mean wait under" in result.out
    assert "copies of training jobs" not in result.out and "--held-out-log FILE" in result.err
    result = kilowait("synth", "score", TRACE, sample, "--held-out-log", other)
    assert "copies of training jobs, except for the time" in result.out and result.err.count("note") == 0
    report = kilowait("synth", "score", TRACE, sample, "--held-out-log", other, "--policies", "fcfs", "--json").json()
    assert report["privacy"]["copies"] == 1 > report["privacy"]["copies_of_held_out"]
    assert [wait["policy"] for wait in report["waits"]] == ["fcfs"]
    assert (
        report["fidelity"]["auc"] < 0.2
    )  # copies: the classifier learns the label of the identical job, which is the wrong one
    assert report["worst_ks"]["ks"] < 0.3
    itself = kilowait("synth", "score", TRACE, TRACE, "--json").json()
    assert itself["waits"][0]["ratio"] == 1 and itself["worst_ks"]["ks"] == 0


def test_score_report(kilowait, folder, tmp_path):
    sample, run = tmp_path / "made.parquet", tmp_path / "runs" / "scored"
    kilowait("synth", "sample", folder, "-n", 400, "-o", sample)
    args = (
        "synth",
        "score",
        TRACE,
        sample,
        "--held-out-log",
        "lublin:400:32:0.8:8",
        "--policies",
        "fcfs",
        "--out",
        run,
    )
    result = kilowait(*args)
    assert "more leakage than between weeks of one log: copies, copied pairs" in result.out
    assert result.out.endswith(f"written to {run}; write a page: kilowait report {run}\n")
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["kind"] == "synthetic" and manifest["seeds"] == {"classifier": 0}
    assert list(manifest["inputs"]) == [TRACE, str(sample), "lublin:400:32:0.8:8"]
    results = json.loads((run / "results.json").read_text())["synthetic"]
    assert results["exceeded_limits"][0] == "copies" and results["privacy"]["copies"] == 1
    assert "is not empty" in kilowait(*args).error()
    kilowait("report", run)
    assert "Real jobs were copied: 100.0" in run.with_name("scored.html").read_text().replace("&nbsp;", " ")


def test_list_of_generators(kilowait):
    kinds = [line["name"] for line in kilowait("synth", "list", "--json").json()]
    assert kinds == [*GENERATORS, *EXTERNAL_GENERATORS]
    shown = kilowait("synth", "list").out
    assert all(f"\n{kind} " in shown for kind in kinds)
    assert kilowait("synth", "list", "--json").json()[0]["settings"] == {"days": 7}


def test_fit_errors(kilowait, folder, tmp_path):
    out = tmp_path / "out"
    assert "50 jobs are too few" in kilowait("synth", "fit", "lublin:50:8", "-o", out).error()
    assert "unknown generator 'gan'" in kilowait("synth", "fit", TRACE, "-m", "gan", "-o", out).error()
    assert "is not empty" in kilowait("synth", "fit", TRACE, "-m", "copula", "-o", folder).error()
    assert "the settings contain 'days'" in kilowait("synth", "fit", TRACE, "--set", "days", "-o", out).error()
    assert "must be finite" in kilowait("synth", "fit", TRACE, "--set", "days=nan", "-o", out).error()
    message = kilowait("synth", "fit", TRACE, "-m", "bootstrap", "--set", "days=seven", "-o", out).error()
    assert "days of the generator bootstrap is 'seven'; it must be a number" in message
    message = kilowait("synth", "fit", TRACE, "-m", "sdv:TVAE", "--set", "python=/no/python", "-o", out).error()
    assert "python=/no/python is not a program" in message
    message = kilowait("synth", "fit", TRACE, "-m", "copula", "--set", "days=7", "-o", out).error()
    assert "unknown setting of the generator copula 'days'" in message
    assert "has no card.json" in kilowait("synth", "sample", tmp_path, "-n", 5, "-o", out).error()
    assert not out.exists()
    assert kilowait("synth", "fit", TRACE, "-m", "copula", "-o", folder, "--force").status == 0


def test_private_fit_prints_its_guarantee(kilowait, tmp_path):
    pytest.importorskip("opacus")
    result = kilowait("synth", "fit", TRACE, "--out", tmp_path / "one", "--set", "dp_epsilon=8,dp_steps=2,width=8")
    first, second = result.out.splitlines()
    assert first.startswith("transformer fitted to 400 jobs of lublin")
    assert second.startswith("differential privacy: epsilon 7.") and "delta 1e-05, for each user; " in second


def test_resume_without_a_checkpoint(kilowait, tmp_path):
    message = kilowait("synth", "fit", TRACE, "--out", tmp_path / "one", "--set", QUICK, "--resume").error()
    assert "contains no training to resume; start one without --resume" in message


def test_unknown_device(kilowait, tmp_path):
    message = kilowait("synth", "fit", TRACE, "--out", tmp_path / "one", "--set", QUICK, "--device", "gpu").error()
    assert "unknown device 'gpu'" in message


def test_failed_fit_writes_nothing(kilowait, tmp_path):
    out = tmp_path / "few"
    args = ("synth", "fit", TRACE, "--model", "bootstrap", "-o", out)
    assert "50 jobs are too few" in kilowait(*args, "--jobs", 50).error()
    assert list(tmp_path.iterdir()) == []
    kilowait(*args)
    assert [path.name for path in tmp_path.iterdir()] == ["few"]
