"""CTGAN: conditional GAN for tables, with a Wasserstein critic on packs of rows.

L. Xu, M. Skoularidou, A. Cuesta-Infante, K. Veeramachaneni, "Modeling tabular data using conditional GAN", NeurIPS
2019. The generator is conditioned on one category of one column; in training rare categories are sampled more often
than in the log (by the logarithm of their frequency). Its categories go through a Gumbel softmax, which is
differentiable. The critic is a Wasserstein critic with gradient penalty (I. Gulrajani and others, 2017) on packs of
rows, which detects mode collapse (PacGAN, Z. Lin and others, 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from kilowait.synth.sampler import SampleProgress
from kilowait.synth.tabular import CtganSettings
from kilowait.synth.tabular.network import ColumnLayout, TableNetwork
from kilowait.synth.trainer import HasStateDict, Training, gradient_step

NOISE = 128
"""Dimension of the noise."""
PACK = 10
"""Rows per pack of the critic."""
TEMPERATURE = 0.2
"""Temperature of the Gumbel softmax."""
PENALTY = 10.0
"""Weight of the gradient penalty."""


class Residual(nn.Module):
    """A layer that concatenates its input and its output."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, hidden), nn.BatchNorm1d(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Input and transformed input, concatenated."""
        return torch.cat([functional.relu(self.norm(self.linear(x))), x], 1)


class Critic(nn.Module):
    """Critic network: a realness score of a pack of rows."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.width = width * PACK
        self.body = nn.Sequential(
            nn.Linear(self.width, hidden),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.5),
            nn.Linear(hidden, 1),
        )

    def forward(self, rows: Tensor) -> Tensor:
        """One score per pack."""
        scores: Tensor = self.body(rows.reshape(-1, self.width))
        return scores

    def gradient_penalty(self, real: Tensor, synthetic: Tensor) -> Tensor:
        """Gradient penalty: squared deviation of the gradient norm from 1 between real and generated packs."""
        share = torch.rand(len(real) // PACK, 1, device=real.device)
        between = torch.lerp(real.reshape(-1, self.width), synthetic.reshape(-1, self.width), share).requires_grad_()
        (gradient,) = torch.autograd.grad(self.body(between).sum(), between, create_graph=True)
        penalty: Tensor = ((gradient.norm(2, 1) - 1) ** 2).mean()
        return penalty


@dataclass(frozen=True)
class ConditionSampler:
    """Sampler of conditional vectors: one category of one column, the other columns free."""

    common: Tensor
    """Category frequencies of the log, concatenated by column; each column sums to 1."""
    layout: ColumnLayout

    def sample(self, count: int, *, evenly: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Sample conditional vectors, with their columns and categories.

        Args:
            count: number of conditions.
            evenly: categories by the logarithm of their frequency; otherwise by their frequency in the log.
        """
        sizes, device = self.layout.sizes, self.common.device
        condition = torch.zeros(count, sum(sizes), device=device)
        column = torch.randint(len(sizes), (count,), device=device)
        kind = torch.zeros(count, dtype=torch.long, device=device)
        for number, weight in enumerate(torch.split(self.common, sizes)):
            selected = (column == number).nonzero().flatten()
            if len(selected):
                log_weight = torch.where(weight > 0, torch.log1p(weight / weight[weight > 0].min()), 0.0)
                kind[selected] = torch.multinomial(log_weight if evenly else weight, len(selected), replacement=True)
        firsts = torch.tensor([0, *sizes], device=device).cumsum(0)[:-1]
        condition[torch.arange(count, device=device), firsts[column] + kind] = 1.0
        return condition, column, kind


def activated(rows: Tensor, layout: ColumnLayout) -> Tensor:
    """Generator output: values between -1 and 1, and Gumbel-softmax categories."""
    output = torch.empty_like(rows)
    output[:, layout.scalars] = torch.tanh(rows[:, layout.scalars])
    for part in layout.categories:
        output[:, part] = functional.gumbel_softmax(rows[:, part], tau=TEMPERATURE)
    return output


def condition_loss(rows: Tensor, column: Tensor, kind: Tensor, layout: ColumnLayout) -> Tensor:
    """Cross-entropy of the conditioned categories."""
    total = rows.new_zeros(())
    for number, part in enumerate(layout.categories):
        selected = (column == number).nonzero().flatten()
        if len(selected):
            total = total + functional.cross_entropy(rows[selected, part], kind[selected], reduction="sum")
    return total / len(rows)


