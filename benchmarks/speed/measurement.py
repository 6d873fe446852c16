"""Measurements of speed: results with targets, the best of several calls, ratios in one run, and child processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from kilowait.errors import InputError

__all__ = ["BenchResult", "best_s", "interleaved_ratio", "machine", "python_output"]


@dataclass(frozen=True)
class BenchResult:
    """One measurement and its target."""

    name: str
    value: float | None
    """None: it could not be measured; the note states the reason."""
    unit: str = ""
    target: float | None = None
    less_is_better: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.value is None or self.target is None:
            return None
        return self.value <= self.target if self.less_is_better else self.value >= self.target

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "met": self.met}


def best_s(call: Callable[[], Any], *, quick: bool = False, warm: bool = True) -> float:
    """Seconds of the fastest call, of at least five calls in at least 3 s (if `quick`: three calls in 0.25 s)."""
    if warm:
        call()
    min_calls, min_total_s = (3, 0.25) if quick else (5, 3.0)
    times: list[float] = []
    while len(times) < min_calls or (sum(times) < min_total_s and len(times) < 2000):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def interleaved_ratio(one: Callable[[], Any], other: Callable[[], Any], *, quick: bool) -> float:
    """Seconds of `other` over seconds of `one`, measured in turns, so that CPU frequency changes affect both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        for call, seconds in zip((one, other), times, strict=True):
            seconds.append(best_s(call, quick=quick))
    return min(times[1]) / min(times[0])


def python_output(*arguments: str, **environment: str) -> str:
    """The standard output of another Python process."""
    completed = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    if completed.returncode:
        last = (completed.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"a measurement failed: another Python process ended with {completed.returncode}: {last}")
    return completed.stdout


def machine() -> dict[str, Any]:
    """The Python version, the processors and the load of this machine."""
    load = os.getloadavg()[0]
    return {"python": platform.python_version(), "cpus": os.cpu_count(), "cpu": platform.machine(), "load": load}
