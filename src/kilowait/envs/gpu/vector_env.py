"""`kilowait/Gpu-v0`, vector environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds, speeds_for
from kilowait.engine.gpu.initial_state import build_gpu_state
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.envs.custom_functions import Feature
from kilowait.envs.gpu.batched_sim import GpuBatchedSimulator, GpuDecisionSettings, external_gpu_policy
from kilowait.envs.gpu.reward_terms import TERMS
from kilowait.envs.reward_terms import Reward, RewardWeights
from kilowait.envs.vector_env import EngineVectorEnv, check_sizes, default_reward, drop_dependencies, kernel_autoreset
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["GpuVectorEnv", "check_gpu_settings"]


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
    """

    term_names = tuple(TERMS)

    def __init__(
        self,
        num_envs: int = 1,
        *,
        jobs: JobTable,
        cluster: Cluster,
        speeds: Speeds | None = None,
        preference: npt.NDArray[np.float64] | None = None,
        gpu_settings: GpuSettings | None = None,
        episode_jobs: int = 256,
        horizon_s: float | None = None,
        reward: RewardWeights | None = None,
        features: Sequence[Feature] = (),
        preferences: Mapping[str, float] | None = None,
        sla_s: float = 4 * 3600.0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        copy: bool = True,
        seed: int = 0,
        job_info: bool = False,
        **decision_settings: Any,
    ) -> None:
        """A vector environment.

        Args:
            num_envs: number of environment copies.
            jobs: the log; episodes are windows of it on an empty machine, until all jobs have finished. Cancellations
                and dependencies of jobs are ignored.
            cluster: the machine; all its groups are node-level.
            speeds: speed of each job on each GPU type, rows as in `jobs`; None: as `gpu_settings.gpu_speeds` says, as
                in `kilowait.simulate`.
            preference: (types, jobs) order in which each job tries the types, with
                ``gpu_settings.gpu_type_order="given"``.
            gpu_settings: engine settings: placement, cost of preemption, interference, scheduling rounds. With
                `migrate`, running jobs migrate after every pass to where they would end earlier, each at most
                `max_preemptions` times. Jobs that fit no nodes are dropped. Placements that use the mix of jobs use
                that of the whole log.
            episode_jobs: jobs in an episode.
            horizon_s: seconds after which an episode is truncated; unfinished jobs count with their cost so far. None:
                never.
            reward: reward term to weight; None: {"jct": 1}. A term is a name in `gpu.reward_terms.TERMS`, a
                `kilowait.envs.RewardTerm`, or a function of the jobs that started in the step.
            features: custom features of the shown jobs (`kilowait.envs.Feature`), after the built-in ones.
            preferences: instead of a reward: reward terms whose weights are sampled for every episode, and the unit
                of each (see `kilowait.envs.preferences`).
            sla_s: time without allocated GPUs that violates the service level, seconds.
            autoreset_mode: as Gymnasium defines it.
            threads: threads of the engine; None: one per core.
            copy: whether every step returns new arrays, or the same ones, overwritten.
            seed: seed of the windows, until `reset` is given one.
            job_info: whether `infos` has ids and users of the shown jobs.
            decision_settings: fields of `GpuDecisionSettings`: queue_window, by_type, placements, hold, preempt, graph,
                max_wait_s ...
        """
        check_sizes(num_envs, jobs, episode_jobs, threads)
        if not cluster.node_level or cluster.outages or cluster.reservations:
            raise InputError(
                f"cluster {cluster.name!r} has outages or reservations, or groups that are not node-level; "
                "kilowait/Gpu-v0 is for node-level GPU clusters, such as the preset gpu-mixed: "
                "use kilowait/Batch-v0 for others"
            )
        if horizon_s is not None and not (np.isfinite(horizon_s) and horizon_s > 0):
            raise InputError(f"horizon_s is {horizon_s}; give seconds above 0, or None for no horizon")
        self.cluster, self.decision_settings = cluster, GpuDecisionSettings(**decision_settings)
        self.gpu_settings = check_gpu_settings(gpu_settings)
        self.reward = Reward(default_reward(reward, preferences, {"jct": 1.0}), sla_s, TERMS)
        settings = self.decision_settings.settings(self.gpu_settings)
        mode, table = AutoresetMode(autoreset_mode), drop_dependencies(jobs)
        if table.order is not None:
            speeds = None if speeds is None else _reorder_speeds(speeds, table.order)
            preference = None if preference is None else preference[:, table.order]
            table = table.sorted()
        if speeds is None:
            speeds = speeds_for(self.gpu_settings.gpu_speeds, table, cluster)
        log_state = build_gpu_state(
            table,
            cluster,
            GpuSettings(**{**vars(settings), "on_oversized": "drop"}),
            external_gpu_policy(),
            speeds,
            preference,
        )
        simulator = GpuBatchedSimulator(
            log_state,
            cluster,
            self.decision_settings,
            self.gpu_settings,
            self.reward,
            copies=num_envs,
            episode_jobs=episode_jobs,
            autoreset=kernel_autoreset(mode, self.reward, features),
            horizon_s=np.inf if horizon_s is None else horizon_s,
            threads=threads,
        )
        super().__init__(
            simulator,
            self.decision_settings.observation_spec(cluster),
            table,
            episode_jobs=episode_jobs,
            autoreset_mode=mode,
            copy=copy,
            seed=seed,
            preferences=preferences,
            features=features,
            job_info=job_info,
        )


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
