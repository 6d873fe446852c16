"""Simulation settings: backfilling, walltime limits, scheduling passes, placement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral

from kilowait.errors import InputError, UnknownNameError

UNLIMITED = 2**62
"""Reservation depth of conservative backfilling."""
DOUBLE, STEPS, QUANTILE = 0, 1, 2
"""Codes of `OVERRUN_RULES`. The codes are defined here and not in the kernels, because this module must be importable
without Numba."""
_BACKFILL = {"none": 0, "easy": 1, "conservative": UNLIMITED}
OVERRUN_RULES = {"double": DOUBLE, "steps": STEPS, "quantile": QUANTILE}
"""Rules for the expected end of a running job that has exceeded it, by name."""


@dataclass(frozen=True)
class Settings:
    """Simulation settings; recorded in every execution log.

    >>> import kilowait as kw
    >>> jobs, cluster = kw.lublin(50, nodes=16, seed=1), kw.Cluster.from_nodes(16)
    >>> log = kw.simulate(jobs, cluster, "sjf", settings=Settings(backfill="conservative", at_limit="kill"))
    >>> log.run["backfill"], log.run["at_limit"]
    ('conservative', 'kill')
    """

    backfill: str | int = "easy"
    """none, easy, conservative, or the number of reservations per group."""
    at_limit: str = "extend"
    """extend: jobs run for their recorded run time; kill: they end at their limit, or at their estimate."""
    schedule_per: str = "instant"
    """One scheduling pass per instant, or per event."""
    placement: str = "first"
    """Node group of a job: first (the first that fits) or balance (the emptiest)."""
    dependencies: bool = True
    """Whether after_id and think_s delay submissions."""
    on_oversized: str = "error"
    """Jobs no group can hold: error, or drop (they leave on arrival)."""
    overrun: str = "double"
    """New expected run time of a running job that has exceeded it. double: doubled repeatedly; steps: increased by 1
    min, then 5 min, ...; quantile: its overrun_planned_s, then its limit. A limit in the future is an upper bound."""
    max_wait_s: float = math.inf
    """A job that has waited longer, seconds, goes before all others under any priority policy, a bound against
    starvation. Of several such jobs the one submitted first goes first. Infinite: no bound."""

    def __post_init__(self) -> None:
        for name, known in (
            ("at_limit", ("extend", "kill")),
            ("schedule_per", ("instant", "event")),
            ("placement", ("first", "balance")),
            ("on_oversized", ("error", "drop")),
            ("overrun", tuple(OVERRUN_RULES)),
        ):
            if getattr(self, name) not in known:
                raise UnknownNameError(f"{name} rule", str(getattr(self, name)), known)
        if not self.max_wait_s >= 0:
            raise InputError(f"max_wait_s is {self.max_wait_s}; give 0 or more seconds, or infinity for no bound")
        if isinstance(self.backfill, str):
            if self.backfill not in _BACKFILL:
                raise UnknownNameError("backfill mode", self.backfill, _BACKFILL)
        elif not _counts(self.backfill):
            raise InputError(f"backfill depth is {self.backfill}; give none, easy, conservative or a whole number >= 0")

    @property
    def depth(self) -> int:
        """Reservations per group."""
        return _BACKFILL[self.backfill] if isinstance(self.backfill, str) else min(int(self.backfill), UNLIMITED)


def _counts(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 0
