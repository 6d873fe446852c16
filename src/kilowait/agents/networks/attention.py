"""The attention network: self-attention between all waiting jobs before each is scored.

Pre-norm transformer layers (Xiong et al., "On layer normalization in the transformer architecture", ICML 2020) over the
queue. The summary is one more token: it attends to the jobs and they to it, so that no job attends to nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from kilowait.agents.networks.feature_extractor import (
    EncodedQueue,
    FeatureExtractor,
    Observation,
    mean_present,
    orthogonal_linear,
    without_empty_slots,
)
from kilowait.agents.networks.spec import NetworkSizes, ObservationSpecProtocol

__all__ = ["AttentionExtractor"]


class AttentionLayer(nn.Module):
    """x + attention(norm(x)), then x + perceptron(norm(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query_key_value = orthogonal_linear(width, 3 * width, gain=1.0)
        self.output = orthogonal_linear(width, width, gain=1.0)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width),
            orthogonal_linear(width, 2 * width),
            nn.GELU(),
            orthogonal_linear(2 * width, width, gain=1.0),
        )

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
