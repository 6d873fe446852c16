"""Batched simulator of `kilowait/Energy-v0`: environment copies of a batch system with power controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.initial_state_with_power_controls import add_power_pool, build_power_state
from kilowait.engine.kernels.state_with_power_controls import PowerState
from kilowait.engine.pools import resource_pools
from kilowait.envs.batched_sim import DecisionSettings, external_policy, static_scores
from kilowait.envs.batched_sim_base import BatchedSimulatorBase, Observation
from kilowait.envs.kernels import batch_env_states
from kilowait.envs.kernels.batch_env_step import StepBuffers
from kilowait.envs.kernels.energy_env_states import (
    ENERGY_COPY_RECORD,
    max_node_steps,
    prepare_log_arrays,
    single_row_stack,
    stack_states,
    with_capacity,
)
from kilowait.envs.kernels.energy_env_step import POWER_ENV_SETTINGS, compiled_energy_step
from kilowait.envs.observation_spec import ObservationSpec, fixed_features
from kilowait.envs.power.observation_spec import SUMMARY, feature_names, signal_summary
from kilowait.envs.power.power_setup import PowerSetup
from kilowait.envs.power.reward_terms import TERMS
from kilowait.envs.reward_terms import Reward, user_numbers
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies import resolve

__all__ = ["EnergyDecisionSettings", "EnergyBatchedSimulator"]


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
            feature_names(self.prediction_features),
            (*SUMMARY, *signal_summary(power_setup.names)),
            self.queue_window,
            power_setup.power_tables.may.shape[1],
            3 if can_sleep else 1,
            self.graph,
        )


_LISTS = {"idle": "idle_hi", "shutting_down": "shutdown_hi", "booting": "wake_hi"}
"""Lists of node batches, and the field with the end of each."""


class EnergyBatchedSimulator(BatchedSimulatorBase):
    """Environment copies of a batch system with power controls, each on its own window of the log."""

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        decision_settings: EnergyDecisionSettings,
        reward: Reward,
        power_setup: PowerSetup,
        *,
        copies: int,
        episode_jobs: int,
        autoreset: int,
        threads: int | None = None,
        state: PowerState | None = None,
    ) -> None:
        """`state`: the state, from `with_capacity`, of a simulator of all jobs, which the only copy advances; None: new
        states."""
        self.power_setup = power_setup
        spec, terms, power_controls = (
            decision_settings.observation_spec_for(power_setup),
            len(TERMS),
            power_setup.power_controls,
        )
        order = None if decision_settings.backfill_order == "agent" else resolve(decision_settings.backfill_order)
        resources = add_power_pool(resource_pools(cluster), power_controls, float(jobs["submit_s"][0]))
        log_state = build_power_state(
            jobs, None, resources, decision_settings.settings, external_policy(), None, power_controls
        )
        if state is None:
            episode_controls = replace(
                power_controls,
                factor=None if power_controls.factor is None else power_controls.factor[:, :episode_jobs],
                watts=None if power_controls.watts is None else power_controls.watts[:, :episode_jobs],
            )
            episode_state = build_power_state(
                jobs[:episode_jobs],
                None,
                resources,
                decision_settings.settings,
                external_policy(),
                None,
                episode_controls,
            )
            state, in_place = with_capacity(episode_state), False
            states = stack_states(state, copies)
        else:
            in_place = True
            states = single_row_stack(state)
        batch_arrays = batch_env_states.prepare_log_arrays(
            log_state,  # type: ignore[arg-type]  # it has all fields of a plain state
            fixed_features(jobs, cluster.nodes, predictions=decision_settings.prediction_features),
            user_numbers(jobs),
            np.ascontiguousarray(jobs["account"] if "account" in jobs else np.full(len(jobs), -1), np.int64),
            np.zeros(len(jobs)) if order is None else static_scores(order, jobs, cluster, log_state.jobs),
            episode_jobs,
            copies,
        )
        log_arrays = prepare_log_arrays(log_state, batch_arrays, power_setup, spec.slots, copies)
        env_settings = np.zeros(1, POWER_ENV_SETTINGS).view(np.recarray)
        env_settings["nodes"] = sum(int(log_state.pools["capacity"][lo]) for lo in log_state.groups["pool_lo"])
        env_settings["max_wait_s"], env_settings["sla_s"] = decision_settings.max_wait_s, reward.sla_s
        env_settings["agent_backfills"], env_settings["hold"] = order is None, True
        env_settings["autoreset"], env_settings["keep_node_steps"] = autoreset, in_place
        env_settings["rows"] = max_node_steps(state)
        env_settings["levels"], env_settings["sleep_actions"] = spec.choices, spec.extra > 1
        env_settings["wake_ahead"] = any(sleep_policy.wake_ahead for sleep_policy in power_controls.sleep.values())
        env_settings["signals"] = sum(1 << ("carbon", "price").index(name) for name in power_setup.names)
        env_settings["hold_s"], env_settings["max_wait_for_hold_s"] = (
            decision_settings.hold_s,
            decision_settings.max_wait_for_hold_s,
        )
        edges = spec.slots if spec.graph else 0
        buffers = StepBuffers(
            env_settings=env_settings,
            weights=reward.vector(),
            copies=np.zeros(copies, ENERGY_COPY_RECORD).view(np.recarray),
            jobs=np.zeros((copies, spec.slots, len(spec.features)), np.float32),
            mask=np.zeros((copies, spec.actions), np.int8),
            summary=np.zeros((copies, len(spec.summary)), np.float32),
            slots=np.zeros((copies, spec.slots), np.int64),
            edges=np.zeros((copies, edges, edges), np.uint8),
            reward=np.zeros(copies),
            terms=np.zeros((copies, terms)),
            settled=np.zeros((copies, terms)),
            accrued=np.zeros((copies, terms)),
            over=np.zeros(copies, np.bool_),
            last_summary=np.zeros((copies, len(spec.summary)), np.float32),
            finished=np.zeros((copies, 3 + terms)),
        )
        buffers.copies["arrival_rate"] = 1.0
        super().__init__(
            compiled_energy_step(states, buffers, log_arrays), states, buffers, log_arrays, copies, threads
        )

    def observed(self, copy: bool = True) -> Observation:
        """The current observation, as new arrays or as those that the next step overwrites."""
        observation = super().observed(copy)
        if self.buffers.edges.size:
            observation["edges"] = self.buffers.edges.copy() if copy else self.buffers.edges
        return observation

    def _changing_arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        arrays = super()._changing_arrays()
        for name in ("reserve", "node_changes", *_LISTS):  # constant; empty between two steps; in `snapshot`
            del arrays[f"states.{name}"]
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
