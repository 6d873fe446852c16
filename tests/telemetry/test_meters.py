"""Reading GPUs and processors: what is said, what cannot be said, what vanishes."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest

from kilowait.errors import MeterError, MissingExtraError
from kilowait.telemetry.meters import CpuMeter, GpuMeter
from kilowait.telemetry.meters.gpu import REOPEN_S
from tests.telemetry.fake_sensors import FakeNvml, TestClock, powercap


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


def by_meter(meter: GpuMeter | CpuMeter, clock: TestClock) -> dict[str, dict[str, object]]:
    rows = [dict(zip(meter.columns, row, strict=True)) for row in meter.read(clock.now)]
    return {str(row["meter"]): row for row in rows}


# -- GPUs ------------------------------------------------------------------------------------------


def test_a_gpu_says_all_it_knows(clock):
    meter = GpuMeter("n1", FakeNvml(clock, [300.0, 75.5]))
    clock.pass_(10)
    row = by_meter(meter, clock)["gpu1"]
    assert row == {
        "time": 1_700_000_010.0, "monotonic_s": 110.0, "host": "n1", "meter": "gpu1", "uuid": "GPU-1",
        "name": "NVIDIA H200", "power_w": 75.5, "energy_j": 755.0, "utilization": 0.97, "memory_mb": 70500.0,
        "temperature_c": 54.0, "sm_clock_mhz": 1980.0,
    }  # fmt: skip
    assert meter.describe() == "2 x NVIDIA H200"


def test_what_a_gpu_cannot_say_is_unknown(clock):
    nvml = FakeNvml(clock, [300.0])
    nvml.unknown = {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetUtilizationRates"}
    row = by_meter(GpuMeter("n1", nvml), clock)["gpu0"]
    assert math.isnan(row["energy_j"]) and math.isnan(row["utilization"])
    assert row["power_w"] == 300.0


def test_a_gpu_that_is_lost_has_no_row_until_it_is_back(clock):
    nvml = FakeNvml(clock, [300.0, 200.0])
    meter = GpuMeter("n1", nvml)
    nvml.broken = {"GPU-0": 15}
    assert set(by_meter(meter, clock)) == {"gpu1"}
    assert meter.missing == {"gpu0"}
    nvml.broken = {}
    clock.pass_(REOPEN_S)
    assert set(by_meter(meter, clock)) == {"gpu0", "gpu1"}
    assert meter.missing == frozenset()
    assert nvml.open == 1


def test_gpus_keep_their_names_when_nvml_counts_anew(clock):
    nvml = FakeNvml(clock, [300.0, 200.0, 100.0])
    meter = GpuMeter("n1", nvml)
    nvml.broken = {"GPU-0": 15}
    by_meter(meter, clock)
    nvml.uuids = ["GPU-1", "GPU-2"]
    clock.pass_(REOPEN_S)
    rows = by_meter(meter, clock)
    assert {name: row["uuid"] for name, row in rows.items()} == {"gpu1": "GPU-1", "gpu2": "GPU-2"}
    assert meter.missing == {"gpu0"}
    nvml.broken, nvml.uuids, nvml.watts = {}, ["GPU-3", "GPU-1", "GPU-2"], [0, 200.0, 100.0, 50.0]
    clock.pass_(REOPEN_S)  # Replaced: the new one takes the free name.
    assert by_meter(meter, clock)["gpu0"]["uuid"] == "GPU-3"


def test_a_driver_that_is_reloaded_is_waited_for(clock):
    nvml = FakeNvml(clock, [300.0])
    meter = GpuMeter("n1", nvml)
    nvml.broken = {"GPU-0": 1, "init": 9}
    assert by_meter(meter, clock) == {}
    clock.pass_(REOPEN_S)
    assert by_meter(meter, clock) == {}
    nvml.broken, nvml.loaded_s = {}, clock.monotonic_s
    clock.pass_(REOPEN_S)
    assert by_meter(meter, clock)["gpu0"]["energy_j"] == 3000.0


def test_no_driver_and_no_gpu_are_told_with_a_remedy(clock):
    nvml = FakeNvml(clock, [])
    with pytest.raises(
        MeterError, match=r"NVML finds 0 GPUs on n1; run this on a machine with an NVIDIA driver"
    ):
        GpuMeter("n1", nvml)
    nvml.broken = {"init": 9}
    with pytest.raises(
        MeterError, match=r"the GPUs of n1 cannot be read: Driver Not Loaded; .*nvidia-smi must work"
    ):
        GpuMeter("n1", nvml)


def test_the_real_library_without_a_driver():
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        with pytest.raises(MeterError, match="nvidia-smi must work"):
            GpuMeter("n1")
    else:
        assert GpuMeter("n1").describe()


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingExtraError, match=r"nvidia-ml-py.*kilowait\[telemetry\]"):
        GpuMeter("n1")


# -- processors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True])
def test_counters_and_which_of_them_add_up(tmp_path, clock, nested):
    meter = CpuMeter("n1", powercap(tmp_path / "powercap", 2, nested=nested))
    rows = by_meter(meter, clock)
    assert len(rows) == 8
    assert {name for name, row in rows.items() if row["summed"]} == {
        "intel-rapl:0", "intel-rapl:0:1", "intel-rapl:1", "intel-rapl:1:1",
    }  # fmt: skip
    assert rows["intel-rapl:0:1"]["name"] == "dram" and rows["intel-rapl:2"]["name"] == "psys"
    assert rows["intel-rapl:0"]["energy_j"] == 5.0 and rows["intel-rapl:0"]["range_j"] == 262143.32885
    assert math.isnan(rows["intel-rapl:0"]["power_w"])


def test_power_is_the_mean_since_the_row_before_also_over_the_end_of_the_counter(tmp_path, clock):
    root = powercap(tmp_path / "powercap")
    meter = CpuMeter("n1", root)
    counter = root / "intel-rapl:0" / "energy_uj"
    counter.write_text("262143000000")
    by_meter(meter, clock)
    clock.pass_(2)
    counter.write_text("99671150")  # 0.32885 J to the end, 99.67115 J after it
    assert by_meter(meter, clock)["intel-rapl:0"]["power_w"] == pytest.approx(50.0)


def test_a_counter_that_vanishes_and_comes_back(tmp_path, clock):
    root = powercap(tmp_path / "powercap")
    meter = CpuMeter("n1", root)
    by_meter(meter, clock)
    counter = root / "intel-rapl:0" / "energy_uj"
    counter.unlink()
    assert "intel-rapl:0" not in by_meter(meter, clock) and meter.missing == {"intel-rapl:0"}
    counter.write_text("7000000")
    clock.pass_(1)
    row = by_meter(meter, clock)["intel-rapl:0"]
    assert row["energy_j"] == 7.0 and math.isnan(row["power_w"]) and meter.missing == frozenset()


def test_no_counters_are_told_with_a_remedy(tmp_path):
    with pytest.raises(MeterError, match=r"no energy counter .* under .*nowhere; .*--root; virtual machines"):
        CpuMeter("n1", tmp_path / "nowhere")


def test_no_permission_is_told_with_a_remedy(tmp_path, monkeypatch, clock):
    root = powercap(tmp_path / "powercap")
    closed = {str(path) for path in root.rglob("energy_uj")}
    if os.geteuid() != 0:
        for path in closed:
            Path(path).chmod(0)
    else:  # Root may read everything: the file system is asked to say no.
        plain = Path.read_text

        def read_text(self: Path, *arguments: object, **named: object) -> str:
            if str(self) in closed:
                raise PermissionError(13, "Permission denied", str(self))
            return plain(self, *arguments, **named)

        monkeypatch.setattr(Path, "read_text", read_text)
    with pytest.raises(
        MeterError, match=r"no permission to read .*energy_uj; run this as root, or let its group"
    ):
        CpuMeter("n1", root)
    opened = root / "intel-rapl:0" / "energy_uj"
    opened.chmod(0o644)
    closed.discard(str(opened))
    meter = CpuMeter("n1", root)
    assert set(by_meter(meter, clock)) == {"intel-rapl:0"} and len(meter.barred) == 4
