"""Node power from its components: P = sum of count * (idle + (max - idle) * share of load).

The share of load is the GPU utilization for GPUs and the CPU utilization for all other components; for CPUs it can be
read from a measured load curve instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.energy.power.number_checks import Floats, checked_numbers, require
from kilowait.errors import InputError, UnknownNameError

__all__ = ["LOAD_CURVES", "Component", "LoadCurve", "NodePower"]

KINDS = ("cpu", "gpu", "memory", "nic", "storage", "other")
"""Kinds of components."""


@dataclass(frozen=True, slots=True)
class Component:
    """`count` identical components of a node, each drawing `idle_w` to `max_w` watts.

    `estimate` is true if either value is an estimate rather than a measurement or a vendor specification; `source`
    names the origin of both.

    >>> Component("EPYC 7543P", "cpu", 1, 90, 225, "vendor's TDP; idle as in RAPS", True).max_w
    225
    """

    name: str
    kind: str
    count: int
    idle_w: float
    max_w: float
    source: str = ""
    estimate: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError(f"kind of the component {self.name!r}", self.kind, KINDS)
        require(f"count of {self.name!r}", self.count)
        require(f"idle_w of {self.name!r}", self.idle_w)
        require(f"max_w of {self.name!r}", self.max_w)
        if self.max_w < self.idle_w:
            raise InputError(
                f"{self.name!r} draws {self.max_w} W at most but {self.idle_w} W idle; max_w must be idle_w or more"
            )

    @classmethod
    def memory(cls, gb: float, w_per_gb: float, source: str = "", estimate: bool = True) -> Component:
        """Memory of `gb` GB at a constant power per GB, whatever the load.

        >>> round(Component.memory(512, 0.07).idle_w, 2)
        35.84
        """
        require("gb of memory", gb)
        require("w_per_gb of memory", w_per_gb)
        return cls(f"memory {gb:g} GB", "memory", 1, gb * w_per_gb, gb * w_per_gb, source, estimate)


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Share of the dynamic power (max - idle) of a CPU by utilization, interpolated between measured points.

    >>> float(LOAD_CURVES["E5-2620v3"].share(0.25).round(3))
    0.295
    """

    utilization: tuple[float, ...]
    share_of_dynamic: tuple[float, ...]

    def __post_init__(self) -> None:
        at = checked_numbers("utilization of the load curve", self.utilization, 0, 1)
        share = checked_numbers("share of the load curve", self.share_of_dynamic, 0, 1)
        if len(at) != len(share) or len(at) < 2 or at[0] != 0 or at[-1] != 1 or (np.diff(at) <= 0).any():
            raise InputError("a load curve needs utilizations increasing from 0 to 1, with one share for each")
        if share[0] != 0 or share[-1] != 1 or (np.diff(share) < 0).any():
            raise InputError("the shares of a load curve must go from 0 to 1 and never decrease")

    def share(self, utilization: npt.ArrayLike) -> Floats:
        """Share of (max - idle) at these utilizations."""
        return np.asarray(
            np.interp(np.asarray(utilization, np.float64), self.utilization, self.share_of_dynamic), np.float64
        )


# RAPL power of two E5-2620 v3 at 10, 20 ... 100 % load, watts (codecarbon's cpu_load_profiling).
_E5_2620V3_W = (16.0, 31.0, 38.0, 45.0, 62.0, 62.0, 77.0, 112.0, 116.0, 117.0)
LOAD_CURVES: dict[str, LoadCurve] = {
    "E5-2620v3": LoadCurve(
        tuple(i / 10 for i in range(11)), (0.0, *(watts / _E5_2620V3_W[-1] for watts in _E5_2620V3_W))
    )
}
"""Measured load curves by processor."""


@dataclass(frozen=True, slots=True)
class NodePower:
    """Power of a node by its components; watts before conversion losses.

    >>> node = NodePower((Component("CPU", "cpu", 2, 50, 150), Component("GPU", "gpu", 4, 60, 400)))
    >>> node.idle_w, node.full_w, node.at([0, 0.5], [0, 1]).tolist()
    (340.0, 1900.0, [340.0, 1800.0])
    """

    components: tuple[Component, ...]
    cpu_curve: LoadCurve | None = None

    def __post_init__(self) -> None:
        if not self.components:
            raise InputError("a node has no components; give at least one")

    @property
    def idle_w(self) -> float:
        """Power without load."""
        return float(sum(part.count * part.idle_w for part in self.components))

    @property
    def full_w(self) -> float:
        """Power at full load of all components."""
        return float(sum(part.count * part.max_w for part in self.components))

    def idle_of(self, kind: str) -> float:
        """Idle watts of all components of one kind."""
        return float(sum(part.count * part.idle_w for part in self.components if part.kind == kind))

    def limit_of(self, kind: str) -> float:
        """Maximum power of all components of one kind."""
        return float(sum(part.count * part.max_w for part in self.components if part.kind == kind))

    def dynamic_w(self, cpu_utilization: npt.ArrayLike, gpu_utilization: npt.ArrayLike = 0.0) -> dict[str, Floats]:
        """Watts above idle by kind of component, at utilizations from 0 to 1 (numbers or arrays of equal shape)."""
        cpu = checked_numbers("cpu utilization", cpu_utilization, 0, 1)
        gpu = checked_numbers("gpu utilization", gpu_utilization, 0, 1)
        cpu, gpu = np.broadcast_arrays(cpu, gpu)
        curved = cpu if self.cpu_curve is None else self.cpu_curve.share(cpu)
        load = {"cpu": curved, "gpu": gpu}
        return {
            kind: np.asarray((self.limit_of(kind) - self.idle_of(kind)) * load.get(kind, cpu), np.float64)
            for kind in KINDS
        }

    def at(self, cpu_utilization: npt.ArrayLike, gpu_utilization: npt.ArrayLike = 0.0) -> Floats:
        """Watts at these utilizations (0 to 1)."""
        dynamic = self.dynamic_w(cpu_utilization, gpu_utilization)
        return np.asarray(self.idle_w + sum(dynamic.values(), np.float64(0)), np.float64)

    def breakdown(self) -> list[dict[str, object]]:
        """One row per component: its idle and full power in one node, and their source."""
        return [
            {
                "name": part.name,
                "kind": part.kind,
                "count": part.count,
                "idle_w": float(part.count * part.idle_w),
                "full_w": float(part.count * part.max_w),
                "source": part.source,
                "estimate": part.estimate,
            }
            for part in self.components
        ]
