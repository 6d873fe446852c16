"""The graph attention network: attention along typed edges between jobs (same user, same nodes, close in time).

GATv2 (Brody, Alon and Yahav, "How attentive are graph attention networks?", ICLR 2022) in dense form: queues are short,
so a matrix of all pairs is faster than edge lists. The features of an edge are its types, one number each, and the time
between the two submissions, encoded by cosines of learned frequencies (Xu et al., "Inductive representation learning on
temporal graphs", ICLR 2020).
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kilowait.agents.networks.feature_extractor import (
    EncodedQueue,
    FeatureExtractor,
    Observation,
    mean_present,
    orthogonal_linear,
    without_empty_slots,
)
from kilowait.agents.networks.spec import NetworkSizes, ObservationSpecProtocol
from kilowait.errors import InputError

EDGE_TYPES = ("same user or project", "same nodes", "close in time", "itself")
"""Bits 1, 2 and 4 of ``edges``; every job also has an edge to itself."""
FREQUENCIES = 4
PAIRS_AT_A_TIME = 2**26
"""Size (pairs x width) kept in memory; for larger batches, pairs are recomputed in the backward pass."""


def time_feature(features: tuple[str, ...]) -> int | None:
    """Index of the feature with a job's submission time: the first named submit…, wait…, age… or hour.

    A wait serves as well as a date: differences of waits are the times between submissions. `kilowait.envs` observes
    the wait as hour = wait / (wait + 1 h).
    >>> time_feature(("length", "wait_h")), time_feature(("length",))
    (1, None)
    """
    for index, name in enumerate(features):
        if name == "hour" or name.startswith(("submit", "wait", "age")):
            return index
    return None


class TimeDifferenceEncoding(nn.Module):
    """Cosines of time differences, with learned frequencies and phases."""

    def __init__(self) -> None:
        super().__init__()
        self.frequency = nn.Parameter(pi * 2.0 ** torch.arange(-1, FREQUENCIES - 1))
        self.phase = nn.Parameter(torch.full((FREQUENCIES,), -pi / 4))  # makes before and after differ

    def forward(self, times: Tensor) -> Tensor:
        """(B, N) times to (B, N, N, FREQUENCIES): encoded source time minus target time."""
        between = times[:, None, :] - times[:, :, None]
        return torch.cos(between[..., None] * self.frequency + self.phase)


class DenseGATv2(nn.Module):
    """One GATv2 layer, computed densely over all pairs.

    With the same weights it gives the result of ``torch_geometric.nn.GATv2Conv`` on the same edges.
    """

    def __init__(self, width: int, heads: int, edge_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.source = orthogonal_linear(width, width, gain=1.0)
        self.target = orthogonal_linear(width, width, gain=1.0)
        self.edge = nn.Linear(edge_width, width, bias=False)
        self.score = nn.Parameter(torch.empty(heads, width // heads))
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.xavier_uniform_(self.edge.weight)
        nn.init.xavier_uniform_(self.score)

    def forward(self, nodes: Tensor, adjacent: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Messages received by each node, and the attention weights.

        Args:
            nodes: (B, N, W).
            adjacent: bool (B, N, N): target, source. Every target needs at least one source, such as itself.
            edges: (B, N, N, E) features of each pair.

        Returns:
            (B, N, W) and (B, heads, N, N); the weights sum to 1 over sources.
        """
        source: Tensor = self.source(nodes)
        target: Tensor = self.target(nodes)
        batch, count, width = source.shape
        chunk = max(1, PAIRS_AT_A_TIME // (count * count * width))
        if torch.compiler.is_exporting() or chunk >= batch:
            scores = self._scores(source, target, edges)
        else:
            chunked = zip(*(torch.split(array, chunk) for array in (source, target, edges)), strict=True)
            chunks = [checkpoint(self._scores, *arrays, use_reentrant=False) for arrays in chunked]
            scores = torch.cat(chunks)
        weights = scores.masked_fill(~adjacent[:, None], -torch.inf).softmax(-1)
        values = source.view(batch, count, self.heads, -1)
        messages = torch.einsum("bhij,bjhc->bihc", weights.to(values.dtype), values).flatten(2)
        return messages + self.bias, weights

    def _scores(self, source: Tensor, target: Tensor, edges: Tensor) -> Tensor:
        """(B, heads, N, N) attention scores before the softmax."""
        pairs = source[:, None, :, :] + target[:, :, None, :] + self.edge(edges)
        # One product with a block-diagonal matrix of all heads: four times the operations, but faster than per head.
        heads: Tensor = torch.block_diag(*self.score.to(pairs.dtype))  # type: ignore[no-untyped-call]
        return nn.functional.linear(nn.functional.leaky_relu(pairs, 0.2), heads).permute(0, 3, 1, 2)


class GraphLayer(nn.Module):
    """x + graph attention(norm(x)), then x + perceptron(norm(x))."""

    def __init__(self, width: int, heads: int, edge_width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.graph = DenseGATv2(width, heads, edge_width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width),
            orthogonal_linear(width, 2 * width),
            nn.GELU(),
            orthogonal_linear(2 * width, width, gain=1.0),
        )

    def forward(self, nodes: Tensor, adjacent: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes of the same shape, and the attention weights."""
        messages, weights = self.graph(self.norm(nodes), adjacent, edges)
        nodes = nodes + messages
        return nodes + self.perceptron(nodes), weights


class GraphExtractor(FeatureExtractor):
    """Graph attention along the edges between waiting jobs."""

    def __init__(self, spec: ObservationSpecProtocol, sizes: NetworkSizes) -> None:
        super().__init__()
        if not spec.graph:
            raise InputError(
                "the network 'gat' needs edges, and this environment observes none; create it with graph=True"
            )
        self.width = sizes.width
        self.time = time_feature(tuple(spec.features))
        edge_width = len(EDGE_TYPES) + (0 if self.time is None else FREQUENCIES)
        self.job = orthogonal_linear(len(spec.features), sizes.width, gain=1.0)
        self.summary = orthogonal_linear(len(spec.summary), sizes.width, gain=1.0)
        self.between = None if self.time is None else TimeDifferenceEncoding()
        self.layers = nn.ModuleList(GraphLayer(sizes.width, sizes.heads, edge_width) for _ in range(sizes.depth))
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, observation: Observation) -> EncodedQueue:
        """Encode the queue."""
        return self._encoded(observation)[0]

    def attention(self, observation: Observation) -> list[Tensor]:
        """Attention weights of every layer, (B, heads, jobs, jobs): target, source; for inspection."""
        return self._encoded(observation)[1]

    def _encoded(self, observation: Observation) -> tuple[EncodedQueue, list[Tensor]]:
        jobs, occupied, bits = without_empty_slots(observation, self.all_slots)
        assert bits is not None
        summary: Tensor = self.summary(observation["summary"])
        adjacent, edges = self._edges(jobs, occupied, bits)
        nodes: Tensor = self.job(jobs) + summary[:, None]
        attended = []
        for layer in self.layers:
            nodes, weights = layer(nodes, adjacent, edges)
            attended.append(weights)
        nodes = self.norm(nodes)
        return EncodedQueue(nodes, None, mean_present(nodes, occupied), torch.relu(summary)), attended

    def _edges(self, jobs: Tensor, occupied: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
        """Adjacency, and the features of each pair."""
        itself = torch.eye(jobs.shape[1], dtype=torch.bool, device=jobs.device).expand(bits.shape)
        typed = [(bits & (1 << index)) != 0 for index in range(len(EDGE_TYPES) - 1)]
        adjacent = ((bits & 7 != 0) & occupied[:, None, :]) | itself
        edges = torch.stack([*typed, itself], dim=-1).to(jobs.dtype)
        if self.between is not None:
            edges = torch.cat([edges, self.between(jobs[..., self.time])], dim=-1)
        return adjacent, edges
