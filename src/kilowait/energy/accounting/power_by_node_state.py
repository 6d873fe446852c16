"""Power and energy by node group and node state (jobs, idle, asleep ...), also of nodes that jobs share.

Nodes of a GPU cluster do not sleep: each always draws its idle power. A job accounts for the idle power of the
resources it holds and for the power that its work adds, from allocation to release, also while it loads or writes a
checkpoint. The idle power of free resources counts as idle. Power depends on the group of each node, so a migrated job
draws the power of its current nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.energy.accounting.job_power import Floats, Ints, TimeGrid, weighted_sum
from kilowait.energy.power import GroupPower, PowerModel, UtilizationProfile
from kilowait.energy.power.partial_node_power import checked_gpu_caps, piece_power
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import NodeStates

ENERGY_STATES = ("jobs", "idle", "shutting_down", "asleep", "waking", "fixed")
"""What energy is spent on: jobs, states of nodes without jobs, and fixed loads."""


class StatePower(NamedTuple):
    """IT power over time, and its energy by group and state."""

    it_w: Floats
    """Watts of each cell of the grid."""
    joules: dict[str, dict[str, float]]
    """By group and state."""


def state_times(log: ExecutionLog, cluster: Cluster) -> tuple[Floats, Floats]:
    """Times other than job starts and ends at which node states change: sleep transitions, and outages."""
    outage_s = np.array([edge for outage in cluster.outages for edge in (outage.start_s, outage.end_s)], np.float64)
    return (np.empty(0) if log.states is None else log.states.time_s), outage_s


def power_by_state(
    log: ExecutionLog, cluster: Cluster, model: PowerModel, grid: TimeGrid, parent: Ints, nodes: Floats, watts: Floats
) -> StatePower:
    """IT power over the grid and joules by group and state.

    `nodes` and `watts` are those of the segments. The nodes of a group include those of reservations on it. Idle nodes
    are the available nodes (without outages) minus those that run jobs, go to sleep, sleep or wake up. If jobs run into
    an outage, there may be more of the latter than available nodes; then no node is idle.
    """
    segment_group = parent[log.group]
    it_w = grid.running(watts)
    segment_j = watts * grid.ran_s
    joules: dict[str, dict[str, float]] = {}
    for number, power in enumerate(model.groups):
        rows = np.flatnonzero(segment_group == number) if len(model.groups) > 1 else None
        idle = grid.running(nodes if rows is None else nodes[rows], rows)
        np.subtract(_capacity(cluster, number, grid), idle, out=idle)
        group_j = dict.fromkeys(ENERGY_STATES, 0.0)
        for sleeping in _sleeping_nodes(log.states, parent, number, power, grid):
            idle -= sleeping.nodes
            it_w += sleeping.watts
            for state, state_j in sleeping.joules.items():
                group_j[state] += state_j
        np.maximum(idle, 0.0, out=idle)
        idle *= power.idle_w
        it_w += idle
        it_w += power.fixed_w()
        group_j["jobs"] = float(segment_j.sum() if rows is None else segment_j[rows].sum())
        group_j["idle"] = grid.integral(idle)
        group_j["fixed"] = power.fixed_w() * float(grid.edge_s[-1] - grid.edge_s[0])
        joules[power.name] = group_j
    return StatePower(it_w, joules)


def _capacity(cluster: Cluster, number: int, grid: TimeGrid) -> Floats | float:
    """Available nodes of a group, cell by cell; one number if the group has no outages."""
    group = cluster.groups[number]
    changes = [
        change
        for outage in cluster.outages
        if outage.group == group.name
        for change in ((outage.start_s, -outage.nodes), (outage.end_s, outage.nodes))
        if change[0] < math.inf
    ]
    if not changes:
        return float(group.nodes)
    changes.sort()
    available = group.nodes + np.cumsum([nodes for _, nodes in changes], dtype=np.float64)
    return grid.steps([time for time, _ in changes], available, group.nodes)


class SleepingNodes(NamedTuple):
    """Nodes of one group of the log that go to sleep, sleep or wake up."""

    nodes: Floats
    """Nodes of each cell of the grid; `watts` likewise."""
    watts: Floats
    joules: dict[str, float]
    """By state."""


def _sleeping_nodes(
    states: NodeStates | None, parent: Ints, number: int, power: GroupPower, grid: TimeGrid
) -> Iterator[SleepingNodes]:
    """Sleeping nodes of the group and of each reservation on it; nothing if its nodes never sleep."""
    if states is None:
        return
    for log_group in np.flatnonzero(parent == number):
        rows = np.flatnonzero(states.group == log_group) if len(parent) > 1 else slice(None)
        place = grid.others[0][rows]
        if not len(place):
            continue
        if power.sleep is None:
            raise InputError(
                f"nodes of the group {power.name!r} slept in this run, but the power model has no sleep states; add a "
                "[group.sleep] table to it"
            )
        length_s = np.diff(grid.edge_s[place], append=grid.edge_s[-1])
        nodes, watts = np.zeros(len(place)), np.zeros(len(place))
        joules = {}
        for state, node_w in (
            ("shutting_down", power.sleep.to_sleep_w),
            ("asleep", power.sleep.sleep_w),
            ("waking", power.sleep.wake_w),
        ):
            count = getattr(states, state)[rows].astype(np.float64)
            nodes += count
            joules[state] = node_w * weighted_sum(count, length_s)
            count *= node_w
            watts += count
        yield SleepingNodes(grid.steps_at(place, nodes), grid.steps_at(place, watts), joules)


class AllocatedPower(NamedTuple):
    """Nodes and power of segments, and of the pieces (parts on one node) that they consist of."""

    nodes: Floats
    """Per segment: nodes held; a partial node counts by its share of the node's idle power."""
    idle_w: Floats
    """Per segment: idle power of the resources held."""
    watts: Floats
    """Per segment: power of the resources held, `idle_w` included."""
    group: Ints
    """Per piece: group of its node."""
    piece_idle_w: Floats
    piece_w: Floats


