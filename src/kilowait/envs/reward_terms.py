"""Rewards: named terms, weighted; the return of an episode is minus their weighted sum over its jobs.

Each term is a figure of the whole episode. It is paid as it accrues: what it is worth so far, if every waiting job
started now, less what that was at the step before. The steps of an episode so sum to the figure itself, whatever
was decided, and no credit is put off to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import JobTable

__all__ = ["TERMS", "Reward", "user_numbers"]

Floats = npt.NDArray[np.float64]

TERMS: dict[str, str] = {
    "slowdown": "mean bounded slowdown, as kilowait.metrics has it, less 1",
    "wait": "mean wait, hours",
    "sla": "share of the jobs that wait longer than the bound sla_s",
    "fairness": "mean over users of the mean bounded slowdown of their jobs, less 1",
}
"""What the return is made of, in the order of the columns of info["terms"]. All are costs: smaller is better."""


@dataclass(frozen=True)
class Reward:
    """Weights of the terms, and what counts as a violation.

    >>> Reward({"slowdown": 1, "sla": 10}, sla_s=3600).vector().tolist()
    [1.0, 0.0, 10.0, 0.0]
    """

    weights: Mapping[str, float]
    sla_s: float = 4 * 3600.0
    """A job that waits longer than this, seconds, violates the agreement."""
    terms: Mapping[str, str] = field(default_factory=lambda: TERMS)
    """The terms there are, in their order."""

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if name not in self.terms:
                raise UnknownNameError("reward term", name, self.terms)
            if not np.isfinite(weight):
                raise InputError(f"the weight of reward term {name!r} is {weight}; give a finite number")
        if not any(self.weights.values()):
            raise InputError("all weights of the reward are 0; give at least one term a weight")
        if not self.sla_s > 0:
            raise InputError(f"sla_s is {self.sla_s}; give a bound above 0 s")

    def vector(self) -> Floats:
        """The weights in the order of the terms."""
        return np.array([float(self.weights.get(name, 0.0)) for name in self.terms])


def user_numbers(jobs: JobTable) -> npt.NDArray[np.int64]:
    """Users numbered from 0 without gaps, all unknown ones as one.

    >>> user_numbers(
    ...     JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[1, 1], nodes=[1, 1], user=[7, 7])
    ... ).tolist()
    [0, 0]
    """
    return np.unique(jobs.column("user"), return_inverse=True)[1].astype(np.int64)
