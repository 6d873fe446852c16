"""Run a policy on the observations of `kilowait/Energy-v0` over a whole log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from kilowait.cluster import Cluster
from kilowait.engine.kernels.state_with_power_controls import NODE_CHANGE
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.envs.action_checks import checked_actions
from kilowait.envs.batched_sim import external_policy
from kilowait.envs.batched_sim_base import DISABLED, START_PREPARED
from kilowait.envs.kernels.batch_env_decision import BETWEEN
from kilowait.envs.kernels.energy_env_states import with_capacity
from kilowait.envs.kernels.linear_power_policy import PowerPolicyWeights, power_policy_kernel
from kilowait.envs.power.batched_sim import EnergyBatchedSimulator, EnergyDecisionSettings
from kilowait.envs.power.power_setup import PowerConfig, PowerSetup
from kilowait.envs.power.reward_terms import DEFAULT_WEIGHTS, TERMS
from kilowait.envs.reward_terms import Reward
from kilowait.envs.rollout import Decide
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import node_states

__all__ = ["run_energy_policy"]


@runtime_checkable
class PowerPolicy(Protocol):
    """A policy whose weights are evaluated inside the engine."""

    def policy_weights(self, jobs: JobTable, cluster: Cluster, power_setup: PowerSetup) -> PowerPolicyWeights:
        """The weights for the jobs of a sorted log."""


class _PowerRolloutSimulator(Simulator):
    """A simulator whose state the environment advances and whose node state changes it removes when the array fills."""

    def take_state(self) -> Any:
        """The state, with an array for node state changes."""
        self._state = with_capacity(self._state)
        return self._state


def run_energy_policy(
    jobs: JobTable,
    cluster: Cluster,
    decide: Decide | PowerPolicy,
    *,
    power: PowerConfig,
    decision_settings: EnergyDecisionSettings | None = None,
    settings: Settings | None = None,
    name: str = "agent",
) -> ExecutionLog:
    """Replay `jobs` on `cluster` with the decisions of `decide`; the log has the states of nodes.

    A `PowerPolicy` is evaluated inside the engine. `settings` may have what episodes do not simulate: dependencies, and
    jobs that fit no group. Cancelled and shifted jobs, outages and reservations of the cluster are as in
    `kilowait.simulate`.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2], submit_s=[0, 1], runtime_s=[60, 60], nodes=[2, 2])
    >>> slowest = lambda observation: np.array([np.flatnonzero(observation["mask"][0, :384])[-1]])
    >>> log = run_energy_policy(
    ...     jobs, kw.Cluster.from_nodes(2), slowest, power=PowerConfig("taurus", power_controls="dvfs=1.1")
    ... )
    >>> log.level.tolist(), log.end_s.round(1).tolist()
    ([2, 2], [65.8, 131.7])
    """
    decision_settings = EnergyDecisionSettings() if decision_settings is None else decision_settings
    settings = decision_settings.settings if settings is None else settings
    table = jobs.sorted()
    power_setup = power.setup(table, cluster, len(jobs))
    power_controls = power_setup.power_controls
    if jobs.order is not None:
        inverse_order = np.argsort(jobs.order)
        power_controls = replace(
            power_controls,
            factor=None if power_controls.factor is None else power_controls.factor[:, inverse_order],
            watts=None if power_controls.watts is None else power_controls.watts[:, inverse_order],
        )
    simulator = _PowerRolloutSimulator(
        jobs, cluster, settings, policy=replace(external_policy(), name=name), power_controls=power_controls
    )
    state = simulator.take_state()
    env_simulator = EnergyBatchedSimulator(
        table,
        cluster,
        decision_settings,
        Reward(DEFAULT_WEIGHTS, terms=TERMS),
        power_setup,
        copies=1,
        episode_jobs=len(jobs),
        autoreset=DISABLED,
        threads=1,
        state=state,
    )
    buffers: Any = env_simulator.buffers
    buffers.copies["jobs"] = np.iinfo(np.int64).max  # run to the last event: some jobs may never start
    buffers.copies["hold_end_s"] = -np.inf
    chunks = [np.zeros(0, NODE_CHANGE)]

    def step(action: int) -> None:
        """One step; continues where it stops because the array of node state changes is full."""
        env_simulator.step(np.array([action]))
        while not buffers.over[0] and buffers.copies["phase"][0] == BETWEEN:
            _store_node_steps(chunks, state, buffers)
            env_simulator.step(np.array([START_PREPARED]))

    step(START_PREPARED)
    if isinstance(decide, PowerPolicy):
        policy_weights = decide.policy_weights(table, cluster, power_setup)
        arrays = (env_simulator.states, env_simulator.buffers, env_simulator.log_arrays)
        while not buffers.over[0]:
            power_policy_kernel(*arrays, policy_weights)(*arrays, policy_weights, 0, 1)
            _store_node_steps(chunks, state, buffers)
    while not buffers.over[0]:
        action = decide(env_simulator.observed(copy=False))  # type: ignore[operator]
        step(int(checked_actions(action, 1, buffers.mask.shape[1])[0]))
    _store_node_steps(chunks, state, buffers)
    log = simulator.log()
    if not power_controls.sleep:
        return log
    steps = np.concatenate(chunks)
    steps = steps[np.lexsort((steps["time_s"], steps["group"]))]
    states = node_states(*(steps[column] for column in ("time_s", "group", "shutting_down", "asleep", "waking")))
    return replace(log, states=states)


def _store_node_steps(chunks: list[Any], state: Any, buffers: Any) -> None:
    count = int(state.power_control_state["node_changes"][0])
    chunks.append(np.asarray(state.node_changes[:count]).copy())
    state.power_control_state["node_changes"] = buffers.copies["counted_node_steps"] = 0
