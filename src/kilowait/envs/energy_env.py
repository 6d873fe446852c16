"""`kilowait/Energy-v0`: job choice, DVFS, load shifting and node sleep of a batch system; and runs of whole logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.kernels.state import NODE_CHANGE, PowerState
from kilowait.engine.pools import resource_pools
from kilowait.engine.power_initial_state import add_power_pool, build_power_state
from kilowait.engine.settings import Settings
from kilowait.engine.simulator import Simulator
from kilowait.envs.batch_env import DecisionSettings, check_cluster, external_policy, log_arrays_for, shared_settings
from kilowait.envs.batched_sim import BatchedSimulator, CopySettings, Decide, checked_actions, record, step_buffers
from kilowait.envs.env import EngineEnv
from kilowait.envs.kernels.decision_batch import BETWEEN
from kilowait.envs.kernels.decision_power import advance_to_decision, apply_action
from kilowait.envs.kernels.linear_power_policy import PowerPolicyWeights, power_policy_kernel
from kilowait.envs.kernels.observation_power import write_observation
from kilowait.envs.kernels.reward import compute_power_reward, reset_power_reward
from kilowait.envs.kernels.state_stack import (
    POWER_COPY_RECORD,
    POWER_ENV_SETTINGS,
    max_node_steps,
    reset_with_power,
    single_row_stack,
    stack_power_states,
    with_capacity,
    with_power_arrays,
)
from kilowait.envs.kernels.step import START_PREPARED, KernelSet
from kilowait.envs.observation_spec import ENERGY_SUMMARY, ObservationSpec, energy_feature_names, signal_summary
from kilowait.envs.power_setup import PowerConfig, PowerSetup
from kilowait.envs.reward_terms import ENERGY_TERMS, Reward
from kilowait.envs.vector_env import EngineVectorEnv, plain_jobs, take_fields
from kilowait.errors import InputError
from kilowait.jobs import ExecutionLog, JobTable
from kilowait.jobs.execution_log import node_states

ENERGY_WEIGHTS = {"turnaround": 1.0, "energy": 1.0}
"""Default weights of the reward terms."""

KERNELS = KernelSet(
    "power",
    "the training environment with power controls",
    "1 to 3 min",
    reset_with_power,
    advance_to_decision,
    apply_action,
    write_observation,
    reset_power_reward,
    compute_power_reward,
)


@dataclass(frozen=True)
class EnergyDecisionSettings(DecisionSettings):
    """Which decisions the agent takes, and what it observes, with DVFS, signals and node sleep."""

    backfill_order: str = "agent"
    """"agent", or a priority policy of the backfill candidates; these run at full speed, or at the DVFS state of their
    last reservation."""
    hold: bool = True
    """Always True: there is an action that starts no job."""
    hold_s: float = 3600.0
    """Maximum duration of that action, seconds; it ends earlier at the next event or the next step of a signal."""
    max_wait_for_hold_s: float = 86400.0
    """While some job has waited longer than this, seconds, that action lasts until the next event only."""
    sleep_actions: bool = True
    """Whether there are actions that put idle nodes to sleep and wake them, where nodes can sleep."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.hold_s >= 1 and 0 <= self.max_wait_for_hold_s < np.inf):
            raise InputError(
                f"hold_s is {self.hold_s} s and max_wait_for_hold_s {self.max_wait_for_hold_s} s; give a hold_s "
                "of 1 or more and a finite max_wait_for_hold_s of 0 or more"
            )
        if not self.hold:
            raise InputError("hold is False; kilowait/Energy-v0 always has the action that starts no job; leave it out")

    def observation_spec_for(self, power_setup: PowerSetup) -> ObservationSpec:
        """The shape of observations. Actions are slot x levels + level; then hold; then sleep and wake, if nodes can
        sleep.
        """
        can_sleep = self.sleep_actions and len(power_setup.power_controls.sleep) > 0
        return ObservationSpec(
            energy_feature_names(self.prediction_features, self.request_features),
            (*ENERGY_SUMMARY, *signal_summary(power_setup.names)),
            self.queue_window,
            power_setup.power_tables.may.shape[1],
            3 if can_sleep else 1,
            self.graph,
        )


