"""kilowait bench: the speed of policies on a log, with real measurements."""

from __future__ import annotations

import pytest


def test_every_policy_is_measured(kilowait, monkeypatch):
    from kilowait.experiments import scenario

    monkeypatch.setattr(scenario, "MIN_TOTAL_S", 0.0)
    out = kilowait("bench", "lublin:200:32", "--policies", "fcfs,sjf:x").err
    assert "sjf" in out, "a wrong policy is an error"
    result = kilowait("bench", "lublin:200:32", "--policies", "fcfs,wfp3")
    assert result.status == 0 and "200 jobs" in result.out
    assert [line.split()[0] for line in result.out.splitlines()[3:]] == ["fcfs", "wfp3"]


def test_json(kilowait, monkeypatch):
    from kilowait.experiments import scenario

    monkeypatch.setattr(scenario, "MIN_TOTAL_S", 0.0)
    document = kilowait("bench", "lublin:200:32", "--policies", "fcfs", "--jobs", "100", "--json").json()
    (speed,) = document["speeds"]
    assert speed["jobs"] == 100 and speed["policy"] == "fcfs"
    assert 0 < speed["seconds"] <= speed["first_s"] * 10
    assert speed["jobs_per_s"] * speed["seconds"] == pytest.approx(100)


def test_a_gpu_cluster_is_measured(kilowait, monkeypatch):
    from kilowait.experiments import scenario

    monkeypatch.setattr(scenario, "MIN_TOTAL_S", 0.0)
    assert "srtf" in kilowait("bench", "gpu:50:gpu-mixed", "--policies", "srtf").out