def allocated_power(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    utilization: UtilizationProfile | None,
    gpu_cap: npt.ArrayLike | None,
) -> AllocatedPower:
    """Power of the pieces and segments of a log; `model` must have the cluster's groups."""
    pieces, jobs = log.pieces, log.jobs_table
    assert pieces is not None
    if np.bincount(pieces.node_group, minlength=len(cluster.groups)).tolist() != [g.nodes for g in cluster.groups]:
        raise InputError(f"the nodes of the log are not those of {cluster.name!r}; give the cluster of the run")
    caps = None if gpu_cap is None else checked_gpu_caps(gpu_cap, len(jobs))
    job, group = log.job[pieces.segment], pieces.node_group[pieces.node]
    idle_w, watts, nodes = np.zeros(len(pieces)), np.zeros(len(pieces)), np.zeros(len(pieces))
    for number, (node_group, power) in enumerate(zip(cluster.groups, model.groups, strict=True)):
        rows = np.flatnonzero(group == number)
        if not len(rows):
            continue
        per_piece, count = piece_power(jobs, node_group, power, utilization, caps), pieces.count[rows]
        idle_w[rows], watts[rows] = per_piece.idle_w[job[rows]] * count, per_piece.draw_w[job[rows]] * count
        nodes[rows] = idle_w[rows] / power.idle_w if power.idle_w > 0 else count

    def by_segment(of_piece: Floats) -> Floats:
        return np.asarray(np.bincount(pieces.segment, of_piece, len(log)), np.float64)

    return AllocatedPower(by_segment(nodes), by_segment(idle_w), by_segment(watts), group, idle_w, watts)


def gpu_power_by_state(log: ExecutionLog, model: PowerModel, grid: TimeGrid, allocated: AllocatedPower) -> StatePower:
    """IT power over the grid and joules by group and state: jobs with all resources they hold, and free resources."""
    assert log.pieces is not None
    it_w = np.zeros(len(grid))
    joules: dict[str, dict[str, float]] = {}
    for number, power in enumerate(model.groups):
        rows = np.flatnonzero(allocated.group == number)
        segment, watts = log.pieces.segment[rows], allocated.piece_w[rows]
        held_w = grid.running(allocated.piece_idle_w[rows], segment)
        idle_w = np.maximum(power.nodes * power.idle_w - held_w, 0.0)  # negative only by rounding errors
        fixed_w = power.fixed_w()
        it_w += grid.running(watts, segment) + idle_w + fixed_w
        joules[power.name] = dict.fromkeys(ENERGY_STATES, 0.0) | {
            "jobs": weighted_sum(watts, grid.ran_s[segment]),
            "idle": grid.integral(idle_w),
            "fixed": fixed_w * float(grid.edge_s[-1] - grid.edge_s[0]),
        }
    return StatePower(it_w, joules)


def gpu_notes(log: ExecutionLog, cluster: Cluster, gpu_cap: npt.ArrayLike | None) -> list[str]:
    """Notes on the assumptions about jobs that share nodes."""
    jobs = log.jobs_table
    notes = ["jobs on shared nodes have the idle power of the GPUs and the share of cores that they hold"]
    if "cores" not in jobs and not (jobs.column("cpu_milli") >= 0).any():
        notes.append("the log has no cores of jobs: the share of a job in the node's GPUs is also its share of cores")
    if len({group.gpu_type for group in cluster.groups}) > 1 and not np.isnan(jobs.column("power_w")).all():
        notes.append("measured power is assumed to be the same on all GPU types")
    if gpu_cap is not None:
        caps = checked_gpu_caps(gpu_cap, len(jobs))
        span = f"{caps.min(initial=1):.0%}" + (f" to {caps.max():.0%}" if len(set(caps.tolist())) > 1 else "")
        notes.append(f"GPU power is capped at {span} of the limit, a part of a GPU at its share of that")
    return notes
