"""Categorical distribution over the allowed actions."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MaskedCategorical"]


class MaskedCategorical:
    """A categorical distribution from logits; an action with logit -inf is never sampled and adds no entropy.

    >>> choice = MaskedCategorical(torch.tensor([[0.0, 0.0, -torch.inf]]))
    >>> choice.probabilities.tolist(), round(choice.entropy().item(), 4)  # ln 2
    ([[0.5, 0.5, 0.0]], 0.6931)
    """

    def __init__(self, logits: Tensor) -> None:
        self.log_probabilities = logits.log_softmax(-1)
        """(B, A); -inf where the action is not allowed."""

    @property
    def probabilities(self) -> Tensor:
        """(B, A) probabilities."""
        return self.log_probabilities.exp()

    @property
    def finite(self) -> Tensor:
        """Log-probabilities with 0 for actions that are not allowed, as 0 x -inf would be NaN."""
        return self.log_probabilities.masked_fill(self.log_probabilities == -torch.inf, 0.0)

    def log_prob(self, actions: Tensor) -> Tensor:
        """(B,) log-probability of the taken actions."""
        return self.log_probabilities.gather(-1, actions[:, None]).squeeze(-1)

    def entropy(self) -> Tensor:
        """(B,) entropy, nats."""
        return -(self.probabilities * self.finite).sum(-1)

    def sample(self, random: torch.Generator) -> Tensor:
        """(B,) int64 actions, sampled with the given generator.

        By exponential races: of several exponential variables with rates p, each is the smallest with probability p.
        """
        exponentials = torch.empty_like(self.log_probabilities).exponential_(generator=random)
        return (self.log_probabilities - exponentials.clamp_(min=1e-30).log_()).argmax(-1)

    def greedy(self) -> Tensor:
        """(B,) int64, the most probable action; the first of equals."""
        return self.log_probabilities.argmax(-1)
