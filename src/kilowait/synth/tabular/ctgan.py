"""CTGAN: conditional GAN for tables, with a Wasserstein critic on packs of rows.

L. Xu, M. Skoularidou, A. Cuesta-Infante, K. Veeramachaneni, "Modeling tabular data using conditional GAN", NeurIPS
2019. The generator is conditioned on one category of one column; in training rare categories are sampled more often
than in the log (by the logarithm of their frequency). Its categories go through a Gumbel softmax, which is
differentiable. The critic is a Wasserstein critic with gradient penalty (I. Gulrajani and others, 2017) on packs of
rows, which detects mode collapse (PacGAN, Z. Lin and others, 2018).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from kilowait.synth.checkpoint import CheckpointStore, HasStateDict, checkpointed_steps
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.tabular.layout import ColumnLayout
from kilowait.synth.tabular.settings import CtganSettings

__all__ = ["GeneratorNetwork", "draw", "train"]

NOISE = 128
"""Dimension of the noise."""
PACK = 10
"""Rows per pack of the critic."""
TEMPERATURE = 0.2
"""Temperature of the Gumbel softmax."""
PENALTY = 10.0
"""Weight of the gradient penalty."""
REPORT_EVERY = 20
"""Steps."""


class Residual(nn.Module):
    """A layer that concatenates its input and its output."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, hidden), nn.BatchNorm1d(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Input and transformed input, concatenated."""
        return torch.cat([functional.relu(self.norm(self.linear(x))), x], 1)


