"""What a run cost: kWh, CO2 and money, exact.

IT power is constant between two events, and so is what the building draws between two events or changes of the
weather. Carbon intensity and price are step functions too. So every account is a sum over the cells of one grid of
times, and nothing is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kilowait.energy.accounting.attribution import EnergyRow, rows_by, shares
from kilowait.energy.accounting.intervals import Floats, Ints, TimeGrid
from kilowait.energy.accounting.job_power import J_PER_KWH
from kilowait.energy.accounting.node_states import STATES
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobRecords
from kilowait.series import Series

__all__ = ["EnergyAccounts", "Hourly", "PowerBins"]

_HOUR_S = 3600.0


@dataclass(frozen=True, eq=False)
class Hourly:
    """By the hour, full hours UTC where the log has a date; the first and the last may be cut short."""

    edge_s: Floats
    """On the log's clock, one more than there are hours."""
    it_kwh: Floats
    facility_kwh: Floats
    co2_kg: Floats | None
    cost: Floats | None


@dataclass(frozen=True, eq=False)
class PowerBins:
    """Means over time in equal bins, for charts; bin i goes from ``edge_s[i]`` to ``edge_s[i + 1]``."""

    edge_s: Floats
    it_w: Floats
    facility_w: Floats
    carbon_g_per_kwh: Floats | None
    price_per_mwh: Floats | None


