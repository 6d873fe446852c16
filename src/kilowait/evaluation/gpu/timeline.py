"""Placed nodes over time: GPUs and nodes in use, as steps."""

from __future__ import annotations

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.gpu.allocations import WHOLE, places_of
from kilowait.evaluation.horizon import horizon_of
from kilowait.evaluation.job_measures import (
    Floats,
    Ints,
    counted_rows,
    waits,
)
from kilowait.jobs import ExecutionLog
from kilowait.series import Series

__all__ = ["gpu_backlog", "gpu_timeline", "in_use", "shown", "steps"]


def gpu_timeline(
    log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None
) -> dict[str, Series]:
    """GPUs in use over time by type; a part of a GPU counts as that part.

    They go from the first submission to the last end, or over the horizon asked for.

    >>> from kilowait.evaluation.gpu.example_run import two_jobs
    >>> used = gpu_timeline(*two_jobs())["T4"]
    >>> used.edge_s.tolist(), used.value.tolist()
    ([0.0, 10.0, 20.0], [2.0, 0.5])
    """
    places = places_of(log, cluster)
    horizon = shown(log, horizon_s)
    gpu_milli = np.rint(places.gpus * WHOLE).astype(np.int64)
    lines = {}
    for place, name in enumerate(places.types):
        if name:
            own = places.type == place
            time = np.concatenate((log.start_s[own], log.end_s[own]))
            used = steps(time, np.concatenate((gpu_milli[own], -gpu_milli[own])), 0, horizon)
            lines[name] = Series(used.edge_s, used.value / WHOLE, "GPUs")
    return lines


def gpu_backlog(
    log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None
) -> Series:
    """GPUs that waiting jobs ask for over time, parts as parts; jobs that were preempted wait again.

    It goes from the first submission to the last end, or over the horizon asked for.

    >>> from kilowait.evaluation.gpu.example_run import two_jobs
    >>> asked = gpu_backlog(*two_jobs())
    >>> asked.edge_s.tolist(), asked.value.tolist()
    ([0.0, 10.0, 20.0], [0.5, 0.0])
    """
    places, held = places_of(log, cluster), waits(log)
    gpu_milli = np.rint(places.job_gpus * WHOLE).astype(np.int64)[held.row]
    leaves = np.isfinite(held.to_s)
    time = np.concatenate((held.from_s, held.to_s[leaves]))
    asked = steps(time, np.concatenate((gpu_milli, -gpu_milli[leaves])), 0, shown(log, horizon_s))
    return Series(asked.edge_s, asked.value / WHOLE, "GPUs")


def shown(log: ExecutionLog, horizon_s: tuple[float, float] | None) -> tuple[float, float]:
    """The horizon of a picture; an error where the log has no length and none was given."""
    horizon = horizon_of(log, counted_rows(log, None), horizon_s)
    if not horizon[0] < horizon[1]:
        raise InputError("no job of the log ran for any time, so there is nothing to show; give horizon_s")
    return horizon


def steps(time_s: Floats, change: Ints, before: int, horizon: tuple[float, float]) -> Series:
    """Running sum of changes within the horizon; `before` is the sum before the first of them.

    >>> steps(np.array([5.0, 1.0, 5.0]), np.array([2, 1, -1]), 0, (0.0, 9.0)).value.tolist()
    [0.0, 1.0, 2.0]
    """
    order = np.argsort(time_s, kind="stable")
    time, total = time_s[order], before + np.cumsum(change[order])
    last = np.append(time[1:] != time[:-1], True)[: len(time)]  # what one instant brings about is one step
    time, total = time[last], total[last]
    first = np.searchsorted(time, horizon[0], side="right")
    stop = np.searchsorted(time, horizon[1], side="left")
    value = np.concatenate(([total[first - 1] if first else before], total[first:stop]))
    edge = np.concatenate(([horizon[0]], time[first:stop]))
    changed = np.append(True, value[1:] != value[:-1])
    return Series(np.append(edge[changed], horizon[1]), value[changed].astype(np.float64))


def in_use(unit: Ints, start_s: Floats, end_s: Floats, least: int = 1) -> tuple[Floats, Ints]:
    """Times and changes of the number of units that `least` intervals or more lie on; row i lies on ``unit[i]``.

    >>> time, change = in_use(np.array([7, 7, 8]), np.array([0.0, 1.0, 0.0]), np.array([2.0, 3.0, 1.0]))
    >>> time.tolist(), change.tolist()
    ([0.0, 3.0, 0.0, 1.0], [1, -1, 1, -1])
    """
    if len(unit) == 0:
        return np.empty(0), np.empty(0, np.int64)
    units, time = np.concatenate((unit, unit)), np.concatenate((start_s, end_s))
    order = np.lexsort((time, units))
    units, time = units[order], time[order]
    # Every unit ends up empty, so one sum runs through all of them.
    many = np.cumsum(np.where(order < len(unit), 1, -1))
    last = np.append((units[1:] != units[:-1]) | (time[1:] != time[:-1]), True)
    on = (many[last] >= least).astype(np.int64)
    change = np.diff(on, prepend=0)
    return time[last][change != 0], change[change != 0]
