"""One copy of `kilowait/Gpu-v0`, as `gymnasium.make` gives it."""

from __future__ import annotations

from kilowait.envs.env import SingleEnv
from kilowait.envs.gpu.vector_env import GpuVectorEnv

__all__ = ["GpuEnv"]


class GpuEnv(SingleEnv):
    """A GPU cluster on windows of a log; arguments as of `GpuVectorEnv`.

    >>> import gymnasium, kilowait as kw
    >>> from kilowait.synth import gpu_workload
    >>> cluster = kw.Cluster.preset("gpu-mixed")
    >>> jobs = gpu_workload(300, cluster, seed=1)
    >>> env = gymnasium.make("kilowait/Gpu-v0", jobs=jobs, cluster=cluster, slots=16, hold=True)
    >>> seen, _ = env.reset(seed=0)
    >>> seen["summary"].shape, int(env.action_space.n)
    ((18,), 81)
    """

    many = GpuVectorEnv
