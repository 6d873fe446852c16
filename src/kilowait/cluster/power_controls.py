"""Power controls of a run: node sleep, DVFS states and a power budget. Package `energy` computes their power."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kilowait.errors import ClusterError

StepFunction = tuple[tuple[float, int], ...]
"""A step function of time: pairs (start in log seconds, value) with increasing starts; the first start is -inf."""


@dataclass(frozen=True)
class SleepPolicy:
    """Sleep settings of the nodes of an exclusive node group.

    >>> SleepPolicy(timeout_s=600, shutdown_s=6.1, wake_s=151.5).reserve
    ((-inf, 0),)
    """

    timeout_s: float
    """Idle time after which a node goes to sleep, seconds."""
    shutdown_s: float = 0.0
    """Time to shut a node down, seconds."""
    wake_s: float = 0.0
    """Time to wake a node, seconds; a job starts when its nodes are awake."""
    reserve: StepFunction = ((-math.inf, 0),)
    """Number of idle nodes kept awake over time."""
    wake_ahead: bool = False
    """Whether nodes are woken ahead of the earliest reservation."""

    def __post_init__(self) -> None:
        for name in ("timeout_s", "shutdown_s", "wake_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ClusterError(f"{name} of a sleep policy is {value}; it must be a number of seconds, 0 or more")
        check_steps("the reserve of awake nodes", self.reserve)


@dataclass(frozen=True, eq=False)
class PowerControls:
    """Power controls of a run. Arrays have the rows of the given job table.

    `kilowait.energy.resolve_controls` computes them from a text and a power model; given directly they need none.

    >>> controls = PowerControls(sleep={"nodes": SleepPolicy(timeout_s=600.0, wake_s=120.0)})
    >>> controls.levels, controls.budget
    (1, None)
    """

    sleep: Mapping[str, SleepPolicy] = field(default_factory=dict)
    """Sleep policy by group name; nodes of other groups never sleep."""
    factor: npt.NDArray[np.float64] | None = None
    """(groups, jobs, levels): slowdown of a job at each DVFS level; level 0 is full speed. Groups are in the cluster's
    order; nodes of a reservation use the values of its group."""
    watts: npt.NDArray[np.int64] | None = None
    """(groups, jobs, levels): power counted against the budget, watts."""
    preferred_level: npt.NDArray[np.int64] | None = None
    """(jobs,): DVFS level of a job when the backlog is small; None: 0."""
    full_speed_backlog_nodes: int = -1
    """Jobs start at full speed in a pass if the queue asks for more than this many nodes beyond the free ones; a
    negative value disables this."""
    budget: StepFunction | None = None
    """Power budget of all jobs together, watts; None: no limit."""

    def __post_init__(self) -> None:
        if self.budget is not None:
            check_steps("the power budget", self.budget)
            if self.watts is None:
                raise ClusterError("a power budget needs the power of every job; give PowerControls(watts=...)")
        if self.factor is not None and not (np.isfinite(self.factor) & (self.factor >= 1)).all():
            raise ClusterError("run-time factors must be finite and at least 1: level 0 of the fastest group is 1")
        if self.watts is not None and (self.watts < 0).any():
            raise ClusterError(f"the power of a job is {int(self.watts.min())} W; it must be 0 or more")
        shapes = {a.shape for a in (self.factor, self.watts) if a is not None}
        if len(shapes) > 1 or any(len(shape) != 3 for shape in shapes):
            raise ClusterError(f"factor and watts have the shapes {shapes}; both must be (groups, jobs, levels)")
        if self.preferred_level is not None:
            levels = next(iter(shapes))[2] if shapes else 1
            if ((self.preferred_level < 0) | (self.preferred_level >= levels)).any():
                raise ClusterError(f"preferred levels must lie between 0 and {levels - 1}")

    @property
    def levels(self) -> int:
        """Number of DVFS levels, full speed included."""
        tables = [table for table in (self.factor, self.watts) if table is not None]
        return int(tables[0].shape[2]) if tables else 1


def check_steps(what: str, steps: StepFunction) -> None:
    """Raise unless `steps` is a step function of time with whole values, 0 or more."""
    times = [time for time, _ in steps]
    if not steps or times[0] != -math.inf or any(not a < b for a, b in pairwise(times)):
        raise ClusterError(f"{what} has steps at {times[:5]}; they must begin with -inf and increase")
    if any(value < 0 or value != int(value) for _, value in steps):
        raise ClusterError(f"{what} must be whole numbers, 0 or more, at all times")
