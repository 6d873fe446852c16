"""Feature extractors: their interface to the heads, and the kernel, attention and graph attention networks.

Kernel network: one small perceptron, shared by all jobs, scores each job from its features and the summary. The result
does not depend on the order of the queue, a longer queue needs no more weights, and empty slots cost nothing
where rows are gathered first. After Zhang, Dai, He, Bao and Xie, "RLScheduler" (SC 2020), with the summary added.

Attention network: self-attention between all waiting jobs before each is scored, by pre-norm transformer layers (Xiong
et al., "On layer normalization in the transformer architecture", ICML 2020) over the queue. The summary is one
more token: it attends to the jobs and they to it, so that no job attends to nothing.

Graph attention network: attention along typed edges between jobs (same user, same nodes, close in time), by GATv2
(Brody, Alon and Yahav, "How attentive are graph attention networks?", ICLR 2022) in dense form: queues are short, so a
matrix of all pairs is faster than edge lists. The features of an edge are its types, one number each, and the time
between the two submissions, encoded by cosines of learned frequencies (Xu et al., "Inductive representation learning on
temporal graphs", ICLR 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import pi, sqrt
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from kilowait.agents.networks.spec import NetworkSizes, ObservationSpecProtocol
from kilowait.errors import InputError

Observation = Mapping[str, Tensor]
"""Tensors of one batch, by the names in the observation spec."""
EDGE_TYPES = ("same user or project", "same nodes", "close in time", "itself")
"""Bits 1, 2 and 4 of ``edges``; every job also has an edge to itself."""
FREQUENCIES = 4
PAIRS_AT_A_TIME = 2**26
"""Size (pairs x width) kept in memory; for larger batches, pairs are recomputed in the backward pass."""


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


def perceptron(width: int) -> nn.Sequential:
    """The two layers that follow the attention of a layer, with a norm before them."""
    return nn.Sequential(
        nn.LayerNorm(width),
        orthogonal_linear(width, 2 * width),
        nn.GELU(),
        orthogonal_linear(2 * width, width, gain=1.0),
    )


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


class AttentionLayer(nn.Module):
    """x + attention(norm(x)), then x + perceptron(norm(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query_key_value = orthogonal_linear(width, 3 * width, gain=1.0)
        self.output = orthogonal_linear(width, width, gain=1.0)
        self.perceptron = perceptron(width)

    def forward(self, tokens: Tensor, occupied: Tensor) -> Tensor:
        """Tokens (B, N, W), of which `occupied` (B, N) can be attended to; the same shape is returned."""
        query, key, value = self._query_key_value(tokens)
        attention_output = scaled_dot_product_attention(query, key, value, attn_mask=occupied[:, None, None, :])
        attended: Tensor = self.output(attention_output.transpose(1, 2).flatten(2))
        tokens = tokens + attended
        feed_forward: Tensor = self.perceptron(tokens)
        return tokens + feed_forward

    def weights(self, tokens: Tensor, occupied: Tensor) -> Tensor:
        """(B, heads, N, N) attention weights; rows sum to 1."""
        query, key, _ = self._query_key_value(tokens)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        weights: Tensor = scores.masked_fill(~occupied[:, None, None, :], -torch.inf).softmax(-1)
        return weights

    def _query_key_value(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        projected: Tensor = self.query_key_value(self.norm(tokens))
        batch, count, _ = tokens.shape
        query, key, value = projected.view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return query, key, value


class AttentionExtractor(FeatureExtractor):
    """Self-attention over the queue."""

    def __init__(self, spec: ObservationSpecProtocol, sizes: NetworkSizes) -> None:
        super().__init__()
        self.width = sizes.width
        self.job = orthogonal_linear(len(spec.features), sizes.width, gain=1.0)
        self.summary = orthogonal_linear(len(spec.summary), sizes.width, gain=1.0)
        self.layers = nn.ModuleList(AttentionLayer(sizes.width, sizes.heads) for _ in range(sizes.depth))
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, observation: Observation) -> EncodedQueue:
        """Encode the queue."""
        tokens, occupied = self._tokens(observation)
        for layer in self.layers:
            tokens = layer(tokens, occupied)
        tokens = self.norm(tokens)
        rows = tokens[:, 1:]
        return EncodedQueue(rows, None, mean_present(rows, occupied[:, 1:]), tokens[:, 0])

    def attention(self, observation: Observation) -> list[Tensor]:
        """Attention weights of every layer, (B, heads, 1 + jobs, 1 + jobs), for inspection; token 0 is the summary."""
        tokens, occupied = self._tokens(observation)
        weights = []
        for layer in self.layers:
            assert isinstance(layer, AttentionLayer)
            weights.append(layer.weights(tokens, occupied))
            tokens = layer(tokens, occupied)
        return weights

    def _tokens(self, observation: Observation) -> tuple[Tensor, Tensor]:
        jobs, occupied, _ = without_empty_slots(observation, self.all_slots)
        summary: Tensor = self.summary(observation["summary"])
        tokens = torch.cat([summary[:, None], self.job(jobs) + summary[:, None]], dim=1)
        return tokens, nn.functional.pad(occupied, (1, 0), value=True)


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
        self.perceptron = perceptron(width)

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
