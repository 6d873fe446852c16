"""When nodes sleep, and how many are kept awake."""

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
from kilowait.units import format_span

__all__ = ["forecast_demand", "sleep_words", "sleeping"]

_HOUR_S = 3600.0
_DAYS = 7


def sleeping(rule: SleepRule, jobs: JobTable, cluster: Cluster, model: PowerModel) -> dict[str, SleepPolicy]:
    """By group, those of whole nodes that have a way to sleep which saves something."""
    whole = [(g, p) for g, p in zip(cluster.groups, model.groups, strict=True) if not g.shared]
    if not whole:
        raise InputError(
            f"sleep={rule.kind}: the cluster {cluster.name!r} has only groups whose nodes are shared among jobs; whole "
            "nodes alone can be put to sleep"
        )
    if all(power.sleep is None for _, power in whole):
        names = ", ".join(repr(power.name) for _, power in whole)
        raise InputError(
            f"sleep={rule.kind}: the power model {model.name!r} has no sleep states for the group {names}; add a "
            "[group.sleep] table to a power file, or leave this lever out"
        )
    found = {}
    for group, power in whole:
        if power.sleep is None:
            continue
        timeout_s = power.sleep.break_even_s(power.idle_w) if rule.timeout_s is None else rule.timeout_s
        if math.isinf(timeout_s):
            continue
        reserve: StepFunction = ((-math.inf, min(rule.reserve, group.nodes)),)
        if rule.kind == "predictive":
            reserve = forecast_demand(jobs, power.sleep.wake_s, group.nodes / cluster.nodes, group.nodes)
        found[group.name] = SleepPolicy(
            timeout_s=timeout_s,
            shutdown_s=power.sleep.to_sleep_s,
            wake_s=power.sleep.wake_s,
            reserve=reserve,
            wake_ahead=rule.kind == "predictive",
        )
    return found


def forecast_demand(jobs: JobTable, span_s: float, share: float, most: int) -> StepFunction:
    """Nodes to be kept awake, hour by hour: `share` of those that jobs are expected to ask for within `span_s`.

    Expected is the mean of the same hour over the seven days before, or those of them that the log has. Jobs of the
    hour itself are never counted.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 86400], runtime_s=[9, 9], nodes=[12, 1])
    >>> forecast_demand(jobs, 600, 1.0, 64)
    ((-inf, 0), (86400.0, 2), (90000.0, 0))
    """
    if not len(jobs):
        return ((-math.inf, 0),)
    hour = np.floor(jobs["submit_s"] / _HOUR_S).astype(np.int64)
    first = int(hour.min())
    count = int(hour.max()) - first + 2
    asked = np.bincount(hour - first, jobs["nodes"], count)
    seen, days = np.zeros(count), np.zeros(count)
    for day in range(1, _DAYS + 1):
        past = asked[: max(0, count - 24 * day)]
        seen[24 * day :] += past
        days[24 * day :] += 1
    mean = np.divide(seen, days, out=np.zeros(count), where=days > 0)
    wanted = np.minimum(np.ceil(mean * (share * span_s / _HOUR_S)), most).astype(np.int64)
    changed = np.flatnonzero(np.diff(wanted, prepend=0))
    steps = [(float((first + at) * _HOUR_S), int(wanted[at])) for at in changed.tolist()]
    return ((-math.inf, 0), *steps)


def sleep_words(rule: SleepRule, sleep: Mapping[str, SleepPolicy]) -> str:
    """For people."""
    if not sleep:
        return "nodes never sleep, as that would save nothing"
    timeouts, wakes = (
        " to ".join(dict.fromkeys((format_span(min(times)), format_span(max(times)))))
        for times in ([how.timeout_s for how in sleep.values()], [how.wake_s for how in sleep.values()])
    )
    more = f", {rule.reserve:,} of a group kept awake" if rule.reserve else ""
    if rule.kind == "predictive":
        more = ", ahead of reservations and of the demand forecast from the days before"
    return f"nodes sleep after {timeouts} idle and wake in {wakes}{more}"
