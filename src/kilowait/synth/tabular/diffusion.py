"""Tabular diffusion model (TabDDPM): a network that denoises rows.

After TabDDPM (A. Kotelnikov, D. Baranchuk, I. Rubachev, A. Babenko, ICML 2023): Gaussian noise is added to numbers,
here normal scores, and categories are replaced by random ones (E. Hoogeboom and others, "Argmax flows and multinomial
diffusion", NeurIPS 2021), here by the frequencies of the log. Time runs from 0 (data) to 1 (noise), with a cosine
schedule. The network predicts the data from a noisy row and the time. Sampling takes few steps from noise to data.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from kilowait.synth.sampler import SampleProgress
from kilowait.synth.tabular import DiffusionSettings
from kilowait.synth.tabular.encoding import SCALAR_RANGE_SD
from kilowait.synth.tabular.network import ColumnLayout, TableNetwork, init_output_layer, sample_category
from kilowait.synth.trainer import Training, gradient_step, one_cycle_schedule

TIMES = 32
"""Dimension of the time embedding."""
CHUNK = 4096
"""Rows sampled at a time, so that the activations fit into the CPU cache."""


class DenoiserLayer(nn.Module):
    """Residual layer of the denoiser."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.wide, self.narrow = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Input of the next layer."""
        answer: Tensor = x + self.narrow(functional.silu(self.wide(self.norm(x))))
        return answer


