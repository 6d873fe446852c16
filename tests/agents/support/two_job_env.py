"""Two-job environment: a short and a long job on one machine. The optimum is shortest first, with known values."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class Spec(NamedTuple):
    features: tuple[str, ...] = ("length_h", "wait_h", "present")
    summary: tuple[str, ...] = ("now_h", "bias")
    slots: int = 4
    choices: int = 2
    extra: int = 1
    graph: bool = True


class TwoJobs(VectorEnv):
    """Each episode: a job of 1 or 2 hours and one of 3 to 5, in any two of four slots, wait for one machine.

    Action ``2 * slot`` starts a job, ``2 * slot + 1`` starts it at half speed, the last one wastes an hour. The reward
    is minus the hours that a job had waited when it starts. Short first at full speed is best: minus the short
    one's length. After `horizon` steps an episode is cut off; it ends when both jobs have started.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, *, seed: int = 0, horizon: int = 8, broken_after: int | None = None) -> None:
        self.num_envs, self.spec_of_observation, self.horizon = num_envs, Spec(), horizon
        self.broken_after = broken_after
        spec = self.spec_of_observation
        self.actions = spec.slots * spec.choices + spec.extra
        box = gym.spaces.Box
        self.single_observation_space = gym.spaces.Dict(
            {
                "jobs": box(-np.inf, np.inf, (spec.slots, len(spec.features)), np.float32),
                "summary": box(-np.inf, np.inf, (len(spec.summary),), np.float32),
                "mask": box(0, 1, (self.actions,), np.int8),
                "edges": box(0, 7, (spec.slots, spec.slots), np.uint8),
            }
        )
        self.single_action_space = gym.spaces.Discrete(self.actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.random = np.random.default_rng(seed)
        self.length = np.zeros((num_envs, spec.slots))  # 0: no job in this slot
        self.now, self.total, self.cost = np.zeros((3, num_envs))
        self.steps = np.zeros(num_envs, np.int64)
        self.turn = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict]:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self._begin(np.arange(self.num_envs))
        return self._observation(), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        spec, every = self.spec_of_observation, np.arange(self.num_envs)
        assert self._observation()["mask"][every, actions].all(), "an action that the mask forbids"
        self.turn += 1
        started = actions < spec.slots * spec.choices
        slot = np.where(started, actions // spec.choices, 0)
        taken = np.where(started, self.length[every, slot] * (1 + actions % spec.choices), 1.0)
        reward = np.where(started, -self.now, -0.5)
        if self.broken_after is not None and self.turn > self.broken_after:
            reward = reward * np.nan
        cost = (started & (self.length[every, slot] < 2.5) & (self.now == 0)).astype(np.float64)
        self.length[every[started], slot[started]] = 0.0
        self.now, self.steps, self.total = self.now + taken, self.steps + 1, self.total + reward
        terminated = ~self.length.any(1)
        truncated = ~terminated & (self.steps >= self.horizon)
        done, infos = terminated | truncated, {"short_first": cost}
        if done.any():
            final = self._observation()
            rows = np.empty(self.num_envs, object)
            for env in np.flatnonzero(done):
                rows[env] = {name: array[env] for name, array in final.items()}
            infos |= {"final_obs": rows, "_final_obs": done}
            infos |= {"episode": {"r": self.total.copy(), "l": self.steps.copy(), "metric": -self.total}}
            infos["_episode"] = done
            self._begin(np.flatnonzero(done))
        return self._observation(), reward, terminated, truncated, infos

    def snapshot(self) -> dict[str, np.ndarray]:
        state = self.random.bit_generator.state["state"]
        parts = [state["state"] >> 64, state["state"], state["inc"] >> 64, state["inc"]]
        arrays = {name: getattr(self, name).copy() for name in ("length", "now", "total", "steps")}
        return arrays | {"random": np.array([part % 2**64 for part in parts], np.uint64), "turn": np.array(self.turn)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        for name in ("length", "now", "total", "steps"):
            setattr(self, name, state[name].copy())
        self.turn = int(state["turn"])
        high, low, inc_high, inc_low = (int(part) for part in state["random"])
        now = self.random.bit_generator.state
        now["state"] = {"state": (high << 64) + low, "inc": (inc_high << 64) + inc_low}
        self.random.bit_generator.state = now

    def _begin(self, which: np.ndarray) -> None:
        spec = self.spec_of_observation
        places = np.argsort(self.random.random((len(which), spec.slots)), axis=1)
        self.length[which] = 0.0
        self.length[which, places[:, 0]] = self.random.integers(1, 3, len(which))
        self.length[which, places[:, 1]] = self.random.integers(3, 6, len(which))
        self.now[which] = self.total[which] = self.steps[which] = 0

    def _observation(self) -> dict[str, np.ndarray]:
        spec, occupied = self.spec_of_observation, self.length > 0
        jobs = (
            np.stack([self.length, np.broadcast_to(self.now[:, None], occupied.shape), occupied], -1)
            * occupied[..., None]
        )
        mask = np.ones((self.num_envs, self.actions), np.int8)
        mask[:, : spec.slots * spec.choices] = np.repeat(occupied, spec.choices, axis=1)
        return {
            "jobs": jobs.astype(np.float32),
            "summary": np.stack([self.now, np.ones(self.num_envs)], -1).astype(np.float32),
            "mask": mask,
            "edges": (occupied[:, :, None] & occupied[:, None, :]).astype(np.uint8) * 6,
        }


def excess(network: Any, episodes: int = 200) -> float:
    """Mean hours by which a network's greedy decisions are worse than shortest first; 0 is the optimum."""
    from kilowait.agents.networks import greedy_actions

    vec = TwoJobs(episodes)
    observation, _ = vec.reset(seed=99)
    best_hours = np.where(vec.length > 0, vec.length, np.inf).min(1)
    total_hours, over = np.zeros(episodes), np.zeros(episodes, bool)
    for _ in range(vec.horizon):
        observation, reward, terminated, truncated, _ = vec.step(greedy_actions(network, observation))
        total_hours -= np.where(over, 0.0, reward)
        over |= terminated | truncated
    return float((total_hours - best_hours).mean())
