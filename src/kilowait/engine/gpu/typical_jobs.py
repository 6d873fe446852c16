"""Typical job shapes for fragmentation scores and metrics, most frequent first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.engine.gpu.demand import Demand

__all__ = ["TYPICAL_SHARE", "TypicalShape", "typical_shapes"]

TYPICAL_SHARE = 0.95
"""Share of the jobs that the typical shapes cover."""

TypicalShape = tuple[int, int, int, int, int]
"""A job shape: thousandths of cores, of a GPU (0: no GPU), GPUs, row of the type labels, number of jobs."""


def typical_shapes(demand: Demand, counted: npt.NDArray[np.bool_], share: float = TYPICAL_SHARE) -> list[TypicalShape]:
    """The most frequent shapes of the counted jobs that together cover `share` of them.

    Does not use Numba, because reports call it.

    >>> from kilowait.cluster import Cluster
    >>> from kilowait.engine.gpu.demand import resource_demand
    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2, 3], submit_s=[0] * 3, runtime_s=[9] * 3, nodes=[1] * 3, gpus=[1, 2, 1])
    >>> demand = resource_demand(jobs, Cluster.preset("gpu-mixed"), "any", None, None)
    >>> typical_shapes(demand, np.ones(3, bool))
    [(0, 1000, 1, 0, 2), (0, 1000, 2, 0, 1)]
    >>> typical_shapes(demand, np.ones(3, bool), share=0.5)
    [(0, 1000, 1, 0, 2)]
    """
    columns = (demand.cpu, np.where(demand.gpus > 0, demand.gpu_milli, 0), demand.gpus, demand.label)
    rows, counts = np.unique(np.column_stack(columns)[counted], axis=0, return_counts=True)
    shapes: list[TypicalShape] = [(*row, count) for row, count in zip(rows.tolist(), counts.tolist(), strict=True)]
    shapes.sort(key=lambda shape: (shape[4], *shape[:3], demand.labels[shape[3]]), reverse=True)
    covered = 0
    for i, shape in enumerate(shapes):
        if covered >= share * np.count_nonzero(counted):
            return shapes[:i]
        covered += shape[4]
    return shapes
