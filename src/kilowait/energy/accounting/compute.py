"""Compute the energy accounts of a run from its execution log: power by node group and node state (jobs, idle ...).

Nodes of a GPU cluster do not sleep: each always draws its idle power. A job accounts for the idle power of the
resources it holds and for the power that its work adds, from allocation to release, also while it loads or writes a
checkpoint. The idle power of free resources counts as idle. Power depends on the group of each node, so a migrated job
draws the power of its current nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.energy.accounting.job_power import (
    J_PER_KWH,
    TimeGrid,
    parent_groups,
    segment_nodes_and_watts,
    time_grid,
    weighted_sum,
)
from kilowait.energy.accounting.result import ENERGY_STATES, EnergyAccounts
from kilowait.energy.power import DvfsTable, GroupPower, PowerModel, UtilizationProfile, power_breakdown, power_sources
from kilowait.energy.power.partial_node_power import checked_gpu_caps, piece_power
from kilowait.energy.signals.align import ClockOrigin, ExternalSignals, Signals, align_signals
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog
from kilowait.jobs.execution_log import NodeStates
from kilowait.series import Floats, Ints


def account_energy(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel | str,
    *,
    utilization: UtilizationProfile | None = None,
    tables: Mapping[str, DvfsTable] | None = None,
    gpu_cap: npt.ArrayLike | None = None,
    horizon: tuple[float, float] | None = None,
    signals: ExternalSignals | None = None,
) -> EnergyAccounts:
    """The energy accounts of a run on `cluster` with the power model `model`.

    A job draws constant power from its start to its end: the power of its DVFS state in the group's table, or at full
    speed that of `job_power_w` (`utilization` if nothing is measured; None: full load). Every other node draws the
    power of its state; a node in an outage draws nothing. On shared nodes a job counts with its share of the cores. In
    a node-level GPU cluster a job draws the power of its allocated resources
    (`kilowait.energy.power.partial_node_power`).

    Args:
        log: the execution log of the run.
        cluster: the cluster of the run.
        model: its power model, or the name of a preset such as "taurus"; a model of one group applies to all groups.
        utilization: utilization profile of jobs whose power and utilization are not known.
        tables: the DVFS tables of the run by group; None: those of the power controls that the log records, if any.
        gpu_cap: GPU power caps of the run (`cap_gpus`) in a node-level GPU cluster, one or one per job; None: no caps.
        horizon: start and end in seconds of the log; None: from the first submission to the last end. Nodes are assumed
            to stay in their last state after the end of the run.
        signals: carbon intensity, price and weather; None: no CO2 and no cost.

    >>> import kilowait as kw
    >>> from kilowait.series import Series
    >>> jobs = kw.JobTable(job_id=[1], submit_s=[0], runtime_s=[3600], nodes=[2], power_w=[400])
    >>> log = kw.simulate(jobs, kw.Cluster.from_nodes(3), policy="fcfs")
    >>> signals = ExternalSignals(carbon=Series.constant(500, "g/kWh"))
    >>> accounts = account_energy(log, Cluster.from_nodes(3), PowerModel.preset("taurus"), signals=signals)
    >>> {state: round(kwh, 3) for state, kwh in accounts.by_state.items() if kwh}
    {'jobs': 0.4, 'idle': 0.095}
    >>> round(accounts.facility_kwh / accounts.it_kwh, 3), round(accounts.co2_kg, 3)
    (1.3, 0.322)
    """
    horizon_s = _horizon(log, horizon)
    model = PowerModel.preset(model) if isinstance(model, str) else model
    tables = _recorded_tables(log, cluster, model, utilization) if tables is None else tables
    fitted = model.for_cluster(cluster)
    signals = signals or ExternalSignals()
    origin = ClockOrigin.of(log.jobs_table, signals.start)
    aligned = align_signals(signals, origin, horizon_s, fitted.facility.cooling)
    _check_node_level(log, cluster, tables, gpu_cap)
    parent = parent_groups(log, cluster)
    edges = (series.edge_s[slice(*series.edge_s.searchsorted(horizon_s))] for series in aligned.all())
    grid = time_grid(log, horizon_s, (*_state_times(log, cluster), *edges))
    held_idle_w = None
    if log.pieces is None:
        nodes, watts = segment_nodes_and_watts(log, cluster, fitted, utilization, tables)
        it_w, joules = _power_by_state(log, cluster, fitted, grid, parent, nodes, watts)
    else:
        allocated = _allocated_power(log, cluster, fitted, utilization, gpu_cap)
        nodes, watts, held_idle_w = allocated.nodes, allocated.watts, allocated.idle_w
        it_w, joules = _gpu_power_by_state(log, fitted, grid, allocated)
    weather = (None if part is None else grid.series(part) for part in (aligned.temperature, aligned.wet_bulb))
    facility_w = fitted.facility.facility_w(it_w, *weather)
    return EnergyAccounts(
        log=log,
        horizon_s=horizon_s,
        it_w=it_w,
        facility_w=facility_w,
        unix_zero_s=origin.unix_zero_s,
        by_group={name: {state: spent / J_PER_KWH for state, spent in group.items()} for name, group in joules.items()},
        carbon=aligned.carbon,
        price=aligned.price,
        currency=aligned.currency,
        signals=aligned.descriptions,
        notes=_notes(log, cluster, fitted, utilization, tables, gpu_cap, aligned),
        grid=grid,
        segment_group=parent[log.group],
        segment_nodes=nodes,
        segment_w=watts,
        segment_idle_w=held_idle_w,
    )


def _recorded_tables(
    log: ExecutionLog, cluster: Cluster, model: PowerModel, utilization: UtilizationProfile | None
) -> Mapping[str, DvfsTable] | None:
    """The DVFS tables of the power controls that the log records; None if it records none."""
    if "power_controls" not in log.run:
        return None
    from kilowait.energy.controls import dvfs_tables  # imports this package

    return dvfs_tables(log.run["power_controls"], log.jobs_table, cluster, model, utilization)


def _check_node_level(
    log: ExecutionLog, cluster: Cluster, tables: Mapping[str, DvfsTable] | None, gpu_cap: npt.ArrayLike | None
) -> None:
    """Raise unless the log, the cluster, the tables and the caps are all of a node-level GPU cluster, or none is."""
    if (log.pieces is not None) != cluster.node_level:
        raise InputError(
            f"the log {'records' if log.pieces is not None else 'does not record'} the nodes of each job, but the "
            f"groups of the cluster {cluster.name!r} are {'' if cluster.node_level else 'not '}node_level; give the "
            "cluster of the run"
        )
    if cluster.node_level and tables is not None:
        raise InputError(
            "a node-level GPU cluster has no DVFS states; leave tables out, and give GPU power caps as gpu_cap"
        )
    if not cluster.node_level and gpu_cap is not None:
        raise InputError(
            "gpu_cap is for node-level GPU clusters; elsewhere power caps are DVFS states: give the tables of the run"
        )


def _horizon(log: ExecutionLog, horizon: tuple[float, float] | None) -> tuple[float, float]:
    if horizon is None:
        if not len(log):
            raise InputError("no job ran, so the run has no duration; give horizon=(start, end) in seconds")
        horizon = float(log.jobs_table["submit_s"].min()), float(log.end_s.max())
    first, last = (float(edge) for edge in horizon)
    if not (math.isfinite(first) and math.isfinite(last) and first < last):
        raise InputError(f"the horizon goes from {first} to {last} s; give two finite times, the earlier one first")
    return first, last


def _notes(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    utilization: UtilizationProfile | None,
    tables: Mapping[str, DvfsTable] | None,
    gpu_cap: npt.ArrayLike | None,
    signals: Signals,
) -> tuple[str, ...]:
    """Notes on what is measured, modelled, assumed or estimated."""
    jobs, sources = len(log.jobs_table), power_sources(log.jobs_table)
    rest = "the utilization profile" if utilization is not None else "full load, which is an assumption"
    notes = [
        f"power of {sources['measured']:,} of {jobs:,} jobs measured"
        + (f", of {sources['columns']:,} from their utilization" if sources["columns"] else "")
        + (f", of {sources['utilization']:,} from {rest}" if sources["utilization"] else "")
        + (", in each job's DVFS state by the given tables" if tables is not None else "")
    ]
    breakdown = power_breakdown(model)
    notes.append(
        f"power model {model.name!r}: {breakdown['estimates']} of {len(breakdown['parts'])} parts are estimates"
    )
    if log.states is not None and len(log.states):
        estimated = [group.name for group in model.groups if group.sleep is not None and group.sleep.estimate]
        if estimated:
            notes.append(f"power and times of sleep are estimates: {', '.join(estimated)}")
    shared = [group.name for group in cluster.groups if group.shared]
    if shared:
        notes.append(f"jobs on shared nodes count with their share of the cores: {', '.join(shared)}")
    if log.pieces is not None:
        notes += _gpu_notes(log, cluster, gpu_cap)
    return (*notes, *signals.notes)


# -- power by node state -----------------------------------------------------------------------------


_StatePower = tuple[Floats, dict[str, dict[str, float]]]
"""IT power of each cell of the grid, watts, and joules by group and state."""


def _state_times(log: ExecutionLog, cluster: Cluster) -> tuple[Floats, Floats]:
    """Times other than job starts and ends at which node states change: sleep transitions, and outages."""
    outage_s = np.array([edge for outage in cluster.outages for edge in (outage.start_s, outage.end_s)], np.float64)
    return (np.empty(0) if log.states is None else log.states.time_s), outage_s


def _power_by_state(
    log: ExecutionLog, cluster: Cluster, model: PowerModel, grid: TimeGrid, parent: Ints, nodes: Floats, watts: Floats
) -> _StatePower:
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
    return it_w, joules


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


class _SleepingNodes(NamedTuple):
    """Nodes of one group of the log that go to sleep, sleep or wake up."""

    nodes: Floats
    """Nodes of each cell of the grid; `watts` likewise."""
    watts: Floats
    joules: dict[str, float]
    """By state."""


def _sleeping_nodes(
    states: NodeStates | None, parent: Ints, number: int, power: GroupPower, grid: TimeGrid
) -> Iterator[_SleepingNodes]:
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
        yield _SleepingNodes(grid.steps_at(place, nodes), grid.steps_at(place, watts), joules)


class _AllocatedPower(NamedTuple):
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


def _allocated_power(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    utilization: UtilizationProfile | None,
    gpu_cap: npt.ArrayLike | None,
) -> _AllocatedPower:
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

    return _AllocatedPower(by_segment(nodes), by_segment(idle_w), by_segment(watts), group, idle_w, watts)


def _gpu_power_by_state(
    log: ExecutionLog, model: PowerModel, grid: TimeGrid, allocated: _AllocatedPower
) -> _StatePower:
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
    return it_w, joules


def _gpu_notes(log: ExecutionLog, cluster: Cluster, gpu_cap: npt.ArrayLike | None) -> list[str]:
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
