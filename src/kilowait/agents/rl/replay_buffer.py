"""Prioritized replay buffer with n-step returns: a ring of the transitions of all environments.

Observations are stored once; the observation after a step is found n slots further on. A step is sampled only when its
n following steps are stored. Where an episode was truncated, returns of earlier steps end at the last stored state,
and the truncated step itself is left out: its next observation is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.agents.networks.heads import Network
from kilowait.agents.rl.device import DeviceTransfer, TorchRng
from kilowait.agents.rl.env_protocol import ObservationArrays, VectorEnvProtocol
from kilowait.agents.rl.learner import Learner, S
from kilowait.errors import InputError


class SumTree:
    """Non-negative weights with their partial sums; initially all 0.

    >>> tree = SumTree(3)
    >>> tree.set(torch.tensor([0, 2]), torch.tensor([1.0, 3.0]))
    >>> tree.total.item(), tree.leaves_at(torch.tensor([0.5, 1.5, 3.9])).tolist()
    (4.0, [0, 2, 2])
    """

    def __init__(self, leaves: int, device: torch.device | str = "cpu") -> None:
        self.first = 1 << max(leaves - 1, 0).bit_length()  # node of leaf 0; its children would be 2x and 2x + 1
        self.sums = torch.zeros(2 * self.first, dtype=torch.float64, device=device)

    @property
    def total(self) -> Tensor:
        """Sum of all weights."""
        return self.sums[1]

    def get(self, leaves: Tensor) -> Tensor:
        """Weights of leaves."""
        return self.sums[self.first + leaves]

    def set(self, leaves: Tensor, weights: Tensor | float) -> None:
        """Set weights; if a leaf is given twice, one of its two weights is used."""
        nodes = self.first + leaves
        if isinstance(weights, Tensor):
            weights = weights.to(self.sums.dtype)
        self.sums[nodes] = weights
        for _ in range(self.first.bit_length() - 1):
            nodes = nodes // 2
            self.sums[nodes] = self.sums[2 * nodes] + self.sums[2 * nodes + 1]

    def leaves_at(self, cumulative: Tensor) -> Tensor:
        """The leaf where the cumulative sum of weights exceeds each mass, 0 <= mass < total; never one of weight 0."""
        nodes = torch.ones_like(cumulative, dtype=torch.int64)
        cumulative = cumulative.to(self.sums.dtype)
        for _ in range(self.first.bit_length() - 1):
            left, right = self.sums[2 * nodes], self.sums[2 * nodes + 1]
            goes_right = (cumulative >= left) & (right > 0)  # rounding may put a mass beyond the last weight
            cumulative = torch.where(goes_right, cumulative - left, cumulative)
            nodes = 2 * nodes + goes_right.to(torch.int64)
        return nodes - self.first


@dataclass(frozen=True)
class ReplayBatch:
    """A batch of transitions."""

    observation: dict[str, Tensor]
    actions: Tensor
    rewards: Tensor
    """Discounted sum over the n steps."""
    discounts: Tensor
    """Discount factor of the value of the state after them; 0 where the episode ended."""
    next_observation: dict[str, Tensor]
    weights: Tensor
    """Importance-sampling weights; the largest is 1."""
    indices: Tensor
    """Positions in the buffer, for `ReplayBuffer.update_priorities`."""


class ReplayBuffer:
    """A ring of `buffer_size` transitions of `envs` environments together."""

    def __init__(
        self,
        buffer_size: int,
        envs: int,
        transfer: DeviceTransfer,
        *,
        n_steps: int = 1,
        gamma: float = 1.0,
        per_alpha: float = 0.0,
    ) -> None:
        self.slots, self.envs, self.n_steps = buffer_size // envs, envs, n_steps
        if self.slots < n_steps + 2:
            raise InputError(
                f"a replay buffer of {buffer_size:,} steps stores {self.slots} of each of {envs:,} environments; "
                f"{n_steps}-step returns need {n_steps + 2}: a buffer_size of {envs * (n_steps + 2):,} or more"
            )
        self.transfer, self.per_alpha = transfer, per_alpha
        self.device = transfer.device
        self.discounts = gamma ** torch.arange(n_steps + 1, device=self.device)
        shape = (self.slots, envs)
        self.observations: dict[str, Tensor] = {}
        self.actions = torch.zeros(shape, dtype=torch.int64, device=self.device)
        self.rewards = torch.zeros(shape, device=self.device)
        self.terminated = torch.zeros(shape, dtype=torch.bool, device=self.device)
        self.truncated = torch.zeros(shape, dtype=torch.bool, device=self.device)
        self.tree = SumTree(self.slots * envs, self.device)
        self.max_priority = torch.ones((), dtype=torch.float64, device=self.device)
        self.stored_steps = 0
        """Steps of each environment committed so far."""

    def __len__(self) -> int:
        """Number of steps that can be sampled, at most."""
        return max(0, min(self.stored_steps, self.slots) - self.n_steps) * self.envs

    def store_observation(self, observation: Mapping[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
        """Write the current observation into the next slot; returns it as tensors on the device."""
        if not self.observations:
            self.observations = {
                name: torch.zeros((self.slots, *array.shape), dtype=torch.from_numpy(array).dtype, device=self.device)
                for name, array in observation.items()
            }
        slot = self.stored_steps % self.slots
        self.tree.set(self._leaves(slot), 0.0)
        return self.transfer(observation, {name: array[slot] for name, array in self.observations.items()})

    def store_transition(
        self,
        actions: Tensor,
        rewards: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
    ) -> None:
        """Store the actions for the stored observation, with their rewards and ends of episodes."""
        slot = self.stored_steps % self.slots
        self.actions[slot] = actions
        self.rewards[slot] = torch.from_numpy(rewards.astype(np.float32)).to(self.device)
        self.terminated[slot] = torch.from_numpy(terminated).to(self.device)
        self.truncated[slot] = torch.from_numpy(truncated & ~terminated).to(self.device)
        if self.stored_steps >= self.n_steps:
            ready = (self.stored_steps - self.n_steps) % self.slots
            self.tree.set(self._leaves(ready), self.max_priority * ~self.truncated[ready])
        self.stored_steps += 1

    def sample(self, count: int, random: torch.Generator, *, per_beta: float = 1.0) -> ReplayBatch:
        """Sample transitions by priority, stratified over the sum of priorities.

        Args:
            count: number of transitions.
            random: the generator to sample with.
            per_beta: 0 ignores the bias of the priorities, 1 corrects it (beta in Schaul et al., ICLR 2016).
        """
        strata = torch.arange(count, device=self.device)
        offsets = torch.rand(count, generator=random, device=self.device, dtype=torch.float64)
        indices = self.tree.leaves_at((strata + offsets) / count * self.tree.total)
        share = self.tree.get(indices)
        weights = (share / share.min()) ** -per_beta
        slot, env = indices // self.envs, indices % self.envs

        ahead = (slot[:, None] + torch.arange(self.n_steps, device=self.device)) % self.slots
        row = env[:, None]
        terminated, truncated = self.terminated[ahead, row], self.truncated[ahead, row]
        # A step counts if no episode terminated before it and none was truncated before or at it.
        episodes_ended = (terminated.cumsum(1) - terminated.long()) + truncated.cumsum(1)
        included = episodes_ended == 0
        steps = included.sum(1)
        rewards = (self.rewards[ahead, row] * self.discounts[:-1] * included).sum(1)
        discounts = self.discounts[steps] * ~(terminated & included).any(1)
        next_slot = (slot + steps) % self.slots
        return ReplayBatch(
            {name: array[slot, env] for name, array in self.observations.items()},
            self.actions[slot, env],
            rewards,
            discounts,
            {name: array[next_slot, env] for name, array in self.observations.items()},
            weights.to(rewards.dtype),
            indices,
        )

    def update_priorities(self, indices: Tensor, errors: Tensor) -> None:
        """Set priorities from the errors of the sampled transitions."""
        priorities = (errors.detach().to(torch.float64).abs() + 1e-6) ** self.per_alpha
        self.tree.set(indices, priorities)
        self.max_priority = torch.maximum(self.max_priority, priorities.max())

    def state_dict(self) -> dict[str, Any]:
        """The complete state, without the slots that were never filled."""
        filled = min(self.stored_steps, self.slots)
        arrays = {"actions": self.actions, "rewards": self.rewards}
        arrays |= {"terminated": self.terminated, "truncated": self.truncated}
        leaves = self.tree.get(torch.arange(filled * self.envs, device=self.device))
        return {
            "stored_steps": self.stored_steps,
            "max_priority": self.max_priority,
            "leaves": leaves,
            "steps": {name: array[:filled] for name, array in arrays.items()},
            "observations": {name: array[:filled] for name, array in self.observations.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.stored_steps, self.max_priority = (int(state["stored_steps"]), state["max_priority"].to(self.device))
        for name, array in state["steps"].items():
            getattr(self, name)[: len(array)] = array.to(self.device)
        for name, array in state["observations"].items():
            shape = (self.slots, *array.shape[1:])
            self.observations[name] = torch.zeros(shape, dtype=array.dtype, device=self.device)
            self.observations[name][: len(array)] = array.to(self.device)
        leaves: Tensor = state["leaves"].to(self.device)
        self.tree.set(torch.arange(len(leaves), device=self.device), leaves)

    def _leaves(self, slot: int) -> Tensor:
        return torch.arange(slot * self.envs, (slot + 1) * self.envs, device=self.device)


@dataclass(frozen=True)
class OffPolicyHyperparameters:
    """Hyperparameters of every algorithm with a replay buffer. An update collects `train_freq` steps of every
    environment, then takes `gradient_steps` gradient steps.
    """

    total_timesteps: int = 500_000
    """Environment steps of all environments together; rounded down to complete updates, at least one."""
    train_freq: int = 8
    """Steps of each environment between updates."""
    gradient_steps: int = 8
    """Gradient steps in an update, of every optimizer."""
    batch_size: int = 256
    """Transitions in the batch of a gradient step."""
    buffer_size: int = 100_000
    """Capacity of the replay buffer, transitions; checkpoints contain all of them."""
    learning_starts: int = 5_000
    """Environment steps before the first gradient step."""


class OffPolicyLearner(Learner[S]):
    """A learner that trains on batches from a replay buffer; `replay_options` are arguments of `ReplayBuffer`."""

    def __init__(
        self, name: str, vec: VectorEnvProtocol, settings: S, network: Network, rng: TorchRng, **replay_options: Any
    ) -> None:
        super().__init__(name, vec, settings, network, rng)
        self.replay = ReplayBuffer(
            settings.buffer_size, vec.num_envs, DeviceTransfer(self.device), gamma=settings.gamma, **replay_options
        )

    def collect(
        self, observation: ObservationArrays, choose: Callable[[dict[str, Tensor]], Tensor]
    ) -> ObservationArrays:
        """Store `train_freq` steps of every environment under the actions of `choose`; returns the next observation."""
        for _ in range(self.settings.train_freq):
            stored = self.replay.store_observation(observation)
            with torch.no_grad(), self.lower_precision():
                actions = choose(stored)
            env_actions: npt.NDArray[np.int64] = actions.cpu().numpy()
            observation, rewards, terminated, truncated, infos = self.vec.step(env_actions)
            done = terminated | truncated
            self.episodes.step(infos, done)
            self.scale.step(rewards, done)
            self.replay.store_transition(actions, rewards, terminated, truncated)
        return observation

    def takes_gradient_steps(self, number: int) -> bool:
        """Whether the update after `number` others takes gradient steps: from `learning_starts` steps on."""
        return (number + 1) * self.steps > self.settings.learning_starts and len(self.replay) > 0
