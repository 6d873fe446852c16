"""Privacy accounting: the noise needed for an epsilon, and the epsilon spent, by Opacus' accountant."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kilowait.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from opacus.accountants import RDPAccountant

__all__ = ["PrivacyBudget", "accountant", "noise_multiplier", "spent_epsilon"]

MIN_NOISE, MAX_NOISE = 0.3, 1000.0


@dataclass(frozen=True)
class PrivacyBudget:
    """Privacy budget at user level: neighboring logs differ in all jobs of one user."""

    epsilon: float
    delta: float
    steps: int
    """Number of training steps."""
    rate: float
    """Probability that a user is sampled in a step."""

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 100:
            raise InputError(
                f"dp_epsilon is {self.epsilon}; it must be above 0 and at most 100; larger values guarantee nothing"
            )
        if not 0 < self.delta < 1:
            raise InputError(f"dp_delta is {self.delta}; it must be between 0 and 1, and well below 1 / users")


def accountant() -> RDPAccountant:
    """A new accountant."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus.accountants import RDPAccountant
    except ImportError:
        raise MissingExtraError("opacus", "private") from None
    return RDPAccountant()


def spent_epsilon(history: list[tuple[float, float, int]], delta: float) -> float:
    """Epsilon of a history of Gaussian mechanisms: noise over sensitivity, sampling rate, number of steps."""
    rdp_accountant = accountant()
    rdp_accountant.history = [(float(noise), float(rate), int(steps)) for noise, rate, steps in history]
    with warnings.catch_warnings():
        # Opacus warns if the largest order is optimal; the bound is still valid.
        warnings.simplefilter("ignore")
        return float(rdp_accountant.get_epsilon(delta))


def noise_multiplier(budget: PrivacyBudget) -> float:
    """The smallest noise multiplier, to one per cent, for which one release of counts and one training stay within
    the budget."""

    def epsilon(noise: float) -> float:
        return spent_epsilon([(noise, 1.0, 1), (noise, budget.rate, budget.steps)], budget.delta)

    low = high = MIN_NOISE
    while epsilon(high) > budget.epsilon:
        low, high = high, 2 * high
        if high > MAX_NOISE:
            raise InputError(
                f"dp_epsilon {budget.epsilon:g} with dp_delta {budget.delta:g} needs a noise multiplier above "
                f"{MAX_NOISE:g}; use a larger value"
            )
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if epsilon(middle) <= budget.epsilon else (middle, high)
    return high
