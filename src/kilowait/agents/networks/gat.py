"""The graph network: jobs look along typed edges: same user, rivals for the same nodes, close in time.

Graph attention of the second kind (Brody, Alon and Yahav, "How attentive are graph attention networks?", ICLR 2022)
in dense form: queues are short, so a matrix of all pairs is quicker than lists of edges. An edge is described by its
types, one number each, and by the time between the two submissions, coded by cosines of learned frequencies (Xu et
al., "Inductive representation learning on temporal graphs", ICLR 2020).
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
    cropped,
    linear,
    mean_present,
)
from kilowait.agents.networks.spec import ObservationSpecProtocol, Sizes
from kilowait.errors import InputError

__all__ = ["EDGE_TYPES", "DenseGATv2", "GraphExtractor", "TimeBetween", "time_feature"]

EDGE_TYPES = ("same user or project", "same nodes", "close in time", "itself")
"""Bits 1, 2 and 4 of ``edges``; every job has an edge to itself besides."""
FREQUENCIES = 4
PAIRS_AT_A_TIME = 2**26
"""Numbers (pairs times width) held at once; of larger batches, pairs are computed again on the way back."""


def time_feature(features: tuple[str, ...]) -> int | None:
    """Which feature tells when a job was submitted: the first named submit…, wait…, age… or hour.

    Waits serve as well as dates: their difference is the time between the submissions. `kilowait.envs` shows the
    wait as hour = wait / (wait + 1 h).

    >>> time_feature(("length", "wait_h")), time_feature(("length",))
    (1, None)
    """
    for place, name in enumerate(features):
        if name == "hour" or name.startswith(("submit", "wait", "age")):
            return place
    return None


class TimeBetween(nn.Module):
    """Cosines of a difference of times, with learned frequencies and phases."""

    def __init__(self) -> None:
        super().__init__()
        self.frequency = nn.Parameter(pi * 2.0 ** torch.arange(-1, FREQUENCIES - 1))
        self.phase = nn.Parameter(torch.full((FREQUENCIES,), -pi / 4))  # else before and after look the same

    def forward(self, times: Tensor) -> Tensor:
        """(B, N) times become (B, N, N, FREQUENCIES): source minus target."""
        between = times[:, None, :] - times[:, :, None]
        return torch.cos(between[..., None] * self.frequency + self.phase)


class DenseGATv2(nn.Module):
    """One layer: of every pair a score, of scores weights, of weights a mean.

    With the same weights it gives what ``torch_geometric.nn.GATv2Conv`` gives on the list of the same edges.
    """

    def __init__(self, width: int, heads: int, edge_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.source = linear(width, width, gain=1.0)
        self.target = linear(width, width, gain=1.0)
        self.edge = nn.Linear(edge_width, width, bias=False)
        self.score = nn.Parameter(torch.empty(heads, width // heads))
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.xavier_uniform_(self.edge.weight)
        nn.init.xavier_uniform_(self.score)

    def forward(self, nodes: Tensor, adjacent: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """What each node takes from its neighbours, and the weights it gives them.

        Args:
            nodes: (B, N, W).
            adjacent: bool (B, N, N): target, source. Every target needs a source; itself will do.
            edges: (B, N, N, E) numbers that describe each pair.

        Returns:
            (B, N, W) and (B, heads, N, N); these sum to 1 over sources.
        """
        source: Tensor = self.source(nodes)
        target: Tensor = self.target(nodes)
        batch, count, width = source.shape
        piece = max(1, PAIRS_AT_A_TIME // (count * count * width))
        if torch.compiler.is_exporting() or piece >= batch:
            scores = self._scores(source, target, edges)
        else:
            cut = zip(*(torch.split(one, piece) for one in (source, target, edges)), strict=True)
            pieces = [checkpoint(self._scores, *part, use_reentrant=False) for part in cut]
            scores = torch.cat(pieces)
        weights = scores.masked_fill(~adjacent[:, None], -torch.inf).softmax(-1)
        values = source.view(batch, count, self.heads, -1)
        taken = torch.einsum("bhij,bjhc->bihc", weights.to(values.dtype), values).flatten(2)
        return taken + self.bias, weights

    def _scores(self, source: Tensor, target: Tensor, edges: Tensor) -> Tensor:
        """(B, heads, N, N) before the softmax."""
        pairs = source[:, None, :, :] + target[:, :, None, :] + self.edge(edges)
        # One product with all heads side by side, zeros between them: four times the sums, and quicker than by head.
        heads: Tensor = torch.block_diag(*self.score.to(pairs.dtype))  # type: ignore[no-untyped-call]
        return nn.functional.linear(nn.functional.leaky_relu(pairs, 0.2), heads).permute(0, 3, 1, 2)


class GraphLayer(nn.Module):
    """x + graph attention(norm(x)), then x + perceptron(norm(x))."""

    def __init__(self, width: int, heads: int, edge_width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.graph = DenseGATv2(width, heads, edge_width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), linear(width, 2 * width), nn.GELU(), linear(2 * width, width, gain=1.0)
        )

    def forward(self, nodes: Tensor, adjacent: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes of the same shape, and the weights that were given."""
        taken, weights = self.graph(self.norm(nodes), adjacent, edges)
        nodes = nodes + taken
        return nodes + self.perceptron(nodes), weights


