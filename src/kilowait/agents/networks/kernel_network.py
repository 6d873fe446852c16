"""The kernel network: one small perceptron, shared by all jobs, scores each job from its features and the summary.

The result does not depend on the order of the queue, a longer queue needs no more weights, and empty slots cost nothing
where rows are gathered first. After Zhang, Dai, He, Bao and Xie, "RLScheduler" (SC 2020), with the summary added.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kilowait.agents.networks.feature_extractor import (
    EncodedQueue,
    FeatureExtractor,
    Observation,
    mean_present,
    orthogonal_linear,
    present_mask,
)
from kilowait.agents.networks.spec import NetworkSizes, ObservationSpecProtocol

__all__ = ["KernelExtractor"]


class KernelExtractor(FeatureExtractor):
    """A multilayer perceptron shared by all jobs."""

    def __init__(self, spec: ObservationSpecProtocol, sizes: NetworkSizes) -> None:
        super().__init__()
        self.width = sizes.width
        # Together one layer over (job, summary); separate, so that the summary is multiplied once and not once a job.
        self.job = orthogonal_linear(len(spec.features), sizes.width)
        self.summary = orthogonal_linear(len(spec.summary), sizes.width)
        self.layers = nn.ModuleList(orthogonal_linear(sizes.width, sizes.width) for _ in range(sizes.depth - 1))

    def forward(self, observation: Observation) -> EncodedQueue:
        """Encode every job independently."""
        jobs = observation["jobs"]
        occupied = present_mask(jobs)
        summary: Tensor = self.summary(observation["summary"])
        if jobs.is_cuda or self.all_slots:
            return self._dense(jobs, occupied, summary)
        return self._gathered(jobs, occupied, summary)

    def _gathered(self, jobs: Tensor, occupied: Tensor, summary: Tensor) -> EncodedQueue:
        """Compute only rows with a job: on a CPU empty slots would be most of the work."""
        positions = occupied.flatten().nonzero().squeeze(1)
        env = positions // jobs.shape[1]
        rows = torch.relu(self.job(jobs.flatten(0, 1)[positions]) + summary[env])
        for layer in self.layers:
            rows = torch.relu(layer(rows))
        total = rows.new_zeros(len(jobs), self.width).index_add(0, env, rows)
        pooled = total / occupied.sum(1, keepdim=True).clamp(min=1).to(rows.dtype)
        return EncodedQueue(rows, positions, pooled, torch.relu(summary))

    def _dense(self, jobs: Tensor, occupied: Tensor, summary: Tensor) -> EncodedQueue:
        """Compute every slot: gathering would make the GPU wait for the number of rows."""
        rows = torch.relu(self.job(jobs) + summary[:, None])
        for layer in self.layers:
            rows = torch.relu(layer(rows))
        return EncodedQueue(rows, None, mean_present(rows, occupied), torch.relu(summary))
