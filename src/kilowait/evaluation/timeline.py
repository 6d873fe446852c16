"""Timelines of a run: waiting jobs, busy nodes and capacity; on node-level clusters GPUs in use and requested GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kilowait.cluster import Cluster
from kilowait.errors import InputError
from kilowait.evaluation.allocations import WHOLE, node_allocations
from kilowait.evaluation.job_measures import capacity_at, evaluated_mask, horizon_of, waits
from kilowait.jobs import ExecutionLog
from kilowait.series import Floats, Ints, Series


def gpu_timeline(
    log: ExecutionLog, cluster: Cluster, *, horizon_s: tuple[float, float] | None = None
) -> dict[str, Series]:
    """GPUs in use over time by type; fractional GPUs count as fractions.

    The series span the first submission to the last end, or the given horizon.

    >>> from kilowait.evaluation.allocations import two_jobs
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

    >>> from kilowait.evaluation.allocations import two_jobs
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


@dataclass(frozen=True, eq=False)
class TimelineBins:
    """Time averages in bins of equal length; bin i goes from ``edge_s[i]`` to ``edge_s[i + 1]``."""

    edge_s: Floats
    """Bin edges, one more than bins."""
    waiting_jobs: Floats
    waiting_nodes: Floats
    busy_nodes: Floats
    capacity_nodes: Floats


@dataclass(frozen=True, eq=False)
class Timeline:
    """Step functions of time: row i holds from ``time_s[i]`` until ``time_s[i + 1]``.

    The times are strictly increasing; between the first and the last, at least one value changes at each. Intervals
    of length 0 (a job that does not wait, or runs for 0 s) do not appear.
    """

    time_s: Floats
    waiting_jobs: Ints
    waiting_nodes: Ints
    """Nodes requested by the waiting jobs."""
    busy_nodes: Ints
    capacity_nodes: Ints

    def __len__(self) -> int:
        return len(self.time_s)

    def sampled(self, bins: int) -> TimelineBins:
        """Exact means over `bins` bins of equal length, for plots.

        >>> steps = np.array([4, 0])
        >>> Timeline(np.array([0.0, 30.0]), steps, steps, steps, steps).sampled(2).busy_nodes.tolist()
        [4.0, 4.0]
        """
        if bins < 1:
            raise InputError(f"{bins} bins; give at least 1")
        if len(self) < 2:
            raise InputError(f"the timeline has {len(self)} instant(s) and no duration to divide into bins")
        edge = np.linspace(self.time_s[0], self.time_s[-1], bins + 1)
        return TimelineBins(
            edge,
            self._means(self.waiting_jobs, edge),
            self._means(self.waiting_nodes, edge),
            self._means(self.busy_nodes, edge),
            self._means(self.capacity_nodes, edge),
        )

    def _means(self, steps: Ints, edge: Floats) -> Floats:
        area = np.concatenate(([0.0], np.cumsum(steps[:-1] * np.diff(self.time_s))))
        return np.diff(np.interp(edge, self.time_s, area)) / np.diff(edge)


def timeline(log: ExecutionLog) -> Timeline:
    """Waiting jobs, waiting nodes, busy nodes and capacity of the machine, exact at every event.

    It spans the first to the last time at which a job joins or leaves the queue, starts or ends. Jobs
    that never start wait to the end, or until they are cancelled; preempted jobs wait again until they resume. On
    node-level clusters a node is busy while at least one job runs on it. Empty for a log without jobs.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[20, 20], nodes=[4, 2])
    >>> log = kw.simulate(jobs, kw.Cluster.from_nodes(4), policy="fcfs")
    >>> over = timeline(log)
    >>> over.time_s.tolist(), over.waiting_jobs.tolist(), over.busy_nodes.tolist()
    ([0.0, 20.0, 40.0], [1, 0, 0], [4, 2, 0])
    """
    size = log.size
    waited = waits(log)
    from_s, to_s = waited.from_s, waited.to_s
    leaves = np.isfinite(to_s)
    events = np.unique(np.concatenate((from_s, to_s[leaves], log.start_s, log.end_s)))
    if len(events) == 0:
        empty = np.empty(0, np.int64)
        return Timeline(np.empty(0), empty, empty, empty, empty)
    changes = log.capacity_s[(log.capacity_s > events[0]) & (log.capacity_s < events[-1])]
    time = np.union1d(events, changes) if len(changes) else events

    def steps(start: Floats, end: Floats, up: Ints, down: Ints) -> Ints:
        change = np.zeros(len(time), np.int64)
        np.add.at(change, np.searchsorted(time, start), up)
        np.subtract.at(change, np.searchsorted(time, end), down)
        return np.cumsum(change)

    requested = size[waited.row]
    one = np.ones(len(requested), np.int64)
    waiting_jobs = steps(from_s, to_s[leaves], one, one[leaves])
    waiting_nodes = steps(from_s, to_s[leaves], requested, requested[leaves])
    busy_nodes = steps(*_busy(log))
    changed = np.ones(len(time), bool)
    capacity = capacity_at(log, time)
    columns = (waiting_jobs, waiting_nodes, busy_nodes, capacity)
    changed[1:-1] = np.any([np.diff(column)[:-1] != 0 for column in columns], axis=0)
    return Timeline(time[changed], *(column[changed] for column in columns))


def _busy(log: ExecutionLog) -> tuple[Floats, Floats, Ints, Ints]:
    """Times at which nodes become busy and free, and the numbers of nodes."""
    if log.pieces is None:
        used = log.size[log.job]
        return log.start_s, log.end_s, used, used
    segment = log.pieces.segment
    time, change = usage_changes(log.pieces.node, log.start_s[segment], log.end_s[segment])
    increase = change > 0
    return time[increase], time[~increase], change[increase], -change[~increase]
