"""The past to learn from: a ring of what all environments saw and did, drawn by priority, n steps at a time.

Observations are kept once; what follows a step is found n slots further on. A step is drawn only when these n are
there. Where an episode was cut off (truncated), steps before look ahead only to the last state that was seen, and
the step that was cut off is left out: what came after it was never stored.
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
    """A batch of steps."""

    observation: dict[str, Tensor]
    actions: Tensor
    rewards: Tensor
    """Discounted sum over the steps that are looked ahead."""
    discounts: Tensor
    """What the value of the state after them counts; 0 where the episode ended."""
    following: dict[str, Tensor]
    weights: Tensor
    """To undo the bias of the priorities; the largest is 1."""
    places: Tensor
    """For `Replay.surprised`."""


class ReplayBuffer:
    """A ring of `capacity` steps of `envs` environments together."""

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
                f"a replay of {buffer_size:,} steps keeps {self.slots} of each of {envs:,} environments; "
                f"looking {n_steps} ahead needs {n_steps + 2}: a capacity of {envs * (n_steps + 2):,} or more"
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
        """Steps of each environment that were ever committed."""

    def __len__(self) -> int:
        """Steps that can be drawn, at most."""
        return max(0, min(self.head, self.slots) - self.n) * self.envs

    def place(self, observation: Mapping[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
        """Write what is seen now into the next slot; gives it back as tensors on the device, to act on."""
        if not self.observations:
            self.observations = {
                name: torch.zeros(
                    (self.slots, *array.shape), dtype=torch.from_numpy(array).dtype, device=self.device
                )
                for name, array in observation.items()
            }
        slot = self.head % self.slots
        self.tree.put(self._leaves(slot), 0.0)
        return self.carrier(observation, {name: kept[slot] for name, kept in self.observations.items()})

    def commit(
        self,
        actions: Tensor,
        rewards: npt.NDArray[np.float64],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
    ) -> None:
        """What was done on what was placed, and what came of it."""
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
        """Steps drawn with probability in proportion to priority, spread evenly over the sum of priorities.

        Args:
            count: how many.
            random: the generator to draw with.
            correction: 0 leaves the bias of the priorities, 1 undoes it; Schaul et al. (ICLR 2016) call it beta.
        """
        strata = torch.arange(count, device=self.device)
        within = torch.rand(count, generator=random, device=self.device, dtype=torch.float64)
        places = self.tree.find((strata + within) / count * self.tree.total)
        share = self.tree.get(places)
        weights = (share / share.min()) ** -per_beta
        slot, env = places // self.envs, places % self.envs

        ahead = (slot[:, None] + torch.arange(self.n, device=self.device)) % self.slots
        whose = env[:, None]
        ended, cut = self.terminated[ahead, whose], self.truncated[ahead, whose]
        # A step counts if no episode ended before it and none was cut off before or at it.
        over = (ended.cumsum(1) - ended.long()) + cut.cumsum(1)
        counts = over == 0
        steps = counts.sum(1)
        rewards = (self.rewards[ahead, whose] * self.powers[:-1] * counts).sum(1)
        discounts = self.powers[steps] * ~(ended & counts).any(1)
        beyond = (slot + steps) % self.slots
        return ReplayBatch(
            {name: kept[slot, env] for name, kept in self.observations.items()},
            self.actions[slot, env],
            rewards,
            discounts,
            {name: kept[beyond, env] for name, kept in self.observations.items()},
            weights.to(rewards.dtype),
            places,
        )

    def update_priorities(self, places: Tensor, errors: Tensor) -> None:
        """New priorities by the size of the error."""
        priorities = (errors.detach().to(torch.float64).abs() + 1e-6) ** self.priority
        self.tree.put(places, priorities)
        self.largest = torch.maximum(self.largest, priorities.max())

    def state_dict(self) -> dict[str, Any]:
        """All of it, without the slots that were never filled."""
        filled = min(self.head, self.slots)
        arrays = {"actions": self.actions, "rewards": self.rewards}
        arrays |= {"terminated": self.terminated, "truncated": self.truncated}
        leaves = self.tree.get(torch.arange(filled * self.envs, device=self.device))
        return {
            "head": self.head,
            "largest": self.largest,
            "leaves": leaves,
            "steps": {name: kept[:filled] for name, kept in arrays.items()},
            "observations": {name: kept[:filled] for name, kept in self.observations.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As it was."""
        self.head, self.largest = int(state["head"]), state["largest"].to(self.device)
        for name, kept in state["steps"].items():
            getattr(self, name)[: len(kept)] = kept.to(self.device)
        for name, kept in state["observations"].items():
            shape = (self.slots, *kept.shape[1:])
            self.observations[name] = torch.zeros(shape, dtype=kept.dtype, device=self.device)
            self.observations[name][: len(kept)] = kept.to(self.device)
        leaves: Tensor = state["leaves"].to(self.device)
        self.tree.put(torch.arange(len(leaves), device=self.device), leaves)

    def _leaves(self, slot: int) -> Tensor:
        return torch.arange(slot * self.envs, (slot + 1) * self.envs, device=self.device)
