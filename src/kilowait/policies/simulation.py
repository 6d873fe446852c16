"""`simulate`: jobs, a cluster and a policy in; what happened out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, PowerControls
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import run_simulation
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies.registry import GpuRunPolicy, HasRule, RunPolicy, resolve
from kilowait.policies.round_based import StepPolicy, step_decider

__all__ = ["default_gpu_settings", "simulate"]


def simulate(
    jobs: JobTable,
    cluster: Cluster,
    policy: str | PriorityPolicy | HasRule | RunPolicy | GpuRunPolicy | StepPolicy = "fcfs",
    backfill: str | int = "none",
    *,
    backfill_order: str | PriorityPolicy | None = None,
    at_limit: str = "extend",
    schedule_per: str = "instant",
    placement: str | None = None,
    dependencies: bool = True,
    on_oversized: str = "error",
    overrun: str | None = None,
    levers: PowerControls | None = None,
    placing: GpuSettings | None = None,
    speeds: Speeds | None = None,
    preference: npt.NDArray[np.float64] | None = None,
) -> ExecutionLog:
    """Replay `jobs` on `cluster` under a policy: its name, a rule of one's own, or an agent.

    `backfill` is none, easy, conservative or a number of reservations; `backfill_order` an own order for its
    candidates ("sjf" makes EASY into EASY-SJBF). `at_limit`: extend lets jobs run as long as the log says, kill ends
    them at their limit (`limit_s`) or, without one, at their estimate. `schedule_per`: one scheduling pass per
    instant, or
    per event. `placement` among several groups: first that fits (so it is without a word, unless the policy brings
    its own), or balance. `on_oversized` jobs: error, or reject. `overrun`: what planners believe of a job that runs on
    past what was planned: double (so it is without a word, unless the policy brings its own), steps or later.
    `levers`: sleeping nodes, levels of speed, a power budget; `kilowait.energy` makes them.

    On a cluster of placed nodes (GPU presets such as gpu-mixed) `placement` chooses the node (first, best, fgd, ...),
    `backfill` is none (the first job that does not fit keeps the others waiting) or skip, and `placing` says all else:
    preemption, migration, checkpoints, rounds; without it the policy's own way is taken. `speeds` says how fast each
    job runs on each GPU type, `preference` which types it tries first (with ``placing.types="given"``).

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60], nodes=[3, 2])
    >>> simulate(jobs, Cluster.from_nodes(4)).jobs()["start_s"].tolist()
    [0.0, 60.0]
    """
    if cluster.node_level:
        for name, value, usual in (
            ("backfill_order", backfill_order, None),
            ("schedule_per", schedule_per, "instant"),
            ("overrun", overrun, None),
            ("levers", levers, None),
        ):
            if value is not usual and value != usual:
                raise InputError(
                    f"{name} is {value!r}; a cluster of placed nodes has no such thing: leave it out"
                )
        own: dict[str, Any] = {} if placement is None else {"placement": placement}
        settings = placing or default_gpu_settings(
            policy, backfill, **own, at_limit=at_limit, on_oversized=on_oversized
        )
        if isinstance(policy, GpuRunPolicy):
            return policy.played_on(jobs, cluster, settings, speeds, preference)
        decider = step_decider(policy)
        rule = None if decider is not None else resolve(policy)  # type: ignore[arg-type]
        if rule is not None and rule.observes_jobs:
            raise InputError(
                f"policy {rule.name!r} remembers jobs that have ended, and placed nodes tell it of none; "
                "take it on a cluster of whole nodes"
            )
        simulator = GpuSimulator(jobs, cluster, settings, rule=rule, speeds=speeds, preference=preference)
        if decider is None:
            simulator.run()
        else:
            decider.play(simulator)
        return simulator.log(decider.name if decider is not None else None)
    if (
        placing is not None
        or speeds is not None
        or preference is not None
        or step_decider(policy) is not None
    ):
        raise InputError(
            f"cluster {cluster.name!r} gives out whole nodes or pools; placing, speeds, preference and policies that "
            "allocate GPUs in rounds are for clusters of placed nodes, such as the preset gpu-mixed"
        )
    plain = Settings(
        backfill=backfill,
        at_limit=at_limit,
        schedule_per=schedule_per,
        placement="first" if placement is None else placement,
        dependencies=dependencies,
        on_oversized=on_oversized,
        overrun=overrun or "double",
    )
    if isinstance(policy, RunPolicy):
        if backfill_order is not None:
            raise InputError(
                f"backfill_order is {backfill_order!r}, but agent {policy.name!r} brings its own: leave it out"
            )
        return policy.played(jobs, cluster, plain, levers)
    rule = resolve(policy)  # type: ignore[arg-type]
    if rule.node_level:
        raise InputError(
            f"policy {rule.name!r} looks at what only placed nodes know; cluster {cluster.name!r} has none: "
            "take a preset such as gpu-mixed, or groups with node_level = true"
        )
    order = rule.backfill_order if backfill_order is None else resolve(backfill_order)
    if rule.placement is not None:
        plain = replace(plain, placement=rule.placement)
    if rule.overrun is not None and overrun is None:
        plain = replace(plain, overrun=rule.overrun)
    return run_simulation(jobs, cluster, rule, plain, order, levers)


def default_gpu_settings(
    policy: str | PriorityPolicy | HasRule | RunPolicy | GpuRunPolicy | StepPolicy,
    backfill: str | int = "none",
    **settings: object,
) -> GpuSettings:
    """How a policy is meant to run on placed nodes, with these settings besides.

    >>> default_gpu_settings("srtf").preempt, default_gpu_settings("fcfs", "skip").head_of_line_blocking
    (True, False)
    """
    if backfill not in ("none", "skip"):
        raise InputError(
            f"backfill is {backfill!r}; placed nodes know no reservations: take none (the first job that does not fit "
            "keeps the others waiting) or skip (the next are tried)"
        )
    if isinstance(policy, GpuRunPolicy):
        # It chooses whoever fits; what else it is meant to have it may bring as rules do.
        free: Any = {**dict(getattr(policy, "placing", ())), **settings, "head_of_line_blocking": False}
        return GpuSettings(**free)
    decider = step_decider(policy)
    own = dict(decider.placing if decider is not None else resolve(policy).gpu_settings)  # type: ignore[arg-type]
    return GpuSettings(**{**own, "head_of_line_blocking": backfill == "none", **settings})
