"""How much better an action was than expected.

Everything is (T, B): steps of a rollout, environments. `next_values` holds what the state *after* each step is
worth: for a step that was cut off (truncated) that of the final observation, not of the next episode's first. After a
step that ended its episode (terminated) nothing is worth anything, whatever is in there.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["generalised_advantages", "n_step_returns"]


def generalised_advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> Tensor:
    """Schulman et al., "High-dimensional continuous control using generalized advantage estimation" (ICLR 2016).

    Args:
        rewards: of each step.
        values: of the state before it.
        next_values: of the state after it.
        terminated: bool; the episode ended here.
        truncated: bool; the episode was cut off here.
        discount: of the future, a step.
        trace: 0 looks one step ahead and trusts the values, 1 to the end of the rollout.

    >>> one = torch.ones(2, 1)
    >>> no = torch.zeros(2, 1, dtype=torch.bool)
    >>> generalised_advantages(one, 0 * one, 0 * one, no, no, gamma=0.5, gae_lambda=1.0).flatten().tolist()
    [1.5, 1.0]
    """
    surprise = rewards + gamma * next_values.masked_fill(terminated, 0.0) - values
    kept = gamma * gae_lambda * (~(terminated | truncated)).to(rewards.dtype)
    found = torch.empty_like(surprise)
    following = torch.zeros_like(surprise[0])
    for step in range(len(rewards) - 1, -1, -1):
        following = torch.addcmul(surprise[step], kept[step], following)
        found[step] = following
    return found


def n_step_returns(
    rewards: Tensor, next_values: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float, n_steps: int
) -> Tensor:
    """Rewards of up to `n` steps and the value of the state after them.

    Fewer steps where the episode or the rollout ends before.

    >>> one, no = torch.ones(3, 1), torch.zeros(3, 1, dtype=torch.bool)
    >>> n_step_returns(one, 8 * one, no, no, gamma=0.5, n_steps=2).flatten().tolist()
    [3.5, 3.5, 5.0]
    """
    steps = len(rewards)
    ended = terminated | truncated
    after = next_values.masked_fill(terminated, 0.0)
    one = rewards + gamma * after
    found = one.clone()  # returns of 1 step; each turn makes them a step longer where that is possible
    for _ in range(n_steps - 1):
        longer = rewards[: steps - 1] + gamma * found[1:]
        found = torch.cat([torch.where(ended[: steps - 1], one[: steps - 1], longer), one[steps - 1 :]])
    return found
