"""`kilowait/Gpu-v0`, many copies at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds
from kilowait.engine.gpu.initial_state import build_gpu_state
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.envs.gpu.batched_sim import GpuBatchedSimulator, GpuDecisionSettings, asker
from kilowait.envs.gpu.reward_terms import TERMS
from kilowait.envs.reward_terms import Reward
from kilowait.envs.vector_env import (
    MODES,
    EngineVectorEnv,
    check_sizes,
    default_reward,
    drop_dependencies,
)
from kilowait.errors import InputError
from kilowait.jobs import JobTable

__all__ = ["GpuVectorEnv", "check_placing"]


class GpuVectorEnv(EngineVectorEnv):
    """Copies of a GPU cluster, each on its own window of the log, all asked "who is next, and on which GPUs?".

    >>> import gymnasium, kilowait as kw
    >>> from kilowait.synth import gpu_workload
    >>> cluster = kw.Cluster.preset("gpu-mixed")
    >>> jobs = gpu_workload(300, cluster, seed=1)
    >>> vec = gymnasium.make_vec(
    ...     "kilowait/Gpu-v0", num_envs=4, vectorization_mode="vector_entry_point", jobs=jobs, cluster=cluster
    ... )
    >>> seen, _ = vec.reset(seed=0)
    >>> seen["jobs"].shape, bool(seen["mask"].any())
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
        placing: GpuSettings | None = None,
        episode_jobs: int = 256,
        horizon_s: float | None = None,
        reward: Mapping[str, float] | None = None,
        preferences: Mapping[str, float] | None = None,
        sla_s: float = 4 * 3600.0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        threads: int | None = None,
        copy: bool = True,
        seed: int = 0,
        **asking: Any,
    ) -> None:
        """`num_envs` copies.

        Args:
            num_envs: copies.
            jobs: the log; episodes are windows of it, on an empty machine, until all have finished. None is withdrawn
                in an episode, and none waits for another.
            cluster: the machine, of placed groups.
            speeds: how fast each job runs on each type; None: all alike. Rows as of `jobs`.
            preference: (types, jobs) which types each job tries first, with ``placing.types="given"``.
            placing: how nodes are chosen, what preemption costs, interference, rounds; with `migrate` running jobs move
                to where they are believed to end sooner after every pass, each at most `restarts` times.
                Jobs that no nodes can hold are left out. Where a placement looks at the mix of jobs (fgd, capacity), it
                is that of the whole log.
            episode_jobs: jobs in an episode.
            horizon_s: seconds after which an episode is cut off, jobs that have not finished counting with what they
                have cost so far; None: never.
            reward: weights of rewards.TERMS; None: {"jct": 1}.
            preferences: instead of a reward, terms whose weights are drawn anew for every episode, and the unit of
                each (`envs.preferences`).
            sla_s: time without a place beyond which the agreement is violated, seconds.
            autoreset_mode: as Gymnasium defines them.
            threads: of the engine; None: one a core.
            copy: whether observations are new arrays every step, or the same ones, overwritten.
            seed: of the windows, until `reset` is given one.
            asking: fields of `board.GpuAsking`: slots, by_type, placements, hold, preempt, graph, max_wait_s ...
        """
        check_sizes(num_envs, jobs, episode_jobs, threads)
        if not cluster.node_level or cluster.outages or cluster.reservations:
            raise InputError(
                f"cluster {cluster.name!r} has outages or reservations, or groups that are not placed; "
                "kilowait/Gpu-v0 is for clusters of placed nodes, such as the preset gpu-mixed: "
                "take kilowait/Batch-v0 for others"
            )
        if horizon_s is not None and not (np.isfinite(horizon_s) and horizon_s > 0):
            raise InputError(f"horizon_s is {horizon_s}; give seconds above 0, or None for no end")
        self.cluster, self.asking = cluster, GpuDecisionSettings(**asking)
        self.placing = check_placing(placing)
        self.reward = Reward(default_reward(reward, preferences, {"jct": 1.0}), sla_s, TERMS)
        settings = self.asking.settings(self.placing)
        mode, table = AutoresetMode(autoreset_mode), drop_dependencies(jobs)
        if table.order is not None:
            speeds = None if speeds is None else _taken(speeds, table.order)
            preference = None if preference is None else preference[:, table.order]
            table = table.sorted()
        whole = build_gpu_state(
            table,
            cluster,
            GpuSettings(**{**vars(settings), "on_oversized": "drop"}),
            asker(),
            speeds,
            preference,
        )
        board = GpuBatchedSimulator(
            whole,
            cluster,
            self.asking,
            self.placing,
            self.reward,
            copies=num_envs,
            episode_jobs=episode_jobs,
            autoreset=MODES[mode],
            horizon_s=np.inf if horizon_s is None else horizon_s,
            threads=threads,
        )
        super().__init__(
            board,
            self.asking.seen(cluster),
            table,
            episode_jobs=episode_jobs,
            autoreset_mode=mode,
            copy=copy,
            seed=seed,
            preferences=preferences,
        )


def check_placing(placing: GpuSettings | None) -> GpuSettings:
    """The settings, or the usual ones; an error for what a run that is asked cannot have."""
    placing = GpuSettings() if placing is None else placing
    if placing.preempt:
        raise InputError(
            "placing has preempt, by which the engine itself puts jobs out; leave it out, and give preempt=True to be "
            "asked who is put out"
        )
    return placing


def _taken(speeds: Speeds, order: npt.NDArray[np.int64]) -> Speeds:
    return Speeds(speeds.types, speeds.speed[:, order], speeds.spread[:, order], speeds.source[:, order])
