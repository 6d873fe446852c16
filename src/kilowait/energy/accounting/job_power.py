"""Power and nodes of the segments of a log, the intervals of constant power, and the least energy of its jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.energy.power import DvfsTable, PowerModel, UtilizationProfile, job_power_w
from kilowait.energy.power.partial_node_power import joules_by_group
from kilowait.energy.power.utilization import unique_classes
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.series import Floats, Ints, Series


def weighted_sum(amount: Floats, weight: Floats) -> float:
    """The sum of the products.

    This is not `np.dot` because that starts threads, and on a busy machine waiting for them takes longer than the sum.

    >>> weighted_sum(np.array([1.0, 2.0]), np.array([10.0, 100.0]))
    210.0
    """
    return float(np.einsum("i,i->", amount, weight))


@dataclass(frozen=True, eq=False)
class TimeGrid:
    """Time intervals (cells): cell i is ``edge_s[i]`` to ``edge_s[i + 1]``; segment starts and ends are edges."""

    edge_s: Floats
    begin: Ints
    """Per segment of the log: index of the edge at which it starts, clipped to the horizon."""
    end: Ints
    """Per segment: index of the edge at which it ends, clipped to the horizon."""
    ran_s: Floats
    """Per segment: run time within the horizon."""
    others: tuple[Ints, ...] = ()
    """Edge indices of the further times of the grid, list by list, clipped to the horizon."""

    def __len__(self) -> int:
        return len(self.edge_s) - 1

    @cached_property
    def length_s(self) -> Floats:
        """Length of each cell."""
        return np.diff(self.edge_s)

    def integral(self, value: Floats) -> float:
        """Integral of cell values over the whole grid."""
        return weighted_sum(value, self.length_s)

    @cached_property
    def _idle_cells(self) -> Ints:
        """The cells in which no segment runs."""
        return self._cells_without(self.begin, self.end)

    def _cells_without(self, begin: Ints, end: Ints) -> Ints:
        """The cells in which none of these segments runs."""
        size = len(self) + 1
        number = np.bincount(begin, minlength=size)
        number -= np.bincount(end, minlength=size)
        np.cumsum(number, out=number)
        return np.flatnonzero(number[:-1] <= 0)

    def running(self, amount: Floats, rows: Ints | None = None) -> Floats:
        """Sum of an amount over the segments that run in each cell; exactly 0 in cells without segments."""
        begin, end = (self.begin, self.end) if rows is None else (self.begin[rows], self.end[rows])
        size = len(self) + 1
        total = np.bincount(begin, amount, size).astype(np.float64, copy=False)  # int64 for empty input
        total -= np.bincount(end, amount, size)
        np.cumsum(total, out=total)
        # Starts and ends leave rounding errors, which must not remain after the last job.
        total[self._idle_cells if rows is None else self._cells_without(begin, end)] = 0.0
        return np.maximum(total, 0.0, out=total)[:-1]

    def steps(self, time_s: npt.ArrayLike, value: npt.ArrayLike, before: float = 0.0) -> Floats:
        """Step function: ``value[i]`` from ``time_s[i]`` on, `before` before the first; times are increasing edges."""
        index = np.searchsorted(self.edge_s[:-1], np.asarray(time_s, np.float64), side="left")
        return self.steps_at(index, value, before)

    def steps_at(self, index: Ints, value: npt.ArrayLike, before: float = 0.0) -> Floats:
        """The same, given the indices of the edges at which the values begin."""
        cells = np.diff(np.concatenate(([0], index, [len(self)])))
        values = np.concatenate(([before], np.asarray(value, np.float64)))
        return np.repeat(values, cells)

    def series(self, series: Series) -> Floats:
        """Values of a series, cell by cell; it must cover the grid and its edges must be edges of the grid."""
        return self.steps(series.edge_s[1:-1], series.value[1:], float(series.value[0]))

    def over_segments(self, value: Floats) -> Floats:
        """Integral of cell values over each segment, from one cumulative sum.

        The mean is subtracted first and added back as mean times length: the sum then stays small, and short segments
        late in a long log keep their precision.
        """
        mean = self.integral(value) / float(self.edge_s[-1] - self.edge_s[0])
        area = np.concatenate(([0.0], np.cumsum((value - mean) * self.length_s)))
        return np.asarray(mean * self.ran_s + (area[self.end] - area[self.begin]))


def time_grid(log: ExecutionLog, horizon_s: tuple[float, float], times: Iterable[npt.ArrayLike]) -> TimeGrid:
    """The grid of all segment starts and ends and of further `times`, within the horizon."""
    first, last = horizon_s
    lists = [log.start_s, log.end_s, *(np.asarray(times_s, np.float64) for times_s in times)]
    time = np.concatenate((*lists, [first, last]))
    np.clip(time, first, last, out=time)
    order = np.argsort(time, kind="stable")  # fast: starts and ends are almost sorted
    ordered = time[order]
    new = np.empty(len(time), bool)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    number = np.cumsum(new)
    number -= 1
    edge_index = np.empty(len(time), np.int64)
    edge_index[order] = number
    begin, end, *others = np.split(edge_index[:-2], np.cumsum([len(times_s) for times_s in lists[:-1]]))
    n = len(log)
    return TimeGrid(ordered[new], begin, end, time[n : 2 * n] - time[:n], tuple(others))


Tables = Mapping[str, DvfsTable]
J_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class DvfsTableByClass(DvfsTable):
    """A DvfsTable with one row per job class instead of one per job: logs have far fewer classes than jobs."""

    row: Ints
    """Row of each job."""


def table_rows(table: DvfsTable, job: Ints) -> Ints:
    """The table rows of these jobs."""
    return table.row[job] if isinstance(table, DvfsTableByClass) else job


def parent_groups(log: ExecutionLog, cluster: Cluster) -> Ints:
    """For each group of the log (groups and reservations) the index of the cluster group that its nodes belong to."""
    names = [group.name for group in cluster.groups]
    expected = (*names, *(reservation.name for reservation in cluster.reservations))
    if tuple(log.groups) != expected:
        raise InputError(
            f"the log ran on {', '.join(log.groups)}, but the cluster {cluster.name!r} has {', '.join(expected)}; give "
            "the cluster of the run, its reservations included"
        )
    return np.array([*range(len(names)), *(names.index(reservation.group) for reservation in cluster.reservations)])


def held_nodes(jobs: JobTable, group: NodeGroup) -> Floats:
    """Nodes of the group that each job would hold; on shared nodes a fraction, by its cores.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], cores=[4])
    >>> (held_nodes(jobs, NodeGroup("g", 8, cores=16)), held_nodes(jobs, NodeGroup("g", 8, cores=16, shared=True)))
    (array([1.]), array([0.25]))
    """
    nodes: Floats = jobs["nodes"].astype(np.float64)
    if not group.shared or "cores" not in jobs:
        return nodes
    return np.asarray(np.maximum(jobs["cores"], 1) / group.cores_per_node, np.float64)


def segment_nodes_and_watts(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    utilization: UtilizationProfile | None,
    tables: Tables | None,
) -> tuple[Floats, Floats]:
    """Nodes of each segment and their total power; `model` must have the cluster's groups."""
    jobs, tables = log.jobs_table, {} if tables is None else tables
    _check_tables(tables, cluster, len(jobs))
    parent = parent_groups(log, cluster)[log.group]
    nodes, watts = np.zeros(len(log)), np.zeros(len(log))
    for number, group in enumerate(cluster.groups):
        rows = slice(None) if len(cluster.groups) == 1 else np.flatnonzero(parent == number)
        job, level = log.job[rows], log.level[rows]
        if not len(job):
            continue
        nodes[rows] = held_nodes(jobs, group)[job]
        table = tables.get(group.name)
        levels = 1 if table is None else len(table.names)
        if int(level.max()) >= levels:
            reason = "no DVFS table was given" if table is None else f"the DVFS table has {levels} state(s)"
            raise InputError(
                f"a job ran in DVFS state {int(level.max())} on the group {group.name!r}, for which {reason}; give the "
                "tables of the run"
            )
        if table is None:
            watts[rows] = full_speed_w(jobs, group, model, utilization)[job]
        elif levels == 1 or not level.any():
            watts[rows] = table.power_w[:, 0][table_rows(table, job)]
        else:
            watts[rows] = table.power_w[table_rows(table, job), level]
    return nodes, watts


