"""Batched simulator of `kilowait/Batch-v0`: environment copies of a batch system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.initial_state import build_initial_state
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.jit_entry import no_score_compiled
from kilowait.engine.kernels.state import State
from kilowait.engine.pools import resource_pools
from kilowait.engine.settings import Settings
from kilowait.envs.batched_sim_base import BatchedSimulatorBase, Observation
from kilowait.envs.kernels.batch_env_states import COPY_RECORD, prepare_log_arrays, stack_states
from kilowait.envs.kernels.batch_env_step import ENV_SETTINGS, StepBuffers, compiled_batch_step, static_score_kernel
from kilowait.envs.observation_spec import FEATURES, PREDICTION_FEATURES, SUMMARY, ObservationSpec, fixed_features
from kilowait.envs.reward_terms import TERMS, Reward, user_numbers
from kilowait.errors import InputError
from kilowait.jobs import JobTable
from kilowait.policies import resolve

__all__ = ["DecisionSettings", "BatchedSimulator", "Observation", "static_scores", "external_policy"]


def external_policy() -> PriorityPolicy:
    """Placeholder policy for a run whose decisions come from outside the engine; its order may change at every pass."""
    return PriorityPolicy("agent", no_score_compiled(), time_dependent=True)


@dataclass(frozen=True)
class DecisionSettings:
    """Which decisions the agent takes, and what it observes."""

    queue_window: int = 128
    """Waiting jobs shown at once (the queue window)."""
    backfill: str | int = Settings.backfill
    """none, easy, or the number of reservations per group."""
    backfill_order: str | PriorityPolicy = "saf"
    """Priority policy of the backfill candidates, or "agent": the agent chooses these too."""
    at_limit: str = Settings.at_limit
    placement: str = Settings.placement
    overrun: str = Settings.overrun
    """double, steps or quantile: the new expected run time of a job that exceeds its planned one."""
    max_wait_s: float = np.inf
    """A job that has waited longer than this, seconds, must be chosen first."""
    hold: bool = False
    """Whether the last action starts no job until the next event."""
    graph: bool = False
    """Whether the observation has edges between jobs."""
    prediction_features: bool = False
    """Whether jobs have `observation_spec.PREDICTION_FEATURES`; the jobs need the column planned_s."""

    def __post_init__(self) -> None:
        if self.queue_window < 1 or not self.max_wait_s > 0:
            raise InputError(
                f"queue_window is {self.queue_window}, max_wait_s {self.max_wait_s}; give at least 1 and a time above 0"
            )
        if self.settings.depth > 1_000_000:
            raise InputError("backfill is conservative; agents choose with none, easy or a number of reservations")

    @property
    def settings(self) -> Settings:
        """The corresponding engine settings."""
        return Settings(self.backfill, self.at_limit, "instant", self.placement, False, "drop", self.overrun)

    @property
    def observation_spec(self) -> ObservationSpec:
        """The shape of observations."""
        features = (*FEATURES, *(PREDICTION_FEATURES if self.prediction_features else ()))
        return ObservationSpec(features, tuple(SUMMARY), self.queue_window, 1, int(self.hold), self.graph)


class BatchedSimulator(BatchedSimulatorBase):
    """Environment copies of a batch system, each on its own window of the log."""

    def __init__(
        self,
        jobs: JobTable,
        cluster: Cluster,
        decision_settings: DecisionSettings,
        reward: Reward,
        *,
        copies: int,
        episode_jobs: int,
        autoreset: int,
        threads: int | None = None,
        state: State | None = None,
    ) -> None:
        """`state`: the state of a simulator of all jobs, which the only copy advances; None: new states."""
        spec, terms = decision_settings.observation_spec, len(TERMS)
        order = None if decision_settings.backfill_order == "agent" else resolve(decision_settings.backfill_order)
        resources = resource_pools(cluster)
        log_state = build_initial_state(jobs, resources, decision_settings.settings, external_policy(), None)
        if state is None:
            states = stack_states(
                build_initial_state(
                    jobs[:episode_jobs], resources, decision_settings.settings, external_policy(), None
                ),
                copies,
            )
        else:
            rows: list[Any] = [array[None] for array in state._replace(need=state.need.copy())]
            states = State(*rows)
        account = jobs["account"] if "account" in jobs else np.full(len(jobs), -1)
        log_arrays = prepare_log_arrays(
            log_state,
            fixed_features(jobs, cluster.nodes, predictions=decision_settings.prediction_features),
            user_numbers(jobs),
            np.ascontiguousarray(account, np.int64),
            np.zeros(len(jobs)) if order is None else static_scores(order, jobs, cluster, log_state.jobs),
            episode_jobs,
            copies,
        )
        env_settings = np.zeros(1, ENV_SETTINGS).view(np.recarray)
        env_settings["nodes"] = sum(int(log_state.pools["capacity"][lo]) for lo in log_state.groups["pool_lo"])
        env_settings["max_wait_s"], env_settings["sla_s"] = decision_settings.max_wait_s, reward.sla_s
        env_settings["agent_backfills"], env_settings["hold"] = order is None, decision_settings.hold
        env_settings["autoreset"] = autoreset
        edges = spec.slots if spec.graph else 0
        buffers = StepBuffers(
            env_settings=env_settings,
            weights=reward.vector(),
            copies=np.zeros(copies, COPY_RECORD).view(np.recarray),
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
        super().__init__(compiled_batch_step(states, buffers, log_arrays), states, buffers, log_arrays, copies, threads)

    def observed(self, copy: bool = True) -> Observation:
        """The current observation, as new arrays or as those that the next step overwrites."""
        observation = super().observed(copy)
        if self.buffers.edges.size:
            observation["edges"] = self.buffers.edges.copy() if copy else self.buffers.edges
        return observation

    def _changing_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super()._changing_arrays() | {"user_weight": self.log_arrays.user_weight}


def static_scores(
    policy: PriorityPolicy, jobs: JobTable, cluster: Cluster, job_records: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Scores, one per job, of a priority policy whose order does not depend on time."""
    scores = []
    if policy.compiled and not (policy.time_dependent or policy.observes_jobs or policy.predicts):
        values = policy.parameters if policy.prepare is None else policy.prepare(jobs, cluster)
        for shift_s in (0.0, 86400.0):
            job_records["submit_s"] = jobs["submit_s"] + shift_s
            job_records["since_first_s"] = job_records["submit_s"] - jobs["submit_s"][0]
            job_records["number"] = np.arange(len(jobs))
            scores.append(np.zeros(len(jobs)))
            static_score_kernel()(
                np.asarray(job_records), scores[-1], policy.score, np.ascontiguousarray(values, np.float64)
            )
    orders = [np.argsort(values, kind="stable") for values in scores]
    if not orders or not np.array_equal(orders[0], orders[1]):
        raise InputError(
            f"the backfill order {policy.name!r} changes during the run, or is not compiled; use "
            'fcfs, sjf, saf or another policy with a static order, or "agent" to let the agent choose'
        )
    return scores[0]
