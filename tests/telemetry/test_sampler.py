"""Sampling loop: interval, missed samples, changes of the clock, end."""

from __future__ import annotations

import threading

import pytest

from kilowait.errors import InputError
from kilowait.telemetry.meters import GpuMeter
from kilowait.telemetry.sampler import SamplingProgress, sample
from tests.telemetry.fake_sensors import FakeNvml, TestClock


class ListRecorder:
    def __init__(self) -> None:
        self.ticks: list[list[tuple[object, ...]]] = []

    def write(self, rows: list[tuple[object, ...]]) -> None:
        self.ticks.append(list(rows))

    def close(self) -> None:
        pass

    @property
    def times(self) -> list[float]:
        return [rows[0][1] - 100.0 for rows in self.ticks]


def run(
    clock: TestClock, watts: list[float], **settings: object
) -> tuple[SamplingProgress, ListRecorder, list[SamplingProgress]]:
    recorder, reports = ListRecorder(), []
    meter = settings.pop("meter", None) or GpuMeter("n1", FakeNvml(clock, watts))
    progress = sample(
        meter,
        recorder,
        interval_s=settings.pop("interval_s", 1.0),
        stop=settings.pop("stop", threading.Event()),
        clock=clock,
        on_progress=lambda state: reports.append((state.ticks, list(state.events))),
        **settings,
    )
    return progress, recorder, reports


def test_samples_are_evenly_spaced_over_the_duration():
    progress, recorder, _ = run(TestClock(), [300.0, 200.0], interval_s=0.5, duration_s=2.0)
    assert recorder.times == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert (progress.ticks, progress.rows, progress.missed, progress.clock_changes, progress.power_w) == (
        5,
        10,
        0,
        0,
        500.0,
    )


def test_missed_samples_are_counted_and_not_repeated():
    clock = TestClock()
    meter = GpuMeter("n1", FakeNvml(clock, [300.0]))
    read = meter.read

    def slow(now):
        rows = read(now)
        if rows[0][1] == 102.0:
            clock.advance(2.5)
        return rows

    meter.read = slow
    progress, recorder, _ = run(clock, [], meter=meter, duration_s=6.0)
    assert recorder.times == [0.0, 1.0, 2.0, 5.0, 6.0] and progress.missed == 2


def test_setting_the_clock_does_not_move_samples():
    clock = TestClock()
    clock.callbacks = {2: lambda: setattr(clock, "utc_s", clock.utc_s - 3600), 4: lambda: setattr(clock, "utc_s", 2e9)}
    progress, recorder, reports = run(clock, [300.0], duration_s=5.0)
    assert recorder.times == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] and progress.clock_changes == 2
    assert [rows[0][0] - 1.7e9 for rows in recorder.ticks][:4] == [0.0, 1.0, 2.0 - 3600, 3.0 - 3600]
    messages = [event for _, events in reports for event in events]
    assert messages[0] == "the clock was set back by 3.6e+03 s" and messages[1].startswith(
        "the clock was set forward by"
    )


def test_missing_meters_are_reported_once():
    clock = TestClock()
    nvml = FakeNvml(clock, [300.0, 200.0])
    meter = GpuMeter("n1", nvml)
    clock.callbacks = {2: lambda: nvml.broken.update({"GPU-1": 15}), 5: nvml.broken.clear}
    progress, recorder, reports = run(clock, [], meter=meter, duration_s=20.0)
    assert [events for _, events in reports if events] == [["gpu1 no longer responds"], ["gpu1 responds again"]]
    assert [len(rows) for rows in recorder.ticks[:4]] == [2, 2, 1, 1] and len(recorder.ticks[-1]) == 2
    assert progress.rows < 2 * progress.ticks


def test_sampling_ends_at_stop():
    clock, stop = TestClock(), threading.Event()
    clock.callbacks[3] = stop.set
    assert run(clock, [300.0], stop=stop)[0].ticks == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interval_s": 0.0}, "the interval is 0 s; it must be above 0, such as 1s"),
        ({"interval_s": float("nan")}, "the interval is nan s"),
        ({"duration_s": -1.0}, "the duration is -1 s; it must be 0 or more"),
    ],
)
def test_invalid_settings_are_errors(settings, message):
    with pytest.raises(InputError, match=message):
        run(TestClock(), [300.0], **settings)
