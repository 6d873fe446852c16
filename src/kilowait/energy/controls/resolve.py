"""From a text to what a run is made with: levers for the clock, jobs with holds, level tables for the accounts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, PowerControls, SleepPolicy
from kilowait.cluster.power_controls import StepFunction
from kilowait.energy.accounting.job_power import ClassTable, full_speed_w, held_nodes
from kilowait.energy.controls.parse import ControlSpec, ShiftRule, parse_levers
from kilowait.energy.controls.sleep import sleep_words, sleeping
from kilowait.energy.load_shifting import shift_jobs
from kilowait.energy.power import (
    ConstantUtilization,
    GroupPower,
    LevelTable,
    PowerModel,
    UtilizationProfile,
    best_level,
    level_tables,
)
from kilowait.energy.power.utilization import unique_classes, with_planned_power
from kilowait.energy.signals.forecast import Forecast
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.series import Series
from kilowait.units import format_span, parse_span

__all__ = ["ForecastFactory", "ResolvedControls", "resolve_controls", "tables_of"]

_HOUR_S = 3600.0
_DAY_S = 86400.0

ForecastFactory = Callable[[Series, float], Forecast]
"""A forecast of a series that looks so many seconds ahead."""


@dataclass(frozen=True, eq=False)
class ResolvedControls:
    """What a run with levers is made with, and accounted with."""

    levers: PowerControls | None
    """For `kilowait.simulate`; None where none is pulled there."""
    jobs: JobTable
    """With `hold_until_s` where jobs are held."""
    tables: Mapping[str, LevelTable] | None
    """By group, for `account`; None where all jobs run at full speed."""
    words: str
    """What was pulled, for people."""
    budget_w: StepFunction | None = None
    """IT power that is not to be exceeded from each time on, watts; None: no budget."""


def resolve_controls(
    text: str,
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    *,
    profile: UtilizationProfile | None = None,
    carbon: Series | None = None,
    price: Series | None = None,
    foresight: ForecastFactory | None = None,
) -> ResolvedControls:
    """What a run of `jobs` on `cluster` with the levers of `text` is made with.

    `carbon` and `price` are on the log's clock. Jobs are held by what `foresight` tells of them; None: by the signal
    itself, as if it were known. Nothing of a job is looked at but what is known when it is submitted, and its power:
    `predicted_power_w` where the table has that, and then a budget is kept as far as that holds; else what it will
    draw.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[3600], nodes=[2])
    >>> found = resolve_controls("sleep=break-even", jobs, Cluster.from_nodes(4), PowerModel.preset("taurus"))
    >>> round(found.levers.sleep["nodes"].timeout_s), found.words
    (212, 'nodes sleep after 3 min idle and wake in 2 min')
    """
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    asked = parse_levers(text).resolved(fitted, carbon=carbon is not None, price=price is not None)
    if cluster.node_level and asked != ControlSpec():
        raise InputError(
            f"levers {text!r}: the nodes of {cluster.name!r} are placed, and such do not sleep or run at levels, nor "
            "are their jobs held; cap their GPUs (cap_gpus) or place jobs where they take least (energy_by_type)"
        )
    words = []
    sleep: dict[str, SleepPolicy] = {}
    if asked.sleep is not None and asked.sleep.kind != "never":
        sleep = sleeping(asked.sleep, jobs, cluster, fitted)
        words.append(sleep_words(asked.sleep, sleep))
    tables = tables_of(text, jobs, cluster, model, profile)
    levers = PowerControls(sleep=sleep) if sleep else None
    budget_w: StepFunction | None = None
    if tables is not None:
        few, kind = _alike(jobs, cluster, profile)
        planned = tables
        if "predicted_power_w" in jobs:
            planned = tables_of(text, with_planned_power(jobs), cluster, model, profile) or tables
        preferred = watts = None
        steps: StepFunction | None = None
        if asked.slowdown is not None:
            preferred = _each(_preferred(asked.slowdown, planned, few, cluster, fitted, sleep), kind)
            unless = "" if asked.always else " unless more nodes are asked for than are free"
            words.append(
                f"jobs run up to {asked.slowdown:g} times as long at their level of least energy{unless}"
            )
        if asked.budget is not None:
            limit = asked.budget.of(fitted)
            drawn, headroom = _under_budget(limit, planned, few, cluster, fitted, sleep)
            watts, steps = _each(drawn, kind, 1), ((-math.inf, headroom),)
            budget_w = ((-math.inf, math.ceil(limit)),)
            said = f"IT power is kept at or below {limit / 1e3:,.1f} kW"
            if asked.budget.daily is not None:
                lower = asked.budget.daily.of(fitted)
                _, room = _under_budget(lower, planned, few, cluster, fitted, sleep)
                steps = daily_steps(headroom, room, asked.budget.hours, jobs)
                budget_w = daily_steps(math.ceil(limit), math.ceil(lower), asked.budget.hours, jobs)
                said += (
                    f", and {lower / 1e3:,.1f} kW from {asked.budget.hours[0]} to {asked.budget.hours[1]} h"
                )
            words.append(
                said + (", by watts that are expected of jobs" if "predicted_power_w" in jobs else "")
            )
        levers = PowerControls(
            sleep=sleep,
            factor=_each(np.stack([tables[group.name].factor for group in cluster.groups]), kind, 1),
            watts=watts,
            preferred_level=preferred,
            full_speed_backlog_nodes=-1 if preferred is None or asked.always else 0,
            budget=steps,
        )
    if asked.hold is not None:
        jobs, said = _held(asked.hold, jobs, carbon, price, foresight)
        words.append(said)
    return ResolvedControls(levers, jobs, tables, "; ".join(words) or "no levers", budget_w)


def tables_of(
    text: str, jobs: JobTable, cluster: Cluster, model: PowerModel, profile: UtilizationProfile | None = None
) -> dict[str, LevelTable] | None:
    """The level tables a run with the levers of `text` is made with, by group; None where jobs run at full speed.

    All groups have as many levels as the one with most: the others repeat their last.
    """
    fitted = model.for_groups({group.name: group.nodes for group in cluster.groups})
    asked = parse_levers(text).resolved(fitted, carbon=False, price=False)
    if asked.slowdown is None and asked.budget is None:
        return None
    if asked.slowdown is not None and all(len(group.levels) == 1 for group in fitted.groups):
        names = ", ".join(repr(group.name) for group in fitted.groups)
        raise InputError(
            f"dvfs={asked.slowdown:g}: the power model {model.name!r} has no levels for the group {names}; add "
            "[[group.level]] tables to a power file, or leave this lever out"
        )
    few, kind = _alike(jobs, cluster, profile)
    most = max(len(group.levels) for group in fitted.groups)
    tables: dict[str, LevelTable] = {}
    for group, power in zip(cluster.groups, fitted.groups, strict=True):
        table = level_tables(few, full_speed_w(few, group, fitted, profile), power, profile)
        if len(table.names) < most:
            last = [min(level, len(table.names) - 1) for level in range(most)]
            table = LevelTable(
                tuple(table.names[level] for level in last),
                np.ascontiguousarray(table.factor[:, last]),
                np.ascontiguousarray(table.power_w[:, last]),
            )
        if kind is not None:
            table = ClassTable(table.names, table.factor, table.power_w, kind)
        tables[group.name] = table
    return tables


def _alike(
    jobs: JobTable, cluster: Cluster, profile: UtilizationProfile | None
) -> tuple[JobTable, npt.NDArray[np.int64] | None]:
    """One job of each kind, and the kind of each job, where they come in few; else the jobs, and None."""
    use = ConstantUtilization() if profile is None else profile
    return unique_classes(jobs, use, by_cores=any(group.shared for group in cluster.groups))


def _each(of_kind: npt.NDArray[Any], kind: npt.NDArray[np.int64] | None, axis: int = 0) -> npt.NDArray[Any]:
    """For each job what its kind has; one row for all of them where the kinds do not differ."""
    if kind is None:
        return of_kind
    first = of_kind.take([0], axis)
    if (of_kind == first).all():
        shape = list(of_kind.shape)
        shape[axis] = len(kind)
        return np.broadcast_to(first, shape)
    return of_kind.take(kind, axis)


def _preferred(
    slowdown: float,
    tables: Mapping[str, LevelTable],
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    sleep: Mapping[str, SleepPolicy],
) -> npt.NDArray[np.int64]:
    """Least energy, the mean of all groups, none slower than allowed; what nodes draw once they are free counts."""
    freed = np.zeros(len(jobs))
    for group, power in zip(cluster.groups, model.groups, strict=True):
        asleep = power.sleep is not None and group.name in sleep
        after_w = power.sleep.sleep_w if asleep and power.sleep is not None else power.idle_w
        freed += held_nodes(jobs, group) * after_w / len(tables)
    mean = LevelTable(
        next(iter(tables.values())).names,
        np.max([table.factor for table in tables.values()], axis=0),
        np.mean([table.power_w for table in tables.values()], axis=0),
    )
    return best_level(mean, slowdown, freed)


def _under_budget(
    limit: float,
    tables: Mapping[str, LevelTable],
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    sleep: Mapping[str, SleepPolicy],
) -> tuple[npt.NDArray[np.int64], int]:
    """Watts of each job above what its nodes may draw without it, and what is left of the budget for those.

    Nodes that fall asleep, or are woken for nobody in particular, may draw more than idle ones; room is kept for that.
    """
    idle_w = model.idle_it_w()
    full = f"per cent of the {model.full_it_w():,.0f} W that it draws at full load"
    if limit < idle_w:
        raise InputError(
            f"a power budget of {limit:,.0f} W is below the {idle_w:,.0f} W that {model.name!r} draws with every node "
            f"idle; give more, in watts or in {full}"
        )
    base_w, above = model.fixed_it_w(), []
    for group, power in zip(cluster.groups, model.groups, strict=True):
        quiet_w, waking_w = _without_jobs_w(power, sleep.get(group.name))
        base_w += group.nodes * quiet_w
        held = held_nodes(jobs, group)[:, None]
        drawn = np.maximum(tables[group.name].power_w - held * quiet_w, held * (waking_w - quiet_w))
        above.append(np.ceil(np.maximum(drawn, 0.0) - 1e-9).astype(np.int64))
    if limit < base_w:
        raise InputError(
            f"a power budget of {limit:,.0f} W is below the {base_w:,.0f} W that {model.name!r} may draw when its "
            f"nodes fall asleep or wake all at once; give more, in watts or in {full}"
        )
    return np.stack(above), math.floor(limit - base_w)


def daily_steps(usual: int, other: int, hours: tuple[int, int], jobs: JobTable) -> StepFunction:
    """A value that changes at two hours of every day, UTC, on the log's clock; from the first submission on.

    It goes on for 30 days after the last submission; then the last value holds.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[1])
    >>> daily_steps(9, 5, (8, 20), jobs)[:3]
    ((-inf, 9), (28800.0, 5), (72000.0, 9))
    """
    if not len(jobs):
        return ((-math.inf, usual),)
    zero = float(jobs.meta.get("unix_start_s") or 0.0)
    first, last = float(jobs["submit_s"].min()), float(jobs["submit_s"].max())
    day = math.floor((first + zero) / _DAY_S) * _DAY_S - zero
    steps: list[tuple[float, int]] = [(-math.inf, usual)]
    while day <= last + 30 * _DAY_S:
        steps += [(day + hours[0] * _HOUR_S, other), (day + hours[1] * _HOUR_S, usual)]
        day += _DAY_S
    return tuple(steps)


def _without_jobs_w(power: GroupPower, how: SleepPolicy | None) -> tuple[float, float]:
    """The most a node draws that no job holds, and one that wakes for a job."""
    if how is None or power.sleep is None:
        return power.idle_w, power.idle_w
    woken_anyway = how.wake_ahead or any(nodes for _, nodes in how.reserve)
    quiet = max(power.idle_w, power.sleep.to_sleep_w, power.sleep.wake_w if woken_anyway else 0.0)
    return quiet, max(quiet, power.sleep.wake_w)


def _held(
    rule: ShiftRule,
    jobs: JobTable,
    carbon: Series | None,
    price: Series | None,
    foresight: ForecastFactory | None,
) -> tuple[JobTable, str]:
    signal = carbon if rule.signal == "carbon" else price
    if signal is None:
        what = "carbon intensity" if rule.signal == "carbon" else "price"
        raise InputError(
            f"shift={rule.signal}:{rule.rule}:{rule.slack} needs the {what} over time, and none was given; give a file "
            f"with --{rule.signal}, or leave this lever out"
        )
    slack_s, told = rule.slack_s, None
    if foresight is not None and len(jobs):
        own = jobs.column("slack_s")
        longest = max(slack_s.values()) if isinstance(slack_s, Mapping) else slack_s
        longest = max(longest, float(np.max(own, initial=0.0, where=~np.isnan(own))), _DAY_S)
        told = foresight(signal, longest + float(jobs["estimate_s"].max()) + _HOUR_S)
    until = shift_jobs(jobs, signal, rule.rule, slack_s=slack_s, forecast=told)
    until = np.maximum(until, jobs.column("hold_until_s"))
    most = (
        "6 h, 24 h from 2 h of estimate on" if rule.slack == "gaia" else format_span(parse_span(rule.slack))
    )
    by = "a perfect forecast" if told is None else told.describe()
    what = "clean" if rule.signal == "carbon" else "cheap"
    words = f"jobs are held for {what} power by {rule.rule}, at most {most}, with {by}"
    return jobs.with_columns(hold_until_s=until), words
