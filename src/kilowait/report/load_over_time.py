"""Backlog and utilization over time, in nodes or, on node-level (GPU) clusters, in GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.evaluation.gpu.timeline import gpu_backlog, gpu_timeline
from kilowait.evaluation.timeline import Timeline
from kilowait.jobs import ExecutionLog

__all__ = ["load_over_time"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LoadOverTime:
    """Mean backlog and utilization in bins of equal length."""

    edge_s: Floats
    """Bin edges, seconds; one more than there are bins."""
    jobs: Floats
    """Jobs waiting."""
    requested: Floats
    """Nodes, or GPUs, that the waiting jobs request."""
    busy: Floats
    """Nodes busy, or GPUs allocated, per cent."""


def load_over_time(steps: Timeline, log: ExecutionLog, machine: Cluster | None, max_bins: int) -> LoadOverTime:
    """Backlog and utilization of a log in at most `most` bins; in GPUs where a node-level cluster is given."""
    bins = steps.sampled(min(max_bins, 4 * len(steps)))
    gpus = 0 if machine is None else sum(group.nodes * group.gpus for group in machine.groups)
    if machine is None or gpus == 0 or log.pieces is None:
        busy = 100.0 * bins.busy_nodes / np.maximum(bins.capacity_nodes, 1.0)
        return LoadOverTime(bins.edge_s, bins.waiting_jobs, bins.waiting_nodes, busy)
    edge = bins.edge_s
    horizon_s = (float(edge[0]), float(edge[-1]))
    allocated = [used.mean(edge[:-1], edge[1:]) for used in gpu_timeline(log, machine, horizon_s=horizon_s).values()]
    requested = gpu_backlog(log, machine, horizon_s=horizon_s).mean(edge[:-1], edge[1:])
    return LoadOverTime(edge, bins.waiting_jobs, requested, 100.0 * np.sum(allocated, axis=0) / gpus)
