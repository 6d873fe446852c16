"""Feature extractors: their interface to the heads, and functions they share."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = [
    "FeatureExtractor",
    "EncodedQueue",
    "Observation",
    "without_empty_slots",
    "orthogonal_linear",
    "present_mask",
    "scatter_rows",
]

Observation = Mapping[str, Tensor]
"""Tensors of one batch, by the names in the observation spec."""


class EncodedQueue(NamedTuple):
    """An encoded queue; W is the width of the feature extractor."""

    rows: Tensor
    """One vector a job: (B, up to slots, W), or (present jobs of the batch, W) with their positions in `positions`."""
    positions: Tensor | None
    """Flat position, ``batch * slots + slot``, of each row; None where rows are dense."""
    pooled: Tensor
    """(B, W) mean over the present jobs; zeros where there are none."""
    context: Tensor
    """(B, W) encoding of the summary."""


class FeatureExtractor(nn.Module):
    """The part of a network that encodes observations; see `EncodedQueue`."""

    width: int
    all_slots = False
    """Whether every slot is computed, empty or not: the shapes then do not depend on the data, as export requires."""

    def forward(self, observation: Observation) -> EncodedQueue:
        """Encode a batch of observations."""
        raise NotImplementedError

    def __call__(self, observation: Observation) -> EncodedQueue:
        """As `forward`, with its return type."""
        encoded: EncodedQueue = super().__call__(observation)
        return encoded


def orthogonal_linear(inputs: int, outputs: int, gain: float = sqrt(2.0)) -> nn.Linear:
    """A linear layer with orthogonal weights and zero biases, the usual initialization for policy gradients."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def present_mask(jobs: Tensor) -> Tensor:
    """(B, slots) whether the slot contains a job: empty rows are zero.

    >>> present_mask(torch.tensor([[[0.5, 0.0], [0.0, 0.0]]])).tolist()
    [[True, False]]
    """
    return (jobs != 0).any(-1)


def without_empty_slots(observation: Observation, all_slots: bool = False) -> tuple[Tensor, Tensor, Tensor | None]:
    """Jobs, presence and edges without the last slots, if no queue of the batch fills them.

    The cost of attention is quadratic in the number of slots. At least one slot stays; with `all_slots` all of them do.
    """
    jobs, edges = observation["jobs"], observation.get("edges")
    occupied = present_mask(jobs)
    if all_slots:
        return jobs, occupied, edges
    used = int((occupied.any(0) * torch.arange(1, jobs.shape[1] + 1, device=jobs.device)).amax().clamp(min=1))
    return jobs[:, :used], occupied[:, :used], None if edges is None else edges[:, :used, :used]


def scatter_rows(values: Tensor, positions: Tensor | None, batch: int, slots: int) -> Tensor:
    """Values of rows, (…, n), scattered to (batch, slots, n); zeros where there is no row.

    >>> scatter_rows(torch.tensor([[7.0]]), torch.tensor([3]), 2, 2).flatten().tolist()
    [0.0, 0.0, 0.0, 7.0]
    """
    if positions is None:
        return nn.functional.pad(values, (0, 0, 0, slots - values.shape[1]))
    empty = values.new_zeros(batch * slots, values.shape[-1])
    return empty.index_copy(0, positions, values).view(batch, slots, -1)


def mean_present(rows: Tensor, occupied: Tensor) -> Tensor:
    """(B, W) mean of dense rows over the present jobs; zeros where there are none."""
    weight = occupied.to(rows.dtype)
    total = torch.einsum("bkw,bk->bw", rows, weight)
    return total / weight.sum(1, keepdim=True).clamp(min=1)
