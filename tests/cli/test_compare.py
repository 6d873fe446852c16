"""kilowait compare."""

from __future__ import annotations

import json

import pytest

import kilowait as kw

ARGS = ("compare", "lublin:150:32:0.9:7")


def test_table_is_sorted_and_marks_the_best(kilowait):
    result = kilowait(*ARGS, "--policies", "wfp3,fcfs,random:seed=4", "--backfill", "easy,none")
    assert result.status == 0
    lines = result.out.splitlines()
    table = lines[6:12]
    assert {tuple(line.split()[:2]) for line in table} == {
        (policy, backfill) for policy in ("wfp3", "fcfs", "random:seed=4") for backfill in ("easy", "none")
    }
    slowdowns = [float(line.split()[2].replace(",", "")) for line in table]
    assert slowdowns == sorted(slowdowns)
    assert sum(line.count("*") for line in table) >= 5
    assert "neighboring batches are correlated" in result.err
    assert "bounded slowdown" in result.out and "Jain's index" in result.out


def test_json_equals_the_library_result(kilowait):
    report = kilowait(*ARGS, "--policies", "sjf", "--backfill", "2", "--json").json()["traces"][0]
    jobs = kw.lublin(150, 32, load=0.9, seed=7)
    submit = jobs["submit_s"]
    log = kw.simulate(jobs, kw.Cluster.from_nodes(32), "sjf", 2)
    expected = kw.metrics(log, horizon=(submit.min(), submit.max())) | kw.fairness(log)
    (row,) = report["rows"]
    assert (row["policy"], row["backfill"], row["kind"]) == ("sjf", 2, "rule")
    assert row["metrics"] == pytest.approx(dict(expected))


def test_windows(kilowait):
    args = ("--policies", "fcfs,saf", "--windows", "8", "--window", "50", "--warmup", "20", "--json")
    report = kilowait("compare", "lublin:800:32:0.9:7", *args).json()["traces"][0]
    assert report["windows"] == 8 and report["counted_jobs"] == 400 and report["overlap"] == 1.0
    assert "each after 20 jobs of warm-up" in report["cut"]
    interval = report["rows"][0]["intervals"]["mean_bsld"]
    assert interval["low"] < interval["mean"] < interval["high"]
    assert "8 windows are few" in " ".join(report["notes"])
    assert len(report["judgement"]["pairs"]) == len(report["sentences"]) == 1
    repeated = kilowait("compare", "lublin:800:32:0.9:7", *args).json()["traces"][0]
    assert repeated == report
    other = kilowait("compare", "lublin:800:32:0.9:7", *args, "--seed", "1").json()["traces"][0]
    assert other["rows"] != report["rows"]


def test_windows_given_as_a_duration(kilowait):
    report = kilowait("compare", "lublin:800:32:0.9:7", "--windows", "5", "--window", "1d", "--json").json()
    assert "24 h" in report["traces"][0]["cut"] or "1 d" in report["traces"][0]["cut"]


def test_several_logs(kilowait):
    result = kilowait("compare", "lublin:300:32:0.9:7", "lublin:300:16:0.9:8", "--policies", "fcfs,saf")
    assert result.out.count("compared on the whole log") == 2
    assert "geometric mean" in result.out
    last = result.out.splitlines()[-2:]
    assert last[0].split() == ["fcfs", "1.000", "1.000", "1.000"] and last[1].startswith("saf")


def test_perfect_estimates_and_distance_to_the_best(kilowait, tmp_path):
    trace = tmp_path / "rounded.swf"
    kw.write_trace(kw.lublin(400, 32, load=0.95, seed=7, estimates="rounded"), trace)
    result = kilowait("compare", trace, "--policies", "fcfs,saf", "--cluster", "32")
    header = result.out.splitlines()[3:5]
    assert "with perfect" in header[0] or "with perfect" in header[1]
    best = next(line for line in result.out.splitlines() if line.split()[:1] in (["fcfs"], ["saf"]))
    assert best.rstrip().endswith("0.0 %")
    without = kilowait("compare", trace, "--policies", "fcfs,saf", "--cluster", "32", "--no-clairvoyant")
    assert "with perfect" not in without.out and without.out.count("saf") >= 3


