"""Node sleep policies: the idle timeout and the reserve of awake nodes of each group."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from kilowait.cluster import Cluster, SleepPolicy
from kilowait.cluster.power_controls import StepFunction
from kilowait.energy.controls.parse import SleepRule
from kilowait.energy.power import PowerModel
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.units import format_duration

__all__ = ["describe_sleep", "forecast_awake_nodes", "sleep_policies"]

_HOUR_S = 3600.0
_DAYS = 7


def sleep_policies(policy: SleepRule, jobs: JobTable, cluster: Cluster, model: PowerModel) -> dict[str, SleepPolicy]:
    """The sleep policy of each group of exclusive nodes whose sleep state saves energy."""
    exclusive = [(g, p) for g, p in zip(cluster.groups, model.groups, strict=True) if not g.shared]
    if not exclusive:
        raise InputError(
            f"sleep={policy.kind}: all groups of the cluster {cluster.name!r} have nodes that jobs share; only nodes "
            "that are allocated to one job at a time can sleep"
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


def describe_sleep(rule: SleepRule, sleep: Mapping[str, SleepPolicy]) -> str:
    """The sleep policies as text."""
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
