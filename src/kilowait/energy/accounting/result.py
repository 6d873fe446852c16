"""Energy accounts of a run: energy, CO2 and cost, in total, over time and by job, and violations of its power budget.

IT power is constant between two events, and facility power between two events or changes of the weather. Carbon
intensity and price are step functions too. So every account is an exact sum over the cells of one time grid, without
sampling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kilowait.cluster.power_controls import StepFunction
from kilowait.energy.accounting.job_power import J_PER_KWH, TimeGrid
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobRecords, JobTable
from kilowait.jobs.columns import LABEL_COLUMNS
from kilowait.series import Floats, Ints, Series

ENERGY_STATES = ("jobs", "idle", "shutting_down", "asleep", "waking", "fixed")
"""What energy is spent on: jobs, states of nodes without jobs, and fixed loads."""
_HOUR_S = 3600.0
_WAITING = ("idle", "shutting_down", "asleep", "waking")


@dataclass(frozen=True, eq=False)
class Hourly:
    """Hourly accounts, by full hours UTC if the log has a date; the first and the last hour may be partial."""

    edge_s: Floats
    """Edges of the hours in the log's time, one more than there are hours."""
    it_kwh: Floats
    facility_kwh: Floats
    co2_kg: Floats | None
    cost: Floats | None


@dataclass(frozen=True, eq=False)
class PowerBins:
    """Means in equal time bins, for charts; bin i goes from ``edge_s[i]`` to ``edge_s[i + 1]``."""

    edge_s: Floats
    it_w: Floats
    facility_w: Floats
    carbon_g_per_kwh: Floats | None
    price_per_mwh: Floats | None


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


