"""GPU and CPU meters: values, unsupported values, and devices that disappear."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest

from kilowait.errors import MeterError, MissingExtraError
from kilowait.telemetry.meters import REOPEN_INTERVAL_S, CpuMeter, GpuMeter
from tests.telemetry.fake_sensors import FakeNvml, TestClock, powercap


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


def by_meter(meter: GpuMeter | CpuMeter, clock: TestClock) -> dict[str, dict[str, object]]:
    rows = [dict(zip(meter.columns, row, strict=True)) for row in meter.read(clock.now)]
    return {str(row["meter"]): row for row in rows}


# -- GPUs ------------------------------------------------------------------------------------------


def test_gpu_row_has_all_quantities(clock):
    meter = GpuMeter("n1", FakeNvml(clock, [300.0, 75.5]))
    clock.advance(10)
    row = by_meter(meter, clock)["gpu1"]
    assert row == {
        "time": 1_700_000_010.0, "monotonic_s": 110.0, "host": "n1", "meter": "gpu1", "uuid": "GPU-1",
        "name": "NVIDIA H200", "power_w": 75.5, "energy_j": 755.0, "utilization": 0.97, "memory_mb": 70500.0,
        "temperature_c": 54.0, "sm_clock_mhz": 1980.0,
    }  # fmt: skip
    assert meter.describe() == "2 x NVIDIA H200"


def test_unsupported_quantities_are_nan(clock):
    nvml = FakeNvml(clock, [300.0])
    nvml.unknown = {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetUtilizationRates"}
    row = by_meter(GpuMeter("n1", nvml), clock)["gpu0"]
    assert math.isnan(row["energy_j"]) and math.isnan(row["utilization"])
    assert row["power_w"] == 300.0


def test_lost_gpu_has_no_row_until_it_responds_again(clock):
    nvml = FakeNvml(clock, [300.0, 200.0])
    meter = GpuMeter("n1", nvml)
    nvml.broken = {"GPU-0": 15}
    assert set(by_meter(meter, clock)) == {"gpu1"}
    assert meter.missing == {"gpu0"}
    nvml.broken = {}
    clock.advance(REOPEN_INTERVAL_S)
    assert set(by_meter(meter, clock)) == {"gpu0", "gpu1"}
    assert meter.missing == frozenset()
    assert nvml.open == 1


def test_gpus_keep_their_names_after_nvml_renumbers(clock):
    nvml = FakeNvml(clock, [300.0, 200.0, 100.0])
    meter = GpuMeter("n1", nvml)
    nvml.broken = {"GPU-0": 15}
    by_meter(meter, clock)
    nvml.uuids = ["GPU-1", "GPU-2"]
    clock.advance(REOPEN_INTERVAL_S)
    rows = by_meter(meter, clock)
    assert {name: row["uuid"] for name, row in rows.items()} == {"gpu1": "GPU-1", "gpu2": "GPU-2"}
    assert meter.missing == {"gpu0"}
    nvml.broken, nvml.uuids, nvml.watts = {}, ["GPU-3", "GPU-1", "GPU-2"], [0, 200.0, 100.0, 50.0]
    clock.advance(REOPEN_INTERVAL_S)  # a replaced GPU takes the unused name
    assert by_meter(meter, clock)["gpu0"]["uuid"] == "GPU-3"


def test_meter_recovers_after_a_driver_reload(clock):
    nvml = FakeNvml(clock, [300.0])
    meter = GpuMeter("n1", nvml)
    nvml.broken = {"GPU-0": 1, "init": 9}
    assert by_meter(meter, clock) == {}
    clock.advance(REOPEN_INTERVAL_S)
    assert by_meter(meter, clock) == {}
    nvml.broken, nvml.loaded_s = {}, clock.monotonic_s
    clock.advance(REOPEN_INTERVAL_S)
    assert by_meter(meter, clock)["gpu0"]["energy_j"] == 3000.0


def test_errors_without_driver_or_gpu_name_a_remedy(clock):
    nvml = FakeNvml(clock, [])
    with pytest.raises(MeterError, match=r"NVML finds 0 GPUs on n1; run this on a machine with an NVIDIA driver"):
        GpuMeter("n1", nvml)
    nvml.broken = {"init": 9}
    with pytest.raises(MeterError, match=r"the GPUs of n1 cannot be read: Driver Not Loaded; .*nvidia-smi must work"):
        GpuMeter("n1", nvml)


def test_pynvml_without_a_driver():
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        with pytest.raises(MeterError, match="nvidia-smi must work"):
            GpuMeter("n1")
    else:
        assert GpuMeter("n1").describe()


def test_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingExtraError, match=r"nvidia-ml-py.*\[telemetry\]"):
        GpuMeter("n1")


# -- processors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True])
def test_counters_and_which_are_summed(tmp_path, clock, nested):
    meter = CpuMeter("n1", powercap(tmp_path / "powercap", 2, nested=nested))
    rows = by_meter(meter, clock)
    assert len(rows) == 8
    assert {name for name, row in rows.items() if row["summed"]} == {
        "intel-rapl:0", "intel-rapl:0:1", "intel-rapl:1", "intel-rapl:1:1",
    }  # fmt: skip
    assert rows["intel-rapl:0:1"]["name"] == "dram" and rows["intel-rapl:2"]["name"] == "psys"
    assert rows["intel-rapl:0"]["energy_j"] == 5.0 and rows["intel-rapl:0"]["range_j"] == 262143.32885
    assert math.isnan(rows["intel-rapl:0"]["power_w"])


def test_power_is_the_mean_since_the_previous_row_also_across_a_wrap(tmp_path, clock):
    root = powercap(tmp_path / "powercap")
    meter = CpuMeter("n1", root)
    counter = root / "intel-rapl:0" / "energy_uj"
    counter.write_text("262143000000")
    by_meter(meter, clock)
    clock.advance(2)
    counter.write_text("99671150")  # 0.32885 J to the end, 99.67115 J after it
    assert by_meter(meter, clock)["intel-rapl:0"]["power_w"] == pytest.approx(50.0)


def test_counter_that_disappears_and_returns(tmp_path, clock):
    root = powercap(tmp_path / "powercap")
    meter = CpuMeter("n1", root)
    by_meter(meter, clock)
    counter = root / "intel-rapl:0" / "energy_uj"
    counter.unlink()
    assert "intel-rapl:0" not in by_meter(meter, clock) and meter.missing == {"intel-rapl:0"}
    counter.write_text("7000000")
    clock.advance(1)
    row = by_meter(meter, clock)["intel-rapl:0"]
    assert row["energy_j"] == 7.0 and math.isnan(row["power_w"]) and meter.missing == frozenset()


def test_error_without_counters_names_a_remedy(tmp_path):
    with pytest.raises(MeterError, match=r"no energy counter .* under .*nowhere; .*--powercap-root; virtual machines"):
        CpuMeter("n1", tmp_path / "nowhere")


def test_error_without_permission_names_a_remedy(tmp_path, monkeypatch, clock):
    root = powercap(tmp_path / "powercap")
    forbidden = {str(path) for path in root.rglob("energy_uj")}
    if os.geteuid() != 0:
        for path in forbidden:
            Path(path).chmod(0)
    else:  # root may read everything, so reading is replaced
        original = Path.read_text

        def read_text(self: Path, *arguments: object, **named: object) -> str:
            if str(self) in forbidden:
                raise PermissionError(13, "Permission denied", str(self))
            return original(self, *arguments, **named)

        monkeypatch.setattr(Path, "read_text", read_text)
    with pytest.raises(MeterError, match=r"no permission to read .*energy_uj; run this as root, or let its group"):
        CpuMeter("n1", root)
    readable = root / "intel-rapl:0" / "energy_uj"
    readable.chmod(0o644)
    forbidden.discard(str(readable))
    meter = CpuMeter("n1", root)
    assert set(by_meter(meter, clock)) == {"intel-rapl:0"} and len(meter.unreadable) == 4