_LISTS = {"idle": "idle_hi", "shutting_down": "shutdown_hi", "booting": "wake_hi"}
"""Lists of node batches, and the field with the end of each."""


class EnergySimulator(BatchedSimulator):
    """Environment copies of a batch system with power controls, each on its own window of the log."""

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        decision_settings: EnergyDecisionSettings,
        reward: Reward,
        power_setup: PowerSetup,
        copies: CopySettings,
        state: PowerState | None = None,
    ) -> None:
        """`state`: the state, from `with_capacity`, of a simulator of all jobs, which the only copy advances; None: new
        states."""
        spec, controls = decision_settings.observation_spec_for(power_setup), power_setup.power_controls
        resources = add_power_pool(resource_pools(cluster), controls, float(jobs["submit_s"][0]))
        policy, settings, in_place = external_policy(), decision_settings.settings, state is not None
        log_state = build_power_state(jobs, None, resources, settings, policy, None, controls)
        if state is None:
            n = copies.episode_jobs
            window_controls = replace(
                controls,
                factor=None if controls.factor is None else controls.factor[:, :n],
                watts=None if controls.watts is None else controls.watts[:, :n],
            )
            window_state = build_power_state(jobs[:n], None, resources, settings, policy, None, window_controls)
            state = with_capacity(window_state)
            states = stack_power_states(state, copies.copies)
        else:
            states = single_row_stack(state)
        plain_arrays = log_arrays_for(jobs, cluster, log_state, decision_settings, copies)
        env_settings = record(
            POWER_ENV_SETTINGS,
            **shared_settings(log_state, decision_settings, reward, copies),
            keep_node_steps=in_place,
            rows=max_node_steps(state),
            levels=spec.choices,
            sleep_actions=spec.extra > 1,
            wake_ahead=any(sleep_policy.wake_ahead for sleep_policy in controls.sleep.values()),
            signals=sum(1 << ("carbon", "price").index(name) for name in power_setup.names),
            hold_s=decision_settings.hold_s,
            max_wait_for_hold_s=decision_settings.max_wait_for_hold_s,
        )
        super().__init__(
            KERNELS,
            states,
            step_buffers(env_settings, POWER_COPY_RECORD, spec, reward.vector(), copies.copies),
            with_power_arrays(plain_arrays, log_state, power_setup, spec.slots, copies.copies),
            copies.threads,
        )

    def _changing_arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        arrays = super()._changing_arrays()
        for name in ("reserve", "node_changes", *_LISTS):  # constant; empty between two steps; in `snapshot`
            del arrays[f"states.{name}"]
        del arrays["buffers.cut"]  # always False
        return arrays | {"user_weight": self.log_arrays.user_weight}

    def snapshot(self) -> dict[str, npt.NDArray[np.uint8]]:
        """As in the base class; of the node lists, which have one entry per node, only the part in use."""
        saved = super().snapshot()
        for name, end in _LISTS.items():
            used = int(self.states.sleep_state[end].max())
            used_part = np.asarray(getattr(self.states, name))[:, :, :used]
            saved[f"states.{name}"] = np.frombuffer(used_part.tobytes(), np.uint8).copy()
        return saved

    def restore(self, saved: Mapping[str, npt.NDArray[Any]]) -> None:
        """As in the base class."""
        lists = {f"states.{name}" for name in _LISTS}
        super().restore({name: array for name, array in saved.items() if name not in lists})
        for name in _LISTS:
            array_in_use = getattr(self.states, name).view(np.ndarray)
            used_part = np.frombuffer(saved[f"states.{name}"].tobytes(), array_in_use.dtype).reshape(
                *array_in_use.shape[:2], -1
            )
            array_in_use[:, :, : used_part.shape[2]] = used_part