def test_compared_runs_equal_single_runs(kilowait):
    """No state is carried from one run to the next."""
    together = kilowait(*ARGS, "--policies", "fcfs,fair_share,sjf", "--backfill", "easy", "--json").json()
    alone = kilowait("simulate", ARGS[1], "--policy", "sjf", "--json").json()["metrics"]
    compared = together["traces"][0]["rows"][2]["metrics"]
    assert {name: compared[name] for name in ("mean_wait_s", "mean_bsld", "makespan_s")} == {
        name: alone[name] for name in ("mean_wait_s", "mean_bsld", "makespan_s")
    }


def test_comparison_is_written_and_reused(kilowait, swf, tmp_path):
    out = tmp_path / "both"
    args = ("compare", swf, "--policies", "fcfs,sjf", "--backfill", "easy,none", "--out", out)
    result = kilowait(*args)
    assert "4 rows read" in result.out and f"written to {out}" in result.out
    rows = json.loads((out / "results.json").read_text())["traces"][0]["rows"]
    assert len([row for row in rows if row["kind"] == "rule"]) == 4
    assert json.loads((out / "manifest.json").read_text())["kind"] == "comparison"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "not empty" in kilowait(*args).error()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    again = kilowait(*args, "--force", "--csv")
    assert again.status == 0 and "runs were read from the folder" in again.err
    assert not (tmp_path / "both.cells").exists()
    lines = (out / "records.csv").read_text().splitlines()
    assert lines[0].startswith("trace,policy,window,job_id,submit_s,eligible_s,start_s,end_s")
    runs = len(json.loads((out / "cases.json").read_text())["cells"])
    assert len(lines) == 1 + 3 * runs
    assert {line.split(",")[1] for line in lines[1:]} >= {"fcfs", "sjf"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--policies", "fcfs,sfj"], "did you mean 'sjf'?"),
        (["--policies", ","], "list of policies is empty"),
        (["--backfill", "easy,nun"], "did you mean 'none'?"),
        (["--metric", "mean_wait"], "did you mean 'mean_wait_s'?"),
        (["--cluster", "2"], "larger than any group"),
        (["--policies", "agent:nowhere.json"], "nowhere.json"),
        (["--windows", "0"], "0 windows; give at least 1"),
        (["--windows", "3", "--window", "500"], "does not fit into the 150 available jobs"),
        (["--windows", "3", "--window", "soon"], "write a number of jobs such as 1024"),
        (["--warmup", "5"], "give their number with --windows"),
        (["--split", "tset"], "did you mean 'test'?"),
    ],
)
def test_error_messages(kilowait, args, message):
    assert message in kilowait(*ARGS, *args).error()


def test_run_times_are_predicted_by_a_forest_that_is_refitted(kilowait):
    options = ("--policies", "fcfs", "--runtime-predictor", "forest", "--json")
    document = kilowait("compare", "lublin:1500:32:0.3:1", *options).json()
    assert "forest" in str(document)


def test_several_clusters(kilowait, tmp_path):
    """Every policy on every cluster; the report has a section for each."""
    out = tmp_path / "machines"
    arguments = ("lublin:200:16:0.9:7", "--policies", "fcfs,sjf", "--clusters", "16,+50%", "--no-clairvoyant")
    result = kilowait("compare", *arguments, "--out", str(out))
    assert result.status == 0, result.err
    assert "lublin:200:16:0.9:7 on 16 nodes: 200 jobs on 16 nodes" in result.out
    assert "lublin:200:16:0.9:7 on 24 nodes: 200 jobs on 24 nodes" in result.out
    assert kilowait("report", str(out), "--out", str(tmp_path / "page.html")).status == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "on 16 nodes" in page and "on 24 nodes" in page


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--cluster", "8", "--clusters", "8,16"], "--cluster 8 and --clusters 8,16 are given; use only one"),
        (["--clusters", "gpu-mixed,16"], "gpu-mixed is a GPU cluster and 16 is not"),
        (["--cluster", "1200,1440"], "not a number; write nodes:N, for instance nodes:128, without commas"),
    ],
)
def test_wrong_clusters(kilowait, args, message):
    assert message in kilowait("compare", "lublin:200:16:0.9:7", "--policies", "fcfs", *args).error()
