"""NVIDIA GPUs through NVML: power, energy counter, load, memory, temperature and clock of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kilowait.errors import MeterError, MissingExtraError
from kilowait.telemetry.meters.host_clock import Moment
from kilowait.telemetry.meters.sample_files import Row

__all__ = ["GpuMeter", "load_nvml"]

REOPEN_S = 10.0
"""After a GPU has vanished NVML is opened anew this often: a driver that was reloaded needs it."""

# Codes of NVML's errors: what this GPU, driver or user cannot have is unknown; after any other error the GPU is gone.
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
    """The library, or an error that names the extra."""
    try:
        import pynvml
    except ImportError:
        raise MissingExtraError("nvidia-ml-py", "telemetry") from None
    return pynvml


class GpuMeter:
    """All GPUs of this machine. `nvml` is pynvml, or something that looks like it.

    A row per GPU and tick. `energy_j` is the driver's own counter, joules since it was loaded, where the GPU has one;
    `power_w` is the mean of the last second on newer GPUs and the power of the moment on older ones.
    """

    columns = ("time", "monotonic_s", "host", "meter", "uuid", "name", *_QUANTITIES)

    def __init__(self, host: str, nvml: Any = None) -> None:
        self.host, self._nvml = host, load_nvml() if nvml is None else nvml
        self._gpus: list[_Gpu] = []
        self._names: dict[str, str] = {}
        self._gone: set[str] = set()
        self._tried_s = -math.inf
        try:
            self._nvml.nvmlInit()
            self._gpus = self._found()
        except self._nvml.NVMLError as problem:
            raise MeterError(f"the GPUs of {host} cannot be read: {problem}; {_REMEDY}") from None
        if not self._gpus:
            self.close()
            raise MeterError(f"NVML counts 0 GPUs on {host}; {_REMEDY} and list them")

    @property
    def missing(self) -> frozenset[str]:
        """GPUs that have vanished."""
        return frozenset(self._gone)

    def describe(self) -> str:
        """What there is, in words."""
        kinds = [gpu.name for gpu in self._gpus]
        return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))

    def read(self, now: Callable[[], Moment]) -> list[Row]:
        """One row for every GPU that answers."""
        if self._gone and now().monotonic_s - self._tried_s >= REOPEN_S:
            self._tried_s = now().monotonic_s
            self._reopen()
        rows: list[Row] = []
        for gpu in self._gpus:
            moment = now()
            try:
                values = [self._value(ask, gpu) for ask in _QUANTITIES.values()]
            except self._nvml.NVMLError:
                self._gone.add(gpu.meter)
                continue
            self._gone.discard(gpu.meter)
            rows.append((moment.utc_s, moment.monotonic_s, self.host, gpu.meter, gpu.uuid, gpu.name, *values))
        return rows

    def close(self) -> None:
        """Let go of NVML."""
        with suppress(self._nvml.NVMLError):  # It may be gone already, with the driver.
            self._nvml.nvmlShutdown()

    def _found(self) -> list[_Gpu]:
        handles = [
            self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self._nvml.nvmlDeviceGetCount())
        ]
        uuids = [_word(self._nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        for index, uuid in enumerate(uuids):
            # NVML numbers anew when one has fallen off the bus; here a GPU keeps its name while we live.
            taken = {self._names.get(other) for other in uuids}
            free = (f"gpu{number}" for number in (index, *range(len(uuids))) if f"gpu{number}" not in taken)
            if uuid not in self._names:
                self._names[uuid] = next(free)
        return [
            _Gpu(handle, self._names[uuid], uuid, _word(self._nvml.nvmlDeviceGetName(handle)))
            for handle, uuid in zip(handles, uuids, strict=True)
        ]

    def _reopen(self) -> None:
        """Handles are void after the driver was reloaded; a GPU that fell off the bus may be back, or replaced."""
        try:
            self.close()
            self._nvml.nvmlInit()
            found = self._found()
        except self._nvml.NVMLError:
            return  # Not yet.
        self._gone |= {gpu.meter for gpu in self._gpus} - {gpu.meter for gpu in found}
        self._gpus = found

    def _value(self, ask: Callable[[Any, Any], float], gpu: _Gpu) -> float:
        try:
            return float(ask(self._nvml, gpu.handle))
        except self._nvml.NVMLError as problem:
            if problem.value in _UNKNOWN:
                return math.nan
            raise


def _word(text: str | bytes) -> str:
    """Older versions of the library give bytes."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
