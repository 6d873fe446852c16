"""Compute the energy accounts of a run from its execution log."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.energy.accounting.job_power import J_PER_KWH, parent_groups, segment_nodes_and_watts, time_grid
from kilowait.energy.accounting.power_by_node_state import (
    allocated_power,
    gpu_notes,
    gpu_power_by_state,
    power_by_state,
    state_times,
)
from kilowait.energy.accounting.result import EnergyAccounts
from kilowait.energy.power import DvfsTable, PowerModel, UtilizationProfile, power_breakdown, power_sources
from kilowait.energy.signals.align import ClockOrigin, ExternalSignals, Signals, align_signals
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog


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
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    signals = signals or ExternalSignals()
    origin = ClockOrigin.of(log.jobs_table, signals.start)
    aligned = align_signals(signals, origin, horizon_s, fitted.facility.cooling)
    _check_node_level(log, cluster, tables, gpu_cap)
    parent = parent_groups(log, cluster)
    edges = (series.edge_s[slice(*series.edge_s.searchsorted(horizon_s))] for series in aligned.all())
    grid = time_grid(log, horizon_s, (*state_times(log, cluster), *edges))
    held_idle_w = None
    if log.pieces is None:
        nodes, watts = segment_nodes_and_watts(log, cluster, fitted, utilization, tables)
        it_w, joules = power_by_state(log, cluster, fitted, grid, parent, nodes, watts)
    else:
        allocated = allocated_power(log, cluster, fitted, utilization, gpu_cap)
        nodes, watts, held_idle_w = allocated.nodes, allocated.watts, allocated.idle_w
        it_w, joules = gpu_power_by_state(log, fitted, grid, allocated)
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
        notes += gpu_notes(log, cluster, gpu_cap)
    return (*notes, *signals.notes)
