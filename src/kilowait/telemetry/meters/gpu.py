"""GPU meter: power, energy counter, utilization, memory, temperature and clock of NVIDIA GPUs through NVML."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kilowait.errors import MeterError, MissingExtraError
from kilowait.telemetry.meters.sample_files import Row
from kilowait.telemetry.meters.sampler import ClockReading

__all__ = ["GpuMeter"]

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
