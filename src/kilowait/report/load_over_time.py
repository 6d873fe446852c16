"""How much waits and how full the machine is over time, in nodes or, where they are given out singly, in GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.evaluation.gpu.timeline import gpu_backlog, gpu_timeline
from kilowait.evaluation.timeline import Timeline
from kilowait.jobs import ExecutionLog

__all__ = ["LoadOverTime", "load_over_time"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LoadOverTime:
    """Means in equal bins."""

    edge_s: Floats
    """One more than there are bins."""
    jobs: Floats
    """Jobs waiting."""
    asked: Floats
    """Nodes, or GPUs, that they ask for."""
    busy: Floats
    """Nodes busy, or GPUs held, per cent."""


def load_over_time(steps: Timeline, log: ExecutionLog, machine: Cluster | None, most: int) -> LoadOverTime:
    """Of a timeline of this log, in at most so many bins; in GPUs where a machine of placed nodes is given."""
    bins = steps.sampled(min(most, 4 * len(steps)))
    gpus = 0 if machine is None else sum(group.nodes * group.gpus for group in machine.groups)
    if machine is None or gpus == 0 or log.pieces is None:
        busy = 100.0 * bins.busy_nodes / np.maximum(bins.capacity_nodes, 1.0)
        return LoadOverTime(bins.edge_s, bins.waiting_jobs, bins.waiting_nodes, busy)
    edge = bins.edge_s
    whole = (float(edge[0]), float(edge[-1]))
    held = [used.mean(edge[:-1], edge[1:]) for used in gpu_timeline(log, machine, horizon_s=whole).values()]
    asked = gpu_backlog(log, machine, horizon_s=whole).mean(edge[:-1], edge[1:])
    return LoadOverTime(edge, bins.waiting_jobs, asked, 100.0 * np.sum(held, axis=0) / gpus)
