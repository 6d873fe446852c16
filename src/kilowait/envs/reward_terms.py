"""Reward terms of the environments and their weights; the return of an episode is minus their weighted sum.

Each term is a metric of the whole episode, charged as it accrues: its value so far, less that value at the step before.
The steps of an episode therefore sum to the metric, whatever decisions are taken, and no credit is delayed to the end.

The value so far is:

- in `kilowait/Batch-v0` and `kilowait/Energy-v0`: the value if every waiting job started now;
- in `kilowait/Gpu-v0`: the value if the simulation stopped now. Time in the system accrues for every job that has
  arrived and not finished, whether it waits or runs.

In `kilowait/Energy-v0` a job's power above its idle nodes is charged when it starts, for its whole run time. The power
of idle nodes, and the difference to it of nodes that sleep, shut down or boot, is charged as time passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.envs.custom_functions import RewardTerm, as_reward_term
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

Floats = npt.NDArray[np.float64]
RewardWeights = Mapping[str | RewardTerm | Callable[..., Any], float] | Mapping[str, float]
"""Reward term to weight: the name of a built-in term, a `RewardTerm`, or a function with a name."""

BACKLOG = "work of the waiting jobs, in hours of the full machine"
"""The backlog at a time. The work of a job is its nodes times its run time (with power controls: at full speed), on GPU
clusters its GPUs times its run time at speed 1. A preempted job counts with its whole work while it has no GPUs.

The time integral of the backlog is the sum of wait x work of the jobs: a wait that is weighted by the work of the job,
so large jobs are not delayed in favour of many small ones."""

TERMS: dict[str, str] = {
    "slowdown": "mean bounded slowdown, as kilowait.metrics defines it, less 1",
    "wait": "mean wait, hours",
    "sla": "share of the jobs that wait longer than the bound sla_s",
    "fairness": "mean over users of the mean bounded slowdown of their jobs, less 1",
    "backlog": "time integral of the backlog / jobs, hours^2; see BACKLOG",
}
"""Reward terms of `kilowait/Batch-v0`, in the order of the columns of info["terms"]. All are costs: smaller is better.
"""

ENERGY_TERMS: dict[str, str] = {
    "slowdown": "mean of turnaround over run time at full speed (at least 10 s), at least 1, less 1",
    "wait": "mean wait, hours",
    "sla": "share of the jobs that wait longer than the bound sla_s",
    "fairness": "mean over users of the mean slowdown of their jobs, less 1",
    "turnaround": "mean time from arrival to end, hours",
    "energy": "IT energy from the first arrival to the last end, kWh / jobs",
    "co2": "CO2e of the facility's energy over that time, kg / jobs; 0 without a carbon intensity",
    "cost": "cost of the facility's energy over that time / jobs; 0 without a price",
    "backlog": "time integral of the backlog / jobs, hours^2; see BACKLOG",
}
"""Reward terms of `kilowait/Energy-v0`, in order.

The slowdown equals that of `kilowait.metrics` where all jobs run at full speed. The latter divides by the run time at
the job's DVFS state, which would reward slow states."""

GPU_TERMS: dict[str, str] = {
    "jct": "mean job completion time, from joining the queue to the end, hours",
    "wait": "mean time without allocated GPUs, before the first start and between segments, hours",
    "slowdown": "mean of completion time over run time at speed 1 (at least 10 s), at least 1, less 1",
    "sla": "share of the jobs whose time without allocated GPUs is longer than the bound sla_s",
    "priority": "mean job completion time, hours, each job weighted by 1 + its priority",
    "lost": "work lost by preemption, GPU-hours at the speed of the job on the GPU type it ran on",
    "makespan": "from the first submission to the last end, hours",
    "idle": "unallocated GPU-hours up to the last end: GPUs x makespan x (1 - utilization)",
    "backlog": "time integral of the backlog / jobs, hours^2; see BACKLOG",
}
"""Reward terms of `kilowait/Gpu-v0`, in order.

The slowdown differs from that of `kilowait.metrics` where speeds differ or work is lost: the latter divides by the time
for which GPUs were allocated, which would reward slow GPUs. Where all speeds are 1 and no job is preempted they are
equal."""


@dataclass(frozen=True)
class Reward:
    """Weights of the reward terms, and the wait that violates the service level.

    >>> Reward({"slowdown": 1, "sla": 10}, sla_s=3600).vector().tolist()
    [1.0, 0.0, 10.0, 0.0, 0.0]
    """

    weights: RewardWeights
    sla_s: float = 4 * 3600.0
    """A job that waits longer than this, seconds, violates the service level."""
    terms: Mapping[str, str] = field(default_factory=lambda: TERMS)
    """Built-in terms and their descriptions, in order."""

    def __post_init__(self) -> None:
        names: set[str] = set()
        for key, weight in self.weights.items():
            if isinstance(key, str):
                name = key
                if name not in self.terms:
                    raise UnknownNameError("reward term", name, self.terms)
            else:
                name = as_reward_term(key).name
                if name in self.terms or name in names:
                    raise InputError(
                        f"two reward terms are named {name!r}; give the custom term another name: "
                        "RewardTerm(name, function)"
                    )
            names.add(name)
            if not np.isfinite(weight):
                raise InputError(f"the weight of reward term {name!r} is {weight}; give a finite number")
        if not any(self.weights.values()):
            raise InputError("all weights of the reward are 0; give at least one term a weight")
        if not self.sla_s > 0:
            raise InputError(f"sla_s is {self.sla_s}; give a bound above 0 s")

    def vector(self) -> Floats:
        """The weights of the built-in terms, in their order."""
        weights: Mapping[Any, float] = self.weights
        return np.array([float(weights.get(name, 0.0)) for name in self.terms])

    def custom_terms(self) -> dict[RewardTerm, float]:
        """The weights of the custom terms."""
        return {as_reward_term(key): float(weight) for key, weight in self.weights.items() if not isinstance(key, str)}


def user_numbers(jobs: JobTable) -> npt.NDArray[np.int64]:
    """Users numbered from 0 without gaps; all unknown users share one number.

    >>> user_numbers(JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[1, 1], nodes=[1, 1], user=[7, 7])).tolist()
    [0, 0]
    """
    return np.unique(jobs.column("user"), return_inverse=True)[1].astype(np.int64)


def default_reward(
    reward: RewardWeights | None, preferences: Mapping[str, float] | None, default: Mapping[str, float]
) -> RewardWeights:
    """The fixed weights. Where preferences are sampled, the default weights are placeholders; the reward does not use
    them."""
    if reward is not None and preferences is not None:
        raise InputError("both reward and preferences are given; leave one of the two out")
    return default if reward is None else reward
