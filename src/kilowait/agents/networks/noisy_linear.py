"""Noisy linear layer: exploration by learned noise on the weights."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

__all__ = ["NoisyLinear"]


class NoisyLinear(nn.Module):
    """Factorized Gaussian noise on weights and biases (Fortunato et al., "Noisy networks for exploration", ICLR 2018).

    `sample_noise` samples the noise from a given generator; in evaluation mode there is none.
    """

    input_noise: Tensor
    output_noise: Tensor

    def __init__(self, inputs: int, outputs: int, gain: float = 1.0, std: float = 0.5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.weight_std = nn.Parameter(torch.full((outputs, inputs), std / sqrt(inputs)))
        self.bias_std = nn.Parameter(torch.full((outputs,), std / sqrt(inputs)))
        nn.init.orthogonal_(self.weight, gain)
        self.register_buffer("input_noise", torch.zeros(inputs))
        self.register_buffer("output_noise", torch.zeros(outputs))

    def sample_noise(self, random: torch.Generator) -> None:
        """Sample new noise, used until the next call."""
        for noise in (self.input_noise, self.output_noise):
            noise.normal_(generator=random)
            noise.copy_(noise.sign() * noise.abs().sqrt())

    def forward(self, values: Tensor) -> Tensor:
        """The layer with its current noise, or without noise in evaluation mode."""
        if not self.training:
            return nn.functional.linear(values, self.weight, self.bias)
        weight = self.weight + self.weight_std * torch.outer(self.output_noise, self.input_noise)
        return nn.functional.linear(values, weight, self.bias + self.bias_std * self.output_noise)