def lower_bound_kwh(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    tables: Tables | None = None,
    utilization: UtilizationProfile | None = None,
    speeds: Speeds | None = None,
    gpu_cap: Floats | None = None,
) -> float:
    """Lower bound of the IT energy of any schedule that runs all these jobs, kWh.

    Every job runs in its DVFS state of least energy on its group of least energy, and nothing else draws power: no node
    is idle, asleep or in transition, and fixed loads are not counted. Each job counts with its full `runtime_s`; if the
    run kills jobs at their estimate, limit the column first. `tables` and `utilization` are those of `account_energy`.
    In a node-level GPU cluster, which has no DVFS states, every job runs on the GPU type of least energy, at
    the `speeds` and `gpu_cap` of the run; jobs that fit on no node are left out.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[3600, 3600], nodes=[1, 1], power_w=[200, 300])
    >>> lower_bound_kwh(jobs, Cluster.from_nodes(4), PowerModel.preset("taurus"))
    0.5
    >>> slower = DvfsTable(("full", "slow"), np.array([[1, 1.2], [1, 2.0]]), np.array([[200, 150], [300, 250.0]]))
    >>> lower_bound_kwh(jobs, Cluster.from_nodes(4), PowerModel.preset("taurus"), {"nodes": slower})
    0.48
    """
    if cluster.node_level:
        min_j = joules_by_group(jobs, cluster, model, jobs["runtime_s"], speeds, utilization, gpu_cap).min(axis=0)
        return float(min_j[np.isfinite(min_j)].sum()) / J_PER_KWH
    tables = {} if tables is None else tables
    _check_tables(tables, cluster, len(jobs))
    fitted = model.for_cluster(cluster)
    min_w = np.full(len(jobs), np.inf)  # energy per second of run time at full speed
    for group in cluster.groups:
        table = tables.get(group.name)
        if table is None:
            min_w = np.minimum(min_w, full_speed_w(jobs, group, fitted, utilization))
        else:
            row_w = (table.power_w * table.factor).min(axis=1)
            min_w = np.minimum(min_w, row_w[table_rows(table, np.arange(len(jobs)))])
    return float(np.dot(min_w, jobs["runtime_s"])) / J_PER_KWH


def full_speed_w(jobs: JobTable, group: NodeGroup, model: PowerModel, utilization: UtilizationProfile | None) -> Floats:
    """Power of each job at full speed; on shared nodes that of its share of the cores, unless it was measured."""
    classes, row = unique_classes(jobs, utilization, by_cores=group.shared)
    watts = job_power_w(classes, model, utilization, group.name)
    if row is not None:
        return watts[row]
    if not group.shared:
        return watts
    share = held_nodes(jobs, group) / jobs["nodes"]
    return np.where(np.isnan(jobs.column("power_w")), watts * share, watts)


def _check_tables(tables: Tables, cluster: Cluster, jobs: int) -> None:
    names = [group.name for group in cluster.groups]
    for name, table in tables.items():
        if name not in names:
            raise UnknownNameError("group of a DVFS table", name, names)
        rows = len(table.row if isinstance(table, DvfsTableByClass) else table.factor)
        if rows != jobs:
            raise InputError(
                f"the DVFS table of the group {name!r} has {rows} rows and the job table {jobs}; compute it from the "
                "same jobs"
            )
