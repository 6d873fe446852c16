"""Sum tree: samples a leaf in proportion to its weight, in logarithmic time."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["SumTree"]


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