@dataclass(frozen=True, eq=False)
class EnergyAccounts:
    """Energy, CO2 and cost of a run over a horizon."""

    log: ExecutionLog
    horizon_s: tuple[float, float]
    """Start and end, in the log's time."""
    it_w: Floats
    """IT power (nodes and fixed IT loads) of each cell of `grid`, watts."""
    facility_w: Floats
    """Facility power of each cell, watts; never below `it_w`."""
    unix_zero_s: float | None
    """Unix time of the log's second 0; None if the log has no date."""
    by_group: Mapping[str, Mapping[str, float]]
    """IT kWh of each group by `ENERGY_STATES`."""
    carbon: Series | None
    """Grams of CO2e per kWh, in the log's time."""
    price: Series | None
    """`currency` per MWh, in the log's time."""
    currency: str
    signals: Mapping[str, str]
    """One line per signal, printed with every result: quantity, location, average or marginal, emission scope."""
    notes: tuple[str, ...]
    """Assumptions and estimates."""
    grid: TimeGrid
    """Time intervals of all arrays over time."""
    segment_group: Ints
    """Cluster group of each segment; for a reservation the group of its nodes."""
    segment_nodes: Floats
    """Nodes of each segment of the log."""
    segment_w: Floats
    """Power of each segment, watts."""
    segment_idle_w: Floats | None = None
    """Idle power of the resources each segment holds in a node-level GPU cluster; None for other clusters."""

    # -- totals of the run --------------------------------------------------------------------------

    @cached_property
    def it_kwh(self) -> float:
        """IT energy: nodes and fixed IT loads."""
        return self.grid.integral(self.it_w) / J_PER_KWH

    @cached_property
    def facility_kwh(self) -> float:
        """Facility energy: IT, supply losses, cooling and overhead."""
        return self.grid.integral(self.facility_w) / J_PER_KWH

    @cached_property
    def co2_kg(self) -> float | None:
        """CO2e of the facility energy; None without a carbon intensity."""
        return None if self._co2_g_per_s is None else self.grid.integral(self._co2_g_per_s) / 1e3

    @cached_property
    def cost(self) -> float | None:
        """Cost of the facility energy, in `currency`; None without a price."""
        return None if self._cost_per_s is None else self.grid.integral(self._cost_per_s)

    @property
    def by_state(self) -> dict[str, float]:
        """IT kWh by state (`ENERGY_STATES`); the values add up to `it_kwh`."""
        return {state: sum(group[state] for group in self.by_group.values()) for state in ENERGY_STATES}

    @property
    def pue(self) -> float:
        """Power usage effectiveness: facility energy / IT energy; NaN if the IT energy is 0."""
        return self.facility_kwh / self.it_kwh if self.it_kwh > 0 else math.nan

    @property
    def mean_it_w(self) -> float:
        """Mean IT power over the horizon."""
        return self.it_kwh * J_PER_KWH / (self.horizon_s[1] - self.horizon_s[0])

    @property
    def peak_it_w(self) -> float:
        """Peak IT power, however short."""
        return float(self.it_w.max())

    @property
    def peak_it_s(self) -> float:
        """Time of the first peak of IT power."""
        return float(self.grid.edge_s[np.argmax(self.it_w)])

    @property
    def peak_facility_w(self) -> float:
        """Peak facility power."""
        return float(self.facility_w.max())

    @property
    def peak_facility_s(self) -> float:
        """Time of the first peak of facility power."""
        return float(self.grid.edge_s[np.argmax(self.facility_w)])

    @cached_property
    def energy_delay_j_s(self) -> float:
        """Energy-delay product: IT energy times mean turnaround of started jobs; NaN if no job started."""
        turnaround = self.log.jobs()["turnaround_s"]
        known = turnaround[~np.isnan(turnaround)]
        return self.it_kwh * J_PER_KWH * float(known.mean()) if len(known) else math.nan

    def metrics(self) -> dict[str, float]:
        """Metrics by name, with units in the names; `co2_kg` and `cost` only if their signal was given.

        `energy_kwh` is IT energy; `jobs_kwh`, `idle_kwh`, `sleep_kwh`, `transition_kwh` and `fixed_kwh` add up to it.
        """
        by_state = self.by_state
        metrics = {
            "energy_kwh": self.it_kwh,
            "facility_kwh": self.facility_kwh,
            "jobs_kwh": by_state["jobs"],
            "idle_kwh": by_state["idle"],
            "sleep_kwh": by_state["asleep"],
            "transition_kwh": by_state["shutting_down"] + by_state["waking"],
            "fixed_kwh": by_state["fixed"],
            "mean_kw": self.mean_it_w / 1e3,
            "peak_kw": self.peak_it_w / 1e3,
            "peak_facility_kw": self.peak_facility_w / 1e3,
            "pue": self.pue,
            "edp_j_s": self.energy_delay_j_s,
        }
        for name, value in (("co2_kg", self.co2_kg), ("cost", self.cost)):
            if value is not None:
                metrics[name] = value
        return metrics

    # -- over time ----------------------------------------------------------------------------------

    @cached_property
    def it_power(self) -> Series:
        """IT power over time, watts, in the log's time."""
        return self._series(self.it_w, "W", "IT power")

    @cached_property
    def facility_power(self) -> Series:
        """Facility power over time, watts, on the same steps."""
        return self._series(self.facility_w, "W", "facility power")

    def _series(self, value: Floats, unit: str, name: str) -> Series:
        return Series(self.grid.edge_s, value, unit, {"name": name}, self.unix_zero_s)

    def hourly(self) -> Hourly:
        """IT and facility energy, CO2e and cost, hour by hour."""
        first, last = self.horizon_s
        zero = self.unix_zero_s or 0.0
        begin = math.floor((first + zero) / _HOUR_S) + 1
        inner = np.arange(begin, math.ceil((last + zero) / _HOUR_S)) * _HOUR_S - zero
        edge = np.concatenate(([first], inner, [last]))
        parts = (self.it_w, self.facility_w, self._co2_g_per_s, self._cost_per_s)
        it, facility, grams, money = (
            None if part is None else self._series(part, "", "").integral(edge[:-1], edge[1:]) for part in parts
        )
        assert it is not None and facility is not None
        kilograms = None if grams is None else grams / 1e3
        return Hourly(edge, it / J_PER_KWH, facility / J_PER_KWH, kilograms, money)

    def power(self, bins: int) -> PowerBins:
        """Mean IT and facility power, carbon intensity and price in `bins` equal time bins."""
        if bins < 1:
            raise InputError(f"bins is {bins}; it must be at least 1")
        edge = np.linspace(*self.horizon_s, bins + 1)
        parts = (self.it_power, self.facility_power, self.carbon, self.price)
        it, facility, carbon, price = (None if part is None else part.mean(edge[:-1], edge[1:]) for part in parts)
        assert it is not None and facility is not None
        return PowerBins(edge, it, facility, carbon, price)

    @cached_property
    def _co2_g_per_s(self) -> Floats | None:
        """Grams of CO2e per second of each cell."""
        return None if self.carbon is None else self._rate(self.carbon, J_PER_KWH)

    @cached_property
    def _cost_per_s(self) -> Floats | None:
        """Cost per second of each cell."""
        return None if self.price is None else self._rate(self.price, 1e3 * J_PER_KWH)

    def _rate(self, signal: Series, joules: float) -> Floats:
        return np.asarray(self.facility_w * self.grid.series(signal) / joules)

    # -- by job -------------------------------------------------------------------------------------

    def per_job(self) -> JobRecords:
        """One row per job, in the job table's order; 0 for jobs that did not run within the horizon.

        - `it_j`: energy of its nodes while it ran;
        - `facility_j`: its share of the facility energy, by its share of the IT power at every moment;
        - `idle_share_j`: its share, by node-seconds, of the IT energy of idle and sleeping nodes and of their
          transitions: those of its own group and of groups in which no job ran. The other columns do not include it;
        - `held_idle_j`: in a node-level GPU cluster, the part of `it_j` that is idle power of the resources it held;
        - `co2_g`, `cost`: of `facility_j`, by the intensity and the price at every moment, if these were given.
        """
        return self._per_job

    @cached_property
    def _per_job(self) -> JobRecords:
        log, grid = self.log, self.grid

        def by_job(of_segment: Floats) -> Floats:
            return np.asarray(np.bincount(log.job, of_segment, len(log.jobs_table)), np.float64)

        columns = {"job_id": log.jobs_table["job_id"], "it_j": by_job(self.segment_w * grid.ran_s)}
        if self.segment_idle_w is not None:
            columns["held_idle_j"] = by_job(self.segment_idle_w * grid.ran_s)
        rates = {"facility_j": self.facility_w, "co2_g": self._co2_g_per_s, "cost": self._cost_per_s}
        for name, rate in rates.items():
            if rate is not None:
                # The share of a segment at every moment is its share of the IT power.
                per_watt = np.divide(rate, self.it_w, out=np.zeros(len(grid)), where=self.it_w > 0)
                columns[name] = by_job(self.segment_w * grid.over_segments(per_watt))
        columns["idle_share_j"] = by_job(self._idle_shares(self.segment_nodes * grid.ran_s))
        return JobRecords(columns)

    def _idle_shares(self, node_s: Floats) -> Floats:
        """Joules of nodes without a job, split by node-seconds of segments: own group and unused groups."""
        joules = np.array([sum(states[name] for name in _WAITING) for states in self.by_group.values()]) * J_PER_KWH
        ran_s = np.bincount(self.segment_group, node_s, len(joules))
        used = ran_s > 0
        if not used.any():
            return np.zeros(len(node_s))
        per_node_s = np.divide(joules, ran_s, out=np.zeros(len(joules)), where=used)
        per_node_s += joules[~used].sum() / ran_s.sum()
        return np.asarray(per_node_s[self.segment_group] * node_s)

    def by_user(self) -> list[EnergyRow]:
        """Energy of the jobs by user, most first; see `by`."""
        return self.by("user")

    def by(self, kind: str) -> list[EnergyRow]:
        """Energy of the jobs by "user", "account", "queue", "qos" or "name", most first; "-" is unknown."""
        return _energy_rows_by(self.log.jobs_table, self.per_job(), kind)


