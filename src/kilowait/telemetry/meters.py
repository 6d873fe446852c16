"""Meters: NVIDIA GPUs through NVML, and processors by the RAPL energy counters in the Linux powercap tree.

The GPU meter reads power, energy counter, utilization, memory, temperature and clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from kilowait.errors import MeterError, MissingExtraError
from kilowait.telemetry.recorder import Row
from kilowait.telemetry.sampler import ClockReading
from kilowait.telemetry.settings import POWERCAP

REOPEN_INTERVAL_S = 10.0
"""Interval at which NVML is reinitialized while a GPU is missing, as needed after a driver reload."""

# NVML error codes of values that this GPU, driver or user cannot read; after any other error the GPU counts as missing.
_NOT_SUPPORTED, _NO_PERMISSION, _FUNCTION_NOT_FOUND = 3, 4, 13
_UNKNOWN = frozenset({_NOT_SUPPORTED, _NO_PERMISSION, _FUNCTION_NOT_FOUND})
_REMEDY = "run this on a machine with an NVIDIA driver; nvidia-smi must work there"

_ENERGY, _POWER = "energy_j", "power_w"
_QUANTITIES: dict[str, Callable[[Any, Any], float]] = {
    _POWER: lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    _ENERGY: lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    "utilization": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 1e2,
    "memory_mb": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / 1e6,
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
}


@dataclass(frozen=True, slots=True)
class _Gpu:
    handle: Any
    meter: str
    uuid: str
    name: str


def load_nvml() -> Any:
    """The pynvml library; an error names the missing extra."""
    try:
        import pynvml
    except ImportError:
        raise MissingExtraError("nvidia-ml-py", "telemetry") from None
    return pynvml


class GpuMeter:
    """All GPUs of this machine. `nvml` is pynvml, or an object with its interface.

    One row per GPU and sample. `energy_j` is the driver's energy counter since it was loaded, if the GPU has one;
    `power_w` is the mean of the last second on newer GPUs and the instantaneous power on older ones.
    """

    columns = ("time", "monotonic_s", "host", "meter", "uuid", "name", *_QUANTITIES)

    def __init__(self, host: str, nvml: Any = None) -> None:
        self.host, self._nvml = host, load_nvml() if nvml is None else nvml
        self._gpus: list[_Gpu] = []
        self._names: dict[str, str] = {}
        self._missing: set[str] = set()
        self._last_reopen_s = -math.inf
        try:
            self._nvml.nvmlInit()
            self._gpus = self._list_gpus()
        except self._nvml.NVMLError as problem:
            raise MeterError(f"the GPUs of {host} cannot be read: {problem}; {_REMEDY}") from None
        if not self._gpus:
            self.close()
            raise MeterError(f"NVML finds 0 GPUs on {host}; {_REMEDY} and list them")

    @property
    def missing(self) -> frozenset[str]:
        """GPUs that no longer respond."""
        return frozenset(self._missing)

    def describe(self) -> str:
        """The GPUs as text."""
        names = [gpu.name for gpu in self._gpus]
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))

    def read(self, now: Callable[[], ClockReading]) -> list[Row]:
        """One row for every GPU that responds."""
        if self._missing and now().monotonic_s - self._last_reopen_s >= REOPEN_INTERVAL_S:
            self._last_reopen_s = now().monotonic_s
            self._reopen()
        rows: list[Row] = []
        for gpu in self._gpus:
            moment = now()
            try:
                values = [self._value(query, gpu) for query in _QUANTITIES.values()]
            except self._nvml.NVMLError:
                self._missing.add(gpu.meter)
                continue
            self._missing.discard(gpu.meter)
            rows.append((moment.utc_s, moment.monotonic_s, self.host, gpu.meter, gpu.uuid, gpu.name, *values))
        return rows

    def close(self) -> None:
        """Shut NVML down."""
        with suppress(self._nvml.NVMLError):  # The driver may be unloaded already.
            self._nvml.nvmlShutdown()

    def _list_gpus(self) -> list[_Gpu]:
        handles = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        uuids = [_as_text(self._nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        for index, uuid in enumerate(uuids):
            # NVML renumbers GPUs when one disappears from the bus, but each GPU keeps its name.
            used_names = {self._names.get(other_uuid) for other_uuid in uuids}
            unused_names = (
                f"gpu{number}" for number in (index, *range(len(uuids))) if f"gpu{number}" not in used_names
            )
            if uuid not in self._names:
                self._names[uuid] = next(unused_names)
        return [
            _Gpu(handle, self._names[uuid], uuid, _as_text(self._nvml.nvmlDeviceGetName(handle)))
            for handle, uuid in zip(handles, uuids, strict=True)
        ]

    def _reopen(self) -> None:
        """Reinitialize NVML: handles are invalid after a driver reload, and missing GPUs may be back or replaced."""
        try:
            self.close()
            self._nvml.nvmlInit()
            gpus = self._list_gpus()
        except self._nvml.NVMLError:
            return  # still unavailable; tried again after the interval
        self._missing |= {gpu.meter for gpu in self._gpus} - {gpu.meter for gpu in gpus}
        self._gpus = gpus

    def _value(self, query: Callable[[Any, Any], float], gpu: _Gpu) -> float:
        try:
            return float(query(self._nvml, gpu.handle))
        except self._nvml.NVMLError as problem:
            if problem.value in _UNKNOWN:
                return math.nan
            raise


def _as_text(text: str | bytes) -> str:
    """Text of an NVML string, which is bytes in older versions of the library."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


