"""Categorical distributions of returns on fixed atoms (distributional RL)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["project_returns"]


def project_returns(support: Tensor, rewards: Tensor, discounts: Tensor, probabilities: Tensor) -> Tensor:
    """The distribution of reward + discount x return, projected onto the atoms of the return.

    Probability between two atoms is split between them, probability beyond the last is assigned to it: Bellemare,
    Dabney and Munos, "A distributional perspective on reinforcement learning" (ICML 2017).

    Args:
        support: (n,) equally spaced returns.
        rewards: (B,)
        discounts: (B,); 0 where the episode ended.
        probabilities: (B, n) of the following return.

    >>> half = torch.tensor([[0.0, 1.0, 0.0]])
    >>> project_returns(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([0.25]), torch.tensor([1.0]), half).tolist()
    [[0.0, 0.75, 0.25]]
    """
    apart = support[1] - support[0]
    moved = rewards[:, None] + discounts[:, None] * support
    place = (moved.clamp(support[0], support[-1]) - support[0]) / apart
    atoms = torch.arange(len(support), device=support.device)
    # (B, to, from): share of each moved atom assigned to each fixed one. No scatter, so the result is deterministic.
    near = (1.0 - (place[:, None, :] - atoms[:, None]).abs()).clamp(min=0.0)
    return torch.einsum("bij,bj->bi", near, probabilities)
