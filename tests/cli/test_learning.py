"""kilowait train --algo ppo, and kilowait evaluate."""

import pytest

TRACE = "lublin:1200:32:0.95:7"
SMALL = ("--envs", "4", "--episode-jobs", "40", "--slots", "16", "--window-jobs", "100", "--windows", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("learned")


@pytest.mark.slow
def test_train_resume_evaluate(kilowait, folder):
    out = folder / "ppo"
    first = kilowait("train", TRACE, "--algo", "ppo", "--steps", "512", *SMALL, "--out", str(out))
    assert "agent.pt" in first.out and (out / "agent.pt").exists() and (out / "results.json").exists()
    again = kilowait("train", TRACE, "--algo", "ppo", "--steps", "512", *SMALL, "--out", str(out)).error()
    assert "--resume" in again
    more = kilowait("train", TRACE, "--algo", "ppo", "--steps", "1024", *SMALL, "--out", str(out), "--resume")
    assert "update 4," in more.err and "update 2," not in more.err
    said = kilowait("evaluate", str(out), TRACE, "--windows", "3", "--window-jobs", "100", "--json").json()
    assert "agent" in str(said["judged"]) and said["agent"]["learning"]["algo"] == "ppo"
    compared = kilowait(
        "compare",
        TRACE,
        "--policies",
        f"saf,agent:{out / 'agent.pt'}",
        "--windows",
        "2",
        "--window-jobs",
        "100",
    )
    assert "agent" in compared.out


def test_what_is_wrong_is_told(kilowait, folder):
    nothing = kilowait("train", TRACE, "--algo", "ppo", "--out", str(folder / "new"), "--resume").error()
    assert "no training to resume" in nothing
    wrong = kilowait("train", TRACE, "--algo", "pppo", "--out", str(folder / "x")).error()
    assert "did you mean" in wrong
    reward = kilowait(
        "train", TRACE, "--algo", "ppo", "--reward", "slowdown", "--out", str(folder / "y")
    ).error()
    assert "term=weight" in reward
    missing = kilowait("evaluate", str(folder / "none.pt"), TRACE).error()
    assert "none.pt" in missing