class GraphExtractor(FeatureExtractor):
    """Attention along the edges between waiting jobs."""

    def __init__(self, spec: ObservationSpecProtocol, sizes: Sizes) -> None:
        super().__init__()
        if not spec.graph:
            raise InputError(
                "the network 'gat' needs edges, and this environment shows none; make it with graph=True"
            )
        self.width = sizes.width
        self.time = time_feature(tuple(spec.features))
        edge_width = len(EDGE_TYPES) + (0 if self.time is None else FREQUENCIES)
        self.job = linear(len(spec.features), sizes.width, gain=1.0)
        self.summary = linear(len(spec.summary), sizes.width, gain=1.0)
        self.between = None if self.time is None else TimeBetween()
        self.layers = nn.ModuleList(
            GraphLayer(sizes.width, sizes.heads, edge_width) for _ in range(sizes.depth)
        )
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, observation: Observation) -> EncodedQueue:
        """Look along the edges."""
        return self._looked(observation)[0]

    def attention(self, observation: Observation) -> list[Tensor]:
        """Weights of every layer, (B, heads, jobs, jobs): target, source. To look at."""
        return self._looked(observation)[1]

    def _looked(self, observation: Observation) -> tuple[EncodedQueue, list[Tensor]]:
        jobs, there, bits = cropped(observation, self.whole)
        assert bits is not None
        whole: Tensor = self.summary(observation["summary"])
        adjacent, edges = self._edges(jobs, there, bits)
        nodes: Tensor = self.job(jobs) + whole[:, None]
        attended = []
        for layer in self.layers:
            nodes, weights = layer(nodes, adjacent, edges)
            attended.append(weights)
        nodes = self.norm(nodes)
        return EncodedQueue(nodes, None, mean_present(nodes, there), torch.relu(whole)), attended

    def _edges(self, jobs: Tensor, there: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
        """Who sees whom, and the numbers of each pair."""
        itself = torch.eye(jobs.shape[1], dtype=torch.bool, device=jobs.device).expand(bits.shape)
        typed = [(bits & (1 << place)) != 0 for place in range(len(EDGE_TYPES) - 1)]
        adjacent = ((bits & 7 != 0) & there[:, None, :]) | itself
        edges = torch.stack([*typed, itself], dim=-1).to(jobs.dtype)
        if self.between is not None:
            edges = torch.cat([edges, self.between(jobs[..., self.time])], dim=-1)
        return adjacent, edges
