"""Power-conversion losses between wall and components, and fixed IT loads such as switches.

A conversion step of one node is affine, (P + a) / b, so node powers still add up and power stays constant between two
events. An efficiency curve over the load applies to the supply of the whole facility (see `facility`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.energy.power.number_checks import Floats, checked_numbers, require
from kilowait.errors import InputError, UnknownNameError

__all__ = ["NO_LOSS", "AffineLoss", "Conversion", "EfficiencyCurve", "FixedLoad"]


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
