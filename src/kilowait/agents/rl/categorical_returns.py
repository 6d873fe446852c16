"""Returns as distributions on fixed atoms."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["projected"]


def projected(support: Tensor, rewards: Tensor, discounts: Tensor, probabilities: Tensor) -> Tensor:
    """The distribution of reward + discount x return, on the same atoms as the return.

    What falls between two atoms is shared by them, what falls beyond the last is counted there: Bellemare, Dabney and
    Munos, "A distributional perspective on reinforcement learning" (ICML 2017).

    Args:
        support: (n,) returns at equal distances.
        rewards: (B,)
        discounts: (B,); 0 where the episode ended.
        probabilities: (B, n) of the return that follows.

    >>> half = torch.tensor([[0.0, 1.0, 0.0]])
    >>> projected(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([0.25]), torch.tensor([1.0]), half).tolist()
    [[0.0, 0.75, 0.25]]
    """
    apart = support[1] - support[0]
    moved = rewards[:, None] + discounts[:, None] * support
    place = (moved.clamp(support[0], support[-1]) - support[0]) / apart
    atoms = torch.arange(len(support), device=support.device)
    # (B, to, from): how much of each moved atom lies on each fixed one. No scatter: the same on every run.
    near = (1.0 - (place[:, None, :] - atoms[:, None]).abs()).clamp(min=0.0)
    return torch.einsum("bij,bj->bi", near, probabilities)
