"""The dense GATv2 layer against that of PyTorch Geometric, with the same edges and weights."""

from __future__ import annotations

import warnings

import pytest
import torch

from kilowait.agents.networks import feature_extractor
from kilowait.agents.networks.feature_extractor import EDGE_TYPES, DenseGATv2, TimeDifferenceEncoding, time_feature

WIDTH, HEADS, NODES = 24, 3, 9


@pytest.fixture
def graph():
    random = torch.Generator().manual_seed(4)
    nodes = torch.randn(2, NODES, WIDTH, generator=random)
    bits = torch.randint(0, 8, (2, NODES, NODES), generator=random)
    bits[torch.rand(bits.shape, generator=random) < 0.5] = 0
    itself = torch.eye(NODES, dtype=torch.bool).expand(bits.shape)
    typed = [(bits & 1 << place) != 0 for place in range(3)]
    between = torch.randn(2, NODES, NODES, 4, generator=random)
    edges = torch.cat([torch.stack([*typed, itself], -1).float(), between], -1)
    return nodes, (bits != 0) | itself, edges


def pytorch_geometric_result(layer: DenseGATv2, nodes, adjacent, edges):
    """Result of PyTorch Geometric, one graph of the batch at a time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.nn import GATv2Conv

        reference = GATv2Conv(WIDTH, WIDTH // HEADS, HEADS, add_self_loops=False, edge_dim=edges.shape[-1])
    with torch.no_grad():
        reference.lin_l.weight.copy_(layer.source.weight)
        reference.lin_l.bias.copy_(layer.source.bias)
        reference.lin_r.weight.copy_(layer.target.weight)
        reference.lin_r.bias.copy_(layer.target.bias)
        reference.lin_edge.weight.copy_(layer.edge.weight)
        reference.att.copy_(layer.score[None])
        reference.bias.copy_(layer.bias)
        outputs = []
        for graph_index in range(len(nodes)):
            target, source = adjacent[graph_index].nonzero().T
            outputs.append(
                reference(nodes[graph_index], torch.stack([source, target]), edges[graph_index, target, source])
            )
        return torch.stack(outputs)


def with_other_biases(layer: DenseGATv2) -> DenseGATv2:
    with torch.no_grad():
        for bias in (layer.source.bias, layer.target.bias, layer.bias):
            bias.copy_(torch.linspace(-1, 1, WIDTH))
    return layer


def test_layer_equals_gatv2(graph):
    nodes, adjacent, edges = graph
    layer = with_other_biases(DenseGATv2(WIDTH, HEADS, edges.shape[-1]))
    ours, weights = layer(nodes, adjacent, edges)
    torch.testing.assert_close(ours, pytorch_geometric_result(layer, nodes, adjacent, edges), atol=1e-5, rtol=1e-5)
    assert (weights[:, :, :, :][~adjacent[:, None].expand_as(weights)] == 0).all()


def test_layer_equals_gatv2_with_edge_types(graph):
    """As `GATv2Conv` with one-hot edge attributes."""
    nodes, adjacent, edges = graph
    layer = with_other_biases(DenseGATv2(WIDTH, HEADS, len(EDGE_TYPES)))
    types = edges[..., : len(EDGE_TYPES)]
    torch.testing.assert_close(
        layer(nodes, adjacent, types)[0], pytorch_geometric_result(layer, nodes, adjacent, types), atol=1e-5, rtol=1e-5
    )


def test_split_batch_gives_same_result(graph, monkeypatch):
    nodes, adjacent, edges = graph
    layer = DenseGATv2(WIDTH, HEADS, edges.shape[-1])

    def result():
        layer.zero_grad()
        outputs = layer(nodes, adjacent, edges)[0]
        outputs.square().sum().backward()
        return outputs, layer.score.grad.clone(), layer.edge.weight.grad.clone()

    whole = result()
    monkeypatch.setattr(feature_extractor, "PAIRS_AT_A_TIME", 1)
    for graph_index, other in zip(whole, result(), strict=True):
        torch.testing.assert_close(graph_index, other)


def test_time_encoding_is_asymmetric():
    encoding = TimeDifferenceEncoding()(torch.tensor([[0.0, 0.3]]))
    assert encoding.shape == (1, 2, 2, 4)
    assert not torch.allclose(encoding[0, 0, 1], encoding[0, 1, 0])
    torch.testing.assert_close(encoding[0, 0, 0], encoding[0, 1, 1])


def test_time_feature_is_found_by_name():
    assert time_feature(("nodes", "age", "wait_h")) == 1
    assert time_feature(("nodes", "submit_h")) == 1
    assert time_feature(("nodes", "awaited")) is None
