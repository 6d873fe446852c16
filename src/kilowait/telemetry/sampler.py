"""Sampling loop: read a meter at regular intervals by the clocks of the machine, and record the rows."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kilowait.errors import InputError
from kilowait.telemetry.recorder import Recorder, Row

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


class Meter(Protocol):
    """A power or energy meter."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a row; the first are time, monotonic_s, host and meter."""
        ...

    @property
    def missing(self) -> frozenset[str]:
        """Names of the parts that failed in the last read but not before."""
        ...

    def read(self, now: Callable[[], ClockReading]) -> list[Row]:
        """One row for every part that responds; a missing part has no row."""
        ...

    def close(self) -> None:
        """Release the device."""
        ...


@dataclass
class SamplingProgress:
    """Progress of the sampling."""

    ticks: int = 0
    rows: int = 0
    missed: int = 0
    """Samples skipped because reading or writing took too long; they are not repeated later."""
    clock_changes: int = 0
    """Number of times the wall clock was set."""
    power_w: float = math.nan
    """Total power at the last sample."""
    elapsed_s: float = 0.0
    events: list[str] = field(default_factory=list)
    """Events of the last sample as text."""


ProgressCallback = Callable[[SamplingProgress], None]


def this_host() -> str:
    """The host name without its domain, as in Slurm."""
    return socket.gethostname().partition(".")[0] or "localhost"


def sample(
    meter: Meter,
    recorder: Recorder,
    *,
    interval_s: float,
    duration_s: float | None = None,
    stop: threading.Event,
    clock: HostClock | None = None,
    on_progress: ProgressCallback | None = None,
) -> SamplingProgress:
    """Read `meter` every `interval_s` seconds of the monotonic clock into `recorder`, until `duration_s` or `stop`.

    The first sample is taken immediately, the last at `duration_s`. If a sample takes longer than the interval, the
    samples in that time are skipped, and the next one is at the next multiple of the interval.
    """
    if not (math.isfinite(interval_s) and interval_s > 0):
        raise InputError(f"the interval is {interval_s:g} s; it must be above 0, such as 1s")
    if duration_s is not None and not duration_s >= 0:
        raise InputError(f"the duration is {duration_s:g} s; it must be 0 or more, such as 10m")
    clock = clock or HostClock()
    progress = SamplingProgress()
    before = clock.now()
    start = before.monotonic_s
    last = math.inf if duration_s is None else math.floor(duration_s / interval_s + 1e-9)
    tick, missing = 0, meter.missing
    while not stop.is_set():
        progress.events = []
        rows = meter.read(clock.now)
        recorder.write(rows)
        now = clock.now()
        progress.ticks, progress.rows = progress.ticks + 1, progress.rows + len(rows)
        progress.elapsed_s, progress.power_w = now.monotonic_s - start, _total_power(meter.columns, rows)
        step_s = clock_step_s(before, now)
        if step_s:
            progress.clock_changes += 1
            progress.events.append(f"the clock was set {'forward' if step_s > 0 else 'back'} by {abs(step_s):.3g} s")
        progress.events += [f"{part} no longer responds" for part in sorted(meter.missing - missing)]
        progress.events += [f"{part} responds again" for part in sorted(missing - meter.missing)]
        before, missing = now, meter.missing
        next_tick = max(tick + 1, math.ceil(progress.elapsed_s / interval_s - 1e-9))
        progress.missed += int(min(next_tick, last + 1)) - tick - 1
        if on_progress is not None:
            on_progress(progress)
        if next_tick > last:
            break
        tick = next_tick
        clock.wait(start + tick * interval_s - clock.now().monotonic_s, stop)
    return progress


def _total_power(columns: Sequence[str], rows: Sequence[Row]) -> float:
    """Total power of the rows that count towards the machine."""
    power_column = columns.index("power_w")
    summed_column = columns.index("summed") if "summed" in columns else None
    powers = [float(row[power_column]) for row in rows if summed_column is None or row[summed_column]]
    return math.fsum(value for value in powers if not math.isnan(value)) if powers else math.nan
