"""kilowait bench prints what was measured."""

from __future__ import annotations

import pytest

from kilowait.experiments import bench
from kilowait.experiments.bench import Measure

FOUND = [
    Measure("speed", 6e6, "jobs/s", 5e6),
    Measure("slow", 2.0, "s", 1.5, less_is_better=True),
    Measure("weak", 1.0, "jobs/s", 2.0),
    Measure("AccaSim", None, note="AccaSim is not installed"),
    Measure("twin", 300.0, "jobs/s", note="first 300 jobs"),
]


@pytest.fixture(autouse=True)
def _measured(monkeypatch):
    monkeypatch.setattr(bench, "measures", lambda **_: iter(FOUND))


def test_table(kilowait):
    out = kilowait("bench", "--quick").out
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "6,000,000" in lines["speed"] and lines["speed"].endswith("ok")
    assert lines["slow"].endswith("above") and lines["weak"].endswith("below")
    assert "not installed" in lines["AccaSim"] and "first 300 jobs" in lines["twin"]
    assert "1 of 3 targets met" in out


def test_json(kilowait):
    said = kilowait("bench", "--json").json()
    assert [measure["met"] for measure in said["measures"]] == [True, False, False, None, None]
    assert said["machine"]["cpus"] >= 1
