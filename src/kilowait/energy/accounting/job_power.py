"""What jobs draw and hold: watts and nodes of every segment of a log, and the work's least energy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kilowait.cluster import Cluster, NodeGroup
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.energy.accounting.intervals import Floats, Ints
from kilowait.energy.power import ConstantUtilization, LevelTable, PowerModel, UtilizationProfile, job_power_w
from kilowait.energy.power.gpu_type_energy import joules_by_group
from kilowait.energy.power.utilization import unique_classes
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable

__all__ = [
    "ClassTable",
    "full_speed_w",
    "held_nodes",
    "lower_bound_kwh",
    "parents",
    "segment_nodes_and_watts",
]

Tables = Mapping[str, LevelTable]
J_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class ClassTable(LevelTable):
    """A LevelTable with a row for each kind of job rather than for each job: logs have far fewer of them."""

    kind: Ints
    """Row of each job."""


def rows_of(table: LevelTable, job: Ints) -> Ints:
    """The rows that tell of these jobs."""
    return table.kind[job] if isinstance(table, ClassTable) else job


def parents(log: ExecutionLog, cluster: Cluster) -> Ints:
    """For each of the log's groups the number of the cluster's group its nodes are of."""
    names = [group.name for group in cluster.groups]
    expected = (*names, *(kept.name for kept in cluster.reservations))
    if tuple(log.groups) != expected:
        raise InputError(
            f"the log ran on {', '.join(log.groups)}, and the cluster {cluster.name!r} has {', '.join(expected)}; give "
            "the cluster of the run, its reservations included"
        )
    return np.array([*range(len(names)), *(names.index(kept.group) for kept in cluster.reservations)])


def held_nodes(jobs: JobTable, group: NodeGroup) -> Floats:
    """Nodes each job would take of the group; of a shared one the share its cores are.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[9], nodes=[1], cores=[4])
    >>> (
    ...     held_nodes(jobs, NodeGroup("g", 8, cores=16)),
    ...     held_nodes(jobs, NodeGroup("g", 8, cores=16, shared=True)),
    ... )
    (array([1.]), array([0.25]))
    """
    nodes: Floats = jobs["nodes"].astype(np.float64)
    if not group.shared or "cores" not in jobs:
        return nodes
    return np.asarray(np.maximum(jobs["cores"], 1) / group.cores, np.float64)


def segment_nodes_and_watts(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    profile: UtilizationProfile | None,
    tables: Tables | None,
) -> tuple[Floats, Floats]:
    """Nodes that each segment holds, and the watts they draw together; `model` is that of the cluster's groups."""
    jobs, tables = log.jobs_table, {} if tables is None else tables
    _check_tables(tables, cluster, len(jobs))
    parent = parents(log, cluster)[log.group]
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
            where = "no LevelTable was given" if table is None else f"its LevelTable has {levels} level(s)"
            raise InputError(
                f"a job ran at level {int(level.max())} on the group {group.name!r}, for which {where}; give the "
                "tables that the run was made with"
            )
        if table is None:
            watts[rows] = full_speed_w(jobs, group, model, profile)[job]
        elif levels == 1 or not level.any():
            watts[rows] = table.power_w[:, 0][rows_of(table, job)]
        else:
            watts[rows] = table.power_w[rows_of(table, job), level]
    return nodes, watts


def lower_bound_kwh(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    tables: Tables | None = None,
    profile: UtilizationProfile | None = None,
    speeds: Speeds | None = None,
    gpu_cap: Floats | None = None,
) -> float:
    """IT energy below which no schedule can come that runs all these jobs: every job at its least-energy level on its
    least-energy group, and not a watt for anything else.

    Nothing is idle, asleep or in transition, and fixed gear is not counted, so it is a bound and not a plan. Each job
    counts with its whole `runtime_s`; where a run kills jobs at their estimate, cut the column first. `tables` and
    `profile` are those of `account`. On placed nodes, which have no levels, every job runs on the type where it takes
    least, at the `speeds` and `gpu_cap` of the run; jobs that no node can hold are left out.

    >>> jobs = JobTable(
    ...     job_id=[1, 2], submit_s=[0, 0], runtime_s=[3600, 3600], nodes=[1, 1], power_w=[200, 300]
    ... )
    >>> lower_bound_kwh(jobs, Cluster.from_nodes(4), PowerModel.preset("taurus"))
    0.5
    >>> slower = LevelTable(
    ...     ("full", "slow"), np.array([[1, 1.2], [1, 2.0]]), np.array([[200, 150], [300, 250.0]])
    ... )
    >>> lower_bound_kwh(jobs, Cluster.from_nodes(4), PowerModel.preset("taurus"), {"nodes": slower})
    0.48
    """
    if cluster.node_level:
        spent = joules_by_group(jobs, cluster, model, jobs["runtime_s"], speeds, profile, gpu_cap).min(axis=0)
        return float(spent[np.isfinite(spent)].sum()) / J_PER_KWH
    tables = {} if tables is None else tables
    _check_tables(tables, cluster, len(jobs))
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    least = np.full(len(jobs), np.inf)
    for group in cluster.groups:
        table = tables.get(group.name)
        if table is None:
            least = np.minimum(least, full_speed_w(jobs, group, fitted, profile))
        else:
            of_row = (table.power_w * table.factor).min(axis=1)
            least = np.minimum(least, of_row[rows_of(table, np.arange(len(jobs)))])
    return float(np.dot(least, jobs["runtime_s"])) / J_PER_KWH


def full_speed_w(
    jobs: JobTable, group: NodeGroup, model: PowerModel, profile: UtilizationProfile | None
) -> Floats:
    """Watts of each job at full speed; on shared nodes those of its share, unless they were measured."""
    use = ConstantUtilization() if profile is None else profile
    few, kind = unique_classes(jobs, use, by_cores=group.shared)
    watts = job_power_w(few, model, use, group.name)
    if kind is not None:
        return watts[kind]
    if not group.shared:
        return watts
    share = held_nodes(jobs, group) / jobs["nodes"]
    return np.where(np.isnan(jobs.column("power_w")), watts * share, watts)


def _check_tables(tables: Tables, cluster: Cluster, jobs: int) -> None:
    names = [group.name for group in cluster.groups]
    for name, table in tables.items():
        if name not in names:
            raise UnknownNameError("group of a LevelTable", name, names)
        known = len(table.kind if isinstance(table, ClassTable) else table.factor)
        if known != jobs:
            raise InputError(
                f"the LevelTable of the group {name!r} has {known} rows and the job table {jobs}; make it "
                "from the same jobs"
            )
