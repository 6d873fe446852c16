"""Power-budget violations: how far the IT power of a run exceeds its power budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kilowait.cluster.power_controls import StepFunction
from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.accounting.job_power import J_PER_KWH

__all__ = ["BudgetViolation", "budget_violation"]

_EQUAL = 1e-9


@dataclass(frozen=True)
class BudgetViolation:
    """How far IT power exceeds a power budget, over the horizon of the energy accounts."""

    time_share: float
    """Share of the time during which the budget is exceeded."""
    excess_kwh: float
    """Energy drawn above the budget."""
    max_excess_w: float
    """The largest excess at any time; 0 if the budget is never exceeded."""
    budget_w: float
    """The budget at the time of the largest excess; the lowest budget if it is never exceeded."""

    @property
    def description(self) -> str:
        """The violation as text.

        >>> BudgetViolation(0.012, 3.0, 250.0, 5000.0).description
        'exceeded 1.2 % of the time, by 0.25 kW (5 %) at most'
        """
        if self.max_excess_w <= 0:
            return "never exceeded"
        return (
            f"exceeded {100 * self.time_share:.3g} % of the time, by {self.max_excess_w / 1e3:,.3g} kW "
            f"({100 * self.max_excess_w / self.budget_w:.2g} %) at most"
        )


def budget_violation(accounts: EnergyAccounts, budget_w: StepFunction) -> BudgetViolation:
    """How far a run exceeds its power budget (`ResolvedControls.budget_w`)."""
    time_s, watts = (np.array(column, np.float64) for column in zip(*budget_w, strict=True))
    first, last = accounts.horizon_s
    inside = time_s[(time_s > first) & (time_s < last)]
    edge_s = np.union1d(accounts.grid.edge_s, inside)
    it_w = accounts.it_w[np.searchsorted(accounts.grid.edge_s, edge_s[:-1], side="right") - 1]
    limit = watts[np.searchsorted(time_s, edge_s[:-1], side="right") - 1]
    length_s = np.diff(edge_s)
    excess_w = np.where(it_w > limit * (1 + _EQUAL), it_w - limit, 0.0)
    worst = int(np.argmax(excess_w)) if excess_w.any() else int(np.argmin(limit))
    return BudgetViolation(
        time_share=float(length_s[excess_w > 0].sum() / length_s.sum()),
        excess_kwh=float((excess_w * length_s).sum()) / J_PER_KWH,
        max_excess_w=float(excess_w[worst]),
        budget_w=float(limit[worst]),
    )
