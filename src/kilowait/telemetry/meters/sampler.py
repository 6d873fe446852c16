"""The loop that reads a meter at even intervals and hands the rows on."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kilowait.errors import InputError
from kilowait.telemetry.meters.host_clock import HostClock, Moment, clock_step_s
from kilowait.telemetry.meters.sample_files import Recorder, Row

__all__ = ["Heard", "Meter", "SamplingProgress", "sample", "this_host"]


class Meter(Protocol):
    """Something that can be read again and again."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Of a row: time, monotonic_s, host and meter first."""
        ...

    @property
    def missing(self) -> frozenset[str]:
        """Names of those parts that could not be read the last time, and could before."""
        ...

    def read(self, now: Callable[[], Moment]) -> list[Row]:
        """A row for every part that answers; one that has vanished has no row until it is back."""
        ...

    def close(self) -> None:
        """Let go of the device."""
        ...


@dataclass
class SamplingProgress:
    """How far sampling has come."""

    ticks: int = 0
    rows: int = 0
    missed: int = 0
    """Ticks that were skipped because reading or writing took too long; they are not made up."""
    jumps: int = 0
    """Times the wall clock was set."""
    power_w: float = math.nan
    """Of all parts together, at the last tick."""
    elapsed_s: float = 0.0
    events: list[str] = field(default_factory=list)
    """What happened at the last tick, in words."""


Heard = Callable[[SamplingProgress], None]


def this_host() -> str:
    """The machine's name without its domain, as Slurm calls it."""
    return socket.gethostname().partition(".")[0] or "localhost"


def sample(
    meter: Meter,
    recorder: Recorder,
    *,
    interval_s: float,
    duration_s: float | None = None,
    stop: threading.Event,
    clock: HostClock | None = None,
    heard: Heard | None = None,
) -> SamplingProgress:
    """Read `meter` every `interval_s` seconds of the monotonic clock into `recorder`, until `duration_s` or `stop`.

    The first reading is at once, the last at `duration_s`. A reading that takes longer than the interval costs the
    ticks it ran over; the next one is again at a whole multiple of the interval.
    """
    if not (math.isfinite(interval_s) and interval_s > 0):
        raise InputError(f"the interval is {interval_s:g} s; it must be above 0, such as 1s")
    if duration_s is not None and not duration_s >= 0:
        raise InputError(f"the duration is {duration_s:g} s; it must be 0 or more, such as 10m")
    clock = clock or HostClock()
    told = SamplingProgress()
    before = clock.now()
    start = before.monotonic_s
    last = math.inf if duration_s is None else math.floor(duration_s / interval_s + 1e-9)
    tick, gone = 0, meter.missing
    while not stop.is_set():
        told.events = []
        rows = meter.read(clock.now)
        recorder.write(rows)
        now = clock.now()
        told.ticks, told.rows = told.ticks + 1, told.rows + len(rows)
        told.elapsed_s, told.power_w = now.monotonic_s - start, _power(meter.columns, rows)
        by_s = clock_step_s(before, now)
        if by_s:
            told.jumps += 1
            told.events.append(f"the clock was set {'forward' if by_s > 0 else 'back'} by {abs(by_s):.3g} s")
        told.events += [f"{part} does not answer any more" for part in sorted(meter.missing - gone)]
        told.events += [f"{part} answers again" for part in sorted(gone - meter.missing)]
        before, gone = now, meter.missing
        ahead = max(tick + 1, math.ceil(told.elapsed_s / interval_s - 1e-9))
        told.missed += int(min(ahead, last + 1)) - tick - 1
        if heard is not None:
            heard(told)
        if ahead > last:
            break
        tick = ahead
        clock.wait(start + tick * interval_s - clock.now().monotonic_s, stop)
    return told


def _power(columns: Sequence[str], rows: Sequence[Row]) -> float:
    """The watts of those rows that make up the machine."""
    power = columns.index("power_w")
    counted = columns.index("summed") if "summed" in columns else None
    watts = [float(row[power]) for row in rows if counted is None or row[counted]]
    return math.fsum(watt for watt in watts if not math.isnan(watt)) if watts else math.nan