@dataclass(frozen=True, eq=False)
class EnergyAccounts:
    """What a run drew and what that cost, over a horizon."""

    log: ExecutionLog
    horizon_s: tuple[float, float]
    """Start and end, on the log's clock."""
    it_w: Floats
    """Watts of nodes and their gear, cell by cell of `grid`."""
    facility_w: Floats
    """Watts of the building; never below `it_w`."""
    unix_zero_s: float | None
    """Unix time at which the log's clock says 0; None where it has no date."""
    by_group: Mapping[str, Mapping[str, float]]
    """IT kWh of each group by `STATES`."""
    carbon: Series | None
    """Grams of CO2e per kWh, on the log's clock."""
    price: Series | None
    """`currency` per MWh, on the log's clock."""
    currency: str
    signals: Mapping[str, str]
    """A line for each signal, to be printed with every result: what, where, average or marginal, which scope."""
    notes: tuple[str, ...]
    """What was assumed or estimated."""
    grid: TimeGrid
    """The steps of all of it."""
    segment_group: Ints
    """The cluster's group each segment ran on; that of its parent for a reservation."""
    segment_nodes: Floats
    """Nodes each segment of the log held."""
    segment_w: Floats
    """Watts each segment drew."""
    segment_idle_w: Floats | None = None
    """Idle watts among them, of what each held on placed nodes; None where jobs were not placed."""

    # -- of the whole run ---------------------------------------------------------------------------

    @cached_property
    def it_kwh(self) -> float:
        """Nodes and their gear."""
        return self.grid.integral(self.it_w) / J_PER_KWH

    @cached_property
    def facility_kwh(self) -> float:
        """The whole building."""
        return self.grid.integral(self.facility_w) / J_PER_KWH

    @cached_property
    def co2_kg(self) -> float | None:
        """Of the building's energy; None without a carbon intensity."""
        return None if self._grams is None else self.grid.integral(self._grams) / 1e3

    @cached_property
    def cost(self) -> float | None:
        """Of the building's energy, in `currency`; None without a price."""
        return None if self._money is None else self.grid.integral(self._money)

    @property
    def by_state(self) -> dict[str, float]:
        """IT kWh by what they were spent on; adds up to `it_kwh`."""
        return {state: sum(group[state] for group in self.by_group.values()) for state in STATES}

    @property
    def pue(self) -> float:
        """Energy of the building / energy of the IT; NaN where the IT drew nothing."""
        return self.facility_kwh / self.it_kwh if self.it_kwh > 0 else math.nan

    @property
    def mean_it_w(self) -> float:
        """Mean over the horizon."""
        return self.it_kwh * J_PER_KWH / (self.horizon_s[1] - self.horizon_s[0])

    @property
    def peak_it_w(self) -> float:
        """The most drawn at any time, however short."""
        return float(self.it_w.max())

    @property
    def peak_it_s(self) -> float:
        """When that was first."""
        return float(self.grid.edge_s[np.argmax(self.it_w)])

    @property
    def peak_facility_w(self) -> float:
        """The most the building drew."""
        return float(self.facility_w.max())

    @property
    def peak_facility_s(self) -> float:
        """When that was first."""
        return float(self.grid.edge_s[np.argmax(self.facility_w)])

    @cached_property
    def energy_delay_j_s(self) -> float:
        """IT energy times the mean turnaround of the jobs that started; NaN where none did."""
        turnaround = self.log.jobs()["turnaround_s"]
        known = turnaround[~np.isnan(turnaround)]
        return self.it_kwh * J_PER_KWH * float(known.mean()) if len(known) else math.nan

    def metrics(self) -> dict[str, float]:
        """Name to number, units in the names; `co2_kg` and `cost` only where their signal was given.

        `energy_kwh` is IT energy; `jobs_kwh`, `idle_kwh`, `sleep_kwh`, `transition_kwh` and `fixed_kwh` add up to it.
        """
        spent = self.by_state
        found = {
            "energy_kwh": self.it_kwh,
            "facility_kwh": self.facility_kwh,
            "jobs_kwh": spent["jobs"],
            "idle_kwh": spent["idle"],
            "sleep_kwh": spent["asleep"],
            "transition_kwh": spent["shutting_down"] + spent["waking"],
            "fixed_kwh": spent["fixed"],
            "mean_kw": self.mean_it_w / 1e3,
            "peak_kw": self.peak_it_w / 1e3,
            "peak_facility_kw": self.peak_facility_w / 1e3,
            "pue": self.pue,
            "edp_j_s": self.energy_delay_j_s,
        }
        for name, value in (("co2_kg", self.co2_kg), ("cost", self.cost)):
            if value is not None:
                found[name] = value
        return found

    # -- over time ----------------------------------------------------------------------------------

    @cached_property
    def it_power(self) -> Series:
        """Watts of nodes and their gear, step by step, on the log's clock."""
        return self._series(self.it_w, "W", "IT power")

    @cached_property
    def facility_power(self) -> Series:
        """Watts of the building, on the same steps."""
        return self._series(self.facility_w, "W", "facility power")

    def _series(self, value: Floats, unit: str, name: str) -> Series:
        return Series(self.grid.edge_s, value, unit, {"name": name}, self.unix_zero_s)

    def hourly(self) -> Hourly:
        """kWh of IT and building, kg of CO2e and money, hour by hour."""
        first, last = self.horizon_s
        zero = self.unix_zero_s or 0.0
        begin = math.floor((first + zero) / _HOUR_S) + 1
        inner = np.arange(begin, math.ceil((last + zero) / _HOUR_S)) * _HOUR_S - zero
        edge = np.concatenate(([first], inner, [last]))
        parts = (self.it_w, self.facility_w, self._grams, self._money)
        it, facility, grams, money = (
            None if part is None else self._series(part, "", "").integral(edge[:-1], edge[1:])
            for part in parts
        )
        assert it is not None and facility is not None
        kilograms = None if grams is None else grams / 1e3
        return Hourly(edge, it / J_PER_KWH, facility / J_PER_KWH, kilograms, money)

    def power(self, bins: int) -> PowerBins:
        """Mean watts of IT and building, carbon intensity and price in `bins` equal bins."""
        if bins < 1:
            raise InputError(f"{bins} bins; ask for at least 1")
        edge = np.linspace(*self.horizon_s, bins + 1)
        parts = (self.it_power, self.facility_power, self.carbon, self.price)
        it, facility, carbon, price = (
            None if part is None else part.mean(edge[:-1], edge[1:]) for part in parts
        )
        assert it is not None and facility is not None
        return PowerBins(edge, it, facility, carbon, price)

    @cached_property
    def _grams(self) -> Floats | None:
        """Grams of CO2e per second, cell by cell."""
        return None if self.carbon is None else self._rate(self.carbon, J_PER_KWH)

    @cached_property
    def _money(self) -> Floats | None:
        """Money per second, cell by cell."""
        return None if self.price is None else self._rate(self.price, 1e3 * J_PER_KWH)

    def _rate(self, signal: Series, joules: float) -> Floats:
        return np.asarray(self.facility_w * self.grid.series(signal) / joules)

    # -- by job -------------------------------------------------------------------------------------

    def per_job(self) -> JobRecords:
        """A value for each job, in the job table's order; 0 for one that did not run within the horizon.

        - `it_j`: what its nodes drew while it ran;
        - `facility_j`: its part of the building's energy, by its part of the IT power at every moment;
        - `idle_share_j`: its part, by node-seconds, of the IT energy of idle and sleeping nodes and their
          transitions: of its own group's, and of that of groups where nothing ran. The other columns are without it;
        - `held_idle_j`: on placed nodes, what of `it_j` is the idle draw of what it held;
        - `co2_g`, `cost`: of `facility_j`, by the intensity and the price at every moment, where they were given.
        """
        return self._per_job

    @cached_property
    def _per_job(self) -> JobRecords:
        rates = {"facility_j": self.facility_w}
        if self._grams is not None:
            rates["co2_g"] = self._grams
        if self._money is not None:
            rates["cost"] = self._money
        return shares(
            self.log,
            self.grid,
            self.segment_group,
            self.it_w,
            rates,
            self.segment_nodes,
            self.segment_w,
            self.by_group,
            self.segment_idle_w,
        )

    def by_user(self) -> list[EnergyRow]:
        """The jobs' energy by user, the most first; see `by`."""
        return self.by("user")

    def by(self, kind: str) -> list[EnergyRow]:
        """The jobs' energy by "user", "account", "queue", "qos" or "name", the most first; "-" is unknown."""
        return rows_by(self.log.jobs_table, self.per_job(), kind)
