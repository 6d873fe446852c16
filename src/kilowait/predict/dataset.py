"""Prediction datasets: jobs with their features and target values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kilowait.jobs import JobTable
from kilowait.predict.features import Features, features_for
from kilowait.predict.job_history import Floats, JobHistory
from kilowait.predict.targets import Target, runtime


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features and target of one prediction problem, one row per job."""

    jobs: JobTable
    times: JobHistory
    target: Target
    features: Features

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def difference(self) -> Floats:
        """(n,) the regression target: ln(value) less the anchor; NaN where it is not known."""
        return np.log(np.maximum(self.target.values, 1.0)) - self.features.anchor

    def inputs(self, rows: npt.NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
        """Features, anchor and upper bound of some of the jobs: what a fitted model predicts from."""
        return self.features.values[rows], self.features.anchor[rows], self.target.max_value[rows]

    def first(self, count: int) -> Dataset:
        """The first `count` jobs; their features do not depend on later jobs."""
        target, features, rows = self.target, self.features, slice(0, count)
        arrays = ("values", "known_s", "requested", "max_value", "scale", "modelled")
        return Dataset(
            self.jobs[rows],
            self.times[rows],
            replace(target, **{name: getattr(target, name)[rows] for name in arrays}),
            replace(
                features, values=features.values[rows], anchor=features.anchor[rows], request=features.request[rows]
            ),
        )


def make_dataset(jobs: JobTable, times: JobHistory, nodes: int, target: Target | None = None) -> Dataset:
    """Features and target of these jobs.

    Args:
        jobs: by (submit_s, job_id).
        times: when they started and ended.
        nodes: of the machine.
        target: what to predict; the run time unless given.

    >>> from kilowait.predict.job_history import from_log
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], estimate_s=[90], nodes=[1], wait_s=[0])
    >>> make_dataset(jobs, from_log(jobs), 4).target.name
    'runtime'
    """
    chosen = runtime(jobs, times) if target is None else target
    return Dataset(jobs, times, chosen, features_for(jobs, times, nodes, chosen))
