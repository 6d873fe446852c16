"""The first command people run, from end to end."""

from __future__ import annotations

import json

import pytest

from kilowait.agents import load_agent
from kilowait.cli import main

NAMES = {"report.html", "agent.json", "results.json", "figures"}


@pytest.mark.slow
def test_quickstart_writes_a_page_and_repeats_itself(tmp_path, capsys):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    (one / "mine.txt").write_text("kept")
    for folder in (one, two):
        assert main(["quickstart", "--fast", "--seed", "3", "--out", str(folder)]) == 0
    shown = capsys.readouterr()
    assert str(two / "report.html") in shown.out
    assert "agent" in shown.out
    assert "best so far" in shown.err
    assert {path.name for path in one.iterdir()} == NAMES | {"mine.txt"}
    for name in ("report.html", "agent.json", "results.json", "figures/waits.svg"):
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    results = json.loads((one / "results.json").read_text())
    assert len(results["results"]) == 10
    assert len(results["agent_against_rules"]) == 8
    assert load_agent(one / "agent.json").provenance["seed"] == 3
    assert main(["quickstart", "--fast", "--seed", "4", "--out", str(one)]) == 0
    assert "holds an earlier quickstart" in capsys.readouterr().err
    assert (one / "mine.txt").read_text() == "kept"
    assert (one / "results.json").read_bytes() != (two / "results.json").read_bytes()


def test_quickstart_does_not_write_over_other_results(tmp_path, capsys):
    (tmp_path / "results.json").write_text('{"metrics": {}}')
    assert main(["quickstart", "--fast", "--out", str(tmp_path)]) == 2
    assert "holds the results of something else" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["quickstart", "--fast", "--out", str(tmp_path / "file")]) == 2
    assert "is a file; name a folder" in capsys.readouterr().err


@pytest.mark.slow
def test_train_writes_an_agent_that_compare_takes(tmp_path, capsys):
    out = tmp_path / "x"
    small = ["--generations", "3", "--population", "6", "--windows", "2", "--window-jobs", "100"]
    assert main(["train", "lublin:1000:64:0.95:1", "--seed", "42", "--out", str(out), *small]) == 0
    shown = capsys.readouterr()
    assert "agent / rule" in shown.out
    assert "2 windows of later jobs are few" in shown.err
    assert load_agent(out / "agent.json").provenance["seed"] == 42
    assert (
        main(
            [
                "compare",
                "lublin:300:64:0.95:1",
                "-b",
                "easy",
                "-p",
                f"saf,agent:{out / 'agent.json'}",
                "--json",
            ]
        )
        == 0
    )
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2


def test_train_says_which_algorithms_there_are(tmp_path, capsys):
    assert main(["train", "lublin:100:64", "--algo", "ppo", "--out", str(tmp_path / "x")]) == 2
    assert "unknown algorithm 'ppo'; known: es" in capsys.readouterr().err
