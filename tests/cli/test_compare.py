"""kilowait compare."""

from __future__ import annotations

import json

import pytest

import kilowait as kw

WORDS = ("compare", "lublin:150:32:0.9:7")


def test_table_in_the_order_given_with_the_best_marked(kilowait):
    said = kilowait(*WORDS, "--policies", "wfp3,fcfs,random:seed=4", "--backfill", "easy,none")
    assert said.status == 0 and said.err == ""
    lines = said.out.splitlines()
    assert [line.split()[:2] for line in lines[4:10]] == [
        [policy, backfill] for policy in ("wfp3", "fcfs", "random:seed=4") for backfill in ("easy", "none")
    ]
    assert sum(line.count("*") for line in lines[4:10]) >= 6
    assert lines[-1].startswith("* the best")


def test_json_is_what_the_library_says(kilowait):
    rows = kilowait(*WORDS, "--policies", "sjf", "--backfill", "2", "--json").json()["rows"]
    jobs = kw.lublin(150, 32, load=0.9, seed=7)
    expected = kw.metrics(kw.simulate(jobs, kw.Cluster.from_nodes(32), "sjf", 2))
    assert [(row["policy"], row["backfill"]) for row in rows] == [("sjf", 2)]
    assert rows[0]["metrics"] == pytest.approx(dict(expected))


def test_sorted(kilowait):
    rows = kilowait(*WORDS, "--sort", "mean_bsld", "--json").json()["rows"]
    found = [row["metrics"]["mean_bsld"] for row in rows]
    assert len(rows) == 8 and found == sorted(found)


def test_a_run_alone_is_the_run_in_company(kilowait):
    """No state is carried from one run to the next."""
    together = kilowait(*WORDS, "--policies", "fcfs,fair_share,sjf", "--backfill", "easy", "--json").json()[
        "rows"
    ]
    alone = kilowait("simulate", WORDS[1], "--policy", "sjf", "--json").json()
    assert together[2]["metrics"] == alone["metrics"]


def test_folder(kilowait, swf, tmp_path):
    out = tmp_path / "both"
    words = ("compare", swf, "--policies", "fcfs,sjf", "--out", out)
    said = kilowait(*words)
    assert "4 rows read" in said.out and f"written to {out}" in said.out
    assert len(json.loads((out / "results.json").read_text())["rows"]) == 4
    assert json.loads((out / "manifest.json").read_text())["kind"] == "comparison"
    assert "not empty" in kilowait(*words).error()
    assert kilowait(*words, "--force").status == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--policies", "fcfs,sfj"], "did you mean 'sjf'?"),
        (["--policies", ","], "list of policies is empty"),
        (["--backfill", "easy,nun"], "did you mean 'none'?"),
        (["--sort", "mean_wait"], "did you mean 'mean_wait_s'?"),
        (["--cluster", "2"], "larger than any group"),
        (["--policies", "agent:nowhere.json"], "nowhere.json"),
    ],
)
def test_wrong(kilowait, words, told):
    assert told in kilowait(*WORDS, *words).error()
