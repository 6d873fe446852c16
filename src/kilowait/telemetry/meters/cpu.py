"""CPU meter: RAPL energy counters in the Linux powercap tree."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from kilowait.errors import MeterError
from kilowait.telemetry.meters.sample_files import Row
from kilowait.telemetry.meters.sampler import ClockReading

__all__ = ["CpuMeter"]

POWERCAP = "/sys/class/powercap"
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