def _matching_rows(order: Tensor, ends: list[Tensor], column: Tensor, kind: Tensor) -> Tensor:
    """A real row for each condition."""
    rows = torch.empty_like(kind)
    for number, end in enumerate(ends):
        selected = (column == number).nonzero().flatten()
        if len(selected):
            high = end[kind[selected]]
            low = torch.where(kind[selected] > 0, end[(kind[selected] - 1).clamp(min=0)], 0)
            place = low + (torch.rand(len(selected), device=low.device) * (high - low)).long()
            rows[selected] = order[place.minimum(high - 1), number]
    return rows


class GeneratorNetwork(TableNetwork):
    """Generator network: noise and a condition to a row."""

    common: Tensor

    def __init__(self, layout: ColumnLayout, settings: CtganSettings) -> None:
        super().__init__(layout, settings)
        hidden = settings.width
        self.register_buffer("common", torch.zeros(sum(layout.sizes)))
        """Category frequencies of the log, concatenated by column; each column sums to 1."""
        wide = NOISE + sum(layout.sizes)
        self.body = nn.Sequential(Residual(wide, hidden), Residual(wide + hidden, hidden))
        self.last = nn.Linear(wide + 2 * hidden, layout.width)

    def forward(self, noise: Tensor, condition: Tensor) -> Tensor:
        """Rows: scalar values and logits of categories."""
        rows: Tensor = self.last(self.body(torch.cat([noise, condition], 1)))
        return rows

    @classmethod
    def trained(
        cls, categories: Tensor, scalars: Tensor, layout: ColumnLayout, settings: CtganSettings, training: Training
    ) -> Self:
        """Train a generator on rows."""
        device = training.device
        batch = max(1, min(settings.batch, len(categories)) // PACK) * PACK
        dense = layout.dense(categories, scalars)
        coded = categories[:, layout.category_columns]
        # Rows of each category, so that a real row can be sampled for every condition.
        order = coded.argsort(dim=0, stable=True)
        ends = [torch.bincount(coded[:, one], minlength=size).cumsum(0) for one, size in enumerate(layout.sizes)]
        generator = cls(layout, settings).to(device)
        generator.common.copy_(layout.shares(categories))
        condition_sampler = ConditionSampler(generator.common, layout)
        critic = Critic(layout.width + sum(layout.sizes), settings.width).to(device)
        generator_optimizer = torch.optim.Adam(
            generator.parameters(), settings.rate, betas=(0.5, 0.9), weight_decay=1e-6
        )
        critic_optimizer = torch.optim.Adam(critic.parameters(), settings.rate, betas=(0.5, 0.9), weight_decay=1e-6)

        def update(step: int) -> None:
            condition, column, kind = condition_sampler.sample(batch, evenly=True)
            with torch.no_grad():
                fake_rows = activated(generator(torch.randn(batch, NOISE, device=device), condition), layout)
            real_rows = _matching_rows(order, ends, column, kind)
            shuffled = torch.randperm(batch, device=device)
            real = torch.cat([dense[real_rows], condition], 1)[shuffled]
            fake = torch.cat([fake_rows, condition], 1)
            loss = critic(fake).mean() - critic(real).mean() + PENALTY * critic.gradient_penalty(real, fake)
            gradient_step(loss, critic_optimizer)
            condition, column, kind = condition_sampler.sample(batch, evenly=True)
            rows = generator(torch.randn(batch, NOISE, device=device), condition)
            loss = (
                condition_loss(rows, column, kind, layout)
                - critic(torch.cat([activated(rows, layout), condition], 1)).mean()
            )
            gradient_step(loss, generator_optimizer)

        parts: dict[str, HasStateDict] = {"writer": generator, "critic": critic}
        parts |= {"learn_writer": generator_optimizer, "learn_critic": critic_optimizer}
        training.run(update, settings.steps, parts)
        return generator.eval()

    @torch.inference_mode()
    def sample_rows(self, count: int, progress: SampleProgress) -> tuple[Tensor, list[Tensor]]:
        """Sample rows with conditions by the frequencies of the log."""
        layout = self.layout
        condition, _, _ = ConditionSampler(self.common, layout).sample(count, evenly=False)
        rows = self(torch.randn(count, NOISE), condition)
        categories = [functional.gumbel_softmax(rows[:, part], tau=TEMPERATURE).argmax(1) for part in layout.categories]
        return torch.tanh(rows[:, layout.scalars]), categories