class GeneratorNetwork(nn.Module):
    """Generator network: noise and a condition to a row."""

    common: Tensor

    def __init__(self, blocks: ColumnLayout, hidden: int) -> None:
        super().__init__()
        self.blocks = blocks
        self.register_buffer("common", torch.zeros(sum(blocks.sizes)))
        """Category frequencies of the log, concatenated by column; each column sums to 1."""
        wide = NOISE + sum(blocks.sizes)
        self.body = nn.Sequential(Residual(wide, hidden), Residual(wide + hidden, hidden))
        self.last = nn.Linear(wide + 2 * hidden, blocks.width)

    def forward(self, noise: Tensor, wish: Tensor) -> Tensor:
        """Rows: scalar values and logits of categories."""
        rows: Tensor = self.last(self.body(torch.cat([noise, wish], 1)))
        return rows


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
        answer: Tensor = self.body(rows.reshape(-1, self.width))
        return answer

    def gradient_penalty(self, real: Tensor, synthetic: Tensor) -> Tensor:
        """Gradient penalty: squared deviation of the gradient norm from 1 between real and generated packs."""
        share = torch.rand(len(real) // PACK, 1, device=real.device)
        between = torch.lerp(
            real.reshape(-1, self.width), synthetic.reshape(-1, self.width), share
        ).requires_grad_()
        (slope,) = torch.autograd.grad(self.body(between).sum(), between, create_graph=True)
        steepness: Tensor = ((slope.norm(2, 1) - 1) ** 2).mean()
        return steepness


@dataclass(frozen=True)
class ConditionSampler:
    """Sampler of conditional vectors: one category of one column, the other columns free."""

    common: Tensor
    """Category frequencies of the log, concatenated by column; each column sums to 1."""
    blocks: ColumnLayout

    def drawn(self, count: int, *, evenly: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Sample conditional vectors, with their columns and categories.

        Args:
            count: how many.
            evenly: categories by the logarithm of their frequency; otherwise by their frequency in the log.
        """
        sizes, device = self.blocks.sizes, self.common.device
        wish = torch.zeros(count, sum(sizes), device=device)
        column = torch.randint(len(sizes), (count,), device=device)
        kind = torch.zeros(count, dtype=torch.long, device=device)
        for number, weight in enumerate(torch.split(self.common, sizes)):
            mine = (column == number).nonzero().flatten()
            if len(mine):
                weighed = torch.where(weight > 0, torch.log1p(weight / weight[weight > 0].min()), 0.0)
                kind[mine] = torch.multinomial(weighed if evenly else weight, len(mine), replacement=True)
        firsts = torch.tensor([0, *sizes], device=device).cumsum(0)[:-1]
        wish[torch.arange(count, device=device), firsts[column] + kind] = 1.0
        return wish, column, kind


def said(rows: Tensor, blocks: ColumnLayout) -> Tensor:
    """Generator output: values between -1 and 1, and Gumbel-softmax categories."""
    spoken = torch.empty_like(rows)
    spoken[:, blocks.places] = torch.tanh(rows[:, blocks.places])
    for part in blocks.kinds:
        spoken[:, part] = functional.gumbel_softmax(rows[:, part], tau=TEMPERATURE)
    return spoken


def missed(rows: Tensor, column: Tensor, kind: Tensor, blocks: ColumnLayout) -> Tensor:
    """Cross-entropy of the conditioned categories."""
    total = rows.new_zeros(())
    for number, part in enumerate(blocks.kinds):
        mine = (column == number).nonzero().flatten()
        if len(mine):
            total = total + functional.cross_entropy(rows[mine, part], kind[mine], reduction="sum")
    return total / len(rows)


def train(
    kinds: Tensor,
    places: Tensor,
    blocks: ColumnLayout,
    settings: CtganSettings,
    progress: SampleProgress,
    checkpoints: CheckpointStore | None = None,
) -> GeneratorNetwork:
    """Train a generator on these rows, on their device, with torch's global random state."""
    device, steps = kinds.device, settings.steps
    batch = max(1, min(settings.batch, len(kinds)) // PACK) * PACK
    dense = blocks.dense(kinds, places)
    coded = kinds[:, blocks.kind_columns]
    # Rows of each category, so that a real row can be sampled for every condition.
    order = coded.argsort(dim=0, stable=True)
    ends = [torch.bincount(coded[:, one], minlength=size).cumsum(0) for one, size in enumerate(blocks.sizes)]
    writer = GeneratorNetwork(blocks, settings.width).to(device)
    writer.common.copy_(blocks.shares(kinds))
    wishes = ConditionSampler(writer.common, blocks)
    critic = Critic(blocks.width + sum(blocks.sizes), settings.width).to(device)
    learn_writer = torch.optim.Adam(writer.parameters(), settings.rate, betas=(0.5, 0.9), weight_decay=1e-6)
    learn_critic = torch.optim.Adam(critic.parameters(), settings.rate, betas=(0.5, 0.9), weight_decay=1e-6)
    parts: dict[str, HasStateDict] = {"writer": writer, "critic": critic}
    parts |= {"learn_writer": learn_writer, "learn_critic": learn_critic}
    for step in checkpointed_steps(steps, checkpoints, device, **parts):
        wish, column, kind = wishes.drawn(batch, evenly=True)
        with torch.no_grad():
            made = said(writer(torch.randn(batch, NOISE, device=device), wish), blocks)
        shown = _shown(order, ends, column, kind)
        shuffled = torch.randperm(batch, device=device)
        real = torch.cat([dense[shown], wish], 1)[shuffled]
        fake = torch.cat([made, wish], 1)
        loss = critic(fake).mean() - critic(real).mean() + PENALTY * critic.gradient_penalty(real, fake)
        learn_critic.zero_grad()
        loss.backward()
        learn_critic.step()

        wish, column, kind = wishes.drawn(batch, evenly=True)
        rows = writer(torch.randn(batch, NOISE, device=device), wish)
        loss = missed(rows, column, kind, blocks) - critic(torch.cat([said(rows, blocks), wish], 1)).mean()
        learn_writer.zero_grad()
        loss.backward()
        learn_writer.step()
        if step % REPORT_EVERY == 0:
            progress("learning", step / steps)
    progress("learning", 1.0)
    return writer.eval()


def _shown(order: Tensor, ends: list[Tensor], column: Tensor, kind: Tensor) -> Tensor:
    """A real row for each condition."""
    rows = torch.empty_like(kind)
    for number, end in enumerate(ends):
        mine = (column == number).nonzero().flatten()
        if len(mine):
            high = end[kind[mine]]
            low = torch.where(kind[mine] > 0, end[(kind[mine] - 1).clamp(min=0)], 0)
            place = low + (torch.rand(len(mine), device=low.device) * (high - low)).long()
            rows[mine] = order[place.minimum(high - 1), number]
    return rows


@torch.inference_mode()
def draw(writer: GeneratorNetwork, count: int) -> tuple[Tensor, list[Tensor]]:
    """Sample `count` rows with conditions by the frequencies of the log."""
    blocks = writer.blocks
    wish, _, _ = ConditionSampler(writer.common, blocks).drawn(count, evenly=False)
    rows = writer(torch.randn(count, NOISE), wish)
    kinds = [functional.gumbel_softmax(rows[:, part], tau=TEMPERATURE).argmax(1) for part in blocks.kinds]
    return torch.tanh(rows[:, blocks.places]), kinds
