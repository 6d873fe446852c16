"""What all nodes do and draw, group by group, between any two events."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kilowait.cluster import Cluster
from kilowait.energy.accounts.grid import Floats, Grid, Ints
from kilowait.energy.power import GroupPower, PowerModel
from kilowait.errors import InputError
from kilowait.jobs import SegmentLog
from kilowait.jobs.segments import NodeStates

__all__ = ["STATES", "Drawn", "drawn", "state_times"]

STATES = ("jobs", "idle", "falling", "asleep", "waking", "fixed")
"""What joules are spent on: jobs, nodes by what they do, and gear that always draws."""


class Drawn(NamedTuple):
    """IT power, and where it went."""

    it_w: Floats
    """Cell by cell of the grid."""
    joules: dict[str, dict[str, float]]
    """By group and state."""


def state_times(log: SegmentLog, cluster: Cluster) -> Iterator[Floats]:
    """Times besides starts and ends at which what nodes do may change."""
    yield np.array([edge for away in cluster.outages for edge in (away.start_s, away.end_s)], np.float64)
    if log.states is not None:
        yield log.states.time_s


def drawn(
    log: SegmentLog,
    cluster: Cluster,
    model: PowerModel,
    grid: Grid,
    parent: Ints,
    nodes: Floats,
    watts: Floats,
) -> Drawn:
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
        asleep = _sleeping(log.states, parent, number, power, grid)
        awake = _capacity(cluster, number, grid) - grid.running(nodes if rows is None else nodes[rows], rows)
        for count in asleep.values():
            awake -= count
        states = {"idle": np.maximum(awake, 0.0) * power.idle_w}
        states |= {name: count * _watts(power, name) for name, count in asleep.items()}
        states["fixed"] = np.full(len(grid), power.fixed_w())
        found = {"jobs": float(spent_j.sum() if rows is None else spent_j[rows].sum())}
        for name in STATES[1:]:
            found[name] = float(np.dot(states[name], grid.length_s)) if name in states else 0.0
        for state_w in states.values():
            it_w += state_w
        joules[power.name] = found
    return Drawn(it_w, joules)


def _capacity(cluster: Cluster, number: int, grid: Grid) -> Floats:
    """Nodes of a group that are there, cell by cell."""
    group = cluster.groups[number]
    changes = [
        change
        for away in cluster.outages
        if away.group == group.name
        for change in ((away.start_s, -away.nodes), (away.end_s, away.nodes))
        if change[0] < math.inf
    ]
    changes.sort()
    left = group.nodes + np.cumsum([nodes for _, nodes in changes], dtype=np.float64)
    return grid.steps([time for time, _ in changes], left, group.nodes)


def _sleeping(
    states: NodeStates | None, parent: Ints, number: int, power: GroupPower, grid: Grid
) -> dict[str, Floats]:
    """Nodes falling, asleep and waking, cell by cell; none of them where the group never sleeps."""
    if states is None:
        return {}
    rows = np.flatnonzero(parent[states.group] == number)
    if not len(rows):
        return {}
    if power.sleep is None:
        raise InputError(
            f"nodes of the group {power.name!r} slept in this run, and the power model says nothing of sleep; give it "
            "a [group.sleep] table"
        )
    found = {name: np.zeros(len(grid)) for name in ("falling", "asleep", "waking")}
    for own in np.unique(states.group[rows]):
        mine = rows[states.group[rows] == own]
        for name in found:
            found[name] += grid.steps(states.time_s[mine], getattr(states, name)[mine])
    return found


def _watts(power: GroupPower, state: str) -> float:
    assert power.sleep is not None  # looked at where the nodes were counted
    how = power.sleep
    return {"falling": how.to_sleep_w, "asleep": how.sleep_w, "waking": how.wake_w}[state]
