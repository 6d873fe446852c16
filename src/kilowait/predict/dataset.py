"""Prediction datasets: jobs with their features and target values."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kilowait.jobs import JobTable
from kilowait.predict.features import TARGET_PREFIX, Features, features_for
from kilowait.predict.job_history import Floats, JobHistory
from kilowait.predict.targets import Target, runtime

MIN_NODE_W = 0.001
"""Minimum of a typical power of a node, watts."""


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

    @property
    def has_measured_values(self) -> bool:
        """Whether the target of any job is known, and is not a value of a power model."""
        return bool((np.isfinite(self.target.values) & ~self.target.modelled).any())

    def without_earlier_values(self, node_w: float) -> Dataset:
        """The same jobs without the features and the anchor that depend on earlier values of power or energy.

        The anchor becomes a fixed power of each node, for energy times the anchor of the run time, so that it is
        known on a log without measured power too.

        Args:
            node_w: power of a node in the anchor, watts.
        """
        table = self.features
        kept = [column for column, name in enumerate(table.names) if not name.startswith(TARGET_PREFIX)]
        anchor = np.log(node_w * self.target.scale) + self._log_time
        names = tuple(table.names[column] for column in kept)
        return replace(self, features=replace(table, names=names, values=table.values[:, kept], anchor=anchor))

    def typical_node_w(self, count: int) -> float:
        """Median power of a node of the first `count` jobs with a known power or energy, watts.

        The energy of a job is divided by the anchor of its run time.
        """
        node_w = self.target.values / self.target.scale / np.exp(self._log_time)
        return float(np.nanmedian(np.maximum(node_w[:count], MIN_NODE_W)))

    @property
    def _log_time(self) -> Floats | float:
        """(n,) ln of the time by which a power is multiplied, seconds: for energy the anchor of the run time."""
        if self.target.name != "energy":
            return 0.0
        anchor: Floats = self.features.values[:, self.features.names.index("anchor")]
        return anchor


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
