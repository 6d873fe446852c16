"""kilowait bench."""

from __future__ import annotations

import pytest

from kilowait.experiments import bench
from kilowait.experiments.bench import BenchResult

RESULTS = [
    BenchResult("speed", 6e6, "jobs/s", 5e6),
    BenchResult("slow", 2.0, "s", 1.5, less_is_better=True),
    BenchResult("weak", 1.0, "jobs/s", 2.0),
    BenchResult("AccaSim", None, note="AccaSim is not installed"),
    BenchResult("reference", 300.0, "jobs/s", note="first 300 jobs"),
]


@pytest.fixture(autouse=True)
def _measured(monkeypatch):
    monkeypatch.setattr(bench, "run_benchmarks", lambda **_: iter(RESULTS))


def test_table(kilowait):
    out = kilowait("bench", "--quick").out
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "6,000,000" in lines["speed"] and lines["speed"].endswith("ok")
    assert lines["slow"].endswith("above") and lines["weak"].endswith("below")
    assert "not installed" in lines["AccaSim"] and "first 300 jobs" in lines["reference"]
    assert "1 of 3 targets met" in out


def test_json(kilowait):
    report = kilowait("bench", "--json").json()
    assert [measure["met"] for measure in report["measures"]] == [True, False, False, None, None]
    assert report["machine"]["cpus"] >= 1


def test_latency(kilowait, tmp_path):
    result = kilowait("bench", "latency", "--quick", "--out", tmp_path / "x.svg")
    assert result.status == 0 and "scaling exponent" in result.out and (tmp_path / "x.svg").exists()
    assert "kernel network, all observed" in result.out


def test_training_speed(kilowait):
    args = ("bench", "train", "--num-envs", "2", "--updates", "1", "--networks", "kernel")
    result = kilowait(*args, "--algos", "a2c")
    assert result.status == 0 and "on cpu, float32, 2 parallel environments" in result.out
    for column in ("steps/s", "in envs", "envs alone", "learner alone"):
        assert column in result.out
    assert result.out.splitlines()[-1].startswith("a2c   kernel")
    rows = kilowait(*args, "--algos", "ppo,d3qn,sac", "--json").json()["training"]
    assert [row["algorithm"] for row in rows] == ["ppo", "d3qn", "sac"]
    for row in rows:
        total_s, env_s, learner_s = (1 / row[f"{part}steps_per_s"] for part in ("", "env_", "learner_"))
        assert abs(env_s + learner_s - total_s) < 1e-6 * total_s and 0 < row["env_share"] < 1
    assert "did you mean" in kilowait(*args[:-1], "kernal").err
    assert "the device is 'cuda:99'" in kilowait(*args, "--device", "cuda:99").err
