"""Tests of the quickstart and of train followed by compare, on the command line."""

from __future__ import annotations

import json

import pytest

from kilowait.agents import load_agent
from kilowait.cli import main
from kilowait.evaluation.storage import AgentFolder, load_comparison, open_folder

NAMES = {"report.html", "agent", "comparison", "figures"}
SAME = (
    "agent/agent.json",
    "agent/results.json",
    "comparison/results.json",
    "comparison/segments.parquet",
    "comparison/windows.parquet",
    "figures/means.svg",
)


@pytest.mark.slow
def test_quickstart_writes_a_report_and_is_deterministic(tmp_path, capsys):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    (one / "mine.txt").write_text("kept")
    for folder in (one, two):
        assert main(["quickstart", "--fast", "--seed", "3", "--out", str(folder)]) == 0
    output = capsys.readouterr()
    assert str(two / "report.html") in output.out
    assert "agent" in output.out
    assert "of the start" in output.err
    assert {path.name for path in one.iterdir()} == NAMES | {"mine.txt"}
    for name in SAME:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    found = load_comparison(one / "comparison")
    (comparison,) = found.comparisons
    assert comparison.windows.first.min() >= 0.8 * 12_000
    assert [policy.kind for policy in comparison.policies].count("agent") == 1
    results = found.results["traces"][0]
    compared = [sentence for sentence in results["sentences"] if "between agent and " in sentence]
    assert len(compared) == 8 and any("rests on only 9 windows" in sentence for sentence in results["sentences"])
    assert load_agent(one / "agent" / "agent.json").provenance["seed"] == 3
    assert main(["quickstart", "--fast", "--seed", "4", "--out", str(one)]) == 0
    assert (one / "mine.txt").read_text() == "kept"
    assert (one / SAME[2]).read_bytes() != (two / SAME[2]).read_bytes()


def test_quickstart_does_not_overwrite_other_files(tmp_path, capsys):
    (tmp_path / "comparison").mkdir()
    (tmp_path / "comparison" / "thesis.txt").write_text("years of work")
    assert main(["quickstart", "--fast", "--out", str(tmp_path)]) == 2
    assert "not written by kilowait" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["comparison"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "report.html").write_text("<p>annual report</p>")
    assert main(["quickstart", "--fast", "--out", str(other)]) == 2
    assert "is not a kilowait report" in capsys.readouterr().err
    assert [path.name for path in other.iterdir()] == ["report.html"]
    (tmp_path / "file").write_text("")
    assert main(["quickstart", "--fast", "--out", str(tmp_path / "file")]) == 2
    assert "is a file; name a folder" in capsys.readouterr().err


@pytest.mark.slow
def test_trained_agent_can_be_compared(tmp_path, capsys):
    out = tmp_path / "x"
    small = ["--generations", "3", "--population", "6", "--windows", "2", "--window", "100"]
    assert main(["train", "lublin:1000:64:0.95:1", "--seed", "42", "--out", str(out), *small]) == 0
    output = capsys.readouterr()
    assert "agent and saf" in output.out or "agent has" in output.out
    assert "2 windows are few" in output.err
    assert isinstance(open_folder(out), AgentFolder)
    assert load_agent(out / "agent.json").provenance["seed"] == 42
    assert (
        main(["compare", "lublin:300:64:0.95:1", "-b", "easy", "-p", f"saf,agent:{out / 'agent.json'}", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)["traces"][0]
    assert [row["kind"] for row in found["rows"]] == ["rule", "agent"]
    assert found["cut"].startswith("jobs 240 to 300 of the log")


def test_unknown_algorithm_lists_the_known_ones(tmp_path, capsys):
    assert main(["train", "lublin:100:64", "--algo", "pop", "--out", str(tmp_path / "x")]) == 2
    assert "known: a2c, cma-es, d3qn, ppo, sac" in capsys.readouterr().err
