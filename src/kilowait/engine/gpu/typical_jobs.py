"""Typical job shapes for fragmentation scores and metrics, most frequent first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.engine.gpu.demand import Demand

__all__ = ["TYPICAL_SHARE", "Target", "typical_shapes"]

TYPICAL_SHARE = 0.95
"""Share of the jobs that the typical shapes cover."""

Target = tuple[int, int, int, int, int]
"""A job shape: thousandths of cores, of a GPU (0: no GPU), GPUs, row of the type labels, number of jobs."""


def typical_shapes(
    want: Demand, counted: npt.NDArray[np.bool_], likely: float = TYPICAL_SHARE
) -> list[Target]:
    """The most frequent shapes of the counted jobs, until they cover the share `likely`.

    Does not use Numba, because reports call it.

    >>> from kilowait.cluster import Cluster
    >>> from kilowait.engine.gpu.demand import resource_demand
    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2, 3], submit_s=[0] * 3, runtime_s=[9] * 3, nodes=[1] * 3, gpus=[1, 2, 1])
    >>> want = resource_demand(jobs, Cluster.preset("gpu-mixed"), "any", None, None)
    >>> typical_shapes(want, np.ones(3, bool))
    [(0, 1000, 1, 0, 2), (0, 1000, 2, 0, 1)]
    >>> typical_shapes(want, np.ones(3, bool), likely=0.5)
    [(0, 1000, 1, 0, 2)]
    """
    columns = (want.cpu, np.where(want.gpus > 0, want.gpu_milli, 0), want.gpus, want.label)
    rows, counts = np.unique(np.column_stack(columns)[counted], axis=0, return_counts=True)
    found: list[Target] = [(*row, count) for row, count in zip(rows.tolist(), counts.tolist(), strict=True)]
    found.sort(key=lambda target: (target[4], *target[:3], want.labels[target[3]]), reverse=True)
    covered = 0
    for place, target in enumerate(found):
        if covered >= likely * np.count_nonzero(counted):
            return found[:place]
        covered += target[4]
    return found
