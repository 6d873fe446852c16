"""kilowait simulate."""

from __future__ import annotations

import json
import tomllib

import pytest

import kilowait as kw
from kilowait.evaluation.storage import load_run


def test_synthetic_workload_prints_a_table(kilowait):
    result = kilowait("simulate", "lublin:200:32:0.9:7", "--policy", "sjf", "--by", "size")
    assert result.status == 0 and result.err == ""
    assert "200 jobs" in result.out and "32 nodes" in result.out
    assert "policy sjf, backfill easy" in result.out
    for word in ("wait", "turnaround", "bounded slowdown", "utilization", "makespan", "node-hours", "17-64"):
        assert word in result.out


def test_json_equals_the_library_result(kilowait, swf):
    report = kilowait("simulate", swf, "--backfill", "none", "--json").json()
    jobs = kw.read_trace(swf)
    expected = kw.metrics(kw.simulate(jobs, kw.Cluster.from_processors(8), "fcfs", "none"))
    assert report["metrics"] == pytest.approx(dict(expected))
    assert report["metrics"]["jobs"] == 3
    assert report["ledger"]["rows_read"] == 4
    assert report["scenario"]["cluster"]["group"] == [{"name": "processors", "nodes": 8, "nodes_known": False}]


def test_dropped_jobs_are_reported(kilowait, swf):
    result = kilowait("simulate", swf)
    assert "4 rows read, 3 jobs, 1 dropped" in result.out


def test_every_option_reaches_the_scenario(kilowait):
    report = kilowait(
        "simulate", "lublin:60:16", "--policy", "multifactor:age=500:size=0", "--backfill", 2,
        "--backfill-order", "sjf", "--at-limit", "kill", "--overrun", "steps",
        "--schedule-per", "event", "--placement", "balance",
        "--oversized", "drop", "--ignore-dependencies", "--load", 0.7, "--jobs", "10:40", "--cluster", 20, "--json",
    ).json()  # fmt: skip
    scenario = report["scenario"]
    assert scenario["policy"] == "multifactor:age=500:size=0"
    assert (scenario["backfill"], scenario["backfill_order"], scenario["at_limit"]) == (2, "sjf", "kill")
    assert (scenario["schedule_per"], scenario["placement"], scenario["dependencies"]) == ("event", "balance", False)
    assert scenario["overrun"] == "steps"
    assert (scenario["load"], scenario["jobs"], report["metrics"]["jobs"]) == (0.7, "10:40", 30)
    assert scenario["cluster"]["group"][0]["nodes"] == 20


def test_csv_with_a_column_map(kilowait, csv):
    result = kilowait(
        "simulate", csv, "--columns", "job_id=id,submit_s=submitted,runtime_s=ran,estimate_s=limit_min*60,nodes=size",
        "--json",
    )  # fmt: skip
    assert result.json()["metrics"]["jobs"] == 2
    assert "note: the trace does not contain the size of its cluster: 4 nodes are assumed" in result.err


def test_nan_is_null(kilowait):
    result = kilowait("simulate", "lublin:3:64", "--cluster", "nodes:1", "--oversized", "drop", "--json", "--jobs", "1")
    metrics = result.json()["metrics"]
    assert metrics["jobs"] == 1 and (metrics["rejected"] == 1) == (metrics["mean_wait_s"] is None)


def test_run_folder(kilowait, swf, tmp_path):
    out = tmp_path / "runs" / "first"
    result = kilowait("simulate", swf, "--policy", "sjf", "--out", out)
    assert result.status == 0 and f"written to {out}" in result.out
    assert {file.name for file in out.iterdir()} == {
        "scenario.toml", "manifest.json", "jobs.parquet", "log.parquet", "records.parquet", "results.json",
    }  # fmt: skip
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["command"][:2] == ["kilowait", "simulate"]
    assert len(manifest["inputs"][str(swf)]) == 64
    assert set(manifest["versions"]) >= {"kilowait", "numpy", "numba", "python"}
    scenario = tomllib.loads((out / "scenario.toml").read_text())
    assert scenario["policy"] == "sjf" and scenario["cluster"]["group"][0]["nodes"] == 8
    run = load_run(out)
    assert kw.metrics(run.log) == run.results["metrics"]
    assert kilowait("simulate", out / "jobs.parquet", "--json").json()["metrics"]["jobs"] == 3


