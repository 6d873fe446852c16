"""Resolve a power-control text into the inputs of a run.

The result holds the power controls of the simulator (for node sleep the idle timeout and the reserve of awake nodes of
each group), the jobs with their shifted start times, and the DVFS tables for energy accounting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, NodeGroup, PowerControls, SleepPolicy
from kilowait.cluster.power_controls import StepFunction
from kilowait.energy.accounting.job_power import DvfsTableByClass, full_speed_w, held_nodes
from kilowait.energy.controls.parse import ControlSpec, ShiftRule, SleepRule, parse_controls
from kilowait.energy.load_shifting import shift_jobs
from kilowait.energy.power import DvfsTable, GroupPower, PowerModel, UtilizationProfile, best_level, level_tables
from kilowait.energy.power.utilization import unique_classes, with_planned_power
from kilowait.energy.signals.forecast import Forecast
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.series import Series
from kilowait.units import format_duration

_HOUR_S = 3600.0
_DAY_S = 86400.0

ForecastFactory = Callable[[Series, float], Forecast]
"""Makes a forecast of a series with a horizon in seconds."""


@dataclass(frozen=True, eq=False)
class ResolvedControls:
    """Power controls as inputs of a run and of its energy accounting."""

    controls: PowerControls | None
    """For `kilowait.simulate`; None if the simulator applies none."""
    jobs: JobTable
    """The jobs, with `hold_until_s` where they are shifted."""
    tables: Mapping[str, DvfsTable] | None
    """DVFS table of each group, for `account_energy`; None if all jobs run at full speed."""
    description: str
    """The applied controls as a sentence."""
    text: str = "none"
    """The text that was resolved; `kilowait.simulate` records it in the log."""
    budget_w: StepFunction | None = None
    """Limit of IT power from each time on, watts; None: no power budget."""


def resolve_controls(
    text: str,
    jobs: JobTable,
    cluster: Cluster,
    model: PowerModel,
    *,
    utilization: UtilizationProfile | None = None,
    carbon: Series | None = None,
    price: Series | None = None,
    make_forecast: ForecastFactory | None = None,
) -> ResolvedControls:
    """Resolve the power controls of `text` for a run of `jobs` on `cluster`.

    `carbon` and `price` are in the log's time. Jobs are shifted by the forecasts that `make_forecast` makes of them;
    None: by the signal itself, as a perfect forecast. Of a job only what is known at submission is used, and its power:
    `predicted_power_w` if the table has that column (the power budget then holds as far as the predictions do), else
    the power that it will draw.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[3600], nodes=[2])
    >>> controls = resolve_controls("sleep=break-even", jobs, Cluster.from_nodes(4), PowerModel.preset("taurus"))
    >>> round(controls.controls.sleep["nodes"].timeout_s), controls.description
    (212, 'nodes sleep after 3 min idle and wake in 2 min')
    """
    fitted = model.for_cluster(cluster)
    spec = parse_controls(text).resolved(fitted, carbon=carbon is not None, price=price is not None)
    if cluster.node_level and spec != ControlSpec():
        raise InputError(
            f"power controls {text!r}: {cluster.name!r} is a node-level GPU cluster, which has no node sleep, DVFS or "
            "load shifting; cap its GPUs (cap_gpus) or place jobs where they use least energy (energy_by_type)"
        )
    parts = []
    sleep: dict[str, SleepPolicy] = {}
    if spec.sleep is not None and spec.sleep.kind != "never":
        sleep = _sleep_policies(spec.sleep, jobs, cluster, fitted)
        parts.append(_describe_sleep(spec.sleep, sleep))
    tables = dvfs_tables(text, jobs, cluster, model, utilization)
    controls = PowerControls(sleep=sleep) if sleep else None
    budget_w: StepFunction | None = None
    if tables is not None:
        classes, row = unique_classes(jobs, utilization, by_cores=any(group.shared for group in cluster.groups))
        planned = tables
        if "predicted_power_w" in jobs:
            planned = dvfs_tables(text, with_planned_power(jobs), cluster, model, utilization) or tables
        planner = _LevelPlanner(planned, classes, cluster, fitted, sleep)
        preferred = watts = None
        steps: StepFunction | None = None
        if spec.slowdown is not None:
            preferred = _per_job(planner.least_energy_level(spec.slowdown), row)
            unless = "" if spec.always else " unless more nodes are requested than are free"
            parts.append(f"jobs run in their DVFS state of least energy, up to {spec.slowdown:g} times as long{unless}")
        if spec.budget is not None:
            limit = spec.budget.of(fitted)
            class_w, headroom = planner.budget_power(limit)
            watts, steps = _per_job(class_w, row, 1), ((-math.inf, headroom),)
            budget_w = ((-math.inf, math.ceil(limit)),)
            description = f"IT power stays at or below {limit / 1e3:,.1f} kW"
            if spec.budget.daily is not None:
                lower = spec.budget.daily.of(fitted)
                _, lower_headroom = planner.budget_power(lower)
                steps = daily_steps(headroom, lower_headroom, spec.budget.hours, jobs)
                budget_w = daily_steps(math.ceil(limit), math.ceil(lower), spec.budget.hours, jobs)
                description += f", and {lower / 1e3:,.1f} kW from {spec.budget.hours[0]} to {spec.budget.hours[1]} h"
            parts.append(description + (", by the predicted power of jobs" if "predicted_power_w" in jobs else ""))
        controls = PowerControls(
            sleep=sleep,
            factor=_per_job(np.stack([tables[group.name].factor for group in cluster.groups]), row, 1),
            watts=watts,
            preferred_level=preferred,
            full_speed_backlog_nodes=-1 if preferred is None or spec.always else 0,
            budget=steps,
        )
    if spec.shift is not None:
        jobs, description = _shift(spec.shift, jobs, carbon, price, make_forecast)
        parts.append(description)
    return ResolvedControls(controls, jobs, tables, "; ".join(parts) or "no power controls", text, budget_w)


def dvfs_tables(
    text: str, jobs: JobTable, cluster: Cluster, model: PowerModel, utilization: UtilizationProfile | None = None
) -> dict[str, DvfsTable] | None:
    """The DVFS table of each group for the power controls of `text`; None if all jobs run at full speed.

    All tables have as many DVFS states as the group with the most; the others repeat their last state.
    """
    fitted = model.for_cluster(cluster)
    spec = parse_controls(text).resolved(fitted, carbon=False, price=False)
    if spec.slowdown is None and spec.budget is None:
        return None
    if spec.slowdown is not None and all(len(group.levels) == 1 for group in fitted.groups):
        names = ", ".join(repr(group.name) for group in fitted.groups)
        raise InputError(
            f"dvfs={spec.slowdown:g}: the power model {model.name!r} has no DVFS states for the group {names}; add "
            "[[group.level]] tables to a power file, or leave this power control out"
        )
    classes, row = unique_classes(jobs, utilization, by_cores=any(group.shared for group in cluster.groups))
    max_levels = max(len(group.levels) for group in fitted.groups)
    tables: dict[str, DvfsTable] = {}
    for group, power in zip(cluster.groups, fitted.groups, strict=True):
        watts, nodes = full_speed_w(classes, group, fitted, utilization), held_nodes(classes, group)
        table = level_tables(classes, watts, power, utilization, nodes=nodes)
        if len(table.names) < max_levels:
            last = [min(level, len(table.names) - 1) for level in range(max_levels)]
            table = DvfsTable(
                tuple(table.names[level] for level in last),
                np.ascontiguousarray(table.factor[:, last]),
                np.ascontiguousarray(table.power_w[:, last]),
            )
        if row is not None:
            table = DvfsTableByClass(table.names, table.factor, table.power_w, row)
        tables[group.name] = table
    return tables


def _per_job(values: npt.NDArray[Any], row: npt.NDArray[np.int64] | None, axis: int = 0) -> npt.NDArray[Any]:
    """The value of each job from the values of its class; a broadcast view where all classes have the same."""
    if row is None:
        return values
    first = values.take([0], axis)
    if (values == first).all():
        shape = list(values.shape)
        shape[axis] = len(row)
        return np.broadcast_to(first, shape)
    return values.take(row, axis)


@dataclass(frozen=True, eq=False)
class _LevelPlanner:
    """What power controls know of the jobs (one of each class) and of the nodes when they choose DVFS states."""

    tables: Mapping[str, DvfsTable]
    jobs: JobTable
    cluster: Cluster
    model: PowerModel
    sleep: Mapping[str, SleepPolicy]

    def _groups(self) -> Iterator[tuple[NodeGroup, GroupPower]]:
        return zip(self.cluster.groups, self.model.groups, strict=True)

    def least_energy_level(self, slowdown: float) -> npt.NDArray[np.int64]:
        """The DVFS state of least energy of each job: mean over the groups, slowdown limit in each of them.

        Energy counts above what the nodes draw once the job has ended.
        """
        freed = np.zeros(len(self.jobs))
        for group, power in self._groups():
            asleep = power.sleep is not None and group.name in self.sleep
            after_w = power.sleep.sleep_w if asleep and power.sleep is not None else power.idle_w
            freed += held_nodes(self.jobs, group) * after_w / len(self.tables)
        tables = list(self.tables.values())
        mean = DvfsTable(
            tables[0].names,
            np.max([table.factor for table in tables], axis=0),
            np.mean([table.power_w for table in tables], axis=0),
        )
        return best_level(mean, slowdown, freed)

    def budget_power(self, limit_w: float) -> tuple[npt.NDArray[np.int64], int]:
        """Watts of each job above what its nodes may draw without it, and the part of the power budget left for these.

        Nodes that go to sleep, or are woken ahead of demand, may draw more than idle ones; the budget reserves that
        power.
        """
        name, idle_w = self.model.name, self.model.idle_it_w()
        full = f"per cent of the {self.model.full_it_w():,.0f} W that it draws at full load"
        if limit_w < idle_w:
            raise InputError(
                f"a power budget of {limit_w:,.0f} W is below the {idle_w:,.0f} W that {name!r} draws with every node "
                f"idle; give a larger one, in watts or in {full}"
            )
        base_w, above = self.model.fixed_it_w(), []
        for group, power in self._groups():
            free_w, waking_w = _free_node_w(power, self.sleep.get(group.name))
            base_w += group.nodes * free_w
            nodes = held_nodes(self.jobs, group)[:, None]
            job_w = np.maximum(self.tables[group.name].power_w - nodes * free_w, nodes * (waking_w - free_w))
            above.append(np.ceil(np.maximum(job_w, 0.0) - 1e-9).astype(np.int64))
        if limit_w < base_w:
            raise InputError(
                f"a power budget of {limit_w:,.0f} W is below the {base_w:,.0f} W that {name!r} may draw when its "
                f"nodes go to sleep or wake all at once; give a larger one, in watts or in {full}"
            )
        return np.stack(above), math.floor(limit_w - base_w)


def daily_steps(default: int, other: int, hours: tuple[int, int], jobs: JobTable) -> StepFunction:
    """A step function that is `other` between two hours of every day (UTC) and `default` otherwise, in the log's time.

    It changes daily from the first submission until 30 days after the last one; then the last value stays.

    >>> jobs = JobTable(job_id=[1], submit_s=[0], runtime_s=[60], nodes=[1])
    >>> daily_steps(9, 5, (8, 20), jobs)[:3]
    ((-inf, 9), (28800.0, 5), (72000.0, 9))
    """
    if not len(jobs):
        return ((-math.inf, default),)
    zero = float(jobs.meta.get("unix_start_s") or 0.0)
    first, last = float(jobs["submit_s"].min()), float(jobs["submit_s"].max())
    day = math.floor((first + zero) / _DAY_S) * _DAY_S - zero
    steps: list[tuple[float, int]] = [(-math.inf, default)]
    while day <= last + 30 * _DAY_S:
        steps += [(day + hours[0] * _HOUR_S, other), (day + hours[1] * _HOUR_S, default)]
        day += _DAY_S
    return tuple(steps)


def _free_node_w(power: GroupPower, policy: SleepPolicy | None) -> tuple[float, float]:
    """The maximum power of a node without a job, and of one that wakes for a job."""
    if policy is None or power.sleep is None:
        return power.idle_w, power.idle_w
    wakes_without_job = policy.wake_ahead or any(nodes for _, nodes in policy.reserve)
    free_w = max(power.idle_w, power.sleep.to_sleep_w, power.sleep.wake_w if wakes_without_job else 0.0)
    return free_w, max(free_w, power.sleep.wake_w)


def _shift(
    policy: ShiftRule,
    jobs: JobTable,
    carbon: Series | None,
    price: Series | None,
    make_forecast: ForecastFactory | None,
) -> tuple[JobTable, str]:
    """The jobs with `hold_until_s`, and the load shifting as text."""
    signal, quantity = (carbon, "carbon intensity") if policy.signal == "carbon" else (price, "price")
    if signal is None:
        raise InputError(
            f"shift={policy.signal}:{policy.policy}:{policy.slack} needs the {quantity} over time; give a file "
            f"with --{policy.signal}, or leave this power control out"
        )
    slack_s, forecast = policy.slack_s, None
    if make_forecast is not None and len(jobs):
        job_slack_s = jobs.column("slack_s")
        longest = max(slack_s.values()) if isinstance(slack_s, Mapping) else slack_s
        longest = max(longest, float(np.max(job_slack_s, initial=0.0, where=~np.isnan(job_slack_s))), _DAY_S)
        forecast = make_forecast(signal, longest + float(jobs["estimate_s"].max()) + _HOUR_S)
    until = shift_jobs(jobs, signal, policy.policy, slack_s=slack_s, forecast=forecast)
    until = np.maximum(until, jobs.column("hold_until_s"))
    limit = "6 h (24 h for estimates from 2 h on)" if isinstance(slack_s, Mapping) else format_duration(slack_s)
    by = "a perfect forecast" if forecast is None else forecast.describe()
    text = f"jobs are shifted to times of low {quantity} by {policy.policy}, by at most {limit}, with {by}"
    return jobs.with_columns(hold_until_s=until), text


# -- node sleep ------------------------------------------------------------------------------------


_DAYS = 7


def _sleep_policies(policy: SleepRule, jobs: JobTable, cluster: Cluster, model: PowerModel) -> dict[str, SleepPolicy]:
    """The sleep policy of each group of exclusive nodes whose sleep state saves energy."""
    exclusive = [(g, p) for g, p in zip(cluster.groups, model.groups, strict=True) if not g.shared]
    if not exclusive:
        raise InputError(
            f"sleep={policy.kind}: all groups of the cluster {cluster.name!r} have nodes that jobs share; only nodes "
            "that are allocated to one job at a time can sleep: allocate whole nodes with --exclusive-nodes"
        )
    if all(power.sleep is None for _, power in exclusive):
        names = ", ".join(repr(power.name) for _, power in exclusive)
        raise InputError(
            f"sleep={policy.kind}: the power model {model.name!r} has no sleep states for the group {names}; add a "
            "[group.sleep] table to a power file, or leave this power control out"
        )
    policies = {}
    for group, power in exclusive:
        if power.sleep is None:
            continue
        timeout_s = power.sleep.break_even_s(power.idle_w) if policy.timeout_s is None else policy.timeout_s
        if math.isinf(timeout_s):
            continue
        reserve: StepFunction = ((-math.inf, min(policy.reserve, group.nodes)),)
        if policy.kind == "predictive":
            reserve = forecast_awake_nodes(jobs, power.sleep.wake_s, group.nodes / cluster.nodes, group.nodes)
        policies[group.name] = SleepPolicy(
            timeout_s=timeout_s,
            shutdown_s=power.sleep.to_sleep_s,
            wake_s=power.sleep.wake_s,
            reserve=reserve,
            wake_ahead=policy.kind == "predictive",
        )
    return policies


def forecast_awake_nodes(jobs: JobTable, span_s: float, share: float, max_nodes: int) -> StepFunction:
    """Nodes to keep awake, hour by hour: `share` of the nodes that jobs are expected to request within `span_s`.

    The expectation is the mean of the same hour over the previous seven days, or those of them that the log covers.
    Jobs of the hour itself are never counted. The result is at most `max_nodes` nodes.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 86400], runtime_s=[9, 9], nodes=[12, 1])
    >>> forecast_awake_nodes(jobs, 600, 1.0, 64)
    ((-inf, 0), (86400.0, 2), (90000.0, 0))
    """
    if not len(jobs):
        return ((-math.inf, 0),)
    hour = np.floor(jobs["submit_s"] / _HOUR_S).astype(np.int64)
    first = int(hour.min())
    count = int(hour.max()) - first + 2
    requested = np.bincount(hour - first, jobs["nodes"], count)
    total, days = np.zeros(count), np.zeros(count)
    for day in range(1, _DAYS + 1):
        past = requested[: max(0, count - 24 * day)]
        total[24 * day :] += past
        days[24 * day :] += 1
    mean = np.divide(total, days, out=np.zeros(count), where=days > 0)
    reserve = np.minimum(np.ceil(mean * (share * span_s / _HOUR_S)), max_nodes).astype(np.int64)
    changed = np.flatnonzero(np.diff(reserve, prepend=0))
    steps = [(float((first + at) * _HOUR_S), int(reserve[at])) for at in changed.tolist()]
    return ((-math.inf, 0), *steps)


def _describe_sleep(rule: SleepRule, sleep: Mapping[str, SleepPolicy]) -> str:
    if not sleep:
        return "nodes never sleep, because sleep saves no energy"
    timeouts, wakes = (
        " to ".join(dict.fromkeys((format_duration(min(times)), format_duration(max(times)))))
        for times in ([policy.timeout_s for policy in sleep.values()], [policy.wake_s for policy in sleep.values()])
    )
    suffix = f", {rule.reserve:,} of each group stay awake" if rule.reserve else ""
    if rule.kind == "predictive":
        suffix = ", ahead of reservations and of the demand forecast from the previous days"
    return f"nodes sleep after {timeouts} idle and wake in {wakes}{suffix}"
