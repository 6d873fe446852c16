"""How to replay: backfilling, at_limit rule, schedule_per, placement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kilowait.engine.kernels.overrun import DOUBLE, QUANTILE, STEPS
from kilowait.engine.kernels.state import UNLIMITED
from kilowait.errors import InputError, UnknownNameError

__all__ = ["OVERRUN", "Settings"]

_BACKFILL = {"none": 0, "easy": 1, "conservative": UNLIMITED}
OVERRUN = {"double": DOUBLE, "steps": STEPS, "quantile": QUANTILE}
"""What a planner believes of a running job that has overrun its belief, by name."""


@dataclass(frozen=True)
class Settings:
    """How to replay; recorded with every log."""

    backfill: str | int = "easy"
    """none, easy, conservative, or the number of reservations per group."""
    at_limit: str = "extend"
    """extend: jobs run as long as the log says; kill: they end at their limit, or at their estimate."""
    schedule_per: str = "instant"
    """One scheduling pass per instant, or per event."""
    placement: str = "first"
    """Of several groups the first that fits, or balance: the emptiest."""
    dependencies: bool = True
    """Whether after_id and think_s hold jobs back."""
    on_oversized: str = "error"
    """Jobs no group can hold: error, or drop (they leave on arrival)."""
    overrun: str = "double"
    """A running job that overrun what planners believe is now believed to take: double, again and again; steps: a
    minute more, then 5, ...; quantile: its overrun_planned_s, then its limit. Never more than a limit that
    lies ahead."""

    def __post_init__(self) -> None:
        for name, known in (
            ("at_limit", ("extend", "kill")),
            ("schedule_per", ("instant", "event")),
            ("placement", ("first", "balance")),
            ("on_oversized", ("error", "drop")),
            ("overrun", tuple(OVERRUN)),
        ):
            if getattr(self, name) not in known:
                raise UnknownNameError(f"{name} rule", str(getattr(self, name)), known)
        if isinstance(self.backfill, str):
            if self.backfill not in _BACKFILL:
                raise UnknownNameError("backfill mode", self.backfill, _BACKFILL)
        elif not _counts(self.backfill):
            raise InputError(
                f"backfill depth is {self.backfill}; give none, easy, conservative or a whole number >= 0"
            )

    @property
    def depth(self) -> int:
        """Reservations per group."""
        return (
            _BACKFILL[self.backfill] if isinstance(self.backfill, str) else min(int(self.backfill), UNLIMITED)
        )


def _counts(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 0
