"""Prioritized replay buffer with n-step returns: a ring of the transitions of all environments.

Observations are stored once; the observation after a step is found n slots further on. A step is sampled only when its
n following steps are stored. Where an episode was truncated, earlier steps look ahead only to the last stored state,
and the truncated step itself is left out: its next observation is never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.agents.rl.device import DeviceTransfer
from kilowait.agents.rl.sum_tree import SumTree
from kilowait.errors import InputError

__all__ = ["ReplayBatch", "ReplayBuffer"]


@dataclass(frozen=True)
class ReplayBatch:
    """A batch of transitions."""

    observation: dict[str, Tensor]
    actions: Tensor
    rewards: Tensor
    """Discounted sum over the n steps."""
    discounts: Tensor
    """Discount factor of the value of the state after them; 0 where the episode ended."""
    following: dict[str, Tensor]
    weights: Tensor
    """Importance-sampling weights; the largest is 1."""
    places: Tensor
    """Positions in the buffer, for `ReplayBuffer.update_priorities`."""


class ReplayBuffer:
    """A ring of `buffer_size` transitions of `envs` environments together."""

    def __init__(
        self,
        buffer_size: int,
        envs: int,
        carrier: DeviceTransfer,
        *,
        n_steps: int = 1,
        gamma: float = 1.0,
        per_alpha: float = 0.0,
    ) -> None:
        self.slots, self.envs, self.n = buffer_size // envs, envs, n_steps
        if self.slots < n_steps + 2:
            raise InputError(
                f"a replay buffer of {buffer_size:,} steps stores {self.slots} of each of {envs:,} environments; "
                f"{n_steps}-step returns need {n_steps + 2}: a buffer_size of {envs * (n_steps + 2):,} or more"
            )
        self.carrier, self.priority = carrier, per_alpha
        self.device = carrier.device
        self.powers = gamma ** torch.arange(n_steps + 1, device=self.device)
        shape = (self.slots, envs)
        self.observations: dict[str, Tensor] = {}
        self.actions = torch.zeros(shape, dtype=torch.int64, device=self.device)
        self.rewards = torch.zeros(shape, device=self.device)
        self.terminated = torch.zeros(shape, dtype=torch.bool, device=self.device)
        self.truncated = torch.zeros(shape, dtype=torch.bool, device=self.device)
        self.tree = SumTree(self.slots * envs, self.device)
        self.largest = torch.ones((), dtype=torch.float64, device=self.device)
        self.head = 0
        """Steps of each environment committed so far."""

    def __len__(self) -> int:
        """Number of steps that can be sampled, at most."""
        return max(0, min(self.head, self.slots) - self.n) * self.envs

    def place(self, observation: Mapping[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
        """Write the current observation into the next slot; returns it as tensors on the device, to act on."""
        if not self.observations:
            self.observations = {
                name: torch.zeros(
                    (self.slots, *array.shape), dtype=torch.from_numpy(array).dtype, device=self.device
                )
                for name, array in observation.items()
            }
        slot = self.head % self.slots
        self.tree.put(self._leaves(slot), 0.0)
        return self.carrier(observation, {name: array[slot] for name, array in self.observations.items()})

    def commit(
        self,
        actions: Tensor,
        rewards: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
    ) -> None:
        """Store the actions for the observation that was placed, with their rewards and ends of episodes."""
        slot = self.head % self.slots
        self.actions[slot] = actions
        self.rewards[slot] = torch.from_numpy(rewards.astype(np.float32)).to(self.device)
        self.terminated[slot] = torch.from_numpy(terminated).to(self.device)
        self.truncated[slot] = torch.from_numpy(truncated & ~terminated).to(self.device)
        if self.head >= self.n:
            ready = (self.head - self.n) % self.slots
            self.tree.put(self._leaves(ready), self.largest * ~self.truncated[ready])
        self.head += 1

    def draw(self, count: int, random: torch.Generator, *, per_beta: float = 1.0) -> ReplayBatch:
        """Sample transitions by priority, stratified over the sum of priorities.

        Args:
            count: number of transitions.
            random: the generator to sample with.
            per_beta: 0 ignores the bias of the priorities, 1 corrects it (beta in Schaul et al., ICLR 2016).
        """
        strata = torch.arange(count, device=self.device)
        within = torch.rand(count, generator=random, device=self.device, dtype=torch.float64)
        places = self.tree.find((strata + within) / count * self.tree.total)
        share = self.tree.get(places)
        weights = (share / share.min()) ** -per_beta
        slot, env = places // self.envs, places % self.envs

        ahead = (slot[:, None] + torch.arange(self.n, device=self.device)) % self.slots
        row = env[:, None]
        ended, cut = self.terminated[ahead, row], self.truncated[ahead, row]
        # A step counts if no episode terminated before it and none was truncated before or at it.
        over = (ended.cumsum(1) - ended.long()) + cut.cumsum(1)
        counts = over == 0
        steps = counts.sum(1)
        rewards = (self.rewards[ahead, row] * self.powers[:-1] * counts).sum(1)
        discounts = self.powers[steps] * ~(ended & counts).any(1)
        beyond = (slot + steps) % self.slots
        return ReplayBatch(
            {name: array[slot, env] for name, array in self.observations.items()},
            self.actions[slot, env],
            rewards,
            discounts,
            {name: array[beyond, env] for name, array in self.observations.items()},
            weights.to(rewards.dtype),
            places,
        )

    def update_priorities(self, places: Tensor, errors: Tensor) -> None:
        """Set priorities from the errors of the sampled transitions."""
        priorities = (errors.detach().to(torch.float64).abs() + 1e-6) ** self.priority
        self.tree.put(places, priorities)
        self.largest = torch.maximum(self.largest, priorities.max())

    def state_dict(self) -> dict[str, Any]:
        """The complete state, without the slots that were never filled."""
        filled = min(self.head, self.slots)
        arrays = {"actions": self.actions, "rewards": self.rewards}
        arrays |= {"terminated": self.terminated, "truncated": self.truncated}
        leaves = self.tree.get(torch.arange(filled * self.envs, device=self.device))
        return {
            "head": self.head,
            "largest": self.largest,
            "leaves": leaves,
            "steps": {name: array[:filled] for name, array in arrays.items()},
            "observations": {name: array[:filled] for name, array in self.observations.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.head, self.largest = int(state["head"]), state["largest"].to(self.device)
        for name, array in state["steps"].items():
            getattr(self, name)[: len(array)] = array.to(self.device)
        for name, array in state["observations"].items():
            shape = (self.slots, *array.shape[1:])
            self.observations[name] = torch.zeros(shape, dtype=array.dtype, device=self.device)
            self.observations[name][: len(array)] = array.to(self.device)
        leaves: Tensor = state["leaves"].to(self.device)
        self.tree.put(torch.arange(len(leaves), device=self.device), leaves)

    def _leaves(self, slot: int) -> Tensor:
        return torch.arange(slot * self.envs, (slot + 1) * self.envs, device=self.device)
