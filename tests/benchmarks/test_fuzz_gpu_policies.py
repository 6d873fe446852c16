"""A part of benchmarks/fuzz_gpu_policies.py, and checks that it detects errors."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection

import pytest

from benchmarks import fuzz_gpu_policies
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.errors import InputError


def sleep(connection: Connection) -> None:
    """Answer no case."""
    connection.recv()
    time.sleep(60)


def crash(connection: Connection) -> None:
    """Die by a signal."""
    connection.recv()
    os.kill(os.getpid(), signal.SIGSEGV)


def test_fuzzing_finds_no_error() -> None:
    ends = fuzz_gpu_policies.fuzz(150, seed=100_000)
    assert ends["complete"] > 100 and set(ends) <= {"complete", "TableError", "InputError"}


def test_fuzzing_detects_exceeded_time_and_signals() -> None:
    with pytest.raises(fuzz_gpu_policies.Finding, match="seed 4, policy .*: the run has not ended after 0.1 s"):
        fuzz_gpu_policies.fuzz(1, seed=4, limit_s=0.1, start_limit_s=0.1, serve=sleep)
    with pytest.raises(fuzz_gpu_policies.Finding, match="the child process ended with exit status -11"):
        fuzz_gpu_policies.fuzz(1, seed=4, serve=crash)


def gavel_case() -> fuzz_gpu_policies.Case:
    """A case under a round-based policy in which jobs complete."""
    return next(
        case
        for seed in range(1000)
        if (case := fuzz_gpu_policies.random_case(seed)).policy == "gavel"
        and fuzz_gpu_policies.run_case(case) == "complete"
        and len(case.jobs) > 8
    )


def test_fuzzing_detects_jobs_that_are_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    case = gavel_case()
    monkeypatch.setattr(GpuSimulator, "start", lambda *arguments: False)
    with pytest.raises(fuzz_gpu_policies.Finding, match="no progress: policy 'gavel'"):
        fuzz_gpu_policies.run_case(case)
    monkeypatch.setattr(GpuSimulator, "check_all_ended", lambda simulator: None)
    with pytest.raises(fuzz_gpu_policies.Finding, match="have not ended"):
        fuzz_gpu_policies.run_case(case)


def test_fuzzing_detects_errors_that_name_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(simulator: GpuSimulator, numbers: object) -> None:
        raise InputError("something is wrong")

    case = gavel_case()
    monkeypatch.setattr(GpuSimulator, "speeds", fail)
    with pytest.raises(fuzz_gpu_policies.Finding, match="names neither job nor policy: something is wrong"):
        fuzz_gpu_policies.run_case(case)
