"""Whether a budget was kept: what a run drew, against what it was not to exceed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kilowait.cluster.power_controls import StepFunction
from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.accounting.job_power import J_PER_KWH

__all__ = ["BudgetViolation", "exceeded"]

_EQUAL = 1e-9


@dataclass(frozen=True)
class BudgetViolation:
    """How far IT power went above a budget, over the horizon of the accounts."""

    share: float
    """Of the time."""
    kwh: float
    """What was drawn above it."""
    most_w: float
    """The most above it at any time; 0: it was kept."""
    budget_w: float
    """The budget, where it was exceeded by most; else the lowest."""

    @property
    def words(self) -> str:
        """For people.

        >>> BudgetViolation(0.012, 3.0, 250.0, 5000.0).words
        'above it 1.2 % of the time, by 0.25 kW (5 %) at most'
        """
        if self.most_w <= 0:
            return "kept at all times"
        return (
            f"above it {100 * self.share:.3g} % of the time, by {self.most_w / 1e3:,.3g} kW "
            f"({100 * self.most_w / self.budget_w:.2g} %) at most"
        )


def exceeded(spent: EnergyAccounts, budget_w: StepFunction) -> BudgetViolation:
    """How far a run went above the budget it was made with (`Pulled.budget_w`)."""
    time_s, watts = (np.array(column, np.float64) for column in zip(*budget_w, strict=True))
    first, last = spent.horizon_s
    inside = time_s[(time_s > first) & (time_s < last)]
    edge_s = np.union1d(spent.grid.edge_s, inside)
    drawn = spent.it_w[np.searchsorted(spent.grid.edge_s, edge_s[:-1], side="right") - 1]
    limit = watts[np.searchsorted(time_s, edge_s[:-1], side="right") - 1]
    lasting = np.diff(edge_s)
    above = np.where(drawn > limit * (1 + _EQUAL), drawn - limit, 0.0)
    worst = int(np.argmax(above)) if above.any() else int(np.argmin(limit))
    return BudgetViolation(
        share=float(lasting[above > 0].sum() / lasting.sum()),
        kwh=float((above * lasting).sum()) / J_PER_KWH,
        most_w=float(above[worst]),
        budget_w=float(limit[worst]),
    )