def _energy_rows_by(jobs: JobTable, spent: JobRecords, kind: str) -> list[EnergyRow]:
    """The columns of `EnergyAccounts.per_job` summed by a labelled column of the job table, most IT energy first."""
    if kind not in LABEL_COLUMNS:
        raise UnknownNameError("job column to group by", kind, LABEL_COLUMNS)
    code, labels = jobs.classes(kind)
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


_EQUAL = 1e-9


@dataclass(frozen=True)
class BudgetViolation:
    """How far IT power exceeds a power budget, over the horizon of the energy accounts."""

    time_share: float
    """Share of the time during which the budget is exceeded."""
    excess_kwh: float
    """Energy drawn above the budget."""
    max_excess_w: float
    """The largest excess at any time; 0 if the budget is never exceeded."""
    budget_w: float
    """The budget at the time of the largest excess; the lowest budget if it is never exceeded."""

    @property
    def description(self) -> str:
        """The violation as text.

        >>> BudgetViolation(0.012, 3.0, 250.0, 5000.0).description
        'exceeded 1.2 % of the time, by 0.25 kW (5 %) at most'
        """
        if self.max_excess_w <= 0:
            return "never exceeded"
        return (
            f"exceeded {100 * self.time_share:.3g} % of the time, by {self.max_excess_w / 1e3:,.3g} kW "
            f"({100 * self.max_excess_w / self.budget_w:.2g} %) at most"
        )


def budget_violation(accounts: EnergyAccounts, budget_w: StepFunction) -> BudgetViolation:
    """How far a run exceeds its power budget (`ResolvedControls.budget_w`)."""
    time_s, watts = (np.array(column, np.float64) for column in zip(*budget_w, strict=True))
    first, last = accounts.horizon_s
    inside = time_s[(time_s > first) & (time_s < last)]
    edge_s = np.union1d(accounts.grid.edge_s, inside)
    it_w = accounts.it_w[np.searchsorted(accounts.grid.edge_s, edge_s[:-1], side="right") - 1]
    limit = watts[np.searchsorted(time_s, edge_s[:-1], side="right") - 1]
    length_s = np.diff(edge_s)
    excess_w = np.where(it_w > limit * (1 + _EQUAL), it_w - limit, 0.0)
    worst = int(np.argmax(excess_w)) if excess_w.any() else int(np.argmin(limit))
    return BudgetViolation(
        time_share=float(length_s[excess_w > 0].sum() / length_s.sum()),
        excess_kwh=float((excess_w * length_s).sum()) / J_PER_KWH,
        max_excess_w=float(excess_w[worst]),
        budget_w=float(limit[worst]),
    )
