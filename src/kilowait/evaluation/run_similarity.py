"""Similarity of the runs of a real and a synthetic workload under the same policy on the same machine.

The jobs differ and cannot be paired, so distributions are compared. Waits and bounded slowdowns are those of the
started jobs; backlog (nodes requested by waiting jobs) and utilization are hourly means, from the first
submission to the last end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kilowait.evaluation.job_measures import started_jobs
from kilowait.evaluation.timeline import timeline
from kilowait.jobs import ExecutionLog
from kilowait.series import Floats
from kilowait.synth.fidelity.distances import EmpiricalDistributions, distance, empirical_distributions

BOUND_S = 10.0
HOUR_S = 3600.0
NEAR = 0.15
"""Means are near if their relative difference to the real run is at most this."""
STEPS = 360
"""Steps of a series stored for plotting."""


@dataclass(frozen=True)
class RunSimilarity:
    """Similarity of one quantity in two runs."""

    name: str
    """wait_s, bsld, backlog_nodes or utilization."""
    real: float
    """Mean."""
    synthetic: float
    ks: float
    """Kolmogorov-Smirnov statistic: largest difference of the two distribution functions."""
    wasserstein: float
    """Wasserstein distance of the two distributions, in the quantity's unit."""
    wasserstein_share: float
    """Wasserstein distance divided by the standard deviation in the real run."""

    @property
    def ratio(self) -> float:
        """Mean of the synthetic run over that of the real run; 1 if both are 0, NaN if only the real one is 0."""
        if self.real > 0:
            return self.synthetic / self.real
        return 1.0 if self.synthetic == self.real else math.nan

    @property
    def near(self) -> bool:
        """Whether the means are within 15 % of each other.

        >>> [RunSimilarity("wait_s", 100, made, 0, 0, 0).near for made in (86, 114, 116)]
        [True, True, False]
        """
        return abs(self.ratio - 1.0) <= NEAR


def compare_runs(real: Mapping[str, Floats], synthetic: Mapping[str, Floats]) -> tuple[RunSimilarity, ...]:
    """Compare the distributions of two runs; a quantity without values in one of them is left out."""
    similarities = []
    for name, values in real.items():
        if len(values) and len(synthetic[name]):
            distances = distance(name, values, synthetic[name])
            similarities.append(
                RunSimilarity(
                    name,
                    float(values.mean()),
                    float(synthetic[name].mean()),
                    distances.ks,
                    distances.wasserstein,
                    distances.wasserstein_share,
                )
            )
    return tuple(similarities)


def share_curves(real: Mapping[str, Floats], synthetic: Mapping[str, Floats]) -> dict[str, EmpiricalDistributions]:
    """The distribution functions compared by `compare_runs`, for plotting."""
    return {
        name: empirical_distributions(values, synthetic[name])
        for name, values in real.items()
        if len(values) and len(synthetic[name])
    }


def run_distributions(log: ExecutionLog) -> dict[str, Floats]:
    """Wait (s) and bounded slowdown of every started job, backlog (nodes) and utilization of every hour."""
    ran = started_jobs(log, BOUND_S)
    hours = _steps(log, None)
    return {
        "wait_s": ran.wait_s,
        "bsld": ran.bsld,
        "backlog_nodes": hours.backlog_nodes,
        "utilization": hours.utilization,
    }


@dataclass(frozen=True, eq=False)
class BinnedSeries:
    """Backlog and utilization of a run over time, in equal steps."""

    step_s: float
    backlog_nodes: Floats
    """Mean over each step."""
    utilization: Floats


def series_of_run(log: ExecutionLog, steps: int = STEPS) -> BinnedSeries:
    """Backlog and utilization from the first submission on, in `steps` steps; empty for a log of zero length."""
    return _steps(log, steps)


def _steps(log: ExecutionLog, steps: int | None) -> BinnedSeries:
    """The series in the given number of steps, or in steps of about an hour."""
    over = timeline(log)
    if len(over) < 2:
        return BinnedSeries(HOUR_S, np.empty(0), np.empty(0))
    length_s = float(over.time_s[-1] - over.time_s[0])
    bins = over.sampled(max(1, round(length_s / HOUR_S)) if steps is None else steps)
    busy = bins.busy_nodes / np.maximum(bins.capacity_nodes, 1.0)
    return BinnedSeries(length_s / len(busy), bins.waiting_nodes, busy)
