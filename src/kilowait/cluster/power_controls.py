"""Levers on a run: how nodes sleep, levels of speed, a budget of power. Plain numbers; what they cost is `energy`'s."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kilowait.errors import ClusterError

__all__ = ["PowerControls", "SleepPolicy", "StepFunction"]

StepFunction = tuple[tuple[float, int], ...]
"""A step function of time: (from this second on the log's clock, this value), rising; the first holds from ever."""


@dataclass(frozen=True)
class SleepPolicy:
    """How the nodes of a group of whole nodes sleep.

    >>> SleepPolicy(timeout_s=600, shutdown_s=6.1, wake_s=151.5).reserve
    ((-inf, 0),)
    """

    timeout_s: float
    """Idle for so long, a node falls asleep."""
    shutdown_s: float = 0.0
    """Seconds that takes."""
    wake_s: float = 0.0
    """Seconds it takes to wake; a job waits for its nodes."""
    reserve: StepFunction = ((-math.inf, 0),)
    """Idle nodes to be kept awake."""
    wake_ahead: bool = False
    """Whether nodes are woken in time for the earliest reservation."""

    def __post_init__(self) -> None:
        for name in ("timeout_s", "shutdown_s", "wake_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ClusterError(
                    f"{name} of sleeping nodes is {value}; it must be a number of seconds, 0 or more"
                )
        check_steps("the reserve of awake nodes", self.reserve)


@dataclass(frozen=True, eq=False)
class PowerControls:
    """What a run may pull besides the order of jobs. Arrays have the rows of the job table as it is given."""

    sleep: Mapping[str, SleepPolicy] = field(default_factory=dict)
    """By name of the group; others never sleep."""
    factor: npt.NDArray[np.float64] | None = None
    """(groups, jobs, levels): how many times as long a job runs there; level 0 is full speed. The groups are the
    cluster's, in order; a reservation's nodes are those of its group."""
    watts: npt.NDArray[np.int64] | None = None
    """(groups, jobs, levels): what it draws from the budget there."""
    preferred_level: npt.NDArray[np.int64] | None = None
    """(jobs,): the level a job runs at when the machine is not crowded; None: 0."""
    full_speed_backlog_nodes: int = -1
    """A pass is crowded, and jobs run at full speed, if more than so many nodes beyond the free ones are asked for;
    below 0 none is."""
    budget: StepFunction | None = None
    """Watts all jobs together may draw; None: no limit."""

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_steps("the power budget", self.budget)
            if self.watts is None:
                raise ClusterError(
                    "a power budget needs to know the watts of every job; give Levers(watts=...)"
                )
        if self.factor is not None and not (np.isfinite(self.factor) & (self.factor >= 1)).all():
            raise ClusterError(
                "factors of run time must be finite, and 1 or more: level 0 of the fastest group is 1"
            )
        if self.watts is not None and (self.watts < 0).any():
            raise ClusterError(f"a job draws {int(self.watts.min())} W from the budget; it must be 0 or more")
        shapes = {a.shape for a in (self.factor, self.watts) if a is not None}
        if len(shapes) > 1 or any(len(shape) != 3 for shape in shapes):
            raise ClusterError(
                f"factor and watts are tables of shapes {shapes}; both are (groups, jobs, levels)"
            )
        if self.preferred_level is not None:
            levels = next(iter(shapes))[2] if shapes else 1
            if ((self.preferred_level < 0) | (self.preferred_level >= levels)).any():
                raise ClusterError(f"preferred levels must lie between 0 and {levels - 1}")

    @property
    def levels(self) -> int:
        """How many levels there are, full speed included."""
        tables = [table for table in (self.factor, self.watts) if table is not None]
        return int(tables[0].shape[2]) if tables else 1


def check_steps(what: str, steps: StepFunction) -> None:
    """Raise unless these are steps of time with whole values, 0 or more."""
    times = [time for time, _ in steps]
    if not steps or times[0] != -math.inf or any(not a < b for a, b in pairwise(times)):
        raise ClusterError(f"{what} has steps at {times[:5]}; they begin with -inf and rise")
    if any(value < 0 or value != int(value) for _, value in steps):
        raise ClusterError(f"{what} must be whole numbers, 0 or more, at all times")
