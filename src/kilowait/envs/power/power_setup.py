"""From what a user names to what the kernels reckon with: levers, watts of every job and node, signals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, PowerControls
from kilowait.energy.accounting import EnergyAccounts, account_energy
from kilowait.energy.accounting.job_power import ClassTable, full_speed_w, held_nodes
from kilowait.energy.controls import ForecastFactory, parse_levers, resolve_controls
from kilowait.energy.power import ConstantUtilization, LevelTable, PowerModel, UtilizationProfile
from kilowait.energy.power.utilization import unique_classes, with_planned_power
from kilowait.energy.signals import read_carbon, read_price
from kilowait.energy.signals.align import ClockOrigin, Signals, signals_for
from kilowait.envs.power.signal_features import (
    DAY_S,
    HOUR_S,
    SignalArrays,
    foresight_of,
    outlook_of,
)
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.series import Series

__all__ = ["POWER", "PowerTables", "PowerConfig", "PowerSetup", "model_of"]

Floats = npt.NDArray[np.float64]
Signal = Series | str | PathLike[str]

SIGNAL_HORIZON_S = 30 * DAY_S
"""How long after the last submission signals are wanted at most."""

POWER = np.dtype(
    [
        ("base_w", np.float64),  # IT with every node idle
        ("full_w", np.float64),  # and at full load
        ("per_it", np.float64),  # watts of the building per watt of the IT,
        ("fixed_w", np.float64),  # and those that are always drawn
    ],
    align=True,
)
"""The machine and its building."""


@dataclass(frozen=True)
class PowerConfig:
    """What power is drawn with, and what it costs: the words of the command line, or the things themselves."""

    power: PowerModel | str | PathLike[str] = "auto"
    """A preset, a TOML file, a model, or auto: the preset with the cluster's name."""
    carbon: Signal | None = None
    """Carbon intensity over time: a series or a file."""
    price: Signal | None = None
    levers: str = "all"
    """As on the command line. sleep=RULE: idle nodes also fall asleep by that rule. dvfs=SLOWDOWN: levels that make
    a job at most so many times as long may be chosen. budget=WATTS. No hold: whoever is asked holds jobs."""
    forecast: str | ForecastFactory = "perfect"
    """perfect, persistence, noisy[:GRID], or what makes a forecast of a series."""
    profile: UtilizationProfile | None = None
    """Utilization of jobs where it is not known; None: full load."""
    cooling: str | None = None
    """Instead of the model's own, such as pue:1.2."""
    start: str | None = None
    """Moment of the first submission, for logs without dates."""
    wrap: bool = False
    """Whether signals that are too short are repeated."""

    def of(self, jobs: JobTable, cluster: Cluster, episode_jobs: int) -> PowerSetup:
        """All of it for a log, which is sorted, in episodes of so many jobs."""
        model = model_of(self.power, cluster).for_groups(
            {group.name: group.nodes for group in cluster.groups}
        )
        if self.cooling is not None:
            model = model.with_cooling(self.cooling)
        if model.facility.cooling.needs:
            raise InputError(
                f"the cooling ({type(model.facility.cooling).__name__}) needs the weather, of which kilowait/Energy-v0 "
                "knows nothing; choose another, such as cooling='pue:1.2'"
            )
        asked = parse_levers(self.levers).resolved(model, carbon=False, price=False)
        if asked.hold is not None:
            raise InputError(
                f"levers {self.levers!r}: in kilowait/Energy-v0 jobs are held by whoever is asked; leave hold out"
            )
        pulled = resolve_controls(self.levers, jobs, cluster, model, profile=self.profile)
        levers = replace(pulled.levers or PowerControls(), preferred_level=None, full_speed_backlog_nodes=-1)
        drawing = _drawing(jobs, cluster, model, self.profile, pulled.tables, asked.slowdown)
        if "predicted_power_w" in jobs:  # what is seen is what is expected; what is paid for is what is drawn
            seen = with_planned_power(jobs)
            expected = resolve_controls(self.levers, seen, cluster, model, profile=self.profile).tables
            looks = _drawing(seen, cluster, model, self.profile, expected, asked.slowdown)
            drawing = replace(drawing, features=looks.features)
        first_s, last_s = float(jobs["submit_s"][0]), float(jobs["submit_s"][-1])
        slowest = 1.0 if levers.factor is None else float(levers.factor.max())
        until_s = last_s + min(SIGNAL_HORIZON_S, DAY_S + slowest * _most_work_s(jobs, episode_jobs))
        past_s = 0.0 if self.forecast == "perfect" else DAY_S + HOUR_S
        signals = signals_for(
            ClockOrigin.of(jobs, self.start),
            (first_s - past_s, until_s + DAY_S + HOUR_S),
            model.facility.cooling,
            _read(self.carbon, read_carbon),
            _read(self.price, read_price),
            None,
            self.wrap,
        )
        foresight = foresight_of(self.forecast)
        return PowerSetup(
            cluster,
            model,
            self.profile,
            levers,
            pulled.tables,
            signals,
            drawing,
            _building(model, signals),
            outlook_of(signals.carbon, signals.price, first_s, until_s, foresight),
            pulled.words,
            self.wrap,
        )


