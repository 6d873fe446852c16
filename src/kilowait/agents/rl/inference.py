"""Inference: actions of a network for an observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kilowait.agents.networks.heads import ActorCritic, DuelingQ

__all__ = ["greedy_actions"]


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
