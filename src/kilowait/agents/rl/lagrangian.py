"""The price of a constraint: rises while it is broken, falls while there is room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LagrangeMultiplier"]


@dataclass
class LagrangeMultiplier:
    """A Lagrange multiplier for "mean cost of an episode <= limit", learned beside the policy.

    The reward that is learned from is (reward - multiplier x cost) / (1 + multiplier), after Tessler, Mankowitz and
    Mannor, "Reward constrained policy optimization" (ICLR 2019); the divisor keeps its size.

    >>> dual = LagrangeMultiplier(limit=10.0, rate=0.5)
    >>> dual.move(30.0)  # 200 % too much
    >>> dual.multiplier, dual.priced(np.array([-1.0]), np.array([3.0])).tolist()
    (1.0, [-2.0])
    """

    limit: float
    """Cost an episode, in the units of the cost; 0 is taken as it is, and rates are then absolute."""
    rate: float
    """Step of the multiplier for a cost that is 100 % above the limit."""
    multiplier: float = 0.0

    def priced(
        self, rewards: npt.NDArray[np.float64], costs: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Rewards less the price of their costs."""
        return (rewards - self.multiplier * costs) / (1.0 + self.multiplier)

    def move(self, cost: float) -> None:
        """The mean cost of episodes was this; NaN, where none ended, moves nothing."""
        if not np.isnan(cost):
            above = (cost - self.limit) / (abs(self.limit) or 1.0)
            self.multiplier = max(0.0, self.multiplier + self.rate * above)

    def state_dict(self) -> dict[str, Any]:
        """Where it is."""
        return {"multiplier": self.multiplier}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As it was."""
        self.multiplier = float(state["multiplier"])
