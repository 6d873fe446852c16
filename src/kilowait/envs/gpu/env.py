"""`kilowait/Gpu-v0`, single environment."""

from __future__ import annotations

from kilowait.envs.env import SingleEnv
from kilowait.envs.gpu.vector_env import GpuVectorEnv

__all__ = ["GpuEnv"]


class GpuEnv(SingleEnv):
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
