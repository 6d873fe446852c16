"""The loop: even ticks, missed ones, clocks that are set, an end."""

from __future__ import annotations

import threading

import pytest

from kilowait.errors import InputError
from kilowait.telemetry.meters import GpuMeter, SamplingProgress, sample
from tests.telemetry.fake_sensors import FakeNvml, TestClock


class Kept:
    def __init__(self) -> None:
        self.ticks: list[list[tuple[object, ...]]] = []

    def write(self, rows: list[tuple[object, ...]]) -> None:
        self.ticks.append(list(rows))

    def close(self) -> None:
        pass

    @property
    def at(self) -> list[float]:
        return [rows[0][1] - 100.0 for rows in self.ticks]


def run(
    clock: TestClock, watts: list[float], **settings: object
) -> tuple[SamplingProgress, Kept, list[SamplingProgress]]:
    kept, heard = Kept(), []
    meter = settings.pop("meter", None) or GpuMeter("n1", FakeNvml(clock, watts))
    told = sample(
        meter,
        kept,
        interval_s=settings.pop("interval_s", 1.0),
        stop=settings.pop("stop", threading.Event()),
        clock=clock,
        on_progress=lambda sampled: heard.append((sampled.ticks, list(sampled.events))),
        **settings,
    )
    return told, kept, heard


def test_ticks_are_even_and_span_the_duration():
    told, kept, _ = run(TestClock(), [300.0, 200.0], interval_s=0.5, duration_s=2.0)
    assert kept.at == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert (told.ticks, told.rows, told.missed, told.clock_changes, told.power_w) == (5, 10, 0, 0, 500.0)


def test_missed_ticks_are_counted_and_not_made_up():
    clock = TestClock()
    meter = GpuMeter("n1", FakeNvml(clock, [300.0]))
    read = meter.read

    def slow(now):
        rows = read(now)
        if rows[0][1] == 102.0:
            clock.pass_(2.5)
        return rows

    meter.read = slow
    told, kept, _ = run(clock, [], meter=meter, duration_s=6.0)
    assert kept.at == [0.0, 1.0, 2.0, 5.0, 6.0] and told.missed == 2


def test_a_clock_that_is_set_moves_no_tick():
    clock = TestClock()
    clock.at = {
        2: lambda: setattr(clock, "utc_s", clock.utc_s - 3600),
        4: lambda: setattr(clock, "utc_s", 2e9),
    }
    told, kept, heard = run(clock, [300.0], duration_s=5.0)
    assert kept.at == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] and told.clock_changes == 2
    assert [rows[0][0] - 1.7e9 for rows in kept.ticks][:4] == [0.0, 1.0, 2.0 - 3600, 3.0 - 3600]
    said = [event for _, events in heard for event in events]
    assert said[0] == "the clock was set back by 3.6e+03 s" and said[1].startswith(
        "the clock was set forward by"
    )


def test_meters_that_vanish_are_told_once():
    clock = TestClock()
    nvml = FakeNvml(clock, [300.0, 200.0])
    meter = GpuMeter("n1", nvml)
    clock.at = {2: lambda: nvml.broken.update({"GPU-1": 15}), 5: nvml.broken.clear}
    told, kept, heard = run(clock, [], meter=meter, duration_s=20.0)
    assert [events for _, events in heard if events] == [
        ["gpu1 no longer responds"],
        ["gpu1 responds again"],
    ]
    assert [len(rows) for rows in kept.ticks[:4]] == [2, 2, 1, 1] and len(kept.ticks[-1]) == 2
    assert told.rows < 2 * told.ticks


def test_it_ends_when_told():
    clock, stop = TestClock(), threading.Event()
    clock.at[3] = stop.set
    assert run(clock, [300.0], stop=stop)[0].ticks == 3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"interval_s": 0.0}, "the interval is 0 s; it must be above 0, such as 1s"),
        ({"interval_s": float("nan")}, "the interval is nan s"),
        ({"duration_s": -1.0}, "the duration is -1 s; it must be 0 or more"),
    ],
)
def test_impossible_settings_are_told(settings, words):
    with pytest.raises(InputError, match=words):
        run(TestClock(), [300.0], **settings)
