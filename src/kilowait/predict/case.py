"""Jobs, what is asked of them, and what was known at their submissions: what every model is given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.jobs import JobTable
from kilowait.predict.features import Features, feature_table
from kilowait.predict.targets import Target, runtime
from kilowait.predict.world import World

__all__ = ["Case", "case_of"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """All of it in the order of the jobs."""

    jobs: JobTable
    world: World
    target: Target
    features: Features

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def difference(self) -> Floats:
        """(n,) what models learn: ln(value) less the anchor; NaN where it is not known."""
        return np.log(np.maximum(self.target.values, 1.0)) - self.features.anchor


def case_of(jobs: JobTable, world: World, nodes: int) -> Case:
    """The run times of these jobs.

    Args:
        jobs: by (submit_s, job_id).
        world: when they started and ended.
        nodes: of the machine.

    >>> from kilowait.predict.world import recorded
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], estimate_s=[90], nodes=[1], wait_s=[0])
    >>> case_of(jobs, recorded(jobs), 4).target.name
    'runtime'
    """
    return Case(jobs, world, runtime(jobs, world), feature_table(jobs, world, nodes))
