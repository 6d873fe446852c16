"""kilowait train --power, and agents that control power on the command line."""

import json

import pytest

TRACE = "lublin:1200:32:0.5:7"
POWER = ("--power", "taurus", "--power-controls", "sleep=timeout:600+dvfs=1.3")
SMALL = ("--windows", "2", "--window", "100")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("power")


@pytest.mark.slow
def test_linear_agent_is_trained_simulated_compared_and_evaluated(kilowait, folder):
    out = folder / "es"
    result = kilowait(
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
    assert "front" in result.out and "kWh per job" in result.out and "hand-tuned power controls" in result.out
    saved = json.loads((out / "results.json").read_text())
    assert saved["judged"]["objective"] == "energy" and "agent" in saved["judged"]["policies"] and saved["weights"]
    simulated = kilowait("simulate", TRACE, "--policy", f"agent:{out}", *POWER)
    assert "asleep" in simulated.out
    assert "--power-controls" in kilowait("simulate", TRACE, "--policy", f"agent:{out}", "--power", "taurus").error()
    assert "--power" in kilowait("simulate", TRACE, "--policy", f"agent:{out}").error()
    compared = kilowait("compare", TRACE, "--policies", f"saf,agent:{out}", *SMALL, *POWER[:3], f"none,{POWER[-1]}")
    assert "agent" in compared.out
    evaluated = kilowait("evaluate", str(out), TRACE, "--power", "taurus", *SMALL, "--json").json()
    assert evaluated["judged"]["windows"] == 2 and "front" in evaluated["judged"]
    assert "--power" in kilowait("evaluate", str(out), TRACE, *SMALL).error()


@pytest.mark.slow
def test_constrained_network_is_trained_resumed_and_evaluated(kilowait, folder):
    out = folder / "ppo"
    options = (*POWER, *SMALL, "--num-envs", "4", "--episode-jobs", "40", "--queue-window", "16", "--out", str(out))
    args = ("--algo", "ppo", "--objective", "energy=1,slowdown=0.1", "--constraint", "sla=0.05")
    first = kilowait("train", TRACE, *args, "--total-timesteps", "512", *options)
    assert "kWh per job" in first.out and (out / "agent.pt").exists()
    more = kilowait("train", TRACE, *args, "--total-timesteps", "1024", *options, "--resume")
    assert "resuming the training" in more.err
    assert "agent" in json.loads((out / "results.json").read_text())["judged"]["policies"]


def test_error_messages(kilowait, folder):
    message = kilowait("train", TRACE, "--algo", "ppo", "--objective", "energy=1", "--out", str(folder / "x")).error()
    assert "--power" in message
    message = kilowait(
        "train", TRACE, *POWER, *SMALL, "--objective", "co2", "--generations", "1", "--out", str(folder / "y")
    ).error()
    assert "carbon" in message
    message = kilowait("train", TRACE, "--carbon", "grid.csv", "--out", str(folder / "z")).error()
    assert "--power" in message


@pytest.mark.parametrize("algo", ["cma-es", "ppo"])
def test_agents_on_gpu_clusters_have_no_power_controls(kilowait, tmp_path, algo):
    args = ("train", "gpu:300:gpu-mixed:0.9:0", "--algo", algo, "--power", "auto", "--out", tmp_path / "agent")
    message = " ".join(kilowait(*args).error().split())
    assert "agents on GPU clusters choose jobs, GPU types and placements, and cannot set power caps" in message
    assert "--gpu-power-cap 60%" in message and not (tmp_path / "agent").exists()
