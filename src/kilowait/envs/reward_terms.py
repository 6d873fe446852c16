"""Reward terms of `kilowait/Batch-v0` and their weights; the return of an episode is minus their weighted sum.

Each term is a metric of the whole episode, charged as it accrues: its value if every waiting job started now, less that
value at the step before. The steps of an episode therefore sum to the metric, whatever decisions are taken, and no
credit is delayed to the end.
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

__all__ = ["TERMS", "Reward", "RewardWeights", "user_numbers"]

Floats = npt.NDArray[np.float64]
RewardWeights = Mapping[str | RewardTerm | Callable[..., Any], float] | Mapping[str, float]
"""Reward term to weight: the name of a built-in term, a `RewardTerm`, or a function with a name."""

TERMS: dict[str, str] = {
    "slowdown": "mean bounded slowdown, as kilowait.metrics defines it, less 1",
    "wait": "mean wait, hours",
    "sla": "share of the jobs that wait longer than the bound sla_s",
    "fairness": "mean over users of the mean bounded slowdown of their jobs, less 1",
}
"""Reward terms, in the order of the columns of info["terms"]. All are costs: smaller is better."""


@dataclass(frozen=True)
class Reward:
    """Weights of the reward terms, and the wait that violates the service level.

    >>> Reward({"slowdown": 1, "sla": 10}, sla_s=3600).vector().tolist()
    [1.0, 0.0, 10.0, 0.0]
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
