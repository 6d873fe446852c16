"""The two clocks of a machine: what time it is, and how much of it has passed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

__all__ = ["HostClock", "Moment", "clock_step_s"]

STEADY_S = 0.05
"""Between two samples both clocks may move apart by this (never by half of the time that passed: so samples keep their
order), and by a thousandth of the time, which is faster than clocks are slewed."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant on both clocks."""

    utc_s: float
    """Unix seconds. May be set, forwards or backwards, by whoever keeps the machine's time."""
    monotonic_s: float
    """Seconds since the machine started; never set."""


class HostClock:
    """The machine's own clocks, and a way to wait that a signal can end. Tests hand in another one."""

    def now(self) -> Moment:
        """This instant."""
        return Moment(time.time(), time.monotonic())

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait so long, or until `stop` is set."""
        stop.wait(max(seconds, 0.0))


def clock_step_s(before: Moment, after: Moment) -> float:
    """Seconds by which the wall clock was set between two moments; 0.0 where it kept pace.

    >>> clock_step_s(Moment(1000.0, 5.0), Moment(1001.0, 6.0)), clock_step_s(Moment(1000.0, 5.0), Moment(401.0, 6.0))
    (0.0, -600.0)
    """
    passed = after.monotonic_s - before.monotonic_s
    apart = after.utc_s - before.utc_s - passed
    return apart if abs(apart) > min(STEADY_S, passed / 2) + 0.001 * passed else 0.0
