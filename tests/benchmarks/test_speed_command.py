"""Command line of the speed benchmarks: tables and JSON."""

from __future__ import annotations

import json

import pytest
from benchmarks.speed import simulator
from benchmarks.speed.__main__ import main
from benchmarks.speed.measurement import BenchResult

RESULTS = [
    BenchResult("speed", 6e6, "jobs/s", 5e6),
    BenchResult("slow", 2.0, "s", 1.5, less_is_better=True),
    BenchResult("weak", 1.0, "jobs/s", 2.0),
    BenchResult("AccaSim", None, note="AccaSim is not installed"),
    BenchResult("reference", 300.0, "jobs/s", note="first 300 jobs"),
]


@pytest.fixture
def output(capsys):
    """Runs the command line; returns its standard output."""

    def run(*arguments: object) -> str:
        assert main([str(one) for one in arguments]) == 0
        return capsys.readouterr().out

    return run


def test_table(output, monkeypatch):
    monkeypatch.setattr(simulator, "run_benchmarks", lambda **_: iter(RESULTS))
    out = output("simulator", "--quick")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "6,000,000" in lines["speed"] and lines["speed"].endswith("ok")
    assert lines["slow"].endswith("above") and lines["weak"].endswith("below")
    assert "not installed" in lines["AccaSim"] and "first 300 jobs" in lines["reference"]
    assert "1 of 3 targets met" in out


def test_json(output, monkeypatch):
    monkeypatch.setattr(simulator, "run_benchmarks", lambda **_: iter(RESULTS))
    report = json.loads(output("simulator", "--json"))
    assert [measure["met"] for measure in report["measures"]] == [True, False, False, None, None]
    assert report["machine"]["cpus"] >= 1


def test_latency(output, tmp_path):
    out = output("latency", "--quick", "--out", tmp_path / "x.svg")
    assert "scaling exponent" in out and (tmp_path / "x.svg").exists()
    assert "kernel network, all observed" in out


def test_training_speed(output, capsys):
    args = ("train", "--num-envs", 2, "--updates", 1, "--networks", "kernel")
    out = output(*args, "--algos", "a2c")
    assert "on cpu, float32, 2 parallel environments" in out
    for column in ("steps/s", "in envs", "envs alone", "learner alone"):
        assert column in out
    assert out.splitlines()[-1].startswith("a2c   kernel")
    rows = json.loads(output(*args, "--algos", "ppo,d3qn,sac", "--json"))["training"]
    assert [row["algorithm"] for row in rows] == ["ppo", "d3qn", "sac"]
    for row in rows:
        total_s, env_s, learner_s = (1 / row[f"{part}steps_per_s"] for part in ("", "env_", "learner_"))
        assert abs(env_s + learner_s - total_s) < 1e-6 * total_s and 0 < row["env_share"] < 1
    assert main(["train", "--networks", "kernal"]) == 2 and "did you mean" in capsys.readouterr().err
    assert main(["train", "--device", "cuda:99"]) == 2 and "the device is 'cuda:99'" in capsys.readouterr().err
