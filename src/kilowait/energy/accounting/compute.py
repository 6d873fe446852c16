"""From a log to its accounts."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.energy.accounting.gpu import drawn_by_pieces, laid_out, placed_notes
from kilowait.energy.accounting.intervals import grid_of
from kilowait.energy.accounting.job_power import J_PER_KWH, parents, segment_nodes_and_watts
from kilowait.energy.accounting.node_states import power_by_state, state_times
from kilowait.energy.accounting.result import EnergyAccounts
from kilowait.energy.power import (
    LevelTable,
    PowerModel,
    UtilizationProfile,
    power_breakdown,
    power_sources,
)
from kilowait.energy.signals import Weather
from kilowait.energy.signals.align import ClockOrigin, Signals, signals_for
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog
from kilowait.series import Series

__all__ = ["account_energy"]


def account_energy(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    *,
    profile: UtilizationProfile | None = None,
    tables: Mapping[str, LevelTable] | None = None,
    gpu_cap: npt.ArrayLike | None = None,
    horizon: tuple[float, float] | None = None,
    carbon: Series | None = None,
    price: Series | None = None,
    weather: Weather | None = None,
    start: str | None = None,
    wrap: bool = False,
) -> EnergyAccounts:
    """The accounts of a run on `cluster` with the power of `model`.

    A job draws its watts from its start to its end: those of its level in the group's table, or at full speed those of
    `job_power_w` (`profile` where nothing was measured; None: full load). Every other node that is there draws what
    its state does, and one that is away in an outage nothing. On shared nodes a job counts with its share of the cores.
    Where jobs were placed on single nodes, each draws what it holds does (`kilowait.energy.power.partial_node`).

    Args:
        log: what happened.
        cluster: what it happened on; the same as in the run.
        model: its power; a model of one group serves all groups.
        profile: utilization of jobs whose power and utilization are not known.
        tables: by group, the levels the run was made with; None: all jobs ran at full speed.
        gpu_cap: on placed nodes, the caps the run was made with (`cap_gpus`), one or one per job; None: none.
        horizon: start and end in seconds on the log's clock; None: from the first submission to the last end. What
            nodes do after the end of the run is not known: they are taken to go on as they were.
        carbon: intensity, in g/kWh or a unit that is converted.
        price: of electricity, per kWh or MWh.
        weather: for cooling that depends on it.
        start: moment of the first submission ("2022-01-01", UTC); None: by the log's own ``unix_start_s``. Signals
            without dates are on the log's clock already.
        wrap: whether a signal that does not cover the horizon is repeated (`Series.wrapped`) rather than an error.

    >>> import numpy as np
    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[3600], nodes=[2], power_w=[400])
    >>> one = np.zeros(1, np.int16)
    >>> log = ExecutionLog(
    ...     jobs, np.array([0]), np.zeros(1), np.array([3600.0]), one, one, one, np.zeros(1), one, one, one
    ... )
    >>> spent = account_energy(
    ...     log, Cluster.from_nodes(3), PowerModel.preset("taurus"), carbon=Series.constant(500, "g/kWh")
    ... )
    >>> {state: round(kwh, 3) for state, kwh in spent.by_state.items() if kwh}
    {'jobs': 0.4, 'idle': 0.095}
    >>> round(spent.facility_kwh / spent.it_kwh, 3), round(spent.co2_kg, 3)
    (1.3, 0.322)
    """
    horizon_s = _horizon(log, horizon)
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    dated = ClockOrigin.of(log.jobs_table, start)
    outside = signals_for(dated, horizon_s, fitted.facility.cooling, carbon, price, weather, wrap)
    _check_placed(log, cluster, tables, gpu_cap)
    parent = parents(log, cluster)
    edges = (series.edge_s[slice(*series.edge_s.searchsorted(horizon_s))] for series in outside.all())
    grid = grid_of(log, horizon_s, (*state_times(log, cluster), *edges))
    held_idle_w = None
    if log.pieces is None:
        nodes, watts = segment_nodes_and_watts(log, cluster, fitted, profile, tables)
        it_w, joules = power_by_state(log, cluster, fitted, grid, parent, nodes, watts)
    else:
        laid = laid_out(log, cluster, fitted, profile, gpu_cap)
        nodes, watts, held_idle_w = laid.nodes, laid.watts, laid.idle_w
        it_w, joules = drawn_by_pieces(log, fitted, grid, laid)
    facility_w = fitted.facility.facility_w(
        it_w,
        None if outside.temperature is None else grid.series(outside.temperature),
        None if outside.wet_bulb is None else grid.series(outside.wet_bulb),
    )
    return EnergyAccounts(
        log=log,
        horizon_s=horizon_s,
        it_w=it_w,
        facility_w=facility_w,
        unix_zero_s=dated.unix_zero_s,
        by_group={
            name: {state: spent / J_PER_KWH for state, spent in group.items()}
            for name, group in joules.items()
        },
        carbon=outside.carbon,
        price=outside.price,
        currency=outside.currency,
        signals=outside.words,
        notes=_notes(log, cluster, fitted, profile, tables, gpu_cap, outside),
        grid=grid,
        segment_group=parent[log.group],
        segment_nodes=nodes,
        segment_w=watts,
        segment_idle_w=held_idle_w,
    )


def _check_placed(
    log: ExecutionLog,
    cluster: Cluster,
    tables: Mapping[str, LevelTable] | None,
    gpu_cap: npt.ArrayLike | None,
) -> None:
    """Whether the log, the cluster and what they are accounted with are all of placed nodes, or none."""
    if (log.pieces is not None) != cluster.node_level:
        raise InputError(
            f"the log says {'on which nodes' if log.pieces is not None else 'nothing of where'} its jobs lay, and the "
            f"groups of the cluster {cluster.name!r} are {'' if cluster.node_level else 'not '}"
            f"node_level; give the cluster of "
            "the run"
        )
    if cluster.node_level and tables is not None:
        raise InputError("placed nodes have no levels; leave tables out, and give GPU caps as gpu_cap")
    if not cluster.node_level and gpu_cap is not None:
        raise InputError("gpu_cap is for placed nodes; elsewhere caps are levels: give the tables of the run")


def _horizon(log: ExecutionLog, horizon: tuple[float, float] | None) -> tuple[float, float]:
    if horizon is None:
        if not len(log):
            raise InputError("no job ran, so the run has no length; give horizon=(start, end) in seconds")
        horizon = float(log.jobs_table["submit_s"].min()), float(log.end_s.max())
    first, last = (float(edge) for edge in horizon)
    if not (math.isfinite(first) and math.isfinite(last) and first < last):
        raise InputError(
            f"the horizon goes from {first} to {last} s; give two finite times, the earlier one first"
        )
    return first, last


def _notes(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    profile: UtilizationProfile | None,
    tables: Mapping[str, LevelTable] | None,
    gpu_cap: npt.ArrayLike | None,
    outside: Signals,
) -> tuple[str, ...]:
    """What was measured and what was not, in words."""
    jobs, sources = len(log.jobs_table), power_sources(log.jobs_table)
    rest = "the profile" if profile is not None else "full load, which is an assumption"
    notes = [
        f"power of {sources['measured']:,} of {jobs:,} jobs measured"
        + (f", of {sources['columns']:,} from their utilization" if sources["columns"] else "")
        + (f", of {sources['profile']:,} from {rest}" if sources["profile"] else "")
        + (", at each job's level as the tables given have it" if tables is not None else "")
    ]
    whole = power_breakdown(model)
    notes.append(
        f"power model {model.name!r}: {whole['estimates']} of {len(whole['parts'])} parts are estimates"
    )
    if log.states is not None and len(log.states):
        guessed = [group.name for group in model.groups if group.sleep is not None and group.sleep.estimate]
        if guessed:
            notes.append(f"power and times of sleep are estimates: {', '.join(guessed)}")
    shared = [group.name for group in cluster.groups if group.shared]
    if shared:
        notes.append(f"jobs on shared nodes count with their share of the cores: {', '.join(shared)}")
    if log.pieces is not None:
        notes += placed_notes(log, cluster, gpu_cap)
    return (*notes, *outside.notes)
