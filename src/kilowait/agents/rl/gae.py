"""Generalized advantage estimation (GAE) and n-step returns.

All tensors are (T, B): steps of a rollout, environments. `next_values` is the value of the state *after* each step; for
a truncated step that of the final observation, not of the next episode's first. After a step that terminated its
episode the value is taken as 0, whatever the tensor contains.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["generalized_advantages", "n_step_returns"]


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