@dataclass(frozen=True, eq=False)
class PowerTables:
    """What jobs and nodes draw; R kinds of jobs, L levels."""

    above_w: Floats  # (G, R, L) a job, above its idle nodes
    held: Floats  # (G, R) nodes that a job holds
    kind: npt.NDArray[np.int64]  # (N,) of each job
    may: npt.NDArray[np.uint8]  # (R, choices) whether a job may be given the level
    features: npt.NDArray[np.float32]  # (N, 3) draw, stretch, saving
    state_w: Floats  # (G, 3) a node falling, asleep, waking, above an idle one


@dataclass(frozen=True, eq=False)
class PowerSetup:
    """A log on a machine with its power, levers and signals; on the log's clock."""

    cluster: Cluster
    model: PowerModel
    profile: UtilizationProfile | None
    levers: PowerControls
    """For `kilowait.simulate`, at full speed unless told."""
    tables: Mapping[str, LevelTable] | None
    signals: Signals
    drawing: PowerTables
    building: npt.NDArray[Any]  # (1,) POWER
    outlook: SignalArrays
    words: str
    """What is pulled, for people."""
    wrap: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of the signals that were given."""
        given = {"carbon": self.signals.carbon, "price": self.signals.price}
        return tuple(name for name, series in given.items() if series is not None)

    def account(self, log: ExecutionLog, horizon: tuple[float, float] | None = None) -> EnergyAccounts:
        """The accounts of a run of all these jobs that was made with the levers."""
        carbon, price = (
            None if series is None else replace(series, unix_zero_s=None)  # on the log's clock already
            for series in (self.signals.carbon, self.signals.price)
        )
        return account_energy(
            log,
            self.cluster,
            self.model,
            profile=self.profile,
            tables=self.tables,
            horizon=horizon,
            carbon=carbon,
            price=price,
            wrap=self.wrap,
        )


def model_of(power: PowerModel | str | PathLike[str], cluster: Cluster) -> PowerModel:
    """A model by preset, file, or the cluster's name.

    >>> model_of("auto", Cluster.preset("polaris")).name
    'polaris'
    """
    if isinstance(power, PowerModel):
        return power
    name = str(power).strip()
    if name.lower() == "auto":
        if cluster.name.lower() not in PowerModel.presets():
            raise InputError(
                f"no power model is known for the cluster {cluster.name!r}; give power= one of "
                f"{', '.join(PowerModel.presets())}, or a TOML file"
            )
        return PowerModel.preset(cluster.name)
    if name.endswith(".toml") or "/" in name or Path(name).is_file():
        return PowerModel.from_file(name)
    return PowerModel.preset(name)


def _read(signal: Signal | None, reader: Any) -> Series | None:
    return signal if signal is None or isinstance(signal, Series) else reader(signal)


def _most_work_s(jobs: JobTable, episode_jobs: int) -> float:
    """The longest that the jobs of an episode run one after the other."""
    total = np.concatenate(([0.0], np.cumsum(np.maximum(jobs["runtime_s"], jobs["estimate_s"]))))
    n = min(episode_jobs, len(jobs))
    return float((total[n:] - total[: len(total) - n]).max())


def _drawing(
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    profile: UtilizationProfile | None,
    tables: Mapping[str, LevelTable] | None,
    slowdown: float | None,
) -> PowerTables:
    few, kind = unique_classes(
        jobs,
        ConstantUtilization() if profile is None else profile,
        by_cores=any(g.shared for g in cluster.groups),
    )
    watts, factors, held = [], [], []
    for group in cluster.groups:
        table = None if tables is None else tables[group.name]
        if table is None:
            watts.append(full_speed_w(few, group, model, profile)[:, None])
            factors.append(np.ones((len(few), 1)))
        else:
            assert (kind is not None) == isinstance(table, ClassTable)
            watts.append(table.power_w)
            factors.append(table.factor)
        held.append(held_nodes(few, group)[:, None])
    watt, factor = np.stack(watts), np.stack(factors)
    idle = np.array([group.idle_w for group in model.groups])[:, None, None]
    full = np.array([group.full_w for group in model.groups])[:, None, None]
    slow = factor.max(axis=0)
    may = np.ones((len(few), 1), np.bool_) if slowdown is None else slow <= slowdown
    may = may[:, : int(np.flatnonzero(may.any(axis=0))[-1]) + 1]  # level 0 is full speed
    spent = np.where(may, (watt * factor)[:, :, : may.shape[1]].mean(axis=0), np.inf)
    features = np.column_stack(
        (
            (watt[:, :, :1] / np.maximum(np.stack(held) * full, 1e-9)).mean(axis=0),
            np.where(may, slow[:, : may.shape[1]], 1.0).max(axis=1) - 1.0,
            1.0 - spent.min(axis=1) / np.maximum(spent[:, 0], 1e-9),
        )
    )
    states = [
        (0.0, 0.0, 0.0)
        if g.sleep is None
        else (g.sleep.to_sleep_w - g.idle_w, g.sleep.sleep_w - g.idle_w, g.sleep.wake_w - g.idle_w)
        for g in model.groups
    ]
    rows = np.arange(len(jobs)) if kind is None else kind
    return PowerTables(
        above_w=np.ascontiguousarray(watt - np.stack(held) * idle),
        held=np.stack(held)[:, :, 0],
        kind=np.ascontiguousarray(rows, np.int64),
        may=np.ascontiguousarray(may, np.uint8),
        features=np.ascontiguousarray(features[rows], np.float32),
        state_w=np.array(states, np.float64),
    )


def _building(model: PowerModel, signals: Signals) -> npt.NDArray[Any]:
    """The machine and its building, whose power must be a straight line in that of the IT where it is paid for."""
    idle, full = model.idle_it_w(), model.full_it_w()
    found = np.zeros(1, POWER)
    found["base_w"], found["full_w"] = idle, full
    ends = np.array([0.0, full])
    low, high = model.facility.facility_w(ends)
    found["per_it"], found["fixed_w"] = (high - low) / max(full, 1e-9), low
    between = np.linspace(0.0, full, 17)
    straight = low + (high - low) * between / max(full, 1e-9)
    bent = not np.allclose(model.facility.facility_w(between), straight, rtol=1e-12, atol=1e-9)
    if bent and (signals.carbon is not None or signals.price is not None):
        raise InputError(
            f"the building of the power model {model.name!r} draws more for some watts of the IT than for others (a "
            "curve of the supply, or a chiller); CO2 and cost are paid step by step only where it is a straight line: "
            "leave the supply out and give cooling='pue:1.2'"
        )
    return found
