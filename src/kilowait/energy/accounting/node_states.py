"""What all nodes do and draw, group by group, between any two events."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kilowait.cluster import Cluster
from kilowait.energy.accounting.intervals import (
    Floats,
    Ints,
    TimeGrid,
    added_up,
)
from kilowait.energy.power import GroupPower, PowerModel
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import NodeStates

__all__ = ["STATES", "StatePower", "power_by_state", "state_times"]

STATES = ("jobs", "idle", "shutting_down", "asleep", "waking", "fixed")
"""What joules are spent on: jobs, nodes by what they do, and gear that always draws."""


class StatePower(NamedTuple):
    """IT power, and where it went."""

    it_w: Floats
    """Cell by cell of the grid."""
    joules: dict[str, dict[str, float]]
    """By group and state."""


def state_times(log: ExecutionLog, cluster: Cluster) -> tuple[Floats, Floats]:
    """Times besides starts and ends at which what nodes do may change: they sleep or wake, outages."""
    away = np.array([edge for away in cluster.outages for edge in (away.start_s, away.end_s)], np.float64)
    return (np.empty(0) if log.states is None else log.states.time_s), away


def power_by_state(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    grid: TimeGrid,
    parent: Ints,
    nodes: Floats,
    watts: Floats,
) -> StatePower:
    """IT power over the grid and joules by group and state.

    `nodes` and `watts` are those of the segments. A group's nodes are its own and those of reservations made on it.
    Idle are the nodes that are there (outages taken off) less those that run, fall asleep, sleep or wake; where jobs
    run on into an outage there may be more of these than nodes, and then none is idle.
    """
    of_segment = parent[log.group]
    it_w = grid.running(watts)
    spent_j = watts * grid.ran_s
    joules: dict[str, dict[str, float]] = {}
    for number, power in enumerate(model.groups):
        rows = np.flatnonzero(of_segment == number) if len(model.groups) > 1 else None
        idle = grid.running(nodes if rows is None else nodes[rows], rows)
        np.subtract(_capacity(cluster, number, grid), idle, out=idle)
        found = dict.fromkeys(STATES, 0.0)
        for own in _asleep(log.states, parent, number, power, grid):
            idle -= own.nodes
            it_w += own.watts
            for state, spent in own.joules.items():
                found[state] += spent
        np.maximum(idle, 0.0, out=idle)
        idle *= power.idle_w
        it_w += idle
        it_w += power.fixed_w()
        found["jobs"] = float(spent_j.sum() if rows is None else spent_j[rows].sum())
        found["idle"] = grid.integral(idle)
        found["fixed"] = power.fixed_w() * float(grid.edge_s[-1] - grid.edge_s[0])
        joules[power.name] = found
    return StatePower(it_w, joules)


def _capacity(cluster: Cluster, number: int, grid: TimeGrid) -> Floats | float:
    """Nodes of a group that are there, cell by cell, or always."""
    group = cluster.groups[number]
    changes = [
        change
        for away in cluster.outages
        if away.group == group.name
        for change in ((away.start_s, -away.nodes), (away.end_s, away.nodes))
        if change[0] < math.inf
    ]
    if not changes:
        return float(group.nodes)
    changes.sort()
    left = group.nodes + np.cumsum([nodes for _, nodes in changes], dtype=np.float64)
    return grid.steps([time for time, _ in changes], left, group.nodes)


class SleepingNodes(NamedTuple):
    """Nodes of one of the log's groups that fall asleep, sleep or wake."""

    nodes: Floats
    """Cell by cell of the grid, as are the watts."""
    watts: Floats
    joules: dict[str, float]
    """By state."""


def _asleep(
    states: NodeStates | None, parent: Ints, number: int, power: GroupPower, grid: TimeGrid
) -> Iterator[SleepingNodes]:
    """Those of the group, and of each reservation made on it; none where they never sleep."""
    if states is None:
        return
    for own in np.flatnonzero(parent == number):
        rows = np.flatnonzero(states.group == own) if len(parent) > 1 else slice(None)
        place = grid.others[0][rows]
        if not len(place):
            continue
        if power.sleep is None:
            raise InputError(
                f"nodes of the group {power.name!r} slept in this run, and the power model says nothing of sleep; give "
                "it a [group.sleep] table"
            )
        lasting_s = np.diff(grid.edge_s[place], append=grid.edge_s[-1])
        nodes, watts = np.zeros(len(place)), np.zeros(len(place))
        joules = {}
        how = power.sleep
        for state, each_w in (
            ("shutting_down", how.to_sleep_w),
            ("asleep", how.sleep_w),
            ("waking", how.wake_w),
        ):
            count = getattr(states, state)[rows].astype(np.float64)
            nodes += count
            joules[state] = each_w * added_up(count, lasting_s)
            count *= each_w
            watts += count
        yield SleepingNodes(grid.steps_at(place, nodes), grid.steps_at(place, watts), joules)
