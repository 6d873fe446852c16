"""Single environments, as `gymnasium.make` returns them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from kilowait.envs.batched_sim import Observation
from kilowait.envs.vector_env import EngineVectorEnv


class EngineEnv(gym.Env[Observation, np.int64]):
    """A single environment: a vector environment with one copy.

    `info` has after `reset` and every `step`, unless the environment is created with ``job_info=False``:

    - ``job_id``, ``user`` (slots,): id and user of the job in each slot of the observation; -1 in empty slots.

    after every `step`:

    - each reward term by its name (``info["slowdown"]``), custom ones too: its cost in this step, not weighted;
    - ``terms``: the built-in ones as an array, in the order of `vector.term_names`;

    after the last step of an episode:

    - ``episode_terms``, ``episode_custom_terms``: the terms summed over the episode;
    - ``replaced_actions``: how many actions the mask forbade and were replaced.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it
    vector_env_type: type[EngineVectorEnv]
    """The vector environment class it wraps."""

    def __init__(self, *, job_info: bool = True, **arguments: Any) -> None:
        """Arguments as of the vector environment; `job_info` is on unless it is turned off."""
        vector_env_type: Any = self.vector_env_type
        self._vector: EngineVectorEnv = vector_env_type(
            1, autoreset_mode=AutoresetMode.DISABLED, copy=False, threads=1, job_info=job_info, **arguments
        )
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space

    @property
    def vector(self) -> EngineVectorEnv:
        """The vector environment of one copy behind it."""
        return self._vector

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode: on a window sampled by the seed, or at row ``options["first"]`` of the log."""
        super().reset(seed=seed)
        observation, infos = self._vector.reset(seed=seed, options=options)
        info = {name: array[0] for name, array in infos.items()}
        return {name: array[0].copy() for name, array in observation.items()}, info

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take one action: an integer; a float, even a whole one, or a bool is refused."""
        actions: Any = [action]
        batch, reward, terminated, truncated, infos = self._vector.step(actions)
        info: dict[str, Any] = {name: value[0] for name, value in infos.items() if name not in ("episode", "_episode")}
        if terminated[0] or truncated[0]:
            episode = infos["episode"]
            info["episode_terms"] = episode["terms"][0]
            info["replaced_actions"] = int(episode["invalid"][0])
            if "custom_terms" in episode:
                info["episode_custom_terms"] = episode["custom_terms"][0]
        observation = {name: array[0].copy() for name, array in batch.items()}
        return observation, float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions are allowed; sb3-contrib's MaskablePPO calls this method."""
        return self._vector.action_masks()[0]