class Denoiser(TableNetwork):
    """Denoiser network: predicts the data from a noisy row."""

    common: Tensor
    firsts: Tensor

    def __init__(self, layout: ColumnLayout, settings: DiffusionSettings) -> None:
        super().__init__(layout, settings)
        hidden = settings.width
        total = sum(layout.sizes)
        self.register_buffer("common", torch.full((total,), 1.0))
        """Category frequencies of the log, concatenated by column; each column sums to 1."""
        self.kind = nn.Embedding(max(total, 1), hidden)
        self.place = nn.Linear(len(layout.scalars), hidden)
        self.time = nn.Linear(2 * TIMES, hidden)
        nn.init.normal_(self.kind.weight, std=0.3)
        self.layers = nn.Sequential(*(DenoiserLayer(hidden) for _ in range(settings.layers)), nn.LayerNorm(hidden))
        self.to_places = nn.Linear(hidden, len(layout.scalars))
        self.to_kinds = nn.Linear(hidden, total)
        firsts = torch.tensor([0, *layout.sizes]).cumsum(0)[:-1]
        self.register_buffer("firsts", firsts, persistent=False)

    def forward(self, scalars: Tensor, categories: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """The velocity of scalar values, and logits of categories (of columns with several), at a time for each row."""
        angles = time[:, None] * torch.logspace(0, 2.5, TIMES, device=time.device)
        x = self.time(torch.cat([angles.sin(), angles.cos()], 1)) + self.place(scalars)
        if categories.shape[1]:
            x = x + functional.embedding_bag(categories + self.firsts, self.kind.weight, mode="sum")
        x = self.layers(x)
        return self.to_places(x), self.to_kinds(x)

    @classmethod
    def trained(
        cls, categories: Tensor, scalars: Tensor, layout: ColumnLayout, settings: DiffusionSettings, training: Training
    ) -> Self:
        """Train a denoiser on rows."""
        device, steps, batch = training.device, settings.steps, settings.batch
        network = cls(layout, settings).to(device)
        network.common.copy_(layout.shares(categories))
        init_output_layer(network.to_kinds, network.common)
        categories, scalars = (
            categories[:, layout.category_columns],
            SCALAR_RANGE_SD * scalars[:, layout.scalar_columns],
        )
        optimizer = torch.optim.AdamW(network.parameters(), settings.rate, weight_decay=1e-4)
        lr_schedule = one_cycle_schedule(optimizer, settings.rate, steps)

        def update(step: int) -> Tensor:
            rows = torch.randint(len(categories), (batch,), device=device)
            # Stratified times over the batch.
            time = (torch.arange(batch, device=device) + torch.rand(1, device=device)) / batch
            signal, noise = alpha_bar(time)
            x, gaussian = scalars[rows], torch.randn(batch, scalars.shape[1], device=device)
            noisy = signal[:, None] * x + noise[:, None] * gaussian
            velocity = signal[:, None] * gaussian - noise[:, None] * x
            true_categories = categories[rows]
            replaced = torch.rand(true_categories.shape, device=device) >= (signal**2)[:, None]
            noisy_categories = torch.where(replaced, _random_categories(network, batch), true_categories)
            predicted, logits = network(noisy, noisy_categories, time)
            loss: Tensor = ((predicted - velocity) ** 2).sum(1).mean()
            for column, part in enumerate(logits.split(layout.sizes, 1)):
                loss = loss + functional.cross_entropy(part, true_categories[:, column])
            gradient_step(loss, optimizer, lr_schedule, clipped=network.parameters())
            return loss

        training.run(update, steps, {"network": network, "optimizer": optimizer, "rates": lr_schedule})
        return network.eval()

    @torch.inference_mode()
    def sample_rows(self, count: int, progress: SampleProgress) -> tuple[Tensor, list[Tensor]]:
        """Denoise rows in `draw_steps` steps from noise."""
        steps = self.settings.draw_steps
        times = [1.0 - step / steps for step in range(steps + 1)]
        all_scalars, all_categories = [], []
        for done in range(0, count, CHUNK):
            progress("sampling", done / count)
            rows = min(CHUNK, count - done)
            scalars = torch.randn(rows, len(self.layout.scalars))
            categories = _random_categories(self, rows)
            for later, earlier in pairwise(times):
                scalars, categories = _denoised(self, scalars, categories, torch.tensor(later), torch.tensor(earlier))
            all_scalars.append(scalars)
            all_categories.append(categories)
        return torch.cat(all_scalars) / SCALAR_RANGE_SD, list(torch.cat(all_categories).unbind(1))


def alpha_bar(time: Tensor) -> tuple[Tensor, Tensor]:
    """Signal and noise scale at a time; their squares sum to 1."""
    angle = time * (math.pi / 2)
    return angle.cos(), angle.sin()


def _random_categories(network: Denoiser, count: int) -> Tensor:
    """Sample categories by the frequencies of the log, independently by column."""
    columns = [
        torch.multinomial(probabilities, count, replacement=True)
        for probabilities in torch.split(network.common, network.layout.sizes)
    ]
    device = network.common.device
    return torch.stack(columns, 1) if columns else torch.zeros(count, 0, dtype=torch.long, device=device)


def _denoised(
    network: Denoiser, scalars: Tensor, categories: Tensor, later: Tensor, earlier: Tensor
) -> tuple[Tensor, Tensor]:
    """Sample rows at an earlier time, given those at a later time and the network's prediction of the data."""
    signal, noise = alpha_bar(later)
    signal_before, noise_before = alpha_bar(earlier)
    velocity, logits = network(scalars, categories, later.expand(len(scalars)))
    clean = signal * scalars - noise * velocity
    noise_direction = signal * velocity + noise * scalars
    # Add fresh noise, as in the DDPM posterior.
    new_noise = noise_before / noise * (1 - (signal / signal_before) ** 2).clamp(min=0).sqrt()
    old_noise = (noise_before**2 - new_noise**2).clamp(min=0).sqrt()
    scalars = signal_before * clean + old_noise * noise_direction + new_noise * torch.randn_like(scalars)
    if not categories.shape[1]:
        return scalars, categories
    predicted = torch.stack([sample_category(part) for part in logits.split(network.layout.sizes, 1)], 1)
    if earlier == 0:
        return scalars, predicted
    # q(earlier | later, prediction): the later category, the predicted one, or any other.
    alpha_bar_before, alpha = signal_before**2, (signal / signal_before) ** 2
    common = network.common[categories + network.firsts]
    same_both = alpha * alpha_bar_before * (categories == predicted)
    same_only = alpha * (1 - alpha_bar_before) * common
    predicted_only = (1 - alpha) * common * alpha_bar_before
    other = (1 - alpha) * common * (1 - alpha_bar_before)
    uniform = torch.rand(categories.shape) * (same_both + same_only + predicted_only + other)
    kept = torch.where(uniform < same_both + same_only, categories, predicted)
    return scalars, torch.where(
        uniform >= same_both + same_only + predicted_only, _random_categories(network, len(categories)), kept
    )
