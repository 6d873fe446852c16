"""Weighted policies: Slurm-like multifactor priority, user fair share, ALCF's formula for Polaris, WFP with a boost.

Weights are passed in the parameters array, so that changing one needs no compilation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.interface import PriorityPolicy
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies.compile import compiled_score
from kilowait.units import parse_duration

WEEK_S = 604800.0
ALCF_WALLTIME_S = (21600.0, 43200.0)
"""Shortest and longest walltime that counts in Polaris' formula."""
# Indices into the parameters of multifactor; the factors of QOS and queues follow.
AGE, MAX_AGE, SIZE, TOTAL_NODES, FAIR, SHARE, QOS, QOS_COUNT, QUEUE, FACTORS = range(10)


def _multifactor(job: Any, now: float, parameters: Any) -> float:
    age = min((now - job.submit_s) / parameters[MAX_AGE], 1.0)
    priority = parameters[AGE] * age + parameters[SIZE] * (job.units / parameters[TOTAL_NODES])
    priority += parameters[FAIR] * 2.0 ** (-job.usage_share / parameters[SHARE])
    if job.qos >= 0:
        priority += parameters[QOS] * parameters[FACTORS + job.qos]
    if job.queue >= 0:
        priority += parameters[QUEUE] * parameters[FACTORS + int(parameters[QOS_COUNT]) + job.queue]
    return -priority


def _fair_share(job: Any, now: float, parameters: Any) -> float:
    return job.usage_share


def _alcf_wfp(job: Any, now: float, parameters: Any) -> float:
    boost = parameters[1] if job.units >= parameters[0] else 1.0
    return -(((now - job.submit_s) / job.estimate_s) ** 3 * job.units * boost)


def _alcf(job: Any, now: float, parameters: Any) -> float:
    walltime_s = min(max(job.estimate_s, ALCF_WALLTIME_S[0]), ALCF_WALLTIME_S[1])
    project_priority = parameters[1 + job.account] if job.account >= 0 else 1.0
    return -((now - job.submit_s) ** 2 / walltime_s**3 * project_priority * (job.units / parameters[0]))


def multifactor(
    *,
    age: float = 1000.0,
    size: float = 100.0,
    fair_share: float = 1000.0,
    qos: float = 1000.0,
    queue: float = 1000.0,
    max_age_s: float | str = WEEK_S,
    half_life_s: float | str = WEEK_S,
    qos_factor: Mapping[str, float] | None = None,
    queue_factor: Mapping[str, float] | None = None,
) -> PriorityPolicy:
    """Slurm's multifactor priority: the weighted sum of age, size, fair share, QOS and partition, each 0 to 1.

    Age grows to 1 in `max_age_s`; size is the share of the machine; fair share is 2^(-usage share / equal share)
    of usage with half-life `half_life_s`. `qos_factor` and `queue_factor` map names to factors (default 0).

    >>> multifactor(age=0, queue_factor={"debug": 1.0}).name
    'multifactor'
    """
    max_age, half_life = _seconds("max_age_s", max_age_s), _seconds("half_life_s", half_life_s)
    weights = {"age": age, "size": size, "fair_share": fair_share, "qos": qos, "queue": queue}
    for name, value in weights.items():
        if not np.isfinite(value):
            raise InputError(f"the weight {name} of multifactor is {value}; it must be a finite number")

    def prepare(jobs: JobTable, cluster: Cluster) -> npt.NDArray[np.float64]:
        qos_factors = _factors(jobs, "qos", qos_factor or {})
        queue_factors = _factors(jobs, "queue", queue_factor or {})
        users = max(len(np.unique(jobs.column("user"))), 1)
        constants = [age, max_age, size, cluster.size, fair_share, 1 / users, qos, len(qos_factors), queue]
        return np.concatenate([constants, qos_factors, queue_factors]).astype(np.float64)

    return PriorityPolicy(
        "multifactor",
        compiled_score(_multifactor),
        time_dependent=True,
        half_life_s=half_life,
        monotone=age >= 0 and fair_share >= 0,
        prepare=prepare,
    )


def fair_share(*, half_life_s: float | str = WEEK_S) -> PriorityPolicy:
    """Users with the least recent usage first; usage decays with half-life `half_life_s`."""
    return PriorityPolicy(
        "fair_share",
        compiled_score(_fair_share),
        time_dependent=True,
        half_life_s=_seconds("half_life_s", half_life_s),
        monotone=True,
    )


def alcf(*, project_priority: Mapping[str, float] | None = None) -> PriorityPolicy:
    """As on ALCF's Polaris: wait^2 / walltime^3 x project priority x nodes, the walltime from 6 to 12 hours.

    The published formula is ``wfp_factor * eligible_time^2 / min(max(walltime, 6 h), 12 h)^3 * project_priority *
    nodes / 560``; the constants `wfp_factor` and `base_score` do not change the order. `project_priority` maps names of
    accounts to priorities (default 1).

    >>> alcf(project_priority={"climate": 25.0}).name
    'alcf'
    """
    for name, value in (project_priority or {}).items():
        if not 0 <= value < np.inf:
            raise InputError(f"the project priority of {name!r} is {value}; it must be a number, at least 0")

    def prepare(jobs: JobTable, cluster: Cluster) -> npt.NDArray[np.float64]:
        return np.array([cluster.size, *_factors(jobs, "account", project_priority or {}, default=1.0)], np.float64)

    return PriorityPolicy("alcf", compiled_score(_alcf), time_dependent=True, prepare=prepare)


def alcf_wfp(*, share: float = 0.2, favour: float = 10.0) -> PriorityPolicy:
    """WFP, (wait / estimate)^3 x nodes, times `favour` for jobs of at least `share` of the nodes.

    ALCF's Intrepid used WFP; the boost is an assumption of kilowait. `alcf` is the published formula of Polaris.
    """
    if not 0 < share <= 1 or not favour > 0:
        raise InputError(f"alcf_wfp with share {share} and favour {favour}; need 0 < share <= 1 and favour > 0")

    def prepare(jobs: JobTable, cluster: Cluster) -> npt.NDArray[np.float64]:
        return np.array([share * cluster.size, favour])

    return PriorityPolicy("alcf_wfp", compiled_score(_alcf_wfp), time_dependent=True, monotone=True, prepare=prepare)


def _seconds(name: str, value: float | str) -> float:
    seconds = parse_duration(value) if isinstance(value, str) else float(value)
    if not 0 < seconds < np.inf:
        raise InputError(f"{name} is {value!r}; it must be a positive duration")
    return seconds


def _factors(jobs: JobTable, column: str, factor: Mapping[str, float], default: float = 0.0) -> list[float]:
    """Factor by code of the column; codes without labels are looked up as decimal numbers."""
    if column not in jobs:
        return []
    codes = int(jobs[column].max(initial=-1)) + 1
    names = jobs.labels.get(column) or tuple(str(code) for code in range(codes))
    return [float(factor.get(name, default)) for name in names]
