"""Facility power from IT power: fixed overhead, supply losses and cooling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.energy.power.conversion_losses import EfficiencyCurve
from kilowait.energy.power.cooling import Cooling
from kilowait.energy.power.number_checks import Floats, checked_numbers, require

__all__ = ["Facility"]


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
