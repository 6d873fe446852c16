"""Batched simulator of `kilowait/Gpu-v0`: environment copies of a node-level GPU cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.engine.gpu.settings import PLACEMENTS, GpuSettings
from kilowait.engine.gpu.state import GpuState
from kilowait.engine.interface import PriorityPolicy
from kilowait.envs.batched_sim_base import BatchedSimulatorBase, Observation
from kilowait.envs.gpu.observation_spec import feature_names, summary_names, type_names
from kilowait.envs.gpu.reward_terms import TERMS
from kilowait.envs.kernels.gpu_env_states import GPU_COPY_RECORD, prepare_log_arrays, stack_states, window_state
from kilowait.envs.kernels.gpu_env_step import GPU_ENV_SETTINGS, GpuStepBuffers, compiled_gpu_step
from kilowait.envs.observation_spec import ObservationSpec
from kilowait.envs.reward_terms import Reward
from kilowait.errors import InputError, UnknownNameError

__all__ = ["GpuDecisionSettings", "GpuBatchedSimulator", "external_gpu_policy"]

_TABLE_PLACEMENTS = ("fgd", "capacity")
"""Placements that need a table of job shapes; a state has one table."""


def external_gpu_policy(name: str = "agent") -> PriorityPolicy:
    """Placeholder policy for a run whose decisions come from outside the engine; its order may change at every pass."""
    return PriorityPolicy(name, _zero_score, time_dependent=True)


def _zero_score(job: Any, now: float, parameters: Any) -> float:
    return 0.0


@dataclass(frozen=True)
class GpuDecisionSettings:
    """Which decisions the agent takes, and what it observes.

    Action ``slot * choices + choice`` starts a waiting job: with choice 0 where placement and the settings' GPU type
    order put it, with choice 1 + t on type t. With several `placements` there is such a block of choices for each.
    After the waiting jobs, with `preempt`, come slots of running jobs (choice 0 preempts the job, the others are
    masked). The last action is `hold`.
    """

    queue_window: int = 128
    """Waiting jobs shown at once (the queue window)."""
    by_type: bool = True
    """Whether the agent can choose the type; else choice 0 is the only one."""
    placements: tuple[str, ...] = ()
    """Placements the agent can choose from, for instance consolidate and worst; (): only that of the settings."""
    hold: bool = False
    """Whether the last action starts no job until the next event; with `preempt` it always does."""
    preempt: bool = False
    """Whether the agent can preempt running jobs."""
    victims: int = 16
    """Running jobs shown at once, with `preempt`."""
    max_preemptions: int = 4
    """How often a job may be preempted or migrated."""
    graph: bool = False
    """Whether the observation has edges between jobs."""
    max_wait_s: float = np.inf
    """While a job has waited longer than this, seconds, no other job starts on the types it may use."""

    def __post_init__(self) -> None:
        if self.queue_window < 1 or not self.max_wait_s > 0 or self.victims < 1 or self.max_preemptions < 1:
            raise InputError(
                f"{self.queue_window} slots, {self.victims} victims, {self.max_preemptions} restarts, waits of at most "
                f"{self.max_wait_s} s; give at least 1 of each and a wait above 0"
            )
        for name in self.placements:
            if name not in PLACEMENTS:
                raise UnknownNameError("placement policy", name, PLACEMENTS)
        if len(set(self.placements)) < len(self.placements) or set(self.placements) >= set(_TABLE_PLACEMENTS):
            raise InputError(
                f"placements are {', '.join(self.placements)}; name each once, and only one of "
                f"{' and '.join(_TABLE_PLACEMENTS)}"
            )

    def starts(self, gpu_settings: GpuSettings) -> int:
        """Maximum starts of a job."""
        return 1 + self.max_preemptions if self.preempt or gpu_settings.migrate else 1

    @property
    def rows(self) -> int:
        """Number of slots of waiting and running jobs together."""
        return self.queue_window + (self.victims if self.preempt else 0)

    def settings(self, gpu_settings: GpuSettings) -> GpuSettings:
        """The engine settings, with a placement among those that can be chosen."""
        with_table = [name for name in self.placements if name in _TABLE_PLACEMENTS]
        changed = {"placement": (with_table or self.placements)[0]} if self.placements else {}
        return GpuSettings(**{**vars(gpu_settings), **changed})

    def codes(self, gpu_settings: GpuSettings) -> npt.NDArray[np.int64]:
        """Codes of the placements that can be chosen."""
        return np.array([list(PLACEMENTS).index(name) for name in self.placements or (gpu_settings.placement,)])

    def observation_spec(self, cluster: Cluster) -> ObservationSpec:
        """The shape of observations."""
        types = type_names(cluster)
        choices = max(len(self.placements), 1) * (1 + len(types) if self.by_type else 1)
        extra = int(self.hold or self.preempt)
        return ObservationSpec(feature_names(types), summary_names(types), self.rows, choices, extra, self.graph)


class GpuBatchedSimulator(BatchedSimulatorBase):
    """Environment copies of a GPU cluster, each on its own window of the log."""

    def __init__(
        self,
        log_state: GpuState,
        cluster: Cluster,
        decision_settings: GpuDecisionSettings,
        gpu_settings: GpuSettings,
        reward: Reward,
        *,
        copies: int,
        episode_jobs: int,
        autoreset: int,
        horizon_s: float = np.inf,
        threads: int | None = None,
        in_place: bool = False,
    ) -> None:
        """`log_state`: the state of all jobs before the first event; with `in_place`, the only copy advances that
        state itself."""
        spec, terms = decision_settings.observation_spec(cluster), len(TERMS)
        log_arrays = prepare_log_arrays(log_state, decision_settings.codes(gpu_settings))
        if in_place:
            views: list[Any] = [array[None] for array in log_state]
            states = GpuState(*views)
        else:
            states = stack_states(
                window_state(log_state, episode_jobs, decision_settings.starts(gpu_settings), copies), copies
            )
        env_settings = np.zeros(1, GPU_ENV_SETTINGS).view(np.recarray)
        env_settings["gpus"] = max(int(log_state.nodes["gpus"].sum()), 1)
        env_settings["widest"] = max(int(log_state.nodes["gpus"].max()), 1)
        env_settings["max_wait_s"], env_settings["sla_s"], env_settings["horizon_s"] = (
            decision_settings.max_wait_s,
            reward.sla_s,
            horizon_s,
        )
        env_settings["choices"], env_settings["by_type"], env_settings["hold"] = (
            spec.choices,
            decision_settings.by_type,
            spec.extra,
        )
        env_settings["victims"], env_settings["starts"] = (
            spec.slots - decision_settings.queue_window,
            decision_settings.starts(gpu_settings),
        )
        env_settings["autoreset"] = autoreset
        n = states.job_state.shape[1]
        shape = (copies, spec.slots, len(spec.features))
        last_rows = copies if np.isfinite(horizon_s) else 0
        edges = spec.slots if spec.graph else 0
        buffers = GpuStepBuffers(
            env_settings=env_settings,
            weights=reward.vector(),
            copies=np.zeros(copies, GPU_COPY_RECORD).view(np.recarray),
            jobs=np.zeros(shape, np.float32),
            mask=np.zeros((copies, spec.actions), np.int8),
            summary=np.zeros((copies, len(spec.summary)), np.float32),
            slots=np.zeros((copies, spec.slots), np.int64),
            edges=np.zeros((copies, edges, edges), np.uint8),
            free=np.zeros((copies, log_state.speed.shape[1] if edges else 0, 2), np.int64),
            fitting_cache=np.full((copies, len(log_state.failed), 2), -1),
            alive=np.zeros((copies, n), np.int64),
            pending_losses=np.full((copies, n if decision_settings.preempt else 0), -1),
            reward=np.zeros(copies),
            terms=np.zeros((copies, terms)),
            settled=np.zeros((copies, 7)),
            accrued=np.zeros((copies, terms)),
            over=np.zeros(copies, np.bool_),
            cut=np.zeros(copies, np.bool_),
            last_jobs=np.zeros((last_rows, *shape[1:]), np.float32),
            last_mask=np.zeros((last_rows, spec.actions), np.int8),
            last_edges=np.zeros((last_rows, edges, edges), np.uint8),
            last_summary=np.zeros((copies, len(spec.summary)), np.float32),
            finished=np.zeros((copies, 3 + terms)),
        )
        buffers.copies["arrival_rate"] = 1.0
        buffers.copies["until_s"] = np.inf
        super().__init__(compiled_gpu_step(states, buffers, log_arrays), states, buffers, log_arrays, copies, threads)

    def observed(self, copy: bool = True) -> Observation:
        """The current observation, as new arrays or as those that the next step overwrites."""
        observation = super().observed(copy)
        if self.buffers.edges.size:
            observation["edges"] = self.buffers.edges.copy() if copy else self.buffers.edges
        return observation

    def final_observation(self) -> Observation:
        """Last observation of episodes that ended in this step, where the next ones began at once."""
        last = super().final_observation()
        if len(self.buffers.last_jobs):
            last |= {"jobs": self.buffers.last_jobs.copy(), "mask": self.buffers.last_mask.copy()}
            last |= {"edges": self.buffers.last_edges.copy()} if self.buffers.edges.size else {}
        return last

    def truncated(self) -> npt.NDArray[np.bool_]:
        """Which of the ended episodes were truncated at their horizon."""
        cut: npt.NDArray[np.bool_] = self.buffers.cut.copy()
        return cut

    def starts(self, env: npt.NDArray[np.int64], number: npt.NDArray[np.int64]) -> Any:
        """Job (numbered from 0 in the episode) and time, seconds, of the starts with these numbers in these copies."""
        segments = np.asarray(self.states.segments)[env, number]
        return segments["job"], segments["start_s"]

    def submit_s(self, env: npt.NDArray[np.int64], job: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Submission in simulated time, seconds."""
        times: npt.NDArray[np.float64] = np.asarray(self.states.job_state["arrival_s"])[env, job]
        return times

    def slot_is_filled(self) -> npt.NDArray[np.bool_]:
        """(copies, slots) whether a waiting or a preemptible running job is shown there."""
        slot = np.arange(self.buffers.slots.shape[1])
        first_running = len(slot) - int(self.buffers.env_settings["victims"][0])
        running = first_running + np.asarray(self.buffers.copies["victims"])[:, None]
        waiting = np.asarray(self.buffers.copies["shown"])[:, None]
        return (slot < waiting) | ((slot >= first_running) & (slot < running))

    def _changing_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {name: array for name, array in super()._changing_arrays().items() if array.nbytes}
