"""Run a policy on the observations of `kilowait/Gpu-v0` over a whole log."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.cluster import Cluster
from kilowait.cluster.gpu_speeds import Speeds, speeds_for
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.simulator import GpuSimulator
from kilowait.engine.gpu.state import REJECTED
from kilowait.envs.action_checks import checked_actions
from kilowait.envs.batched_sim_base import DISABLED, START_PREPARED
from kilowait.envs.gpu.batched_sim import GpuBatchedSimulator, GpuDecisionSettings, external_gpu_policy
from kilowait.envs.gpu.reward_terms import TERMS
from kilowait.envs.gpu.vector_env import check_gpu_settings
from kilowait.envs.kernels.gpu_env_states import with_capacity
from kilowait.envs.reward_terms import Reward
from kilowait.envs.rollout import Decide
from kilowait.jobs import ExecutionLog, JobTable

__all__ = ["run_gpu_policy"]


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
    env_simulator = GpuBatchedSimulator(
        state,
        cluster,
        decision_settings,
        gpu_settings,
        Reward({"jct": 1.0}, terms=TERMS),
        copies=1,
        episode_jobs=len(jobs),
        autoreset=DISABLED,
        threads=1,
        in_place=True,
    )
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