class EnergyVectorEnv(EngineVectorEnv):
    """Copies of a batch system with power controls; an action chooses the next job and its DVFS state.

    Action ``slot * levels + level`` starts the job, or makes a reservation for it, at that DVFS state (under a power
    budget at that or the first slower state that fits). Then comes ``hold``: start no job until the next event, the
    next step of a signal or the end of `hold_s`. Where nodes can sleep, two more follow. ``sleep`` puts all idle nodes
    to sleep but those that the power controls keep awake; ``wake`` wakes as many nodes as waiting jobs need beyond
    those awake. Where no job can be chosen but nodes can be put to sleep or woken, only that is decided, and hold
    leaves them unchanged.

    >>> import gymnasium, kilowait as kw, kilowait.envs
    >>> from kilowait.series import Series
    >>> jobs = kw.lublin(jobs=300, nodes=64, seed=1)
    >>> vec = gymnasium.make_vec(
    ...     "kilowait/Energy-v0",
    ...     num_envs=4,
    ...     vectorization_mode="vector_entry_point",
    ...     jobs=jobs,
    ...     cluster=kw.Cluster.from_nodes(64),
    ...     power="taurus",
    ...     carbon=Series.constant(400, "g/kWh"),
    ...     power_controls="sleep=break-even+dvfs=1.1",
    ... )
    >>> observation, _ = vec.reset(seed=0)
    >>> (observation["jobs"].shape, vec.unwrapped.observation_spec.choices, vec.unwrapped.observation_spec.extra)
    ((4, 128, 13), 3, 3)

    Arguments beside those of `EngineVectorEnv` are fields of `PowerConfig` and `EnergyDecisionSettings`. Episodes end
    when all jobs have ended. Load shifting (hold_until_s) of jobs is ignored. More than 30 days after the last
    submission, the last value of a signal is used.
    """

    reward_terms = ENERGY_TERMS
    default_weights = ENERGY_WEIGHTS

    def _make_simulator(
        self, jobs: JobTable, copies: CopySettings, settings: dict[str, Any]
    ) -> tuple[JobTable, BatchedSimulator, ObservationSpec]:
        cluster = self.cluster
        check_cluster(cluster, "kilowait/Energy-v0")
        config, table = PowerConfig(**take_fields(PowerConfig, settings)), plain_jobs(jobs)
        self.decision_settings = EnergyDecisionSettings(**settings)
        if "hold_until_s" in table:
            table = table.with_columns(hold_until_s=None)
        self.power_setup = config.setup(table, cluster, copies.episode_jobs)
        if len(self.power_setup.power_controls.budget or ()) > 1:
            raise InputError(
                f"power controls {config.power_controls!r}: the power budget changes by the hour, and "
                "kilowait/Energy-v0 has one constant budget; give it without hours"
            )
        simulator = EnergySimulator(table, cluster, self.decision_settings, self.reward, self.power_setup, copies)
        return table, simulator, self.decision_settings.observation_spec_for(self.power_setup)


class EnergyEnv(EngineEnv):
    """A batch system with power controls on windows of a log; arguments as of `EnergyVectorEnv`.

    >>> import gymnasium, kilowait as kw, kilowait.envs
    >>> jobs = kw.lublin(jobs=300, nodes=64, seed=1)
    >>> env = gymnasium.make(
    ...     "kilowait/Energy-v0", jobs=jobs, cluster=kw.Cluster.from_nodes(64), power="taurus", queue_window=16
    ... )
    >>> observation, _ = env.reset(seed=0)
    >>> observation["summary"].shape, int(env.action_space.n)
    ((15,), 51)
    """

    vector_env_type = EnergyVectorEnv


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
    jobs = cluster.sized(jobs)
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
    reward, copies = Reward(ENERGY_WEIGHTS, terms=ENERGY_TERMS), CopySettings(1, len(jobs), threads=1)
    env_simulator = EnergySimulator(table, cluster, decision_settings, reward, power_setup, copies, state)
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
