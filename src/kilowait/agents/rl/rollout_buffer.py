"""Rollouts: consecutive steps of all environments, on the training device, and their advantages and returns.

Tensors of the advantages and returns are (T, B): steps of a rollout, environments. `next_values` is the value of the
state *after* each step; for a truncated step that of the final observation, not of the next episode's first. After a
step that terminated its episode the value is taken as 0, whatever the tensor contains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.agents.networks.heads import ActorCritic, MaskedCategorical, Network
from kilowait.agents.rl.device import DeviceTransfer, TorchRng
from kilowait.agents.rl.env_protocol import ObservationArrays, VectorEnvProtocol, final_observation
from kilowait.agents.rl.learner import Learner, S


def generalized_advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """Generalized advantages.

    Schulman et al., "High-dimensional continuous control using generalized advantage estimation" (ICLR 2016).

    Args:
        rewards: of each step.
        values: of the state before it.
        next_values: of the state after it.
        terminated: bool; the episode ended here.
        truncated: bool; the episode was truncated here.
        gamma: discount factor a step.
        gae_lambda: 0 uses one reward and the value after it; 1 uses all rewards to the end of the rollout.

    >>> one = torch.ones(2, 1)
    >>> no = torch.zeros(2, 1, dtype=torch.bool)
    >>> generalized_advantages(one, 0 * one, 0 * one, no, no, gamma=0.5, gae_lambda=1.0).flatten().tolist()
    [1.5, 1.0]
    """
    td_errors = rewards + gamma * next_values.masked_fill(terminated, 0.0) - values
    decay = gamma * gae_lambda * (~(terminated | truncated)).to(rewards.dtype)
    advantages = torch.empty_like(td_errors)
    advantage = torch.zeros_like(td_errors[0])
    for step in range(len(rewards) - 1, -1, -1):
        advantage = torch.addcmul(td_errors[step], decay[step], advantage)
        advantages[step] = advantage
    return advantages


def n_step_returns(
    rewards: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float, n_steps: int
) -> Tensor:
    """Discounted rewards of up to `n_steps` steps plus the value of the state after them.

    Fewer steps where the episode or the rollout ends earlier.

    >>> one, no = torch.ones(3, 1), torch.zeros(3, 1, dtype=torch.bool)
    >>> n_step_returns(one, 8 * one, no, no, gamma=0.5, n_steps=2).flatten().tolist()
    [3.5, 3.5, 5.0]
    """
    steps = len(rewards)
    episode_ends = terminated | truncated
    bootstrap_values = next_values.masked_fill(terminated, 0.0)
    one_step = rewards + gamma * bootstrap_values
    returns = one_step.clone()  # each iteration adds one step where that is possible
    for _ in range(n_steps - 1):
        longer = rewards[: steps - 1] + gamma * returns[1:]
        returns = torch.cat(
            [torch.where(episode_ends[: steps - 1], one_step[: steps - 1], longer), one_step[steps - 1 :]]
        )
    return returns


class RolloutBuffer:
    """`steps` steps of `envs` environments; tensors are (steps, envs, …).

    Call `add_observation`, then `add_transition` for every step, then `close`.
    """

    def __init__(self, steps: int, envs: int, transfer: DeviceTransfer) -> None:
        self.steps, self.envs, self.transfer, self.device = steps, envs, transfer, transfer.device
        self.observations: dict[str, Tensor] = {}
        self.actions = torch.zeros(steps, envs, dtype=torch.int64, device=self.device)
        self.log_probs, self.values, self.next_values = torch.zeros(3, steps, envs, device=self.device)
        self._rewards = np.zeros((steps, envs))
        self._terminated = np.zeros((steps, envs), np.bool_)
        self._truncated = np.zeros((steps, envs), np.bool_)
        self._truncated_values: list[tuple[int, npt.NDArray[np.intp], Tensor]] = []

    def add_observation(
        self, step: int, observation: ObservationArrays, actor: ActorCritic, random: torch.Generator
    ) -> npt.NDArray[np.int64]:
        """Store an observation, sample actions from the actor, store and return them."""
        if not self.observations:
            self.observations = {
                name: torch.empty((self.steps, *array.shape), dtype=torch.from_numpy(array).dtype, device=self.device)
                for name, array in observation.items()
            }
        tensors = self.transfer(observation, {name: array[step] for name, array in self.observations.items()})
        logits, self.values[step] = actor(tensors)
        choice = MaskedCategorical(logits)
        actions = choice.sample(random)
        self.actions[step], self.log_probs[step] = actions, choice.log_prob(actions)
        env_actions: npt.NDArray[np.int64] = actions.cpu().numpy()  # the only synchronization of a step
        return env_actions

    def add_transition(
        self,
        step: int,
        rewards: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        infos: dict[str, Any],
        actor: ActorCritic,
    ) -> None:
        """Store rewards and ends of episodes; for truncated ones compute the value of the final observation."""
        self._rewards[step], self._terminated[step], self._truncated[step] = rewards, terminated, truncated
        truncated_envs = np.flatnonzero(truncated & ~terminated)
        if len(truncated_envs):
            final = final_observation(infos, truncated_envs)
            tensors = {name: torch.from_numpy(rows).to(self.device) for name, rows in final.items()}
            self._truncated_values.append((step, truncated_envs, actor(tensors)[1]))

    def close(self, observation: ObservationArrays, actor: ActorCritic, divisor: float) -> dict[str, Tensor]:
        """Scaled rewards and flags as tensors; `next_values` is complete afterwards."""
        self.next_values[:-1] = self.values[1:]
        self.next_values[-1] = actor(self.transfer(observation))[1]
        for step, truncated_envs, values in self._truncated_values:
            self.next_values[step, torch.from_numpy(truncated_envs).to(self.device)] = values.to(self.next_values.dtype)
        self._truncated_values.clear()
        arrays = {
            "rewards": (self._rewards / divisor).astype(np.float32),
            "terminated": self._terminated.copy(),
            "truncated": self._truncated.copy(),
        }
        return {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}

    def flat(self) -> dict[str, Tensor]:
        """Observations of all steps, flattened to (steps x envs, …)."""
        return {name: array.flatten(0, 1) for name, array in self.observations.items()}


class RolloutLearner(Learner[S]):
    """A learner that trains on rollouts; the learning rate of its optimizer decays if `anneal_lr` is set."""

    def __init__(
        self, name: str, vec: VectorEnvProtocol, settings: S, network: Network, rng: TorchRng, **options: Any
    ) -> None:
        super().__init__(name, vec, settings, network, rng, **options)
        self.optimizer = self.adam(network.parameters(), eps=1e-5)
        self.rollout = RolloutBuffer(settings.n_steps, vec.num_envs, DeviceTransfer(self.device))
        self.parts |= {"optimizer": self.optimizer}

    def collect(
        self,
        observation: ObservationArrays,
        number: int,
        *,
        reward: Callable[[npt.NDArray[np.float64], Mapping[str, Any]], npt.NDArray[np.float64]] | None = None,
        expert: Callable[[], npt.NDArray[np.int64]] | None = None,
    ) -> tuple[ObservationArrays, dict[str, Tensor]]:
        """Fill the rollout after `number` updates; returns the next observation and `RolloutBuffer.close`.

        Args:
            observation: the current observation.
            number: finished updates, on which the learning rate depends.
            reward: changes the rewards of a step, by its infos, before they are stored.
            expert: chooses the actions instead of the learner's policy.
        """
        if self.settings.anneal_lr:
            self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate * (1 - number / self.updates)
        actor, rollout = self.actor, self.rollout
        with torch.no_grad(), self.lower_precision():
            for step in range(rollout.steps):
                actions = rollout.add_observation(step, observation, actor, self.rng.generator)
                if expert is not None:
                    actions = expert()
                    rollout.actions[step] = torch.from_numpy(actions)
                observation, rewards, terminated, truncated, infos = self.vec.step(actions)
                done = terminated | truncated
                self.episodes.step(infos, done)
                if reward is not None:
                    rewards = reward(rewards, infos)
                self.scale.step(rewards, done)
                rollout.add_transition(step, rewards, terminated, truncated, infos, actor)
            return observation, rollout.close(observation, actor, self.divisor)

    def advantages(self, transitions: dict[str, Tensor]) -> Tensor:
        """(T, B) generalized advantages of the rollout."""
        return generalized_advantages(
            transitions["rewards"], self.rollout.values, self.rollout.next_values,
            transitions["terminated"], transitions["truncated"],
            gamma=self.settings.gamma, gae_lambda=self.settings.gae_lambda,
        )  # fmt: skip
