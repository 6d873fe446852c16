"""The masked categorical distribution against known values."""

from __future__ import annotations

import math

import pytest
import torch

from kilowait.agents.networks.heads import MaskedCategorical

NO = -torch.inf


def test_entropy_and_log_prob_values():
    choice = MaskedCategorical(torch.tensor([[0.0, math.log(3.0), NO], [NO, 5.0, NO]]))
    assert choice.entropy().tolist() == pytest.approx([-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), 0.0])
    assert choice.log_prob(torch.tensor([1, 1])).tolist() == pytest.approx([math.log(0.75), 0.0])
    assert choice.greedy().tolist() == [1, 1]


def test_gradients_are_finite_and_forbidden_logits_have_none():
    logits = torch.tensor([[0.3, -0.2, 0.9], [0.3, -0.2, 0.9]], requires_grad=True)
    masked = logits.masked_fill(torch.tensor([[False, False, True], [True, False, True]]), NO)
    choice = MaskedCategorical(masked)
    (choice.entropy() + choice.log_prob(torch.tensor([0, 1]))).sum().backward()
    assert logits.grad.isfinite().all()
    assert logits.grad[:, 2].tolist() == [0, 0] and logits.grad[1].tolist() == [0, 0, 0]


def test_sample_frequencies():
    probabilities = torch.tensor([0.1, 0.0, 0.6, 0.3])
    choice = MaskedCategorical(probabilities.log().expand(40_000, 4))
    samples = choice.sample(torch.Generator().manual_seed(0))
    share = torch.bincount(samples, minlength=4) / len(samples)
    assert share[1] == 0
    assert (share - probabilities).abs().max() < 0.01  # four standard errors


def test_generator_determines_samples():
    choice = MaskedCategorical(torch.zeros(100, 7))
    first, same, other = (choice.sample(torch.Generator().manual_seed(seed)).tolist() for seed in (0, 0, 1))
    assert first == same != other
