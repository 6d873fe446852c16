"""TVAE: variational autoencoder for tables; new rows are decoded from samples of the latent prior.

L. Xu and others, "Modeling tabular data using conditional GAN", NeurIPS 2019, after D. P. Kingma and M. Welling,
"Auto-encoding variational Bayes", 2014. The training objective is the evidence lower bound: the reconstruction
log-likelihood less the KL divergence of the latent posterior.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from kilowait.synth.checkpoint import CheckpointStore, checkpointed_steps
from kilowait.synth.lr_schedule import one_cycle_schedule
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.tabular.layout import ColumnLayout, drawn, init_output_layer
from kilowait.synth.tabular.settings import TvaeSettings

__all__ = ["Decoder", "draw", "train"]

MIN_DEVIATION, MAX_DEVIATION = 0.01, 1.0
"""Standard deviation of scalars about their reconstruction."""
WARMING = 0.3
"""Share of the steps of the KL warm-up; without it the latent variables may
never be used (S. R. Bowman and others, "Generating sentences from a continuous space", 2016)."""
REPORT_EVERY = 20
"""Steps."""


class Encoder(nn.Module):
    """Encoder: a row to a normal distribution of the latent variables."""

    def __init__(self, blocks: ColumnLayout, hidden: int, latent: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(blocks.width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.mean, self.log_spread = nn.Linear(hidden, latent), nn.Linear(hidden, latent)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of the standard deviations."""
        x = self.body(rows)
        return self.mean(x), self.log_spread(x).clamp(-8, 4)


class Decoder(nn.Module):
    """Decoder: latent variables to scalars with their deviation, and logits of categories."""

    def __init__(self, blocks: ColumnLayout, hidden: int, latent: int) -> None:
        super().__init__()
        self.latent = latent
        self.body = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.to_places = nn.Linear(hidden, len(blocks.places))
        self.to_kinds = nn.Linear(hidden, sum(blocks.sizes))
        self.spread = nn.Parameter(torch.full((len(blocks.places),), 0.1))

    def forward(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Scalars, and logits of categories."""
        x = self.body(numbers)
        return torch.tanh(self.to_places(x)), self.to_kinds(x)


def lost(maker: Decoder, numbers: Tensor, kinds: Tensor, places: Tensor, blocks: ColumnLayout) -> Tensor:
    """Negative log-likelihood per real row, given the decoder's output."""
    made, logits = maker(numbers)
    spread = maker.spread.clamp(MIN_DEVIATION, MAX_DEVIATION)
    away = (places[:, blocks.place_columns] - made) / spread
    total = (0.5 * away**2 + spread.log()).sum()
    for column, part in zip(blocks.kind_columns, logits.split(blocks.sizes, 1), strict=True):
        total = total + functional.cross_entropy(part, kinds[:, column], reduction="sum")
    loss: Tensor = total / len(numbers)
    return loss


def train(
    kinds: Tensor,
    places: Tensor,
    blocks: ColumnLayout,
    settings: TvaeSettings,
    progress: SampleProgress,
    checkpoints: CheckpointStore | None = None,
) -> Decoder:
    """Train a decoder on these rows, on their device, with torch's global random state."""
    device, steps = kinds.device, settings.steps
    dense = blocks.dense(kinds, places)
    reader = Encoder(blocks, settings.width, settings.latent).to(device)
    maker = Decoder(blocks, settings.width, settings.latent).to(device)
    init_output_layer(maker.to_kinds, blocks.shares(kinds))
    weights = [*reader.parameters(), *maker.parameters()]
    optimizer = torch.optim.Adam(weights, settings.rate, weight_decay=1e-5)
    rates = one_cycle_schedule(optimizer, settings.rate, steps)
    batch = min(settings.batch, len(kinds))
    for step in checkpointed_steps(
        steps, checkpoints, device, reader=reader, maker=maker, optimizer=optimizer, rates=rates
    ):
        some = torch.randint(len(kinds), (batch,), device=device)
        mean, log_spread = reader(dense[some])
        numbers = mean + log_spread.exp() * torch.randn_like(mean)
        beyond_chance = 0.5 * (mean**2 + (2 * log_spread).exp() - 1 - 2 * log_spread).sum() / batch
        allowed = min(1.0, step / (WARMING * steps))
        made_again = lost(maker, numbers, kinds[some], places[some], blocks)
        loss = settings.likeness * made_again + allowed * beyond_chance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
        if step % REPORT_EVERY == 0:
            progress("learning", step / steps)
    progress("learning", 1.0)
    return maker.eval()


@torch.inference_mode()
def draw(maker: Decoder, blocks: ColumnLayout, count: int) -> tuple[Tensor, list[Tensor]]:
    """Sample scalars and categories of `count` new rows."""
    places, logits = maker(torch.randn(count, maker.latent))
    spread = maker.spread.clamp(MIN_DEVIATION, MAX_DEVIATION)
    kinds = [drawn(part) for part in logits.split(blocks.sizes, 1)]
    return (places + spread * torch.randn_like(places)).clamp(-1, 1), kinds
