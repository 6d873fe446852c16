"""Scenarios: the settings of one simulation as plain data, and functions that prepare and run them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.cluster.toml import to_dict
from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.controls import BudgetViolation, budget_violation
from kilowait.engine.settings import Settings
from kilowait.errors import InputError
from kilowait.experiments.gpu_options import (
    BACKFILLS,
    GpuOptions,
    check_placement,
    default_backfill,
    simulate_arguments,
)
from kilowait.experiments.gpu_power_cap import (
    check_controls_supported,
    check_power_controls,
    gpu_cap_description,
    gpu_cap_share,
)
from kilowait.experiments.policy_names import resolve_policy
from kilowait.experiments.power import PowerSettings, make_power_context, with_power
from kilowait.experiments.predicted_power import check_power_predictor, is_saved_power_predictor, with_predicted_power
from kilowait.experiments.predicted_runtimes import check_predictor, is_saved_predictor, with_predicted_runtimes
from kilowait.experiments.saved_predictor import SavedPredictor, saved_predictor
from kilowait.experiments.scenario_inputs import Workload, cluster_load, read_workload, rescale_to_load, resolve_cluster
from kilowait.experiments.train_power import bind_agent_power
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import simulate

__all__ = ["ScenarioResult", "Scenario", "check_backfill", "check_has_power_model", "prepare_scenario", "run_scenario"]

OVERLOAD = 1.2
"""Offered load above which a note is given: the queue grows without bound, so results depend on the log's length."""


