"""The policy protocol: what a scheduler must have to enter `simulate`, `compare` and the live bridge.

A policy has a name and a method `run` that takes the inputs of a simulation run and returns its execution log. Priority
policies, policies that decide step by step, linear agents, networks and look-ahead all implement it; a plain Python
function that maps a view to a choice is wrapped by `StepwisePolicy`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster, PowerControls
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.interface import Choice, ChoiceKind, PriorityPolicy, View
from kilowait.engine.jit_entry import no_score_compiled
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator, run_simulation
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable

MAX_CHOICES = 1_000_000
"""Choices of a stepwise policy at one instant before the run is stopped with an error."""


@dataclass(frozen=True, eq=False)
class RunInputs:
    """Inputs of one simulation run, as a policy receives them.

    >>> from kilowait.policies import resolve
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60], nodes=[3, 2])
    >>> inputs = RunInputs(jobs, Cluster.from_nodes(4), Settings(backfill="none"))
    >>> resolve("fcfs").run(inputs).jobs()["start_s"].tolist()
    [0.0, 60.0]
    """

    jobs: JobTable
    cluster: Cluster
    settings: Settings | GpuSettings
    """`GpuSettings` on node-level (GPU) clusters, `Settings` on all others; no value is left to a default."""
    backfill_order: PriorityPolicy | None = None
    """Order of the backfill candidates; None: that of the policy."""
    power_controls: PowerControls | None = None
    speeds: Speeds | None = None
    """Speed of each job on each GPU type; None: 1 everywhere."""
    preference: npt.NDArray[np.float64] | None = None
    """(GPU types, jobs): the types a job tries first, smaller first; None: as the settings say."""


@runtime_checkable
class Policy(Protocol):
    """A scheduler: it takes the inputs of a run and returns the execution log.

    >>> from kilowait.policies import resolve
    >>> class SmallMachinesFirst:
    ...     name = "small-machines"
    ...
    ...     def run(self, inputs):
    ...         return resolve("sjf" if inputs.cluster.nodes < 100 else "saf").run(inputs)
    >>> isinstance(SmallMachinesFirst(), Policy)
    True
    """

    @property
    def name(self) -> str:
        """Name of the policy in logs and tables."""

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate the run under this policy."""


def settings_of(inputs: RunInputs, name: str) -> Settings:
    """The settings of a run on whole nodes; an error if the cluster is node-level."""
    if isinstance(inputs.settings, Settings):
        if inputs.backfill_order is not None:
            raise InputError(
                f"backfill_order is {inputs.backfill_order.name!r}, and policy {name!r} orders backfill "
                "candidates itself: leave it out"
            )
        return inputs.settings
    raise InputError(
        f"policy {name!r} schedules whole nodes, and cluster {inputs.cluster.name!r} allocates single GPUs; use a "
        "policy for GPU clusters, or a cluster of whole nodes"
    )


def refuse_max_wait(settings: Settings, name: str) -> None:
    """Raise an error if the settings have a longest wait, and the policy does not order jobs by priority."""
    if settings.max_wait_s < np.inf:
        raise InputError(
            f"max_wait_s is {settings.max_wait_s:g}, and policy {name!r} chooses single jobs itself: leave it out, or "
            "use a priority policy"
        )


def gpu_settings_of(inputs: RunInputs, name: str) -> GpuSettings:
    """The settings of a run on a node-level cluster; an error for other clusters."""
    if isinstance(inputs.settings, GpuSettings):
        return inputs.settings
    raise InputError(
        f"policy {name!r} allocates GPUs on single nodes, and cluster {inputs.cluster.name!r} has no "
        "node-level groups: use a preset such as gpu-mixed, or groups with node_level = true"
    )


def run_priority_policy(policy: PriorityPolicy, inputs: RunInputs) -> ExecutionLog:
    """Simulate a run in which waiting jobs are ordered by a priority."""
    if isinstance(inputs.settings, GpuSettings):
        if policy.observes_jobs:
            raise InputError(
                f"policy {policy.name!r} learns from ended jobs, which the GPU engine does not report; use it on a "
                "cluster of whole nodes"
            )
        from kilowait.engine.gpu.simulator import run_gpu_simulation

        return run_gpu_simulation(
            inputs.jobs, inputs.cluster, policy, inputs.settings, inputs.speeds, inputs.preference
        )
    if policy.node_level or policy.fixed_gpu_settings:
        gpu_settings_of(inputs, policy.name)
    settings = inputs.settings
    if policy.placement is not None:
        settings = replace(settings, placement=policy.placement)
    order = policy.backfill_order if inputs.backfill_order is None else inputs.backfill_order
    return run_simulation(inputs.jobs, inputs.cluster, policy, settings, order, inputs.power_controls)


@dataclass(frozen=True)
class StepwisePolicy:
    """A Python function that maps the view of an instant to a choice (`Choice`), called until it returns None.

    >>> from kilowait.engine.interface import Choice
    >>> def first_that_fits(view):
    ...     fits = [job for job in view.waiting if job["nodes"] <= view.free[0]]
    ...     return Choice.start(fits[0]["number"]) if fits else None
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[60, 60], nodes=[3, 2])
    >>> policy = StepwisePolicy(first_that_fits)
    >>> log = policy.run(RunInputs(jobs, Cluster.from_nodes(4), Settings("none")))
    >>> log.run["policy"], log.jobs()["start_s"].tolist()
    ('first_that_fits', [0.0, 60.0])
    """

    function: Callable[[View], Choice | None]
    """Returns a choice, or None to wait for the next event."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate event by event; at every instant the function is called until it returns None."""
        settings = settings_of(inputs, self.name)
        refuse_max_wait(settings, self.name)
        placeholder = PriorityPolicy(self.name, no_score_compiled())
        simulator = Simulator(
            inputs.jobs, inputs.cluster, settings, policy=placeholder, power_controls=inputs.power_controls
        )
        while (view := simulator.advance()) is not None:
            for _ in range(MAX_CHOICES):
                choice = self.function(view)
                if choice is None or choice.kind is ChoiceKind.PASS:
                    break
                simulator.apply(choice)
                view = simulator.view()
            else:
                raise InputError(
                    f"policy {self.name!r} made {MAX_CHOICES:,} choices at {view.now_s:g} s; return None to wait for "
                    "the next event"
                )
        simulator.check_end()
        return simulator.log()
