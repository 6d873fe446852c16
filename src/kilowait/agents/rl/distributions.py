"""Choosing among the actions that are allowed."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MaskedCategorical"]


class MaskedCategorical:
    """A choice by logits; an action whose logit is -inf is never taken and has no part in the entropy.

    >>> choice = MaskedCategorical(torch.tensor([[0.0, 0.0, -torch.inf]]))
    >>> choice.probabilities.tolist(), round(choice.entropy().item(), 4)  # ln 2
    ([[0.5, 0.5, 0.0]], 0.6931)
    """

    def __init__(self, logits: Tensor) -> None:
        self.log_probabilities = logits.log_softmax(-1)
        """(B, A); -inf where the action is not allowed."""

    @property
    def probabilities(self) -> Tensor:
        """(B, A)."""
        return self.log_probabilities.exp()

    @property
    def finite(self) -> Tensor:
        """Logarithms of probabilities with 0 for actions that are not allowed, so that 0 x it is 0."""
        return self.log_probabilities.masked_fill(self.log_probabilities == -torch.inf, 0.0)

    def log_prob(self, actions: Tensor) -> Tensor:
        """(B,) of the actions that were taken."""
        return self.log_probabilities.gather(-1, actions[:, None]).squeeze(-1)

    def entropy(self) -> Tensor:
        """(B,) nats."""
        return -(self.probabilities * self.finite).sum(-1)

    def sample(self, random: torch.Generator) -> Tensor:
        """(B,) int64 actions, drawn with the generator that is handed in.

        By a race of exponential clocks: the first of several with rates p is each with probability p.
        """
        clocks = torch.empty_like(self.log_probabilities).exponential_(generator=random)
        return (self.log_probabilities - clocks.clamp_(min=1e-30).log_()).argmax(-1)

    def greedy(self) -> Tensor:
        """(B,) int64, the likeliest; the first of equals."""
        return self.log_probabilities.argmax(-1)