@dataclass(frozen=True)
class Scenario:
    """Settings of one simulation; `kilowait.simulate` documents them, `scenario_inputs` their text formats."""

    trace: str
    cluster: str = "auto"
    policy: str = "fcfs"
    backfill: str | int | None = None
    """None: easy; on GPU clusters none."""
    backfill_order: str | None = None
    at_limit: str = Settings.at_limit
    overrun: str | None = None
    """None: the default of the policy, else quantile with the forest predictor, else double."""
    schedule_per: str = Settings.schedule_per
    placement: str | None = None
    """None: first; on GPU clusters the default of the policy."""
    on_oversized: str = Settings.on_oversized
    dependencies: bool = Settings.dependencies
    load: float | None = None
    """Offered load that arrivals are scaled to; None: not scaled."""
    jobs: str | None = None
    """Rows of the trace; None: all."""
    format: str | None = None
    unpack_limit: str | None = None
    """Largest size of the decompressed log, e.g. 64G; None: a quarter of the machine's memory."""
    columns: str | None = None
    strict: bool = False
    runtime_predictor: str | None = None
    """Run-time predictor: a name of `predict_runtimes.PREDICTORS` or a saved predictor; None: user estimates."""
    power_predictor: str | None = None
    """Power predictor (see `predicted_power`) for power controls; None: they use the measured power."""
    power: PowerSettings | None = None
    """Power model and signals of energy accounting; None: no energy accounting."""
    power_controls: str = "none"
    """Power controls: see `kilowait.energy.controls`, and `gpu_power_cap` for GPU clusters."""
    gpu: GpuOptions = field(default_factory=GpuOptions)
    """Placement, preemption and migration on GPU clusters."""

    def __post_init__(self) -> None:
        if self.backfill is not None:
            check_backfill(self.backfill)
        check_placement(self.placement)
        Settings(
            at_limit=self.at_limit,
            overrun=self.overrun or Settings.overrun,
            schedule_per=self.schedule_per,
            dependencies=self.dependencies,
            on_oversized=self.on_oversized,
        )
        if self.runtime_predictor is not None:
            check_predictor(self.runtime_predictor)
        if self.power_predictor is not None:
            if self.power is None:
                raise InputError("--power-predictor has no effect without a power model; name one with --power")
            check_power_predictor(self.power_predictor)
        check_power_controls(self.power_controls)
        check_has_power_model(self.power_controls, self.power)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without settings that have no value."""
        plain = {key: value for key, value in asdict(self).items() if value is not None and key != "gpu"}
        if self.power is not None:
            plain["power"] = self.power.to_dict()
        if self.gpu.changed_options:
            plain["gpu"] = self.gpu.to_dict()
        return plain

    @property
    def settings_dict(self) -> dict[str, Any]:
        """Engine settings except policy and backfill, as plain data."""
        return {
            "backfill_order": self.backfill_order,
            "at_limit": self.at_limit,
            "overrun": self.overrun,
            "schedule_per": self.schedule_per,
            "placement": self.placement,
            "dependencies": self.dependencies,
            "on_oversized": self.on_oversized,
            "gpu": self.gpu.to_dict(),
        }

    @property
    def simulation_settings(self) -> dict[str, Any]:
        """The engine settings with `backfill_order` as a policy object, for `gpu_settings.simulate_arguments`."""
        order = None if self.backfill_order is None else resolve_policy(self.backfill_order)
        return {**self.settings_dict, "backfill_order": order, "gpu": self.gpu}


@dataclass(frozen=True)
class ScenarioResult:
    """A scenario with its execution log and energy accounts."""

    scenario: Scenario
    workload: Workload
    cluster: Cluster
    log: ExecutionLog
    notes: tuple[str, ...] = ()
    """Assumptions that were made, for the user."""
    accounts: EnergyAccounts | None = None
    """Energy accounts, if a power model was given."""
    controls_description: str = ""
    """The power controls as text."""
    budget_violation: BudgetViolation | None = None
    """Excess over the power budget, if there is one."""
    speeds: Speeds | None = None
    """Speed of every job on every GPU type, on GPU clusters; None: the same on all types."""

    def resolved(self) -> dict[str, Any]:
        """The scenario with all fields of the cluster, for scenario.toml."""
        return {**self.scenario.to_dict(), "cluster": to_dict(self.cluster)}


def run_scenario(scenario: Scenario, progress: Callable[[Any], None] | None = None) -> ScenarioResult:
    """Read the jobs, prepare the cluster and run the simulation; `progress` is called after every fit of a predictor.

    >>> run_scenario(Scenario("lublin:20:8", policy="sjf")).log.run["policy"]
    'sjf'
    """
    # Names are checked before the trace is read, which may take long.
    policy, settings = resolve_policy(scenario.policy), scenario.simulation_settings
    workload, cluster, notes = prepare_scenario(scenario, progress)
    notes += workload.leakage_notes
    jobs = workload.jobs
    backfill = default_backfill(cluster.node_level) if scenario.backfill is None else scenario.backfill
    if scenario.power is None:
        policy = bind_agent_power(policy, None, scenario.power_controls)
        arguments = simulate_arguments(settings, jobs, cluster, policy, backfill)
        log = simulate(jobs, cluster, policy, backfill, **arguments)
        accounts, description, violation = None, "", None
    else:
        context = make_power_context(scenario.power, jobs, cluster)
        policy = bind_agent_power(policy, context, scenario.power_controls)
        cap = gpu_cap_share(scenario.power_controls)
        resolved = context.resolve_controls(scenario.power_controls if cap is None else "none", jobs)
        arguments = simulate_arguments(settings, jobs, cluster, policy, backfill, context, scenario.power_controls)
        log = simulate(jobs, cluster, policy, backfill, power_controls=resolved, **arguments)
        accounts = context.account(log, resolved if cap is None else scenario.power_controls)
        description = resolved.description if cap is None else gpu_cap_description(cap)
        violation = None if resolved.budget_w is None else budget_violation(accounts, resolved.budget_w)
    completed = replace(scenario, backfill=backfill, placement=log.run["placement"])
    return ScenarioResult(
        completed, workload, cluster, log, notes, accounts, description, violation, arguments.get("speeds")
    )


def check_backfill(backfill: str | int) -> None:
    """Raise unless batch or GPU clusters support this kind of backfilling."""
    if backfill not in BACKFILLS:
        Settings(backfill=backfill)


def check_has_power_model(power_controls: str, power: PowerSettings | None) -> None:
    """Raise if power controls are given without a power model."""
    if power is None and power_controls.strip() != "none":
        subject = (
            f"power controls {power_controls!r} need"
            if gpu_cap_share(power_controls) is None
            else f"{power_controls} needs"
        )
        raise InputError(f"{subject} a power model; name one with --power")


def prepare_scenario(
    scenario: Scenario, progress: Callable[[Any], None] | None = None
) -> tuple[Workload, Cluster, tuple[str, ...]]:
    """The jobs with scaled arrivals and predictions, the cluster, and notes for the user.

    Callers that evaluate only a part of the jobs call `Workload.evaluated_from`, which notes data leakage of saved
    predictors. `progress` is called after every fit of a predictor.
    """
    workload = read_workload(
        scenario.trace,
        format=scenario.format,
        unpack_limit=scenario.unpack_limit,
        columns=scenario.columns,
        strict=scenario.strict,
        rows=scenario.jobs,
    )
    cluster, note = resolve_cluster(scenario.cluster, workload.jobs)
    check_controls_supported(scenario.power_controls, cluster)
    jobs: JobTable = rescale_to_load(workload.jobs, cluster, scenario.load)
    notes = [note] if note is not None else []
    predictors: tuple[SavedPredictor, ...] = ()
    if cluster.node_level:
        jobs, more = _without_dependencies(jobs, scenario.dependencies)
        notes += more
    if scenario.power is not None:
        jobs, more = with_power(scenario.power, jobs)
        notes += more
        if scenario.power_predictor is not None:
            if is_saved_power_predictor(scenario.power_predictor):
                predictor = saved_predictor(scenario.power_predictor, "power", workload.jobs, scenario.trace)
                predictors += (predictor,)
            jobs, note = with_predicted_power(scenario.power, jobs, cluster, scenario.power_predictor, progress)
            notes.append(note)
    if scenario.runtime_predictor is not None:
        if is_saved_predictor(scenario.runtime_predictor):
            # With the submission times of the log, even if arrivals are scaled.
            predictor = saved_predictor(scenario.runtime_predictor, "runtime", workload.jobs, scenario.trace)
            predictors += (predictor,)
        jobs = with_predicted_runtimes(jobs, cluster, scenario.runtime_predictor, progress=progress)
        notes.append(
            f"run times are predicted ({scenario.runtime_predictor}) from jobs that had ended in a first replay (fcfs, "
            "with the users' estimates)"
        )
    load = cluster_load(jobs, cluster)
    if load > OVERLOAD:
        size = f"{cluster.nodes:,} nodes" if not cluster.node_level else f"the GPUs of {cluster.name}"
        notes.append(
            f"these jobs offer {load:.2g} times the work {size} can do while they arrive, so the queue grows without "
            "bound; take a larger --cluster or a lower --load"
        )
    return Workload(jobs, workload.cleaning_report, workload.sha256, predictors), cluster, tuple(notes)


def _without_dependencies(jobs: JobTable, dependencies: bool) -> tuple[JobTable, tuple[str, ...]]:
    """The jobs without dependencies and a note, for GPU clusters; raises if dependencies must be kept."""
    follows = np.isin(jobs["after_id"], jobs["job_id"]) if "after_id" in jobs else np.zeros(len(jobs), bool)
    if not follows.any():
        return jobs, ()
    count = f"{np.count_nonzero(follows):,} of {len(jobs):,} jobs follow another one (after_id)"
    if dependencies:
        raise InputError(
            f"{count}, but GPU clusters do not support dependencies; submit the jobs at the times of the log with "
            "--ignore-dependencies"
        )
    columns = {name: jobs[name] for name in jobs.columns if name not in ("after_id", "think_s")}
    return JobTable(labels=jobs.labels, meta=jobs.meta, **columns), (f"{count}: submitted at the times of the log",)
