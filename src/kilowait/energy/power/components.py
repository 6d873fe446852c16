"""Node power from its components: P = sum of count * (idle + (max - idle) * share of load); losses and fixed loads.

The share of load is the GPU utilization for GPUs and the CPU utilization for all other components; for CPUs it can be
read from a measured load curve instead.

Power-conversion losses lie between wall and components; fixed IT loads are for example switches. A conversion step of
one node is affine, (P + a) / b, so node powers still add up and power stays constant between two events. An efficiency
curve over the load applies to the supply of the whole facility (see `model.Facility`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.series import Floats

KINDS = ("cpu", "gpu", "memory", "nic", "storage", "other")
"""Kinds of components."""


def require(what: str, value: float, least: float = 0.0, most: float = math.inf) -> None:
    """Raise unless `value` is a finite number from `least` to `most`.

    >>> require("idle_w of the CPU", -3)
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: idle_w of the CPU is -3; it must be a number of at least 0
    """
    if not (math.isfinite(value) and least <= value <= most):
        upper = f" and at most {most:g}" if math.isfinite(most) else ""
        raise InputError(f"{what} is {value}; it must be a number of at least {least:g}{upper}")


def checked_numbers(what: str, values: npt.ArrayLike, least: float = -math.inf, most: float = math.inf) -> Floats:
    """The values as float64; an error with the first that is not a number from `least` to `most`.

    >>> checked_numbers("cpu utilization", [0.5, 1.5], 0, 1)
    Traceback (most recent call last):
    ...
    kilowait.errors.InputError: cpu utilization [1] is 1.5; it must be a number from 0 to 1
    """
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} does not contain numbers; give one number or a list of numbers") from None
    valid = np.isfinite(array) & (array >= least) & (array <= most)
    if not valid.all():
        first = int(np.argmin(valid.ravel()))
        place = f" [{first}]" if array.ndim else ""
        span = "finite" if math.isinf(least) else f"from {least:g}" + (f" to {most:g}" if most < math.inf else "")
        raise InputError(f"{what}{place} is {array.ravel()[first]}; it must be a number {span}".rstrip())
    return array


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


# -- conversion losses and fixed loads -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AffineLoss:
    """A conversion step: input = (output + constant_w) / efficiency per device for `nodes_per_device` nodes.

    >>> AffineLoss("SIVOC", 13, 0.98).input_w(967.0)
    1000.0
    """

    name: str
    constant_w: float
    efficiency: float
    nodes_per_device: int = 1
    source: str = ""
    estimate: bool = True

    def __post_init__(self) -> None:
        require(f"constant_w of the loss {self.name!r}", self.constant_w)
        require(f"nodes_per_device of the loss {self.name!r}", self.nodes_per_device, 1)
        if not 0 < self.efficiency <= 1:
            raise InputError(
                f"efficiency of the loss {self.name!r} is {self.efficiency}; it must be above 0 and at most 1"
            )

    def input_w(self, output_w: float) -> float:
        """Input power of the step for one node, watts."""
        return (output_w + self.constant_w / self.nodes_per_device) / self.efficiency


@dataclass(frozen=True, slots=True)
class FixedLoad:
    """A fixed IT load (switches, coolant pumps): `watts` per unit, one unit for `nodes_per_unit` nodes.

    `through` names the conversion steps that feed it: their efficiency applies to it; their constants are
    counted with the nodes.

    >>> FixedLoad("switch", 250, 4).units(9472)
    2368
    """

    name: str
    watts: float
    nodes_per_unit: int
    through: tuple[str, ...] = ()
    source: str = ""
    estimate: bool = True

    def __post_init__(self) -> None:
        require(f"watts of {self.name!r}", self.watts)
        require(f"nodes_per_unit of {self.name!r}", self.nodes_per_unit, 1)

    def units(self, nodes: int) -> int:
        """Number of units for so many nodes; a partly used last unit draws its full power."""
        return math.ceil(nodes / self.nodes_per_unit)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Conversion steps from the components to the wall, in this order.

    >>> chain = Conversion((AffineLoss("SIVOC", 13, 0.98), AffineLoss("rectifier", 17, 0.96, 4)))
    >>> round(float(chain.node_w(626.26)), 2), float(NO_LOSS.node_w(100))
    (683.91, 100.0)
    """

    steps: tuple[AffineLoss, ...] = ()

    def __post_init__(self) -> None:
        names = [step.name for step in self.steps]
        if len(set(names)) < len(names):
            raise InputError(f"conversion steps {', '.join(names)}: a name occurs twice; names must be unique")

    @property
    def slope(self) -> float:
        """Additional watts at the wall per additional watt of the components."""
        return 1 / math.prod(step.efficiency for step in self.steps)

    def node_w(self, component_w: npt.ArrayLike) -> Floats:
        """Power of one node at the wall for the power of its components."""
        watts: Floats = np.asarray(component_w, np.float64)
        for step in self.steps:
            watts = (watts + step.constant_w / step.nodes_per_device) / step.efficiency
        return watts

    def losses_w(self, component_w: float) -> dict[str, float]:
        """Watts lost in each step, for one node."""
        lost, watts = {}, component_w
        for step in self.steps:
            lost[step.name], watts = step.input_w(watts) - watts, step.input_w(watts)
        return lost

    def fixed_w(self, load: FixedLoad, nodes: int) -> float:
        """Watts at the wall of all units of a fixed load."""
        return load.units(nodes) * load.watts + sum(self.fixed_losses_w(load, nodes).values())

    def fixed_losses_w(self, load: FixedLoad, nodes: int) -> dict[str, float]:
        """Watts lost in each step that feeds a fixed load."""
        names = [step.name for step in self.steps]
        for name in load.through:
            if name not in names:
                raise UnknownNameError(f"conversion step of the fixed load {load.name!r}", name, names)
        lost, watts = {}, load.units(nodes) * load.watts
        for step in self.steps:
            if step.name in load.through:
                lost[step.name], watts = watts / step.efficiency - watts, watts / step.efficiency
        return lost


