"""Small clusters and their logs, and a reference integrator that sums power second by second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.energy.power import (
    Component,
    ConstantPue,
    Cooling,
    DvfsTable,
    EfficiencyCurve,
    Facility,
    FixedLoad,
    GroupPower,
    NodePower,
    PowerModel,
    SleepStates,
)
from kilowait.energy.signals import Weather
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import NodeStates, Outcome
from kilowait.series import Series

SLEEP = SleepStates(sleep_w=1, to_sleep_s=2, to_sleep_w=5, wake_s=3, wake_w=20)


def small_model(
    cooling: Cooling | None = None,
    *,
    fixed_w: float = 0.0,
    switch_w: float = 0.0,
    supply: EfficiencyCurve | None = None,
    sleep: SleepStates | None = SLEEP,
) -> PowerModel:
    """A node draws 10 W idle and 100 W at full load; PUE 1.5 unless `cooling` is given; one switch for 4 nodes."""
    node = NodePower((Component("CPU", "cpu", 1, 10, 100),))
    switch = (FixedLoad("switch", switch_w, 4),) if switch_w else ()
    cooling = ConstantPue(1.5) if cooling is None else cooling
    return PowerModel("toy", (GroupPower("g", 4, node, fixed=switch, sleep=sleep),), Facility(fixed_w, cooling, supply))


def execution_log(
    jobs: JobTable,
    segments: Sequence[tuple[int, float, float]],
    *,
    groups: tuple[str, ...] = ("nodes",),
    group: Sequence[int] | None = None,
    level: Sequence[int] | None = None,
    states: Sequence[tuple[float, int, int, int, int]] | None = None,
) -> ExecutionLog:
    """An execution log of segments (job, start, end); states are (time, group, shutting down, asleep, waking)."""
    n = len(segments)
    rows = np.array(states if states else np.zeros((0, 5)), np.float64).reshape(-1, 5)
    counts = rows[:, 1:].astype(np.int64)
    return ExecutionLog(
        jobs_table=jobs,
        job=np.array([job for job, _, _ in segments], np.int64),
        start_s=np.array([start for _, start, _ in segments], np.float64),
        end_s=np.array([end for _, _, end in segments], np.float64),
        group=np.array([0] * n if group is None else group, np.int16),
        level=np.array([0] * n if level is None else level, np.int16),
        outcome=np.full(n, Outcome.COMPLETED, np.int8),
        eligible_s=jobs["submit_s"].copy(),
        job_outcome=np.full(len(jobs), Outcome.COMPLETED, np.int8),
        capacity_s=np.array([0.0]),
        capacity=np.array([4]),
        groups=groups,
        states=None
        if states is None
        else NodeStates(rows[:, 0], counts[:, 0].astype(np.int16), counts[:, 1], counts[:, 2], counts[:, 3]),
    )


def table(**columns: Any) -> JobTable:
    """Jobs submitted at 0 that run for an hour, unless other columns are given."""
    n = len(columns["nodes"])
    return JobTable(**{"job_id": range(1, n + 1), "submit_s": [0] * n, "runtime_s": [3600] * n, **columns})


@dataclass
class Energies:
    """Results of the reference integrator."""

    joules: dict[str, float]
    it_w: npt.NDArray[np.float64]
    facility_w: npt.NDArray[np.float64]
    co2_g: float
    cost: float
    job_it_j: npt.NDArray[np.float64]
    job_facility_j: npt.NDArray[np.float64]
    job_co2_g: npt.NDArray[np.float64]


def integrate_by_second(
    log: ExecutionLog,
    cluster: Cluster,
    model: PowerModel,
    tables: Mapping[str, DvfsTable],
    horizon: tuple[int, int],
    carbon: Series,
    price: Series,
    weather: Weather,
) -> Energies:
    """Sum power for every second and node group; all events lie at whole seconds."""
    names = [group.name for group in cluster.groups]
    parent = [*range(len(names)), *(names.index(reservation.group) for reservation in cluster.reservations)]
    power = [model.for_groups({g.name: g.nodes for g in cluster.groups}).group(name) for name in names]
    joules = dict.fromkeys(("jobs", "idle", "shutting_down", "asleep", "waking", "fixed"), 0.0)
    n = len(log.jobs_table)
    job_it, job_facility, job_grams = np.zeros(n), np.zeros(n), np.zeros(n)
    it_w, facilities, co2_g, cost = [], [], 0.0, 0.0
    for second in range(*horizon):
        state_w = dict.fromkeys(joules, 0.0)
        free_nodes = [group.nodes for group in cluster.groups]
        for outage in cluster.outages:
            if outage.start_s <= second < outage.end_s:
                free_nodes[names.index(outage.group)] -= outage.nodes
        running: list[tuple[int, float]] = []
        for job, begin, end, group, level in zip(log.job, log.start_s, log.end_s, log.group, log.level, strict=True):
            if begin <= second < end:
                free_nodes[parent[group]] -= int(log.jobs_table["nodes"][job])
                running.append((int(job), float(tables[names[parent[group]]].power_w[job, level])))
        state_w["jobs"] = sum(watts for _, watts in running)
        if log.states is not None:
            for group in set(log.states.group.tolist()):
                past_rows = [
                    row
                    for row in range(len(log.states))
                    if log.states.group[row] == group and log.states.time_s[row] <= second
                ]
                if not past_rows:
                    continue
                sleep = power[parent[group]].sleep
                assert sleep is not None
                for state, watts in (
                    ("shutting_down", sleep.to_sleep_w),
                    ("asleep", sleep.sleep_w),
                    ("waking", sleep.wake_w),
                ):
                    count = int(getattr(log.states, state)[past_rows[-1]])
                    free_nodes[parent[group]] -= count
                    state_w[state] += count * watts
        for number, idle_nodes in enumerate(free_nodes):
            state_w["idle"] += max(0, idle_nodes) * power[number].idle_w
            state_w["fixed"] += power[number].fixed_w()
        total_w = sum(state_w.values())
        facility = float(
            model.facility.facility_w(total_w, weather.temperature.at(second), weather.wet_bulb.at(second))
        )
        intensity = float(carbon.at(second))
        for job, watts in running:
            job_it[job] += watts
            if total_w > 0:
                job_facility[job] += watts * facility / total_w
                job_grams[job] += watts * facility / total_w * intensity / 3.6e6
        for state, watts in state_w.items():
            joules[state] += watts
        it_w.append(total_w)
        facilities.append(facility)
        co2_g += facility * intensity / 3.6e6
        cost += facility * float(price.at(second)) / 3.6e9
    return Energies(joules, np.array(it_w), np.array(facilities), co2_g, cost, job_it, job_facility, job_grams)
