"""One copy, as `gymnasium.make` gives it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from kilowait.envs.batched_sim_base import Observation
from kilowait.envs.vector_env import BatchVectorEnv, EngineVectorEnv

__all__ = ["BatchEnv", "SingleEnv"]


class SingleEnv(gym.Env[Observation, np.int64]):
    """One copy of a vector env."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own shape
    many: type[EngineVectorEnv]
    """Of which it is one."""

    def __init__(self, **arguments: Any) -> None:
        """Arguments as of the vector env."""
        make: Any = self.many
        self._one: EngineVectorEnv = make(
            1, autoreset_mode=AutoresetMode.DISABLED, copy=False, threads=1, **arguments
        )
        self.observation_space = self._one.single_observation_space
        self.action_space = self._one.single_action_space

    @property
    def vector(self) -> EngineVectorEnv:
        """The vector env of one copy behind it."""
        return self._one

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode: on a window drawn by the seed, or at row ``options["first"]`` of the log."""
        super().reset(seed=seed)
        seen, told = self._one.reset(seed=seed, options=options)
        return {name: array[0].copy() for name, array in seen.items()}, told

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One decision."""
        seen, reward, over, cut, told = self._one.step(np.array([action], np.int64))
        info: dict[str, Any] = {"terms": told["terms"][0]}
        if over[0] or cut[0]:
            info["episode_terms"] = told["episode"]["terms"][0]
            info["replaced_actions"] = int(told["episode"]["invalid"][0])
        shown = {name: array[0].copy() for name, array in seen.items()}
        return shown, float(reward[0]), bool(over[0]), bool(cut[0]), info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions may be taken, by the name MaskablePPO looks for."""
        return self._one.action_masks()[0]


class BatchEnv(SingleEnv):
    """A batch system on windows of a log, asked "who is next?"; arguments as of `BatchVectorEnv`.

    >>> import gymnasium, kilowait as kw
    >>> jobs = kw.lublin(jobs=300, nodes=64, seed=1)
    >>> env = gymnasium.make("kilowait/Batch-v0", jobs=jobs, cluster=kw.Cluster.from_nodes(64))
    >>> seen, _ = env.reset(seed=0)
    >>> seen["summary"].shape, int(env.action_space.n)
    ((11,), 128)
    """

    many = BatchVectorEnv
