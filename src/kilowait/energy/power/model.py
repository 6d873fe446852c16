"""PowerModel: power of a cluster's node groups, their DVFS states and node sleep, and the facility around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.energy.power.components import (
    NO_LOSS,
    Conversion,
    EfficiencyCurve,
    FixedLoad,
    NodePower,
    checked_numbers,
    require,
)
from kilowait.energy.power.cooling import Cooling, cooling_model
from kilowait.errors import InputError, UnknownNameError
from kilowait.series import Floats


@dataclass(frozen=True, slots=True)
class Facility:
    """Fixed overhead (lighting, constant pumps), supply losses and cooling.

    The losses of the supply (transformers, UPS) become heat, which the cooling must remove too.

    >>> from kilowait.energy.power import ConstantPue
    >>> Facility(50e3, ConstantPue(1.2)).facility_w([0, 1e6]).tolist()
    [50000.0, 1250000.0]
    """

    fixed_w: float
    cooling: Cooling
    supply: EfficiencyCurve | None = None
    source: str = ""
    estimate: bool = True
    cooling_source: str = ""
    cooling_estimate: bool = True

    def __post_init__(self) -> None:
        require("fixed_w of the facility", self.fixed_w)

    def supplied_w(self, it_w: npt.ArrayLike) -> Floats:
        """Input power of the supply for an IT power."""
        it = checked_numbers("IT power", it_w, 0)
        return it if self.supply is None else self.supply.input_w(it)

    def facility_w(
        self, it_w: npt.ArrayLike, temperature_c: npt.ArrayLike | None = None, wet_bulb_c: npt.ArrayLike | None = None
    ) -> Floats:
        """Facility power, watts; never below `it_w`. Arguments are numbers or arrays of equal shape."""
        supplied = self.supplied_w(it_w)
        cooled = self.cooling.power_w(supplied, temperature_c, wet_bulb_c)
        return np.asarray(supplied + self.fixed_w + cooled, np.float64)


@dataclass(frozen=True, slots=True)
class SleepStates:
    """Sleep state and transitions of one node; watts at the wall and seconds.

    >>> taurus = SleepStates(sleep_w=9.75, to_sleep_s=6.1, to_sleep_w=101.0, wake_s=151.52, wake_w=125.2)
    >>> round(taurus.break_even_s(idle_w=95.0))
    212
    """

    sleep_w: float
    to_sleep_s: float
    to_sleep_w: float
    wake_s: float
    wake_w: float
    source: str = ""
    estimate: bool = True

    def __post_init__(self) -> None:
        for name in ("sleep_w", "to_sleep_s", "to_sleep_w", "wake_s", "wake_w"):
            require(name, getattr(self, name))

    @property
    def to_sleep_j(self) -> float:
        """Energy of the transition to sleep."""
        return self.to_sleep_s * self.to_sleep_w

    @property
    def wake_j(self) -> float:
        """Energy of the wake-up."""
        return self.wake_s * self.wake_w

    @property
    def transition_s(self) -> float:
        """Seconds of both transitions: the shortest idle gap in which a node can sleep without delaying a job."""
        return self.to_sleep_s + self.wake_s

    def break_even_s(self, idle_w: float) -> float:
        """Break-even idle gap: (E_to_sleep + E_wake - P_sleep * t_transitions) / (P_idle - P_sleep).

        Sleep saves energy in longer gaps. It is at least the time of the transitions; infinite if sleep never saves
        energy.
        """
        require("idle_w", idle_w)
        if idle_w <= self.sleep_w:
            return math.inf
        overhead_j = self.to_sleep_j + self.wake_j - self.sleep_w * self.transition_s
        return max(self.transition_s, overhead_j / (idle_w - self.sleep_w))


@dataclass(frozen=True, slots=True)
class DvfsState:
    """A DVFS state or GPU power cap of a node.

    `speed` is f / f_max, `cpu_dynamic` the remaining share of the CPUs' power above idle, `gpu_cap` the cap as a share
    of the GPUs' power limit.

    >>> DvfsState("1.2 GHz", speed=0.45, cpu_dynamic=0.323).gpu_cap
    1.0
    """

    name: str
    speed: float = 1.0
    cpu_dynamic: float = 1.0
    gpu_cap: float = 1.0
    source: str = ""
    estimate: bool = True

    def __post_init__(self) -> None:
        for key in ("speed", "gpu_cap"):
            if not 0 < getattr(self, key) <= 1:
                raise InputError(
                    f"{key} of the DVFS state {self.name!r} is {getattr(self, key)}; it must be above 0 and at most 1"
                )
        require(f"cpu_dynamic of the DVFS state {self.name!r}", self.cpu_dynamic, 0, 1)

    @property
    def is_full(self) -> bool:
        """Whether this is full speed without a cap."""
        return self.speed == self.cpu_dynamic == self.gpu_cap == 1


FULL_SPEED = DvfsState("full", source="definition", estimate=False)
"""DVFS state 0 of every node group."""


@dataclass(frozen=True, slots=True)
class CapCurve:
    """Measured slowdown of a GPU type under a power cap.

    >>> from kilowait.energy.power import GPU_CAP_CURVES
    >>> GPU_CAP_CURVES["V100"].slowdown([2.0, 1.0, 0.5]).round(2).tolist()
    [1.0, 1.0, 1.58]
    """

    gpu: str
    a: float
    c: float
    rmse: float = float("nan")
    source: str = ""

    def __post_init__(self) -> None:
        require(f"a of the cap curve {self.gpu!r}", self.a)
        require(f"c of the cap curve {self.gpu!r}", self.c)

    def slowdown(self, r: npt.ArrayLike) -> Floats:
        """Run time under the cap / run time without; r = cap / uncapped draw."""
        share = checked_numbers("r", r, 1e-6)
        return np.asarray(1 + self.a * np.maximum(1 / share - 1, 0) ** self.c, np.float64)

    def relative_energy(self, r: npt.ArrayLike) -> Floats:
        """GPU energy under the cap / without, if the GPU draws the cap where the cap is binding.

        Measured draws stay a few per cent below a binding cap, so this estimate is conservative.

        >>> from kilowait.energy.power import GPU_CAP_CURVES
        >>> GPU_CAP_CURVES["V100"].relative_energy([1.5, 0.7]).round(2).tolist()
        [1.0, 0.81]
        """
        return np.asarray(np.minimum(checked_numbers("r", r, 1e-6), 1) * self.slowdown(r), np.float64)


_PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True, slots=True)
class GroupPower:
    """Power of a group of identical nodes; watts at the wall, conversion losses included."""

    name: str
    nodes: int
    node: NodePower
    conversion: Conversion = NO_LOSS
    fixed: tuple[FixedLoad, ...] = ()
    sleep: SleepStates | None = None
    """None: the nodes cannot sleep."""
    levels: tuple[DvfsState, ...] = (FULL_SPEED,)
    beta: float = 0.5
    """Frequency sensitivity of jobs whose own beta is not known."""
    cap_curve: CapCurve | None = None
    """Slowdown under GPU power caps; required if a level caps GPUs."""
    slowdown_source: str = ""
    slowdown_estimate: bool = True

    def __post_init__(self) -> None:
        require(f"beta of the group {self.name!r}", self.beta, 0, 1)
        require(f"nodes of the group {self.name!r}", self.nodes)
        if not self.levels or not self.levels[0].is_full:
            raise InputError(f"level 0 of the group {self.name!r} must be full speed")
        for load in self.fixed:
            self.conversion.fixed_w(load, self.nodes)  # raises if a conversion step does not exist
        gpu_idle_w = self.node.idle_of("gpu")
        for level in self.levels:
            if level.gpu_cap < 1 and self.cap_curve is None:
                raise InputError(f"level {level.name!r} of the group {self.name!r} caps GPUs but there is no cap curve")
            if level.gpu_cap < 1 and level.gpu_cap * self.node.limit_of("gpu") <= gpu_idle_w:
                raise InputError(
                    f"level {level.name!r} of the group {self.name!r} caps the GPUs of a node at "
                    f"{level.gpu_cap * self.node.limit_of('gpu'):g} W, not above the {gpu_idle_w:g} W they draw idle"
                )
        if self.sleep is not None and self.sleep.sleep_w > self.idle_w:
            raise InputError(
                f"a node of {self.name!r} draws {self.sleep.sleep_w} W asleep but {self.idle_w:.1f} W idle; "
                "sleep power must not exceed idle power"
            )

    @property
    def idle_w(self) -> float:
        """Power of one idle node."""
        return float(self.conversion.node_w(self.node.idle_w))

    @property
    def full_w(self) -> float:
        """Power of one node at full load."""
        return float(self.conversion.node_w(self.node.full_w))

    def node_w(self, cpu_utilization: npt.ArrayLike, gpu_utilization: npt.ArrayLike = 0.0) -> Floats:
        """Power of one node at these utilizations (0 to 1)."""
        return self.conversion.node_w(self.node.at(cpu_utilization, gpu_utilization))

    def fixed_w(self, nodes: int | None = None) -> float:
        """Power of the fixed loads for `nodes` nodes (None: all nodes of the group)."""
        return sum(self.conversion.fixed_w(load, self.nodes if nodes is None else nodes) for load in self.fixed)


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Power model of a cluster and its facility.

    >>> model = PowerModel.preset("frontier")
    >>> round(model.idle_it_w() / 1e6, 3), round(model.full_it_w() / 1e6, 3)
    (7.307, 28.228)
    """

    name: str
    groups: tuple[GroupPower, ...]
    facility: Facility

    def __post_init__(self) -> None:
        names = [group.name for group in self.groups]
        if not names or len(set(names)) < len(names):
            raise InputError(f"power model {self.name!r} needs groups with unique names; it has {names}")

    @classmethod
    def preset(cls, name: str) -> PowerModel:
        """A preset by name; presets/NAME.toml gives its values, their sources and which are estimates."""
        known = {path.stem: path for path in _PRESETS.glob("*.toml")}
        if name.lower() not in known:
            raise UnknownNameError("power preset", name, known)
        return cls.from_file(known[name.lower()])

    @staticmethod
    def presets() -> tuple[str, ...]:
        """Names of the presets, sorted."""
        return tuple(sorted(path.stem for path in _PRESETS.glob("*.toml")))

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> PowerModel:
        """A power model from a TOML file in the format of the presets."""
        from kilowait.energy.power.toml import read_model

        return read_model(path)

    def group(self, name: str | None = None) -> GroupPower:
        """A group by name; None: the only group of the model."""
        if name is None:
            if len(self.groups) > 1:
                names = ", ".join(group.name for group in self.groups)
                raise InputError(f"power model {self.name!r} has several groups ({names}); name one")
            return self.groups[0]
        for group in self.groups:
            if group.name == name:
                return group
        raise UnknownNameError(f"group of the power model {self.name!r}", name, [g.name for g in self.groups])

    def for_groups(self, nodes_by_group: Mapping[str, int]) -> PowerModel:
        """The model for a cluster's groups and their sizes; a model of one group applies to all of them.

        >>> PowerModel.preset("polaris").for_groups({"nodes": 128}).group("nodes").nodes
        128
        """
        only = self.groups[0] if len(self.groups) == 1 else None
        groups = tuple(
            replace(only if only is not None else self.group(name), name=name, nodes=nodes)
            for name, nodes in nodes_by_group.items()
        )
        return replace(self, groups=groups)

    def for_cluster(self, cluster: Cluster) -> PowerModel:
        """The model for the groups of a cluster; see `for_groups`.

        >>> PowerModel.preset("taurus").for_cluster(Cluster.from_nodes(4)).group("nodes").nodes
        4
        """
        for group in cluster.groups:
            if not group.nodes_known:
                raise InputError(
                    f"group {group.name!r} of {cluster.name!r} counts {group.nodes:,} processors, and the power model "
                    f"{self.name!r} has power per node; give the cores of a node with --cores-per-node, or a cluster "
                    "of nodes"
                )
        return self.for_groups({group.name: group.nodes for group in cluster.groups})

    def with_cooling(self, cooling: Cooling | str) -> PowerModel:
        """The same model with other cooling; a name (``economiser``, ``pue:1.1``) is sized for the full IT power.

        >>> PowerModel.preset("polaris").with_cooling("economiser").facility.cooling.needs
        ('temperature', 'wet_bulb')
        """
        model = cooling_model(cooling, self.full_it_w()) if isinstance(cooling, str) else cooling
        source = "default parameters of the cooling model, sized for this cluster"
        facility = replace(self.facility, cooling=model, cooling_source=source, cooling_estimate=True)
        return replace(self, facility=facility)

    def idle_it_w(self) -> float:
        """IT power with every node idle, fixed loads included."""
        return sum(group.nodes * group.idle_w + group.fixed_w() for group in self.groups)

    def full_it_w(self) -> float:
        """IT power with every node at full load."""
        return sum(group.nodes * group.full_w + group.fixed_w() for group in self.groups)

    def fixed_it_w(self, names: Iterable[str] | None = None) -> float:
        """Power of the fixed loads (switches, pumps) of the named groups (None: of all groups)."""
        groups = self.groups if names is None else tuple(self.group(name) for name in names)
        return sum(group.fixed_w() for group in groups)
