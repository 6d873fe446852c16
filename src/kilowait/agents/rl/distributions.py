"""Actions of a network: the categorical distribution over the allowed actions, and the best allowed action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.agents.networks.heads import ActorCritic, DuelingQ

__all__ = ["MaskedCategorical", "greedy_actions"]


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


def greedy_actions(
    network: ActorCritic | DuelingQ, observation: Mapping[str, npt.NDArray[Any]]
) -> npt.NDArray[np.int64]:
    """(B,) the best allowed action of each environment, by a network on any device; noise is switched off.

    >>> from kilowait.agents.networks import network
    >>> from kilowait.agents.networks.spec import LoadedSpec
    >>> agent = network(LoadedSpec(("length",), ("hour",), slots=2, choices=1, extra=0, graph=False))
    >>> tensors = {"jobs": [[[1.0], [2.0]]], "summary": [[0.0]], "mask": [[0, 1]]}
    >>> greedy_actions(agent, {name: np.array(rows, np.float32) for name, rows in tensors.items()}).tolist()
    [1]
    """
    device = next(network.parameters()).device
    tensors = {name: torch.from_numpy(array).to(device) for name, array in observation.items()}
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            scores = network.scores(tensors)
            # Scores may overflow: an allowed action must stay ahead of the others, whose score is -inf.
            limit = torch.finfo(scores.dtype).max
            bounded = scores.nan_to_num(nan=-limit, posinf=limit, neginf=-limit)
            allowed = bounded.masked_fill(tensors["mask"] == 0, -torch.inf)
            actions: npt.NDArray[np.int64] = allowed.argmax(-1).cpu().numpy()
            return actions
    finally:
        network.train(training)
