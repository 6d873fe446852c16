"""What is to be predicted of a job: its value where it is known, since when, and what it cannot be beyond."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.jobs import JobTable
from kilowait.predict.world import UNKNOWN_REQUEST_S, World, request_s

__all__ = ["Target", "runtime"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Target:
    """A quantity that a job has and that nobody knows when it is submitted."""

    name: str
    unit: str
    values: Floats
    """(n,) NaN: not known, so neither learned from nor judged."""
    known_s: Floats
    """(n,) since when it is known, seconds on the log's clock; inf: never."""
    asked: Floats
    """(n,) what the user said it would be; NaN: nothing."""
    most: Floats
    """(n,) what it cannot be beyond; inf where there is no such bound."""
    scale: Floats
    """(n,) known at submission; jobs are compared by value / scale."""
    usual: float
    """Value / scale of a job of which nothing at all is known."""
    labels: str
    """Where the values come from."""

    def __len__(self) -> int:
        return len(self.values)

    def logarithm(self) -> Floats:
        """(n,) ln(value / scale), values below 1 counted as 1."""
        return np.asarray(np.log(np.maximum(self.values, 1.0) / self.scale), np.float64)


def runtime(jobs: JobTable, world: World) -> Target:
    """The run time, seconds: known when a job has ended, asked for by its user, who is held to it.

    >>> from kilowait.predict.world import recorded
    >>> jobs = JobTable(job_id=[1], submit_s=[5], runtime_s=[60], estimate_s=[90], nodes=[2], wait_s=[10])
    >>> target = runtime(jobs, recorded(jobs))
    >>> target.known_s.tolist(), target.most.tolist()
    ([75.0], [90.0])
    """
    asked = request_s(jobs)
    return Target(
        name="runtime",
        unit="s",
        values=jobs["runtime_s"],
        known_s=world.end_s,
        asked=asked,
        most=np.nan_to_num(asked, nan=np.inf),
        scale=np.ones(len(jobs)),
        usual=UNKNOWN_REQUEST_S,
        labels="run times of the log",
    )
