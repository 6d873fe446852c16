"""Fake sensors: an NVML object, a powercap tree in a folder, and a clock that tests advance."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kilowait.telemetry.sampler import ClockReading


class TestClock:
    """Clocks that advance only during waits, or when they are set."""

    __test__ = False

    def __init__(self, utc_s: float = 1_700_000_000.0) -> None:
        self.utc_s, self.monotonic_s = utc_s, 100.0
        self.callbacks: dict[int, Callable[[], None]] = {}
        """Function called after the n-th wait."""
        self.waits = 0

    def now(self) -> ClockReading:
        return ClockReading(self.utc_s, self.monotonic_s)

    def advance(self, seconds: float) -> None:
        self.utc_s += seconds
        self.monotonic_s += seconds

    def wait(self, seconds: float, stop: threading.Event) -> None:
        self.advance(max(seconds, 0.0))
        self.waits += 1
        if self.waits in self.callbacks:
            self.callbacks[self.waits]()


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__({3: "Not Supported", 9: "Driver Not Loaded", 15: "GPU is lost"}.get(value, "Unknown Error"))
        self.value = value


class FakeNvml:
    """GPUs that draw the power `watts`, with the clock of the test."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    def __init__(self, clock: TestClock, watts: list[float]) -> None:
        self.clock, self.watts = clock, watts
        self.broken: dict[str, int] = {}
        """NVML error code by UUID, or by 'init'."""
        self.unknown: set[str] = set()
        """Functions that are not supported."""
        self.loaded_s = clock.monotonic_s
        self.uuids = [f"GPU-{n}" for n in range(len(watts))]
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            if name in self.unknown:
                raise NVMLError(3)
            return getattr(self, name.removeprefix("nvml"))(*arguments)

        return call

    def Init(self) -> None:
        if "init" in self.broken:
            raise NVMLError(self.broken["init"])
        self.open += 1

    def Shutdown(self) -> None:
        self.open -= 1

    def DeviceGetCount(self) -> int:
        return len(self.uuids)

    def DeviceGetHandleByIndex(self, index: int) -> str:
        return self.uuids[index]

    def DeviceGetUUID(self, handle: str) -> str:
        return handle

    def DeviceGetName(self, handle: str) -> bytes:
        return b"NVIDIA H200"

    def DeviceGetPowerUsage(self, handle: str) -> int:
        if handle in self.broken:
            raise NVMLError(self.broken[handle])
        return round(self.watts[int(handle[4:])] * 1000)

    def DeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        return round(self.watts[int(handle[4:])] * (self.clock.monotonic_s - self.loaded_s) * 1000)

    def DeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=97, memory=3)

    def DeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(total=141e9, used=70_500_000_000)

    def DeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 54

    def DeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return 1980


def powercap(root: Path, packages: int = 1, *, nested: bool = False) -> Path:
    """A powercap tree as in Linux: packages with core and dram, psys, and the package a second time through mmio."""
    zones = {"intel-rapl-mmio:0": "package-0", f"intel-rapl:{packages}": "psys"}
    for number in range(packages):
        zones |= {
            f"intel-rapl:{number}": f"package-{number}",
            f"intel-rapl:{number}:0": "core",
            f"intel-rapl:{number}:1": "dram",
        }
    (root / "intel-rapl").mkdir(parents=True)
    for meter, name in zones.items():
        folder = root / meter
        if nested and meter.count(":") == 2:
            folder = root / meter.rpartition(":")[0] / meter
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text("5000000\n")
        (folder / "max_energy_range_uj").write_text("262143328850\n")
    return root
