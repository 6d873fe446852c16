"""Cooling models: cooling power as a function of heat and weather.

Temperatures are in °C. A model lists the weather variables that it `needs`; computing its power without them is an
error. No model becomes more efficient as the outdoor temperature rises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from kilowait.energy.power.components import checked_numbers, require
from kilowait.errors import InputError, UnknownNameError
from kilowait.series import Floats

Weather = npt.ArrayLike | None


class Cooling(Protocol):
    """Cooling power for a heat load."""

    needs: ClassVar[tuple[str, ...]]
    """The required weather variables, of "temperature" and "wet_bulb"."""

    def power_w(self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None) -> Floats:
        """Cooling power, watts; arguments are numbers or arrays of equal shape."""


@dataclass(frozen=True, slots=True)
class ConstantPue:
    """Overhead proportional to IT power: (pue - 1) * heat.

    >>> float(ConstantPue(1.25).power_w(1000.0))
    250.0
    """

    pue: float
    needs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require("pue", self.pue, 1)

    def power_w(self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None) -> Floats:
        """Cooling power, watts; independent of the weather."""
        return np.asarray((self.pue - 1) * _heat(heat_w), np.float64)


@dataclass(frozen=True, slots=True)
class SupplyAirCop:
    """Computer-room air conditioning by supply-air temperature (HP Labs): COP = 0.0068 T² + 0.0008 T + 0.458.

    >>> round(SupplyAirCop(20).cop, 2)
    3.19
    """

    supply_c: float = 20.0
    needs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        require("supply_c", self.supply_c, 5, 45)  # wider than the measured range of the curve

    @property
    def cop(self) -> float:
        """Watts of heat moved by one watt."""
        return 0.0068 * self.supply_c**2 + 0.0008 * self.supply_c + 0.458

    def power_w(self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None) -> Floats:
        """Cooling power, watts; independent of the outdoor weather."""
        return np.asarray(_heat(heat_w) / self.cop, np.float64)


@dataclass(frozen=True, slots=True)
class LinearCop:
    """COP falling linearly with the outdoor temperature: 5 - 0.1 (T - 25), at least 1.

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

    def power_w(self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None) -> Floats:
        """Watts drawn."""
        return np.asarray(_heat(heat_w) / self.cop(temperature_c), np.float64)


@dataclass(frozen=True, slots=True)
class Chiller:
    """An air-cooled electric chiller with part load, EnergyPlus' Chiller:Electric.

    d = (T_condenser - 35) / 2.778 - (T_evaporator - 6.67) is the temperature difference relative to the design point;
    capacity cap(d) and full-load power ratio pr(cap) are quadratics, and so is the share of full power at part load
    PLR = load / (nominal * cap). COP = cop_rated * PLR / (share(PLR) * pr). Below 5 % load the chiller cycles with the
    COP of 5 %; above its capacity, further chillers of the same type are assumed, with the COP of full load. The
    condenser temperature is at least `coldest_c`, because the head pressure must not fall further.

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
            raise InputError("nominal_w of the chiller is 0; give its cooling capacity, watts")
        require("evaporator_c of the chiller", self.evaporator_c, 2, 25)
        require("cop_rated of the chiller", self.cop_rated, 1)
        require("coldest_c of the chiller", self.coldest_c, -20, 30)

    def cop(self, heat_w: npt.ArrayLike, temperature_c: Weather) -> Floats:
        """Watts of heat moved by one watt, at this load and outdoor temperature."""
        outside = np.maximum(_degrees("chiller", "temperature", temperature_c), self.coldest_c)
        lift = (outside - 35) / 2.778 - (self.evaporator_c - 6.67)
        capacity = 0.944836 - 0.0570088 * lift + 0.00185486 * lift**2
        full_power = 2.333 - 1.975 * capacity + 0.6121 * capacity**2
        part_load = np.clip(_heat(heat_w) / (self.nominal_w * capacity), 0.05, 1)
        part_power = 0.03303 + 0.6852 * part_load + 0.2818 * part_load**2
        return np.asarray(self.cop_rated * part_load / (part_power * full_power), np.float64)

    def power_w(self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None) -> Floats:
        """Watts drawn."""
        return np.asarray(_heat(heat_w) / self.cop(heat_w, temperature_c), np.float64)


@dataclass(frozen=True, slots=True)
class Economiser:
    """Water-side economiser: cooling towers carry all heat at a low wet-bulb temperature, a chiller at a high one.

    If wet bulb + approach <= supply, the chiller is off; over the next `blend_k` kelvin its share of the heat rises
    linearly to 1. Pumps and tower fans always draw `pumps_share` of the heat.

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

    def power_w(self, heat_w: npt.ArrayLike, temperature_c: Weather = None, wet_bulb_c: Weather = None) -> Floats:
        """Watts drawn."""
        heat = _heat(heat_w)
        chiller_heat = heat * self.chiller_share(wet_bulb_c)
        return np.asarray(self.pumps_share * heat + self.chiller.power_w(chiller_heat, temperature_c), np.float64)


COOLING_MODELS: dict[str, type[ConstantPue | SupplyAirCop | LinearCop | Chiller | Economiser]] = {
    "constant-pue": ConstantPue,
    "supply-air": SupplyAirCop,
    "linear-cop": LinearCop,
    "chiller": Chiller,
    "economiser": Economiser,
}
"""Cooling models by the names used in power files and on the command line."""


def cooling_model(text: str, full_it_w: float) -> Cooling:
    """A cooling model by name with default parameters, sized for `full_it_w`: ``pue:1.2``, ``chiller`` ...

    Chillers have 20 % more capacity than the full IT power (an estimate).

    >>> cooling_model("pue:1.2", 1e6)
    ConstantPue(pue=1.2)
    """
    name, _, number = text.partition(":")
    if name in {"pue", "constant-pue"}:
        try:
            return ConstantPue(float(number))
        except ValueError:
            raise InputError(f"cooling {text!r} has no number; write pue:1.2") from None
    if number:
        raise InputError(f"cooling {text!r}: only pue takes a number; describe other models in a power file")
    chiller = Chiller(1.2 * full_it_w)
    models: dict[str, Cooling] = {
        "supply-air": SupplyAirCop(),
        "linear-cop": LinearCop(),
        "chiller": chiller,
        "economiser": Economiser(chiller),
    }
    if name not in models:
        raise UnknownNameError("cooling", name, ["pue", *models])
    return models[name]


def _heat(heat_w: npt.ArrayLike) -> Floats:
    return checked_numbers("heat", heat_w, 0)


def _degrees(model: str, what: str, degrees: Weather) -> Floats:
    if degrees is None:
        raise InputError(
            f"cooling {model!r} needs the outdoor {what.replace('_', ' ')}, °C; give weather, or a constant PUE"
        )
    # Values outside this range occur nowhere on Earth: they are in kelvin or Fahrenheit.
    return checked_numbers(f"{what.replace('_', ' ')} in °C", degrees, -90, 60)