# -- processors ------------------------------------------------------------------------------------


_ZONE = re.compile(r"[a-z][a-z-]*(:\d+)+")
"""intel-rapl:0 is a package, intel-rapl:0:1 a part of it. AMD processors use the same names."""


@dataclass(frozen=True, slots=True)
class _Zone:
    path: Path
    meter: str
    name: str
    range_j: float
    summed: bool


class CpuMeter:
    """The RAPL counters of this machine, under `root`.

    One row per counter and sample: `energy_j` is the counter, which wraps to 0 at `range_j`; `power_w` is the mean
    since the previous row. `summed` is 1 for the counters whose sum is the energy of the machine: packages and memory.
    Cores and graphics are parts of a package; psys and the mmio counters count packages a second time.
    """

    columns = ("time", "monotonic_s", "host", "meter", "name", "power_w", "energy_j", "range_j", "summed")

    def __init__(self, host: str, root: str | PathLike[str] = POWERCAP) -> None:
        self.host, self._last_readings = host, dict[str, tuple[float, float]]()
        self._missing: set[str] = set()
        root = Path(root)
        zones = _zones(root)
        if not zones:
            raise MeterError(
                f"there is no energy counter (intel-rapl:0/energy_uj) under {root}; on bare metal load the module "
                "intel_rapl_msr, or give the tree with --powercap-root; virtual machines have no counters"
            )
        unreadable = [zone for zone in zones if not _may_read(zone)]
        if len(unreadable) == len(zones):
            raise MeterError(
                f"no permission to read {zones[0].path / 'energy_uj'}; run this as root, or let its group read the "
                "counters: chgrp power and chmod g+r on the energy_uj files, by a udev rule"
            )
        self.unreadable = tuple(zone.meter for zone in unreadable)
        """Counters without read permission; they are left out."""
        self._zones = [zone for zone in zones if zone not in unreadable]

    @property
    def missing(self) -> frozenset[str]:
        """Counters that can no longer be read."""
        return frozenset(self._missing)

    def describe(self) -> str:
        """The counters as text."""
        summed = [zone.name for zone in self._zones if zone.summed]
        return f"{len(self._zones)} RAPL counters; the power of the machine is the sum of {', '.join(summed)}"

    def read(self, now: Callable[[], ClockReading]) -> list[Row]:
        """One row for every counter that can be read."""
        rows: list[Row] = []
        for zone in self._zones:
            moment = now()
            try:
                energy = _joules(zone.path / "energy_uj")
            except (OSError, ValueError):
                self._missing.add(zone.meter)
                self._last_readings.pop(zone.meter, None)
                continue
            self._missing.discard(zone.meter)
            power = self._power(zone, energy, moment.monotonic_s)
            self._last_readings[zone.meter] = (energy, moment.monotonic_s)
            stamps = (moment.utc_s, moment.monotonic_s)
            rows.append((*stamps, self.host, zone.meter, zone.name, power, energy, zone.range_j, float(zone.summed)))
        return rows

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _power(self, zone: _Zone, energy: float, at_s: float) -> float:
        if zone.meter not in self._last_readings:
            return math.nan
        previous, previous_s = self._last_readings[zone.meter]
        increase = energy - previous if energy >= previous else energy - previous + zone.range_j
        return increase / (at_s - previous_s) if at_s > previous_s else math.nan


def _zones(root: Path) -> list[_Zone]:
    """All counters: /sys/class/powercap is flat, while in the device tree parts are in the folder of their package."""
    zones_by_name: dict[str, _Zone] = {}
    folders = [root]
    while folders:
        folder = folders.pop(0)
        try:
            zone_folders = sorted(entry for entry in folder.iterdir() if _ZONE.fullmatch(entry.name))
        except OSError:
            continue
        for path in zone_folders:
            if path.name in zones_by_name or not (path / "energy_uj").exists():
                continue
            try:
                name = (path / "name").read_text().strip()
            except OSError:
                name = path.name
            zones_by_name[path.name] = _Zone(path, path.name, name, _range(path), _is_summed(path.name, name))
            folders.append(path)
    return [zones_by_name[meter] for meter in sorted(zones_by_name)]


def _is_summed(meter: str, name: str) -> bool:
    kind, *numbers = meter.split(":")
    if kind.endswith("-mmio") or name == "psys":
        return False
    return len(numbers) == 1 or name == "dram"


def _range(path: Path) -> float:
    """Value at which the counter wraps; NaN if unknown, so that a decrease counts as a reset."""
    try:
        return _joules(path / "max_energy_range_uj")
    except (OSError, ValueError):
        return math.nan


def _may_read(zone: _Zone) -> bool:
    try:
        _joules(zone.path / "energy_uj")
    except PermissionError:
        return False
    except (OSError, ValueError):
        pass  # The counter is missing at the moment: not a permission problem.
    return True


def _joules(path: Path) -> float:
    return int(path.read_text()) / 1e6
