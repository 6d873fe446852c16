"""Attribution of energy, CO2 and cost to jobs, users, accounts and queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kilowait.energy.accounting.job_power import J_PER_KWH, Floats, Ints, TimeGrid
from kilowait.errors import UnknownNameError
from kilowait.jobs import ExecutionLog, JobRecords, JobTable
from kilowait.jobs.columns import LABEL_COLUMNS

__all__ = ["EnergyRow", "energy_rows_by", "energy_by_job"]

_WAITING = ("idle", "shutting_down", "asleep", "waking")


@dataclass(frozen=True, slots=True)
class EnergyRow:
    """Totals over the jobs of one user, account, queue ..."""

    label: str
    jobs: int
    it_kwh: float
    facility_kwh: float
    idle_share_kwh: float
    """Share of the IT energy of idle and sleeping nodes, by node-seconds; not included in the other fields."""
    co2_kg: float | None
    cost: float | None


def energy_by_job(
    log: ExecutionLog,
    grid: TimeGrid,
    group: Ints,
    it_w: Floats,
    rates: Mapping[str, Floats],
    nodes: Floats,
    watts: Floats,
    by_group: Mapping[str, Mapping[str, float]],
    idle_w: Floats | None = None,
) -> JobRecords:
    """Energy, CO2 and cost columns, one row per job of the job table.

    Args:
        log: the run.
        grid: time intervals of the accounts.
        group: index into `by_group` of each segment's group.
        it_w: IT power of each cell.
        rates: spending of the whole facility per second, cell by cell, by column name; the share of a segment at every
            moment is its share of the IT power.
        nodes: nodes of each segment.
        watts: power of each segment.
        by_group: kWh of each group by node state.
        idle_w: idle power of the resources each segment holds, if known.
    """
    size = len(log.jobs_table)

    def by_job(of_segment: Floats) -> Floats:
        return np.asarray(np.bincount(log.job, of_segment, size), np.float64)

    columns = {"job_id": log.jobs_table["job_id"], "it_j": by_job(watts * grid.ran_s)}
    if idle_w is not None:
        columns["held_idle_j"] = by_job(idle_w * grid.ran_s)
    for name, rate in rates.items():
        per_watt = np.divide(rate, it_w, out=np.zeros(len(grid)), where=it_w > 0)
        columns[name] = by_job(watts * grid.over_segments(per_watt))
    columns["idle_share_j"] = by_job(_idle_shares(group, nodes * grid.ran_s, by_group))
    return JobRecords(columns)


def _idle_shares(group: Ints, node_s: Floats, by_group: Mapping[str, Mapping[str, float]]) -> Floats:
    """Joules of nodes without a job, split by node-seconds of segments: own group and unused groups."""
    joules = np.array([sum(states[name] for name in _WAITING) for states in by_group.values()]) * J_PER_KWH
    ran_s = np.bincount(group, node_s, len(joules))
    used = ran_s > 0
    if not used.any():
        return np.zeros(len(node_s))
    per_node_s = np.divide(joules, ran_s, out=np.zeros(len(joules)), where=used)
    per_node_s += joules[~used].sum() / ran_s.sum()
    return np.asarray(per_node_s[group] * node_s)


def energy_rows_by(jobs: JobTable, spent: JobRecords, kind: str) -> list[EnergyRow]:
    """The columns of `energy_by_job` summed by a labelled column of the job table, most IT energy first."""
    if kind not in LABEL_COLUMNS:
        raise UnknownNameError("job column to group by", kind, LABEL_COLUMNS)
    values, code = np.unique(jobs.column(kind), return_inverse=True)
    names = jobs.labels.get(kind)
    labels = ["-" if v < 0 else str(v) if names is None else names[v] for v in values.tolist()]
    number = np.bincount(code, minlength=len(labels))

    def sums(name: str, unit: float) -> list[float]:
        return [float(total) for total in np.bincount(code, spent[name], len(labels)) / unit]

    def sums_if_known(name: str, unit: float) -> list[float] | list[None]:
        return sums(name, unit) if name in spent.columns else [None] * len(labels)

    rows = zip(
        labels,
        number.tolist(),
        sums("it_j", J_PER_KWH),
        sums("facility_j", J_PER_KWH),
        sums("idle_share_j", J_PER_KWH),
        sums_if_known("co2_g", 1e3),
        sums_if_known("cost", 1.0),
        strict=True,
    )
    return sorted((EnergyRow(*row) for row in rows), key=lambda row: -row.it_kwh)
