"""What it takes to carry the heat away: a choice of models, each a function of heat and weather.

Temperatures are °C. A model names the weather it `needs`; without it, asking for watts is an error. None of them gets
better as it gets hotter outside, once the economiser has no more cold air to use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from kilowait.energy.power.validate import Floats, numbers, require
from kilowait.errors import InputError, UnknownNameError

__all__ = [
    "COOLING",
    "Chiller",
    "ConstantPue",
    "Cooling",
    "Economiser",
    "LinearCop",
    "SupplyAirCop",
    "cooling_named",
]

Weather = npt.ArrayLike | None


class Cooling(Protocol):
    """Watts of cooling for watts of heat."""

    needs: ClassVar[tuple[str, ...]]
    """Which of "temperature", "wet_bulb" must be given."""

    def power_w(
        self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None
    ) -> Floats:
        """Watts drawn; arrays of one shape, or single numbers."""


@dataclass(frozen=True, slots=True)
class ConstantPue:
    """Overhead in proportion to IT power: (pue - 1) * heat.

    >>> float(ConstantPue(1.25).power_w(1000.0))
    250.0
    """

    pue: float
    needs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require("pue", self.pue, 1)

    def power_w(
        self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None
    ) -> Floats:
        """Watts drawn; the weather does not matter."""
        return np.asarray((self.pue - 1) * _heat(heat_w), np.float64)


@dataclass(frozen=True, slots=True)
class SupplyAirCop:
    """Room air handlers by the temperature of the air they supply (HP Labs): COP = 0.0068 T² + 0.0008 T + 0.458.

    >>> round(SupplyAirCop(20).cop, 2)
    3.19
    """

    supply_c: float = 20.0
    needs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require("supply_c", self.supply_c, 5, 45)  # beyond what the curve was measured for

    @property
    def cop(self) -> float:
        """Watts of heat moved by one watt."""
        return 0.0068 * self.supply_c**2 + 0.0008 * self.supply_c + 0.458

    def power_w(
        self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None
    ) -> Floats:
        """Watts drawn; the weather outside does not matter."""
        return np.asarray(_heat(heat_w) / self.cop, np.float64)


@dataclass(frozen=True, slots=True)
class LinearCop:
    """COP falling in a straight line with the outdoor temperature: 5 - 0.1 (T - 25), never below 1.

    >>> LinearCop().cop([15, 25, 35]).tolist()
    [6.0, 5.0, 4.0]
    """

    cop_25: float = 5.0
    per_k: float = 0.1
    needs: ClassVar[tuple[str, ...]] = ("temperature",)

    def __post_init__(self) -> None:
        require("cop_25", self.cop_25, 1)
        require("per_k", self.per_k)

    def cop(self, temperature_c: Weather) -> Floats:
        """Watts of heat moved by one watt."""
        outside = _degrees("linear-cop", "temperature", temperature_c)
        return np.maximum(1.0, self.cop_25 - self.per_k * (outside - 25))

    def power_w(
        self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None
    ) -> Floats:
        """Watts drawn."""
        return np.asarray(_heat(heat_w) / self.cop(temperature_c), np.float64)


@dataclass(frozen=True, slots=True)
class Chiller:
    """An air-cooled electric chiller with part load, EnergyPlus' Chiller:Electric.

    d = (T_condenser - 35) / 2.778 - (T_evaporator - 6.67) is how much harder than at design it has to work; capacity
    cap(d) and full-load power ratio pr(cap) are quadratics, and so is the share of full power at part load
    PLR = load / (nominal * cap). COP = cop_rated * PLR / (share(PLR) * pr). Below a load of 5 % it cycles at the COP
    of 5 %; above its capacity further chillers of the same kind are taken to help at the COP of full load. Below
    `coldest_c` the condenser is kept from getting colder, as the head pressure must not fall further.

    >>> Chiller(1e6).cop(5e5, [10, 20, 30, 40]).round(2).tolist()
    [4.61, 4.28, 3.62, 3.01]
    """

    nominal_w: float
    evaporator_c: float = 6.67
    cop_rated: float = 3.0
    coldest_c: float = 10.0
    needs: ClassVar[tuple[str, ...]] = ("temperature",)

    def __post_init__(self) -> None:
        require("nominal_w of the chiller", self.nominal_w)
        if self.nominal_w == 0:
            raise InputError("nominal_w of the chiller is 0; give the heat it can carry, watts")
        require("evaporator_c of the chiller", self.evaporator_c, 2, 25)
        require("cop_rated of the chiller", self.cop_rated, 1)
        require("coldest_c of the chiller", self.coldest_c, -20, 30)

    def cop(self, heat_w: npt.ArrayLike, temperature_c: Weather) -> Floats:
        """Watts of heat moved by one watt, at this load and outdoor temperature."""
        outside = np.maximum(_degrees("chiller", "temperature", temperature_c), self.coldest_c)
        harder = (outside - 35) / 2.778 - (self.evaporator_c - 6.67)
        capacity = 0.944836 - 0.0570088 * harder + 0.00185486 * harder**2
        full_power = 2.333 - 1.975 * capacity + 0.6121 * capacity**2
        part_load = np.clip(_heat(heat_w) / (self.nominal_w * capacity), 0.05, 1)
        part_power = 0.03303 + 0.6852 * part_load + 0.2818 * part_load**2
        return np.asarray(self.cop_rated * part_load / (part_power * full_power), np.float64)

    def power_w(
        self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None
    ) -> Floats:
        """Watts drawn."""
        return np.asarray(_heat(heat_w) / self.cop(heat_w, temperature_c), np.float64)


@dataclass(frozen=True, slots=True)
class Economiser:
    """Cooling towers that do it alone when the air is dry and cold, and a chiller when it is not.

    Where wet bulb + approach <= supply the chiller is off; over the next `blend_k` kelvin it takes over in a
    straight line. Pumps and tower fans draw `pumps_share` of the heat all the time.

    >>> plant = Economiser(Chiller(1.2e6))
    >>> plant.chiller_share([5, 14, 16.5, 19, 25]).tolist()
    [0.0, 0.0, 0.5, 1.0, 1.0]
    >>> float(plant.power_w(1e6, 10.0, 8.0).round())
    30000.0
    """

    chiller: Chiller
    supply_c: float = 18.0
    approach_k: float = 4.0
    blend_k: float = 5.0
    pumps_share: float = 0.03
    needs: ClassVar[tuple[str, ...]] = ("temperature", "wet_bulb")

    def __post_init__(self) -> None:
        require("supply_c of the economiser", self.supply_c, 5, 50)
        require("approach_k of the economiser", self.approach_k, 0, 20)
        require("blend_k of the economiser", self.blend_k, 0.1, 20)
        require("pumps_share of the economiser", self.pumps_share, 0, 1)

    def chiller_share(self, wet_bulb_c: Weather) -> Floats:
        """Share of the heat the chiller must carry, 0 to 1."""
        wet = _degrees("economiser", "wet_bulb", wet_bulb_c)
        return np.clip((wet + self.approach_k - self.supply_c) / self.blend_k, 0.0, 1.0)

    def power_w(
        self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None
    ) -> Floats:
        """Watts drawn."""
        heat = _heat(heat_w)
        left = heat * self.chiller_share(wet_bulb_c)
        return np.asarray(self.pumps_share * heat + self.chiller.power_w(left, temperature_c), np.float64)


COOLING: dict[str, type[ConstantPue | SupplyAirCop | LinearCop | Chiller | Economiser]] = {
    "constant-pue": ConstantPue,
    "supply-air": SupplyAirCop,
    "linear-cop": LinearCop,
    "chiller": Chiller,
    "economiser": Economiser,
}
"""Models by the name files and commands use."""


def cooling_named(text: str, full_it_w: float) -> Cooling:
    """A model by name with its usual numbers, sized for a machine: ``pue:1.2``, ``chiller``, ``economiser`` ...

    Chillers are given a fifth more capacity than the machine's full IT power (an estimate).

    >>> cooling_named("pue:1.2", 1e6)
    ConstantPue(pue=1.2)
    """
    name, _, number = text.partition(":")
    if name in {"pue", "constant-pue"}:
        try:
            return ConstantPue(float(number))
        except ValueError:
            raise InputError(f"cooling {text!r} lacks its number; write pue:1.2") from None
    if number:
        raise InputError(f"cooling {text!r}: only pue takes a number; describe other models in a power file")
    chiller = Chiller(1.2 * full_it_w)
    usual: dict[str, Cooling] = {
        "supply-air": SupplyAirCop(),
        "linear-cop": LinearCop(),
        "chiller": chiller,
        "economiser": Economiser(chiller),
    }
    if name not in usual:
        raise UnknownNameError("cooling", name, ["pue", *usual])
    return usual[name]


def _heat(heat_w: npt.ArrayLike) -> Floats:
    return numbers("heat", heat_w, 0)


def _degrees(model: str, what: str, degrees: Weather) -> Floats:
    if degrees is None:
        raise InputError(
            f"cooling {model!r} needs the {what.replace('_', ' ')} outside, °C; give weather, or a constant PUE"
        )
    # Colder or hotter than anywhere on Earth: kelvin, or Fahrenheit in summer.
    return numbers(f"{what.replace('_', ' ')} in °C", degrees, -90, 60)
