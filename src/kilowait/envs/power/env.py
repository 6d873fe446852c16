"""`kilowait/Energy-v0`, single environment."""

from __future__ import annotations

from kilowait.envs.env import SingleEnv
from kilowait.envs.power.vector_env import EnergyVectorEnv

__all__ = ["EnergyEnv"]


class EnergyEnv(SingleEnv):
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
