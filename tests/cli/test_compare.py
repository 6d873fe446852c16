"""kilowait compare."""

from __future__ import annotations

import json

import pytest

import kilowait as kw

WORDS = ("compare", "lublin:150:32:0.9:7")


def test_table_best_first_and_marked(kilowait):
    said = kilowait(*WORDS, "--policies", "wfp3,fcfs,random:seed=4", "--backfill", "easy,none")
    assert said.status == 0
    lines = said.out.splitlines()
    table = lines[5:11]
    assert {tuple(line.split()[:2]) for line in table} == {
        (policy, backfill) for policy in ("wfp3", "fcfs", "random:seed=4") for backfill in ("easy", "none")
    }
    slowdowns = [float(line.split()[2].replace(",", "")) for line in table]
    assert slowdowns == sorted(slowdowns)
    assert sum(line.count("*") for line in table) >= 5
    assert "neighboring batches are correlated" in said.err
    assert "bounded slowdown" in said.out and "Jain's index" in said.out


def test_json_is_what_the_library_says(kilowait):
    found = kilowait(*WORDS, "--policies", "sjf", "--backfill", "2", "--json").json()["traces"][0]
    jobs = kw.lublin(150, 32, load=0.9, seed=7)
    submit = jobs["submit_s"]
    log = kw.simulate(jobs, kw.Cluster.from_nodes(32), "sjf", 2)
    expected = kw.metrics(log, horizon=(submit.min(), submit.max())) | kw.fairness(log)
    (row,) = found["rows"]
    assert (row["policy"], row["backfill"], row["kind"]) == ("sjf", 2, "rule")
    assert row["metrics"] == pytest.approx(dict(expected))


def test_windows(kilowait):
    words = ("--policies", "fcfs,saf", "--windows", "8", "--window", "50", "--warmup", "20", "--json")
    found = kilowait("compare", "lublin:800:32:0.9:7", *words).json()["traces"][0]
    assert found["windows"] == 8 and found["counted_jobs"] == 400 and found["overlap"] == 1.0
    assert "each after 20 jobs of warm-up" in found["cut"]
    interval = found["rows"][0]["intervals"]["mean_bsld"]
    assert interval["low"] < interval["mean"] < interval["high"]
    assert "8 windows are few" in " ".join(found["notes"])
    assert len(found["judgement"]["pairs"]) == len(found["sentences"]) == 1
    again = kilowait("compare", "lublin:800:32:0.9:7", *words).json()["traces"][0]
    assert again == found
    other = kilowait("compare", "lublin:800:32:0.9:7", *words, "--seed", "1").json()["traces"][0]
    assert other["rows"] != found["rows"]


def test_windows_of_time(kilowait):
    found = kilowait("compare", "lublin:800:32:0.9:7", "--windows", "5", "--window", "1d", "--json").json()
    assert "24 h" in found["traces"][0]["cut"] or "1 d" in found["traces"][0]["cut"]


def test_several_logs(kilowait):
    said = kilowait("compare", "lublin:300:32:0.9:7", "lublin:300:16:0.9:8", "--policies", "fcfs,saf")
    assert said.out.count("compared on the whole log") == 2
    assert "geometric mean" in said.out
    last = said.out.splitlines()[-2:]
    assert last[0].split() == ["fcfs", "1.000", "1.000", "1.000"] and last[1].startswith("saf")


def test_perfect_estimates_and_the_gap(kilowait, tmp_path):
    trace = tmp_path / "rounded.swf"
    kw.write_trace(kw.lublin(400, 32, load=0.95, seed=7, estimates="rounded"), trace)
    said = kilowait("compare", trace, "--policies", "fcfs,saf", "--cluster", "32")
    header = said.out.splitlines()[3:5]
    assert "with perfect" in header[0] or "with perfect" in header[1]
    best = next(line for line in said.out.splitlines() if line.split()[:1] in (["fcfs"], ["saf"]))
    assert best.rstrip().endswith("0.0 %")
    without = kilowait("compare", trace, "--policies", "fcfs,saf", "--cluster", "32", "--no-clairvoyant")
    assert "with perfect" not in without.out and without.out.count("saf") >= 3


def test_a_run_alone_is_the_run_in_company(kilowait):
    """No state is carried from one run to the next."""
    together = kilowait(*WORDS, "--policies", "fcfs,fair_share,sjf", "--backfill", "easy", "--json").json()
    alone = kilowait("simulate", WORDS[1], "--policy", "sjf", "--json").json()["metrics"]
    ours = together["traces"][0]["rows"][2]["metrics"]
    assert {name: ours[name] for name in ("mean_wait_s", "mean_bsld", "makespan_s")} == {
        name: alone[name] for name in ("mean_wait_s", "mean_bsld", "makespan_s")
    }


def test_folder(kilowait, swf, tmp_path):
    out = tmp_path / "both"
    words = ("compare", swf, "--policies", "fcfs,sjf", "--backfill", "easy,none", "--out", out)
    said = kilowait(*words)
    assert "4 rows read" in said.out and f"written to {out}" in said.out
    rows = json.loads((out / "results.json").read_text())["traces"][0]["rows"]
    assert len([row for row in rows if row["kind"] == "rule"]) == 4
    assert json.loads((out / "manifest.json").read_text())["kind"] == "comparison"
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "not empty" in kilowait(*words).error()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    again = kilowait(*words, "--force")
    assert again.status == 0 and "runs were read from the folder" in again.err
    assert not (tmp_path / "both.cells").exists()


@pytest.mark.parametrize(
    ("words", "told"),
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
def test_wrong(kilowait, words, told):
    assert told in kilowait(*WORDS, *words).error()
