"""`simulate`: jobs, a cluster and a policy in; an execution log out."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, PowerControls
from kilowait.cluster.gpu_speeds import Speeds, speeds_for
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.policy import Policy, RunInputs
from kilowait.engine.settings import Settings
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies.registry import AnyPolicy, as_policy, resolve

if TYPE_CHECKING:
    from kilowait.energy import PowerModel, ResolvedControls


def simulate(
    jobs: JobTable,
    cluster: Cluster,
    policy: AnyPolicy = "fcfs",
    backfill: str | int | None = None,
    *,
    settings: Settings | GpuSettings | None = None,
    backfill_order: str | PriorityPolicy | None = None,
    power_controls: PowerControls | ResolvedControls | str | None = None,
    power: PowerModel | str | None = None,
    speeds: Speeds | None = None,
    preference: npt.NDArray[np.float64] | None = None,
    **changes: Any,
) -> ExecutionLog:
    """Replay `jobs` on `cluster` under a policy.

    Every default of a run is a field of `Settings` or, on node-level (GPU) clusters, of `GpuSettings`; the command
    line and `compare` take the same ones.

    Args:
        jobs: the workload.
        cluster: the machine.
        policy: a name with parameters ("sjf", "multifactor:age=500"), a function decorated with `kilowait.policy`, an
            agent, a function that maps a view to a choice, or any object with the protocol `kilowait.Policy`.
        backfill: easy, conservative, none or a number of reservations; on GPU clusters none (the first job that does
            not fit blocks those behind it) or skip. None: as in `settings`, which say easy (GPU clusters: none).
        settings: all settings of the run; None: the defaults with those that the policy recommends.
        backfill_order: order of the backfill candidates, such as "sjf" for EASY-SJBF; None: that of the policy.
        power_controls: node sleep, DVFS states, power budget and load shifting: a text ("sleep=break-even+dvfs=1.1",
            which needs `power`), or the result of `kilowait.energy.resolve_controls`, which also takes carbon
            intensity, price and utilization. The log records the text, and `kilowait.account_energy` uses it.
        power: the power model of a text of power controls, or the name of a preset such as "taurus".
        speeds: speed of each job on each GPU type; None: as the setting `gpu_speeds` says.
        preference: (GPU types, jobs), the types a job tries first, smaller first; for ``gpu_type_order="given"``.
        changes: single settings by name, such as ``at_limit="kill"`` or ``preempt=True``.

    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60], nodes=[3, 2])
    >>> simulate(jobs, Cluster.from_nodes(4)).jobs()["start_s"].tolist()
    [0.0, 60.0]
    >>> slow = simulate(jobs, Cluster.from_nodes(4), power_controls="dvfs=1.3:always", power="taurus")
    >>> slow.jobs()["end_s"].round(1).tolist()
    [76.4, 152.7]
    """
    jobs = cluster.sized(jobs)
    if isinstance(power_controls, str):
        power_controls = _resolve_controls(power_controls, jobs, cluster, power)
    elif power is not None:
        raise InputError(
            f"power is {power!r}, but power_controls is no text; give power_controls such as 'sleep=break-even', or "
            "leave power out (kilowait.account_energy takes the power model)"
        )
    if power_controls is not None and not isinstance(power_controls, PowerControls):
        log = simulate(
            power_controls.jobs, cluster, policy, backfill, settings=settings, backfill_order=backfill_order,
            power_controls=power_controls.controls, speeds=speeds, preference=preference, **changes,
        )  # fmt: skip
        recorded = {} if power_controls.text == "none" else {"power_controls": power_controls.text}
        return replace(log, jobs_table=jobs, run={**log.run, **recorded})  # jobs without hold_until_s of load shifting
    resolved_policy = as_policy(policy)
    chosen: Settings | GpuSettings
    if cluster.node_level:
        _refuse(cluster, backfill_order=backfill_order, power_controls=power_controls)
        chosen = gpu_settings_for(resolved_policy, backfill, settings, **changes)
        if speeds is None:
            speeds = speeds_for(chosen.gpu_speeds, jobs, cluster)
    else:
        _refuse(cluster, speeds=speeds, preference=preference)
        chosen = settings_for(resolved_policy, jobs, backfill, settings, **changes)
    order = None if backfill_order is None else resolve(backfill_order)
    return resolved_policy.run(RunInputs(jobs, cluster, chosen, order, power_controls, speeds, preference))


def _resolve_controls(text: str, jobs: JobTable, cluster: Cluster, power: PowerModel | str | None) -> ResolvedControls:
    """The power controls of a text with a power model or the name of a preset."""
    from kilowait.energy import PowerModel, resolve_controls

    if power is None:
        raise InputError(
            f"power_controls {text!r} need a power model; give power: a kilowait.energy.PowerModel or the name of a "
            "preset, such as power='taurus'"
        )
    return resolve_controls(text, jobs, cluster, PowerModel.preset(power) if isinstance(power, str) else power)


def settings_for(
    policy: Policy,
    jobs: JobTable,
    backfill: str | int | None = None,
    settings: Settings | GpuSettings | None = None,
    **changes: Any,
) -> Settings:
    """The settings of a run on whole nodes: those given or the defaults, changed by name.

    Without settings, `overrun` is that of the policy, else quantile where the jobs have `overrun_planned_s`.
    """
    if isinstance(settings, GpuSettings):
        raise InputError("these are GpuSettings, and the cluster has whole nodes: give Settings")
    known = [each.name for each in fields(Settings)]
    for name in changes:
        if name not in known:
            if name in {each.name for each in fields(GpuSettings)}:
                raise InputError(
                    f"{name} is a setting of node-level (GPU) clusters, such as the preset gpu-mixed; this cluster has "
                    "whole nodes: leave it out"
                )
            raise UnknownNameError("setting", name, known)
    if backfill is not None:
        changes["backfill"] = backfill
    chosen = {name: value for name, value in changes.items() if value is not None}
    if settings is None and "overrun" not in chosen:
        predicted = "quantile" if "overrun_planned_s" in jobs else Settings.overrun
        chosen["overrun"] = getattr(policy, "overrun", None) or predicted
    return replace(settings or Settings(), **chosen)


def gpu_settings_for(
    policy: AnyPolicy, backfill: str | int | None = None, settings: Settings | GpuSettings | None = None, **changes: Any
) -> GpuSettings:
    """The settings of a run on a node-level cluster: those given or those that the policy recommends, changed by name.

    >>> from kilowait.policies.registry import as_policy
    >>> (gpu_settings_for(as_policy("srtf")).preempt, gpu_settings_for(as_policy("fcfs"), "skip").head_of_line_blocking)
    (True, False)
    """
    if isinstance(settings, Settings):
        raise InputError("these are Settings of whole nodes, and the cluster is node_level: give GpuSettings")
    if backfill not in (None, "none", "skip"):
        raise InputError(
            f"backfill is {backfill!r}; GPU clusters have no reservations: use none (the first job that does not fit "
            "blocks those behind it) or skip (the next ones are tried)"
        )
    known = [each.name for each in fields(GpuSettings)]
    for name in list(changes):
        if name not in known:
            value = changes.pop(name)
            if name not in {each.name for each in fields(Settings)}:
                raise UnknownNameError("setting", name, known)
            if value is not None and value != getattr(Settings, name):
                raise InputError(f"{name} is {value!r}; GPU clusters have no such setting: leave it out")
    resolved_policy = as_policy(policy)
    defaults = dict(getattr(resolved_policy, "gpu_settings", ())) if settings is None else {}
    chosen = {name: value for name, value in changes.items() if value is not None}
    if backfill is not None:
        defaults["head_of_line_blocking"] = backfill == "none"
    if getattr(resolved_policy, "skips", False):  # it chooses among all jobs that fit, so no job blocks others
        defaults["head_of_line_blocking"] = False
    fixed = dict(getattr(resolved_policy, "fixed_gpu_settings", ()))
    return replace(settings or GpuSettings(), **{**defaults, **chosen, **fixed})


def _refuse(cluster: Cluster, **given: object) -> None:
    """Raise an error for arguments that do not apply to this kind of cluster."""
    kind = "a node-level (GPU) cluster" if cluster.node_level else "a cluster of whole nodes"
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} does not apply to {cluster.name!r}, which is {kind}: leave it out")
