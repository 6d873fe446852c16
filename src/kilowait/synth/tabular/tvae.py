"""TVAE: variational autoencoder for tables; new rows are decoded from samples of the latent prior.

L. Xu and others, "Modeling tabular data using conditional GAN", NeurIPS 2019, after D. P. Kingma and M. Welling,
"Auto-encoding variational Bayes", 2014. The training objective is the evidence lower bound: the reconstruction
log-likelihood less the KL divergence of the latent posterior.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from kilowait.synth.sampler import SampleProgress
from kilowait.synth.tabular import TvaeSettings
from kilowait.synth.tabular.network import ColumnLayout, TableNetwork, init_output_layer, sample_category
from kilowait.synth.trainer import Training, gradient_step, one_cycle_schedule

MIN_DEVIATION, MAX_DEVIATION = 0.01, 1.0
"""Standard deviation of scalars about their reconstruction."""
WARMUP_SHARE = 0.3
"""Share of the steps of the KL warm-up; without it the latent variables may
remain unused (S. R. Bowman and others, "Generating sentences from a continuous space", 2016)."""


class Encoder(nn.Module):
    """Encoder: a row to a normal distribution of the latent variables."""

    def __init__(self, layout: ColumnLayout, hidden: int, latent: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(layout.width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.mean, self.log_spread = nn.Linear(hidden, latent), nn.Linear(hidden, latent)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of the standard deviations."""
        x = self.body(rows)
        return self.mean(x), self.log_spread(x).clamp(-8, 4)


class Decoder(TableNetwork):
    """Decoder: latent variables to scalars with their deviation, and logits of categories."""

    def __init__(self, layout: ColumnLayout, settings: TvaeSettings) -> None:
        super().__init__(layout, settings)
        hidden, latent = settings.width, settings.latent
        self.body = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.to_places = nn.Linear(hidden, len(layout.scalars))
        self.to_kinds = nn.Linear(hidden, sum(layout.sizes))
        self.spread = nn.Parameter(torch.full((len(layout.scalars),), 0.1))

    def forward(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Scalars, and logits of categories."""
        x = self.body(latent)
        return torch.tanh(self.to_places(x)), self.to_kinds(x)

    @classmethod
    def trained(
        cls, categories: Tensor, scalars: Tensor, layout: ColumnLayout, settings: TvaeSettings, training: Training
    ) -> Self:
        """Train a decoder on rows."""
        device, steps = training.device, settings.steps
        dense = layout.dense(categories, scalars)
        encoder = Encoder(layout, settings.width, settings.latent).to(device)
        decoder = cls(layout, settings).to(device)
        init_output_layer(decoder.to_kinds, layout.shares(categories))
        weights = [*encoder.parameters(), *decoder.parameters()]
        optimizer = torch.optim.Adam(weights, settings.rate, weight_decay=1e-5)
        lr_schedule = one_cycle_schedule(optimizer, settings.rate, steps)
        batch = min(settings.batch, len(categories))

        def update(step: int) -> None:
            rows = torch.randint(len(categories), (batch,), device=device)
            mean, log_spread = encoder(dense[rows])
            latent = mean + log_spread.exp() * torch.randn_like(mean)
            kl_divergence = 0.5 * (mean**2 + (2 * log_spread).exp() - 1 - 2 * log_spread).sum() / batch
            kl_weight = min(1.0, step / (WARMUP_SHARE * steps))
            reconstruction = reconstruction_loss(decoder, latent, categories[rows], scalars[rows], layout)
            gradient_step(settings.likeness * reconstruction + kl_weight * kl_divergence, optimizer, lr_schedule)

        training.run(update, steps, {"reader": encoder, "maker": decoder, "optimizer": optimizer, "rates": lr_schedule})
        return decoder.eval()

    @torch.inference_mode()
    def sample_rows(self, count: int, progress: SampleProgress) -> tuple[Tensor, list[Tensor]]:
        """Decode rows from the latent prior."""
        scalars, logits = self(torch.randn(count, self.settings.latent))
        deviation = self.spread.clamp(MIN_DEVIATION, MAX_DEVIATION)
        categories = [sample_category(part) for part in logits.split(self.layout.sizes, 1)]
        return (scalars + deviation * torch.randn_like(scalars)).clamp(-1, 1), categories


def reconstruction_loss(
    decoder: Decoder, latent: Tensor, categories: Tensor, scalars: Tensor, layout: ColumnLayout
) -> Tensor:
    """Negative log-likelihood per real row, given the decoder's output."""
    reconstructed, logits = decoder(latent)
    deviation = decoder.spread.clamp(MIN_DEVIATION, MAX_DEVIATION)
    deviations = (scalars[:, layout.scalar_columns] - reconstructed) / deviation
    total = (0.5 * deviations**2 + deviation.log()).sum()
    for column, part in zip(layout.category_columns, logits.split(layout.sizes, 1), strict=True):
        total = total + functional.cross_entropy(part, categories[:, column], reduction="sum")
    loss: Tensor = total / len(latent)
    return loss
