"""kilowait train --power, and agents that pull levers on the command line."""

import json

import pytest

TRACE = "lublin:1200:32:0.5:7"
POWER = ("--power", "taurus", "--power-controls", "sleep=timeout:600+dvfs=1.3")
SMALL = ("--windows", "2", "--window", "100")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("steered")


@pytest.mark.slow
def test_weights_are_trained_played_compared_and_evaluated(kilowait, folder):
    out = folder / "es"
    said = kilowait(
        "train",
        TRACE,
        *POWER,
        *SMALL,
        "--generations",
        "3",
        "--population",
        "6",
        "--max-slowdown-ratio",
        "1.3",
        "--out",
        str(out),
    )
    assert "front" in said.out and "kWh/job" in said.out and "hand-tuned power controls" in said.out
    told = json.loads((out / "results.json").read_text())
    assert (
        told["judged"]["objective"] == "energy" and "agent" in told["judged"]["policies"] and told["weights"]
    )
    played = kilowait("simulate", TRACE, "--policy", f"agent:{out}", *POWER)
    assert "asleep" in played.out
    assert (
        "--power-controls"
        in kilowait("simulate", TRACE, "--policy", f"agent:{out}", "--power", "taurus").error()
    )
    assert "--power" in kilowait("simulate", TRACE, "--policy", f"agent:{out}").error()
    compared = kilowait(
        "compare", TRACE, "--policies", f"saf,agent:{out}", *SMALL, *POWER[:3], f"none,{POWER[-1]}"
    )
    assert "agent" in compared.out
    judged = kilowait("evaluate", str(out), TRACE, "--power", "taurus", *SMALL, "--json").json()
    assert judged["judged"]["windows"] == 2 and "front" in judged["judged"]
    assert "--power" in kilowait("evaluate", str(out), TRACE, *SMALL).error()


@pytest.mark.slow
def test_a_network_under_a_limit_is_trained_resumed_and_judged(kilowait, folder):
    out = folder / "ppo"
    small = (
        *POWER,
        *SMALL,
        "--num-envs",
        "4",
        "--episode-jobs",
        "40",
        "--queue-window",
        "16",
        "--out",
        str(out),
    )
    asked = ("--algo", "ppo", "--objective", "energy=1,slowdown=0.1", "--constraint", "sla=0.05")
    first = kilowait("train", TRACE, *asked, "--total-timesteps", "512", *small)
    assert "kWh/job" in first.out and (out / "agent.pt").exists()
    more = kilowait("train", TRACE, *asked, "--total-timesteps", "1024", *small, "--resume")
    assert "resuming the training" in more.err
    assert "agent" in json.loads((out / "results.json").read_text())["judged"]["policies"]


def test_what_is_missing_is_told(kilowait, folder):
    words = kilowait(
        "train", TRACE, "--algo", "ppo", "--objective", "energy=1", "--out", str(folder / "x")
    ).error()
    assert "--power" in words
    words = kilowait(
        "train", TRACE, *POWER, *SMALL, "--objective", "co2", "--generations", "1", "--out", str(folder / "y")
    ).error()
    assert "carbon" in words
    words = kilowait("train", TRACE, "--carbon", "grid.csv", "--out", str(folder / "z")).error()
    assert "--power" in words
