"""Wall clock and monotonic clock of a machine, and detection of clock changes."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

__all__ = ["HostClock", "ClockReading", "clock_step_s"]

CLOCK_TOLERANCE_S = 0.05
"""Tolerated difference between the two clocks from one sample to the next. It is at most half of the elapsed time, so
that samples stay in order; a thousandth of the elapsed time is added, which is more than clocks are slewed."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A time on both clocks."""

    utc_s: float
    """Unix seconds of the wall clock, which may be set forwards or backwards."""
    monotonic_s: float
    """Seconds since boot; never set."""


class HostClock:
    """The clocks of the machine, and an interruptible wait. Tests replace it."""

    def now(self) -> ClockReading:
        """The current time."""
        return ClockReading(time.time(), time.monotonic())

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait for `seconds`, or until `stop` is set."""
        stop.wait(max(seconds, 0.0))


def clock_step_s(before: ClockReading, after: ClockReading) -> float:
    """Seconds by which the wall clock was set between two times; 0.0 if it was not set.

    >>> (
    ...     clock_step_s(ClockReading(1000.0, 5.0), ClockReading(1001.0, 6.0)),
    ...     clock_step_s(ClockReading(1000.0, 5.0), ClockReading(401.0, 6.0)),
    ... )
    (0.0, -600.0)
    """
    elapsed_s = after.monotonic_s - before.monotonic_s
    difference_s = after.utc_s - before.utc_s - elapsed_s
    return difference_s if abs(difference_s) > min(CLOCK_TOLERANCE_S, elapsed_s / 2) + 0.001 * elapsed_s else 0.0
