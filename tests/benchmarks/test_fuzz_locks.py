"""A part of benchmarks/fuzz_locks.py, and checks that it detects errors."""

from __future__ import annotations

import pytest

from benchmarks import fuzz_locks


def test_locks_withstand_races_and_damages():
    counts = fuzz_locks.fuzz(600, seed=20)
    assert set(fuzz_locks.DAMAGES) <= set(counts)
    assert counts["held"] + counts["refused"] >= 300  # racing processes may answer once more


def test_machines_without_an_identity_withstand_damages(monkeypatch):
    monkeypatch.setattr("kilowait.files.lock_file._machine", lambda: "")
    assert sum(fuzz_locks._damage_cases(200, seed=2).values()) == 200


def test_a_lock_that_is_taken_wrongly_is_detected(monkeypatch):
    monkeypatch.setattr("kilowait.files.lock_file.LockFile.is_stale", lambda *_: True)
    with pytest.raises(AssertionError, match="seed 1, case"):
        fuzz_locks._damage_cases(100, seed=1)
