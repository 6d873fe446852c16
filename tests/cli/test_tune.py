"""kilowait tune, and kilowait train with the tuned hyperparameters."""

import json
import sys

import pytest

from kilowait.errors import install_command

TRACE = "lublin:600:16"
SMALL = ("--num-envs", "2", "--episode-jobs", "40", "--queue-window", "16", "--window", "60", "--windows", "2")
TUNE = ("tune", TRACE, "--total-timesteps", "256", *SMALL)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("tuned") / "here"


@pytest.mark.slow
def test_tune_resume_train(kilowait, out):
    first = kilowait(*TUNE, "--trials", "2", "--out", out)
    assert first.status == 0, first.err
    assert "2 of 2: " in first.err and "best so far" in first.err and "[I " not in first.err
    assert "learning_rate" in first.out and f"--hyperparameters {out / 'best.toml'}" in first.out
    assert "--resume" in kilowait(*TUNE, "--trials", "3", "--out", out).error()
    assert "started with seed 0" in kilowait(*TUNE, "--trials", "3", "--seed", "1", "--out", out, "--resume").err
    before = json.loads((out / "results.json").read_text())["trials"]
    more = kilowait(*TUNE, "--trials", "3", "--out", out, "--resume", "--json")
    assert "2 trials of 3 done" in more.err and "3 of 3: " in more.err and "2 of 3: " not in more.err
    report = more.json()
    assert report["trials"][:2] == before and len(report["trials"]) == 3
    train = ("train", TRACE, "--total-timesteps", "256", *SMALL, "--hyperparameters", out / "best.toml")
    agent = kilowait(*train, "--out", out.with_name("agent"), "--json").json()["agent"]
    assert agent["training"]["algo"] == "ppo"  # from the file, although cma-es is the default
    best = report["best"]["settings"]
    assert agent["training"]["hyperparameters"]["learning_rate"] == best["learning_rate"]
    assert agent["training"]["hyperparameters"]["sizes"]["width"] == best["width"]
    assert "--algo cma-es" in kilowait(*train, "--algo", "cma-es", "--out", out.with_name("other")).error()
    restarted = kilowait(*TUNE, "--trials", "1", "--out", out, "--force", "--json").json()
    assert restarted["trials"][0]["metric"] == before[0]["metric"]


def test_error_messages(kilowait, tmp_path, monkeypatch):
    assert "no search to resume" in kilowait(*TUNE, "--out", tmp_path / "new", "--resume").error()
    assert "ppo" in kilowait(*TUNE, "--algo", "cma-es", "--out", tmp_path / "es").error()
    bad = tmp_path / "bad.toml"
    bad.write_text("[hyperparameters]\nlearning_rate = 'fast'\n")
    train = ("train", TRACE, "--algo", "ppo", "--out", tmp_path / "agent", "--hyperparameters")
    assert "learning_rate is 'fast'" in kilowait(*train, bad).error()
    assert "cannot read" in kilowait(*train, tmp_path / "none.toml").error()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    assert "not empty" in kilowait(*TUNE, "--out", tmp_path / "full").error()
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert install_command("tune") in kilowait(*TUNE, "--out", tmp_path / "new").error()