NO_LOSS = Conversion()
"""No conversion losses: powers are given at the wall."""


@dataclass(frozen=True, slots=True)
class EfficiencyCurve:
    """Efficiency by load share (output / rated_w), interpolated between points and constant beyond them.

    >>> ups = EfficiencyCurve((0.1, 0.5, 1.0), (0.80, 0.95, 0.94), rated_w=1e6)
    >>> ups.input_w([475e3, 0]).round(0).tolist()
    [504983.0, 0.0]
    """

    load_share: tuple[float, ...]
    efficiency: tuple[float, ...]
    rated_w: float
    source: str = ""
    estimate: bool = True

    def __post_init__(self) -> None:
        share = checked_numbers("load_share of the efficiency curve", self.load_share, 0)
        efficiency = checked_numbers("efficiency of the efficiency curve", self.efficiency, 0, 1)
        require("rated_w of the efficiency curve", self.rated_w)
        if self.rated_w == 0 or len(share) != len(efficiency) or not len(share) or (np.diff(share) <= 0).any():
            raise InputError(
                "an efficiency curve needs rated_w above 0 and increasing load shares, with one efficiency for each"
            )
        if (efficiency == 0).any():
            raise InputError("an efficiency of 0 needs infinite power; give the standby loss as fixed watts")
        if (np.diff(share / efficiency) < 0).any():
            raise InputError("this efficiency curve needs less input for more output; check its points")

    def input_w(self, output_w: npt.ArrayLike) -> Floats:
        """Input power for an output power, watts."""
        output = checked_numbers("output of the efficiency curve", output_w, 0)
        watts: Floats = output / np.interp(output / self.rated_w, self.load_share, self.efficiency)
        return watts
