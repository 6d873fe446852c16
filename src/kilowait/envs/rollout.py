"""Run a policy (a network, or any function of an observation) over a whole log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.policy import RunInputs, settings_of
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.envs.action_checks import checked_actions
from kilowait.envs.batched_sim import BatchedSimulator, DecisionSettings, Observation, external_policy
from kilowait.envs.custom_functions import CustomFunctions, Feature, check_features
from kilowait.envs.kernels.batch_env_step import DISABLED, START_PREPARED
from kilowait.envs.kernels.network_inference import NetworkWeights, inference_kernel
from kilowait.envs.reward_terms import Reward
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable

__all__ = ["ObservationPolicy", "run_policy"]

Decide = Callable[[Observation], npt.NDArray[np.int64]]
"""From an observation with one row per copy to one action per copy."""


@dataclass(frozen=True, eq=False)
class ObservationPolicy:
    """A policy that decides from the observations of `kilowait/Batch-v0`: an SB3 model, a network, any function.

    `kilowait.simulate` and `kilowait.compare` take it like any other policy. Backfilling, limits, placement and
    overruns are those of the run; the other decision settings must be those of the training.

    >>> import kilowait as kw
    >>> jobs, cluster = kw.lublin(200, nodes=32, load=0.9, seed=1), kw.Cluster.from_nodes(32)
    >>> oldest = ObservationPolicy("oldest", lambda observation: observation["mask"].argmax(axis=1))
    >>> kw.compare(jobs, cluster, ["saf", oldest]).labels
    ('saf', 'oldest')
    """

    name: str
    decide: Decide | NetworkWeights
    """From an observation with one row (`jobs`, `mask`, `summary`) to an array with one action; or network weights."""
    decision_settings: DecisionSettings = field(default_factory=DecisionSettings)
    features: Sequence[Feature] = ()
    """Custom features of the training."""

    def run(self, inputs: RunInputs) -> ExecutionLog:
        """Simulate a run under these decisions."""
        settings = settings_of(inputs, self.name)
        if inputs.power_controls is not None:
            raise InputError(
                f"policy {self.name!r} decides in kilowait/Batch-v0, which has no power controls: leave them out"
            )
        decision_settings = replace(
            self.decision_settings,
            backfill=settings.backfill,
            at_limit=settings.at_limit,
            placement=settings.placement,
            overrun=settings.overrun,
        )
        return run_policy(
            inputs.jobs,
            inputs.cluster,
            self.decide,
            decision_settings=decision_settings,
            settings=settings,
            name=self.name,
            features=self.features,
        )


def run_policy(
    jobs: JobTable,
    cluster: Cluster,
    decide: Decide | NetworkWeights,
    *,
    decision_settings: DecisionSettings | None = None,
    settings: Settings | None = None,
    name: str = "agent",
    features: Sequence[Feature] = (),
) -> ExecutionLog:
    """Replay `jobs` on `cluster` with the decisions of `decide`; `NetworkWeights` are evaluated inside the engine.

    `settings` may have what episodes do not simulate: dependencies, and jobs that fit no group. Cancelled jobs, outages
    and reservations of the cluster are as in `kilowait.simulate`. `features` are custom features of the observation.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[9, 9, 3], nodes=[2, 2, 2])
    >>> log = run_policy(
    ...     jobs, kw.Cluster.from_nodes(2), lambda observation: observation["mask"].sum(axis=1) - 1
    ... )  # the last submitted
    >>> log.jobs()["start_s"].tolist()
    [0.0, 12.0, 9.0]
    """
    decision_settings = DecisionSettings() if decision_settings is None else decision_settings
    settings = decision_settings.settings if settings is None else settings
    simulator = Simulator(jobs, cluster, settings, policy=replace(external_policy(), name=name))
    env_simulator = BatchedSimulator(
        simulator.table,
        cluster,
        decision_settings,
        Reward({"wait": 1.0}),
        copies=1,
        episode_jobs=len(jobs),
        autoreset=DISABLED,
        threads=1,
        state=simulator.state,
    )
    buffers: Any = env_simulator.buffers
    buffers.copies["jobs"] = np.iinfo(np.int64).max  # run to the last event: some jobs may never start
    env_simulator.step(np.array([START_PREPARED]))
    if isinstance(decide, NetworkWeights):
        inference_kernel(env_simulator.states, env_simulator.buffers, env_simulator.log_arrays, decide)(
            env_simulator.states, env_simulator.buffers, env_simulator.log_arrays, decide, 0, 1
        )
    custom = CustomFunctions(
        env_simulator, simulator.table, features=check_features(features, decision_settings.observation_spec.features)
    )
    while not buffers.over[0]:
        observation = custom.add_features(env_simulator.observed(copy=False))
        env_simulator.step(checked_actions(decide(observation), 1, buffers.mask.shape[1]))  # type: ignore[operator]
    return simulator.log()
