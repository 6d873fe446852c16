"""Node sleep: power asleep, and time and power of the transitions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kilowait.energy.power.number_checks import require

__all__ = ["SleepStates"]


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
