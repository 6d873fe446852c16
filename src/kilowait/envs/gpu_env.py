"""`kilowait/Gpu-v0`: job, GPU type, placement and preemption on a node-level GPU cluster; and runs of whole logs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds, speeds_for
from kilowait.engine.gpu.initial_state import build_gpu_state
from kilowait.engine.gpu.settings import PLACEMENTS, GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.engine.gpu.state import REJECTED, GpuState
from kilowait.engine.interface import PriorityPolicy
from kilowait.envs.batched_sim import (
    BatchedSimulator,
    CopySettings,
    Decide,
    Observation,
    checked_actions,
    record,
    step_buffers,
)
from kilowait.envs.env import EngineEnv
from kilowait.envs.kernels.decision_gpu import advance_to_decision, apply_action
from kilowait.envs.kernels.observation_gpu import write_observation
from kilowait.envs.kernels.reward import GPU_SUMS, compute_gpu_reward, reset_reward
from kilowait.envs.kernels.state_stack_gpu import (
    GPU_COPY_RECORD,
    GPU_ENV_SETTINGS,
    GpuBuffers,
    prepare_log_arrays,
    reset,
    stack_gpu_states,
    window_state,
    with_capacity,
)
from kilowait.envs.kernels.step import START_PREPARED, KernelSet
from kilowait.envs.observation_spec import ObservationSpec, gpu_feature_names, gpu_summary_names, gpu_type_names
from kilowait.envs.reward_terms import GPU_TERMS, Reward
from kilowait.envs.vector_env import EngineVectorEnv, drop_dependencies, take_fields
from kilowait.errors import InputError, UnknownNameError
from kilowait.jobs import ExecutionLog, JobTable

KERNELS = KernelSet(
    "gpu",
    "the training environment of GPU clusters",
    "25 s",
    reset,
    advance_to_decision,
    apply_action,
    write_observation,
    reset_reward,
    compute_gpu_reward,
)

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
        types = gpu_type_names(cluster)
        choices = max(len(self.placements), 1) * (1 + len(types) if self.by_type else 1)
        extra = int(self.hold or self.preempt)
        return ObservationSpec(
            gpu_feature_names(types), gpu_summary_names(types), self.rows, choices, extra, self.graph
        )


@dataclass(frozen=True, eq=False)
class GpuInputs:
    """Engine settings and speeds of `kilowait/Gpu-v0`, and the horizon of its episodes."""

    speeds: Speeds | None = None
    """Speed of each job on each GPU type, rows as in `jobs`; None: as `gpu_settings.gpu_speeds` says, as in
    `kilowait.simulate`."""
    preference: npt.NDArray[np.float64] | None = None
    """(types, jobs) order in which each job tries the types, with ``gpu_settings.gpu_type_order="given"``."""
    gpu_settings: GpuSettings | None = None
    """Engine settings: placement, cost of preemption, interference, scheduling rounds. With `migrate`, running jobs
    migrate after every pass to where they would end earlier, each at most `max_preemptions` times. Jobs that fit no
    nodes are dropped. Placements that use the mix of jobs use that of the whole log."""
    horizon_s: float | None = None
    """Seconds after which an episode is truncated; unfinished jobs count with their cost so far. None: never."""

    def __post_init__(self) -> None:
        if self.horizon_s is not None and not (np.isfinite(self.horizon_s) and self.horizon_s > 0):
            raise InputError(f"horizon_s is {self.horizon_s}; give seconds above 0, or None for no horizon")


class GpuEnvSimulator(BatchedSimulator):
    """Environment copies of a GPU cluster, each on its own window of the log."""

    def __init__(
        self,
        log_state: GpuState,
        cluster: Cluster,
        decision_settings: GpuDecisionSettings,
        gpu_settings: GpuSettings,
        reward: Reward,
        copies: CopySettings,
        *,
        horizon_s: float = np.inf,
        in_place: bool = False,
    ) -> None:
        """`log_state`: the state of all jobs before the first event; with `in_place`, the only copy advances that
        state itself."""
        spec, starts, count = (
            decision_settings.observation_spec(cluster),
            decision_settings.starts(gpu_settings),
            copies.copies,
        )
        log_arrays = prepare_log_arrays(log_state, decision_settings.codes(gpu_settings))
        if in_place:
            views: list[Any] = [array[None] for array in log_state]
            states = GpuState(*views)
        else:
            states = stack_gpu_states(window_state(log_state, copies.episode_jobs, starts, count), count)
        victims = spec.slots - decision_settings.queue_window
        env_settings = record(
            GPU_ENV_SETTINGS,
            gpus=max(int(log_state.nodes["gpus"].sum()), 1),
            widest=max(int(log_state.nodes["gpus"].max()), 1),
            max_wait_s=decision_settings.max_wait_s,
            sla_s=reward.sla_s,
            horizon_s=horizon_s,
            choices=spec.choices,
            by_type=decision_settings.by_type,
            hold=spec.extra,
            victims=victims,
            starts=starts,
            autoreset=copies.autoreset,
        )
        buffers = step_buffers(env_settings, GPU_COPY_RECORD, spec, reward.vector(), count)
        buffers.copies["until_s"] = np.inf
        n, types = states.job_state.shape[1], log_state.speed.shape[1]
        last_rows = count if np.isfinite(horizon_s) else 0
        own = GpuBuffers(
            free=np.zeros((count, types if spec.graph else 0, 2), np.int64),
            fitting_cache=np.full((count, len(log_state.failed), 2), -1),
            alive=np.zeros((count, n), np.int64),
            pending_losses=np.full((count, n if decision_settings.preempt else 0), -1),
            last_jobs=np.zeros((last_rows, *buffers.jobs.shape[1:]), np.float32),
            last_mask=np.zeros((last_rows, spec.actions), np.int8),
            last_edges=np.zeros((last_rows, *buffers.edges.shape[1:]), np.uint8),
        )
        buffers = buffers._replace(settled=np.zeros((count, GPU_SUMS)), own=own)
        super().__init__(KERNELS, states, buffers, log_arrays, copies.threads)

    def final_observation(self) -> Observation:
        """Last observation of episodes that ended in this step, where the next ones began at once."""
        last = super().final_observation()
        if len(self.buffers.own.last_jobs):
            last |= {"jobs": self.buffers.own.last_jobs.copy(), "mask": self.buffers.own.last_mask.copy()}
            last |= {"edges": self.buffers.own.last_edges.copy()} if self.buffers.edges.size else {}
        return last

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


class GpuVectorEnv(EngineVectorEnv):
    """Copies of a GPU cluster, each on its own window of the log; an action chooses the next job and its GPUs.

    >>> import gymnasium, kilowait as kw, kilowait.envs
    >>> from kilowait.synth import gpu_workload
    >>> cluster = kw.Cluster.preset("gpu-mixed")
    >>> jobs = gpu_workload(300, cluster, seed=1)
    >>> vec = gymnasium.make_vec(
    ...     "kilowait/Gpu-v0", num_envs=4, vectorization_mode="vector_entry_point", jobs=jobs, cluster=cluster
    ... )
    >>> observation, _ = vec.reset(seed=0)
    >>> observation["jobs"].shape, bool(observation["mask"].any())
    ((4, 128, 23), True)

    Arguments beside those of `EngineVectorEnv` are fields of `GpuInputs` and `GpuDecisionSettings`. All groups of the
    cluster are node-level. Episodes begin on an empty machine and end when all jobs have finished.
    """

    reward_terms = GPU_TERMS
    default_weights = {"jct": 1.0}  # noqa: RUF012 - never changed

    def _make_simulator(
        self, jobs: JobTable, copies: CopySettings, settings: dict[str, Any]
    ) -> tuple[JobTable, BatchedSimulator, ObservationSpec]:
        cluster = self.cluster
        if not cluster.node_level or cluster.outages or cluster.reservations:
            raise InputError(
                f"cluster {cluster.name!r} has outages or reservations, or groups that are not node-level; "
                "kilowait/Gpu-v0 is for node-level GPU clusters, such as the preset gpu-mixed: "
                "use kilowait/Batch-v0 for others"
            )
        inputs = GpuInputs(**take_fields(GpuInputs, settings))
        self.decision_settings = GpuDecisionSettings(**settings)
        self.gpu_settings = check_gpu_settings(inputs.gpu_settings)
        speeds, preference, table = inputs.speeds, inputs.preference, drop_dependencies(jobs)
        if table.order is not None:
            speeds = None if speeds is None else _reorder_speeds(speeds, table.order)
            preference = None if preference is None else preference[:, table.order]
            table = table.sorted()
        if speeds is None:
            speeds = speeds_for(self.gpu_settings.gpu_speeds, table, cluster)
        engine_settings = replace(self.decision_settings.settings(self.gpu_settings), on_oversized="drop")
        simulator = GpuEnvSimulator(
            build_gpu_state(table, cluster, engine_settings, external_gpu_policy(), speeds, preference),
            cluster,
            self.decision_settings,
            self.gpu_settings,
            self.reward,
            copies,
            horizon_s=np.inf if inputs.horizon_s is None else inputs.horizon_s,
        )
        return table, simulator, self.decision_settings.observation_spec(cluster)


class GpuEnv(EngineEnv):
    """A GPU cluster on windows of a log; arguments as of `GpuVectorEnv`.

    >>> import gymnasium, kilowait as kw, kilowait.envs
    >>> from kilowait.synth import gpu_workload
    >>> cluster = kw.Cluster.preset("gpu-mixed")
    >>> jobs = gpu_workload(300, cluster, seed=1)
    >>> env = gymnasium.make("kilowait/Gpu-v0", jobs=jobs, cluster=cluster, queue_window=16, hold=True)
    >>> observation, _ = env.reset(seed=0)
    >>> observation["summary"].shape, int(env.action_space.n)
    ((18,), 81)
    """

    vector_env_type = GpuVectorEnv


def check_gpu_settings(gpu_settings: GpuSettings | None) -> GpuSettings:
    """The settings, or the default ones; raises an error if the engine itself would preempt jobs."""
    gpu_settings = GpuSettings() if gpu_settings is None else gpu_settings
    if gpu_settings.preempt:
        raise InputError(
            "gpu_settings.preempt is True: the engine itself would preempt jobs; leave it out, and give the "
            "environment preempt=True to let the agent preempt"
        )
    return gpu_settings


def _reorder_speeds(speeds: Speeds, order: npt.NDArray[np.int64]) -> Speeds:
    return Speeds(speeds.types, speeds.speed[:, order], speeds.spread[:, order], speeds.source[:, order])


class _GpuRolloutSimulator(GpuSimulator):
    """A simulator whose state the environment advances; its arrays are allocated once at their maximum size."""

    def take_state(self, starts: int) -> Any:
        """The state, with arrays for a run in which each job starts at most `starts` times."""
        self._state = with_capacity(self._state, starts)
        return self._state


def run_gpu_policy(
    jobs: JobTable,
    cluster: Cluster,
    decide: Decide,
    *,
    decision_settings: GpuDecisionSettings | None = None,
    gpu_settings: GpuSettings | None = None,
    speeds: Speeds | None = None,
    preference: npt.NDArray[np.float64] | None = None,
    name: str = "agent",
) -> ExecutionLog:
    """Replay `jobs` on `cluster` with the decisions of `decide`; cancelled jobs are as in `kilowait.simulate`.

    Without `speeds`, those of the setting `gpu_speeds` are used, as in `kilowait.simulate`.

    >>> import kilowait as kw
    >>> jobs = kw.JobTable(job_id=[1, 2, 3], submit_s=[0, 1, 2], runtime_s=[9, 9, 3], nodes=[1] * 3, gpus=[4] * 3)
    >>> machine = kw.Cluster([kw.NodeGroup("t4", nodes=1, gpus=4, gpu_type="T4", node_level=True)])
    >>> newest_first = lambda observation: (
    ...     observation["mask"].shape[1] - 1 - observation["mask"][:, ::-1].argmax(axis=1)
    ... )
    >>> same_speeds = GpuSettings(gpu_speeds="none")
    >>> run_gpu_policy(jobs, machine, newest_first, gpu_settings=same_speeds).jobs()["start_s"].tolist()
    [0.0, 12.0, 9.0]
    """
    decision_settings = GpuDecisionSettings() if decision_settings is None else decision_settings
    gpu_settings = check_gpu_settings(gpu_settings)
    if speeds is None:
        speeds = speeds_for(gpu_settings.gpu_speeds, jobs, cluster)
    simulator = _GpuRolloutSimulator(
        jobs,
        cluster,
        decision_settings.settings(gpu_settings),
        policy=external_gpu_policy(name),
        speeds=speeds,
        preference=preference,
    )
    state = simulator.take_state(decision_settings.starts(gpu_settings))
    reward, copies = Reward({"jct": 1.0}, terms=GPU_TERMS), CopySettings(1, len(jobs), threads=1)
    env_simulator = GpuEnvSimulator(state, cluster, decision_settings, gpu_settings, reward, copies, in_place=True)
    buffers: Any = env_simulator.buffers
    buffers.copies["jobs"] = np.count_nonzero(state.job_state["status"] != REJECTED)
    buffers.copies["weight"] = env_simulator.log_arrays.weight.sum()
    buffers.copies["first_s"] = state.job_state["arrival_s"].min(initial=np.inf)
    env_simulator.step(np.array([START_PREPARED]))
    while not buffers.over[0]:
        action = decide(env_simulator.observed(copy=False))
        env_simulator.step(checked_actions(action, 1, buffers.mask.shape[1]))
    simulator.check_all_ended()
    return simulator.log()
