"""Scenarios: prepare and run the simulation that settings describe, and measure the speed of simulations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.cluster.toml import to_dict
from kilowait.energy.accounting import EnergyAccounts
from kilowait.energy.controls import BudgetViolation, budget_violation
from kilowait.errors import InputError
from kilowait.experiments.gpu_options import gpu_notes, simulate_arguments
from kilowait.experiments.policies import policy_notes, resolve_policy
from kilowait.experiments.power import make_power_context, with_power
from kilowait.experiments.power_controls import (
    PowerAgent,
    bind_agent_power,
    check_controls_supported,
    gpu_cap_description,
    gpu_cap_share,
)
from kilowait.experiments.predictors import (
    SavedPredictor,
    is_saved_power_predictor,
    is_saved_predictor,
    saved_predictor,
    with_predicted_power,
    with_predicted_runtimes,
)
from kilowait.experiments.scenario_inputs import Workload, cluster_load, read_log, rescale_to_load, resolve_machine
from kilowait.experiments.settings import Scenario, default_backfill
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.policies import simulate

OVERLOAD = 1.2
"""Offered load above which a note is given: the queue grows without bound, so results depend on the log's length."""


class Console(Protocol):
    """Notes for the user, and the progress of long steps; the command line implements it in `kilowait.cli.console`."""

    def note(self, text: str) -> None:
        """Show a note."""

    def info(self, text: str) -> None:
        """Show one line."""

    def today(self) -> str:
        """The current time, for manifests."""

    def busy(self, text: str) -> AbstractContextManager[Any]:
        """Show this text while a block runs."""

    def number(self, value: float) -> str:
        """A number as text."""

    def span(self, seconds: float) -> str:
        """A time span as text."""

    def status(self) -> AbstractContextManager[Callable[[str], None]]:
        """Show a text that can be changed while a block runs."""

    def steps(self, total: int) -> AbstractContextManager[Callable[..., None]]:
        """Show the progress of a block; it calls the function with a text, and whether this step deserves a line."""


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


def run_scenario(
    scenario: Scenario, progress: Callable[[Any], None] | None = None, announce: Callable[[str], None] | None = None
) -> ScenarioResult:
    """Read the jobs, prepare the cluster and run the simulation.

    `progress` is called after every fit of a predictor, `announce` with every note before the simulation, which may
    take long.

    >>> run_scenario(Scenario("lublin:20:8", policy="sjf")).log.run["policy"]
    'sjf'
    """
    # Names are checked before the trace is read, which may take long.
    policy, settings = resolve_policy(scenario.policy), scenario.simulation_settings
    workload, cluster, notes = prepare_scenario(scenario, progress)
    notes += workload.leakage_notes
    for note in notes:
        if announce is not None:
            announce(note)
    jobs = workload.jobs
    notes += policy_notes([scenario.policy], scenario.placement, jobs, cluster)
    backfill = default_backfill(cluster.node_level) if scenario.backfill is None else scenario.backfill
    context = None if scenario.power is None else make_power_context(scenario.power, jobs, cluster)
    if context is not None or isinstance(policy, PowerAgent):
        policy = bind_agent_power(policy, context, scenario.power_controls)
    arguments = {name: value for name, value in settings.items() if name != "gpu"}
    if cluster.node_level:
        arguments = simulate_arguments(settings, jobs, cluster, policy, backfill, context, scenario.power_controls)
    if context is None:
        log = simulate(jobs, cluster, policy, backfill, **arguments)
        accounts, description, violation = None, "", None
    else:
        cap = gpu_cap_share(scenario.power_controls)
        resolved = context.resolve_controls(scenario.power_controls if cap is None else "none", jobs)
        log = simulate(jobs, cluster, policy, backfill, power_controls=resolved, **arguments)
        accounts = context.account(log, resolved if cap is None else scenario.power_controls)
        description = resolved.description if cap is None else gpu_cap_description(cap)
        violation = None if resolved.budget_w is None else budget_violation(accounts, resolved.budget_w)
    completed = replace(scenario, backfill=backfill, placement=log.run["placement"])
    return ScenarioResult(
        completed, workload, cluster, log, notes, accounts, description, violation, arguments.get("speeds")
    )


def prepare_scenario(
    scenario: Scenario, progress: Callable[[Any], None] | None = None
) -> tuple[Workload, Cluster, tuple[str, ...]]:
    """The jobs with scaled arrivals and predictions, the cluster, and notes for the user.

    Callers that evaluate only a part of the jobs call `Workload.evaluated_from`, which notes data leakage of saved
    predictors. `progress` is called after every fit of a predictor.
    """
    workload = read_log(scenario)
    machine = resolve_machine(
        scenario.cluster,
        workload.jobs,
        cores_per_node=scenario.cores_per_node,
        exclusive_nodes=scenario.exclusive_nodes,
    )
    cluster, note = machine.cluster, machine.note
    if scenario.power_controls.strip() != "none":
        check_controls_supported(scenario.power_controls, cluster)
    if scenario.gpu.changed_options and not cluster.node_level:
        raise InputError(
            f"{scenario.gpu.changed_options[0]} is for GPU clusters, and {cluster.name!r} is a batch cluster: take a "
            "preset such as gpu-mixed, or leave it out"
        )
    jobs: JobTable = rescale_to_load(machine.jobs, cluster, scenario.load)
    notes = [note] if note is not None else []
    predictors: tuple[SavedPredictor, ...] = ()
    if cluster.node_level:
        jobs, more = _without_dependencies(jobs, scenario.dependencies)
        notes += [*more, *gpu_notes(jobs, cluster, scenario.gpu.gpu_speeds)]
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
        size = cluster.size_text if not cluster.node_level else f"the GPUs of {cluster.name}"
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


# -- speed --------------------------------------------------------------------------------------------

MIN_TOTAL_S, MAX_CALLS = 1.0, 1000
"""A simulation is repeated for this time, seconds, but not more often than this."""


@dataclass(frozen=True)
class SimulationSpeed:
    """Speed of one policy: the fastest of several simulations, without the compilation of the kernels."""

    policy: str
    jobs: int
    seconds: float
    first_s: float
    """Seconds of the first simulation, which compiles the kernels or loads them from the cache."""

    @property
    def jobs_per_s(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "jobs_per_s": self.jobs_per_s}


def simulation_speeds(
    jobs: JobTable, cluster: Cluster, policies: Sequence[str], **settings: Any
) -> Iterator[SimulationSpeed]:
    """Yield the speed of each policy (names as on the command line) as soon as it is measured.

    `settings` are arguments of `kilowait.simulate`, such as ``backfill="easy"``.

    >>> from kilowait.synth import lublin
    >>> [speed.policy for speed in simulation_speeds(lublin(50, 16), Cluster.from_nodes(16), ["fcfs", "sjf"])]
    ['fcfs', 'sjf']
    """
    for name in policies:
        policy = resolve_policy(name)
        times: list[float] = []
        while len(times) < 3 or (sum(times[1:]) < MIN_TOTAL_S and len(times) < MAX_CALLS):
            began = time.perf_counter()
            simulate(jobs, cluster, policy, **settings)
            times.append(time.perf_counter() - began)
        yield SimulationSpeed(name, len(jobs), min(times[1:]), times[0])
