"""Node types on which jobs can be placed, given the GPUs, cores and memory of single nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, NodeGroup
from kilowait.engine.gpu.demand import FULL_GPU, group_node_types, node_types

__all__ = ["UNLIMITED_MEMORY", "feasible_types", "node_memory"]

Ints = npt.NDArray[np.int64]
UNLIMITED_MEMORY = 2**60
"""Bytes of a node whose group does not give its memory."""


def node_memory(group: NodeGroup) -> int:
    """Bytes of a node; unlimited if the group does not give its memory."""
    return round(group.memory_gb * 1e9) if group.memory_gb else UNLIMITED_MEMORY


def feasible_types(
    requests: Any, rows: Ints, may_use: npt.NDArray[np.bool_], cluster: Cluster
) -> npt.NDArray[np.bool_]:
    """(rows, types): whether each job can be placed on the empty nodes of each type.

    `requests` has the arrays pieces, gpus, gpu_milli, cpu, memory and spread (a `Demand`, or job states), of which
    `rows` are computed; `may_use` is (rows, types).

    >>> from kilowait.engine.gpu.demand import resource_demand
    >>> from kilowait.jobs import JobTable
    >>> groups = (
    ...     NodeGroup("a", 4, 8, 0, 2, "T4", node_level=True),
    ...     NodeGroup("b", 1, 8, 0, 4, "V100", node_level=True),
    ... )
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[9, 9], nodes=[1, 2], gpus=[4, 4])
    >>> demand = resource_demand(jobs, Cluster(groups), "any", None, None)
    >>> feasible_types(demand, np.arange(2), np.ones((2, 2), bool), Cluster(groups)).tolist()
    [[False, True], [True, False]]
    """
    kinds = node_types(cluster)
    pieces, gpus, gpu_milli = requests.pieces[rows], requests.gpus[rows], requests.gpu_milli[rows]
    capacity = np.zeros((len(rows), len(kinds)))
    for group, its_type in zip(cluster.groups, group_node_types(cluster), strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            per_node = np.minimum(
                group.cores * FULL_GPU // requests.cpu[rows].astype(float),
                node_memory(group) // requests.memory[rows].astype(float),
            )
            shares = FULL_GPU // gpu_milli * group.gpus
            whole = group.gpus // gpus.astype(float)
        per_node = np.where(np.isnan(per_node), np.inf, per_node)
        on_gpus = np.where(gpu_milli < FULL_GPU, shares, whole)
        per_node = np.where(gpus > 0, np.minimum(per_node, on_gpus), per_node)
        per_node = np.where(requests.spread[rows] == 1, per_node, np.minimum(per_node, 1))
        capacity[:, kinds.index(its_type)] += np.where(per_node > 0, group.nodes * per_node, 0)
    return np.asarray((capacity >= pieces[:, None]) & may_use)
