"""Lagrange multiplier of a cost constraint: rises while the constraint is violated, falls while it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LagrangeMultiplier"]


@dataclass
class LagrangeMultiplier:
    """A Lagrange multiplier for "mean cost of an episode <= limit", learned together with the policy.

    The penalized reward is (reward - multiplier x cost) / (1 + multiplier), after Tessler, Mankowitz and Mannor,
    "Reward constrained policy optimization" (ICLR 2019); the divisor keeps its scale.

    >>> dual = LagrangeMultiplier(limit=10.0, rate=0.5)
    >>> dual.update(30.0)  # 200 % excess the limit
    >>> dual.multiplier, dual.penalized(np.array([-1.0]), np.array([3.0])).tolist()
    (1.0, [-2.0])
    """

    limit: float
    """Mean cost of an episode; with a limit of 0 the step of the multiplier is absolute instead of relative."""
    rate: float
    """Step of the multiplier for a cost that is 100 % above the limit."""
    multiplier: float = 0.0

    def penalized(self, rewards: npt.NDArray[np.float64], costs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Rewards minus the multiplier times their costs, scaled."""
        return (rewards - self.multiplier * costs) / (1.0 + self.multiplier)

    def update(self, cost: float) -> None:
        """Update with the mean cost of the finished episodes; NaN (none finished) changes nothing."""
        if not np.isnan(cost):
            excess = (cost - self.limit) / (abs(self.limit) or 1.0)
            self.multiplier = max(0.0, self.multiplier + self.rate * excess)

    def state_dict(self) -> dict[str, Any]:
        """State of the multiplier."""
        return {"multiplier": self.multiplier}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.multiplier = float(state["multiplier"])