def test_a_run_is_repeated_from_its_scenario(kilowait, swf, tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    assert kilowait("simulate", swf, "--policy", "sjf", "--at-limit", "kill", "--out", first).status == 0
    assert kilowait("simulate", first / "scenario.toml", "--out", again, "--csv").status == 0
    for name in ("scenario.toml", "jobs.parquet", "log.parquet", "records.parquet", "results.json"):
        assert (first / name).read_bytes() == (again / name).read_bytes(), name
    assert (again / "records.csv").read_text().startswith("job_id,submit_s,eligible_s,start_s,end_s,wait_s")
    refused = kilowait("simulate", first / "scenario.toml", "--policy", "saf").error()
    assert "--policy is given beside" in refused and "which states all settings" in refused
    assert "--csv writes records.csv into the folder" in kilowait("simulate", swf, "--csv").error()


def test_same_run_same_bytes_but_for_the_manifest(kilowait, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for out in (one, two):
        assert kilowait("simulate", "lublin:100:16:0.9:3", "--policy", "random:seed=5", "--out", out).status == 0
    for file in one.iterdir():
        if file.name != "manifest.json":
            assert file.read_bytes() == (two / file.name).read_bytes(), file.name


def test_existing_folder_needs_force(kilowait, tmp_path):
    out = tmp_path / "run"
    args = ("simulate", "lublin:20:8", "--out", out)
    assert kilowait(*args).status == 0
    assert "not empty" in kilowait(*args).error()
    assert kilowait(*args, "--force", "--policy", "sjf").status == 0
    assert load_run(out).scenario["policy"] == "sjf"
    (out / "thesis.txt").write_text("years of work")
    assert "thesis.txt" in kilowait(*args, "--force").error()
    assert (out / "thesis.txt").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_unwritable_folders(kilowait, tmp_path):
    (tmp_path / "file").write_text("")
    assert "is a file" in kilowait("simulate", "lublin:20:8", "--out", tmp_path / "file").error()
    assert "cannot write" in kilowait("simulate", "lublin:20:8", "--out", tmp_path / "file" / "run").error()
    assert "/ is not a valid name for a new folder" in kilowait("simulate", "lublin:20:8", "--out", "/").error()


WRONG = {
    "no such file": (["nowhere.swf"], "there is no file nowhere.swf"),
    "unknown policy": (["lublin:20:8", "--policy", "sfj"], "did you mean 'sjf'?"),
    "unknown parameter": (["lublin:20:8", "--policy", "random:sed=1"], "did you mean 'seed'?"),
    "unknown preset": (["lublin:20:8", "--cluster", "polris"], "did you mean 'polaris'?"),
    "no such cluster file": (["lublin:20:8", "--cluster", "site.toml"], "no cluster file site.toml"),
    "no nodes": (["lublin:20:8", "--cluster", "nodes:0"], "at least 1"),
    "nodes in words": (["lublin:20:8", "--cluster", "nodes:many"], "'many'"),
    "unknown backfill": (["lublin:20:8", "--backfill", "eazy"], "did you mean 'easy'?"),
    "backfill below 0": (["lublin:20:8", "--backfill", "-1"], "-1"),
    "unknown backfill order": (["lublin:20:8", "--backfill-order", "sjff"], "did you mean 'sjf'?"),
    "unknown limit setting": (["lublin:20:8", "--at-limit", "kil"], "did you mean 'kill'?"),
    "unknown overrun setting": (["lublin:20:8", "--overrun", "step"], "did you mean 'steps'?"),
    "unknown class": (["lublin:20:8", "--by", "sice"], "did you mean 'size'?"),
    "jobs in words": (["lublin:20:8", "--jobs", "some"], "the range of jobs is 'some'"),
    "jobs backwards": (["lublin:20:8", "--jobs", "9:3"], "the range of jobs is '9:3'"),
    "jobs beyond the end": (["lublin:20:8", "--jobs", "50:60"], "20 jobs"),
    "no load": (["lublin:20:8", "--load", "0"], "above 0"),
    "synthetic workload without nodes": (["lublin:20"], "lublin:JOBS:NODES"),
    "synthetic workload with words": (["lublin:many:8"], "'many'"),
    "format of a synthetic workload": (["lublin:20:8", "--format", "swf"], "it takes no format"),
    "larger than the machine": (["lublin:200:64", "--cluster", "2"], "larger than any group"),
    "no agent": (["lublin:20:8", "--policy", "agent:"], "agent:PATH"),
}


@pytest.mark.parametrize("case", WRONG)
def test_error_messages(kilowait, case):
    args, message = WRONG[case]
    assert message in kilowait("simulate", *args).error()


def test_column_map_errors(kilowait, csv):
    assert "nowhere" in kilowait("simulate", csv, "--columns", "submit_s=nowhere").error()
    assert "submit_s=submitted" in kilowait("simulate", csv, "--columns", "submitted").error()
    assert "twice" in kilowait("simulate", csv, "--columns", "nodes=size,nodes=size").error()


def test_strict(kilowait, swf):
    assert "strict" in kilowait("simulate", swf, "--strict").error()


def test_unknown_format(kilowait, swf):
    assert "did you mean 'swf'?" in kilowait("simulate", swf, "--format", "sfw").error()


def test_missing_agent(kilowait, tmp_path):
    kilowait("simulate", "lublin:20:8", "--policy", f"agent:{tmp_path / 'none.json'}").error()


def test_run_times_are_predicted_by_a_forest_that_is_refitted(kilowait):
    report = kilowait("simulate", "lublin:1500:32:0.3:1", "--runtime-predictor", "forest", "--json").json()
    assert report["scenario"]["runtime_predictor"] == "forest"
    assert any("forest" in note for note in report["notes"])
