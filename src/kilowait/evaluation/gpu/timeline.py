"""Timelines of node-level clusters: GPUs in use and requested GPUs over time, as step functions."""

from __future__ import annotations

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.gpu.allocations import WHOLE, node_allocations
from kilowait.evaluation.job_measures import Floats, Ints, evaluated_mask, horizon_of, waits
from kilowait.jobs import ExecutionLog
from kilowait.series import Series

__all__ = ["gpu_backlog", "gpu_timeline", "usage_changes", "timeline_horizon", "cumulative_steps"]


def gpu_timeline(
    log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None
) -> dict[str, Series]:
    """GPUs in use over time by type; fractional GPUs count as fractions.

    The series span the first submission to the last end, or the given horizon.

    >>> from kilowait.evaluation.gpu.allocations import two_jobs
    >>> used = gpu_timeline(*two_jobs())["T4"]
    >>> used.edge_s.tolist(), used.value.tolist()
    ([0.0, 10.0, 20.0], [2.0, 0.5])
    """
    allocations = node_allocations(log, cluster)
    horizon = timeline_horizon(log, horizon_s)
    gpu_milli = np.rint(allocations.gpus * WHOLE).astype(np.int64)
    series = {}
    for place, name in enumerate(allocations.types):
        if name:
            own = allocations.type == place
            time = np.concatenate((log.start_s[own], log.end_s[own]))
            used = cumulative_steps(time, np.concatenate((gpu_milli[own], -gpu_milli[own])), 0, horizon)
            series[name] = Series(used.edge_s, used.value / WHOLE, "GPUs")
    return series


def gpu_backlog(log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None) -> Series:
    """GPUs requested by waiting jobs over time, fractional GPUs as fractions; preempted jobs wait again.

    It spans the first submission to the last end, or the given horizon.

    >>> from kilowait.evaluation.gpu.allocations import two_jobs
    >>> backlog = gpu_backlog(*two_jobs())
    >>> backlog.edge_s.tolist(), backlog.value.tolist()
    ([0.0, 10.0, 20.0], [0.5, 0.0])
    """
    allocations, intervals = node_allocations(log, cluster), waits(log)
    gpu_milli = np.rint(allocations.job_gpus * WHOLE).astype(np.int64)[intervals.row]
    leaves = np.isfinite(intervals.to_s)
    time = np.concatenate((intervals.from_s, intervals.to_s[leaves]))
    backlog = cumulative_steps(
        time, np.concatenate((gpu_milli, -gpu_milli[leaves])), 0, timeline_horizon(log, horizon_s)
    )
    return Series(backlog.edge_s, backlog.value / WHOLE, "GPUs")


def timeline_horizon(log: ExecutionLog, horizon_s: tuple[float, float] | None) -> tuple[float, float]:
    """The horizon of a timeline; InputError if the log has zero length and no horizon is given."""
    horizon = horizon_of(log, evaluated_mask(log, None), horizon_s)
    if not horizon[0] < horizon[1]:
        raise InputError("no job of the log ran for more than 0 s, so there is no timeline; give horizon_s")
    return horizon


def cumulative_steps(time_s: Floats, change: Ints, before: int, horizon: tuple[float, float]) -> Series:
    """Cumulative sum of changes within the horizon; `before` is its value before the first change.

    >>> cumulative_steps(np.array([5.0, 1.0, 5.0]), np.array([2, 1, -1]), 0, (0.0, 9.0)).value.tolist()
    [0.0, 1.0, 2.0]
    """
    order = np.argsort(time_s, kind="stable")
    time, total = time_s[order], before + np.cumsum(change[order])
    last = np.append(time[1:] != time[:-1], True)[: len(time)]  # all changes at one instant are one step
    time, total = time[last], total[last]
    first = np.searchsorted(time, horizon[0], side="right")
    stop = np.searchsorted(time, horizon[1], side="left")
    value = np.concatenate(([total[first - 1] if first else before], total[first:stop]))
    edge = np.concatenate(([horizon[0]], time[first:stop]))
    changed = np.append(True, value[1:] != value[:-1])
    return Series(np.append(edge[changed], horizon[1]), value[changed].astype(np.float64))


def usage_changes(unit: Ints, start_s: Floats, end_s: Floats, least: int = 1) -> tuple[Floats, Ints]:
    """Times and changes of the number of units with at least `least` overlapping intervals; row i is on ``unit[i]``.

    >>> time, change = usage_changes(np.array([7, 7, 8]), np.array([0.0, 1.0, 0.0]), np.array([2.0, 3.0, 1.0]))
    >>> time.tolist(), change.tolist()
    ([0.0, 3.0, 0.0, 1.0], [1, -1, 1, -1])
    """
    if len(unit) == 0:
        return np.empty(0), np.empty(0, np.int64)
    units, time = np.concatenate((unit, unit)), np.concatenate((start_s, end_s))
    order = np.lexsort((time, units))
    units, time = units[order], time[order]
    # Every unit is empty at the end, so one cumulative sum over all units works.
    overlapping = np.cumsum(np.where(order < len(unit), 1, -1))
    last = np.append((units[1:] != units[:-1]) | (time[1:] != time[:-1]), True)
    on = (overlapping[last] >= least).astype(np.int64)
    change = np.diff(on, prepend=0)
    return time[last][change != 0], change[change != 0]
