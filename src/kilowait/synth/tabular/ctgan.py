"""CTGAN: a generator of rows and a critic that looks at ten of them at once, each learning from the other.

L. Xu, M. Skoularidou, A. Cuesta-Infante, K. Veeramachaneni, "Modeling tabular data using conditional GAN", NeurIPS
2019. The generator is told one kind of one column and must make a row that has it; in training rare kinds are asked
for more often than the log has them (by the logarithm of their number), so that they are learned too. It says kinds
through a Gumbel softmax, which lets the critic's opinion through. The critic is a Wasserstein one with a penalty on
its slope (I. Gulrajani and others, 2017), and sees packs of rows, so that a generator that says the same again and
again is found out (PacGAN, Z. Lin and others, 2018).
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
"""Numbers of noise a row is made from."""
PACK = 10
"""Rows the critic sees at once."""
TEMPERATURE = 0.2
"""Of the Gumbel softmax."""
PENALTY = 10.0
"""Weight of the critic's slope."""
TOLD_EVERY = 20
"""Steps."""


class Residual(nn.Module):
    """A layer that hands on what it was given beside what it made of it."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, hidden), nn.BatchNorm1d(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """What was given, and what came of it."""
        return torch.cat([functional.relu(self.norm(self.linear(x))), x], 1)


class GeneratorNetwork(nn.Module):
    """Noise and a wish become a row."""

    common: Tensor

    def __init__(self, blocks: ColumnLayout, hidden: int) -> None:
        super().__init__()
        self.blocks = blocks
        self.register_buffer("common", torch.zeros(sum(blocks.sizes)))
        """Of all kinds, one column after another: how often the log has them, each column's adding up to 1."""
        wide = NOISE + sum(blocks.sizes)
        self.body = nn.Sequential(Residual(wide, hidden), Residual(wide + hidden, hidden))
        self.last = nn.Linear(wide + 2 * hidden, blocks.width)

    def forward(self, noise: Tensor, wish: Tensor) -> Tensor:
        """Rows: places and logits of kinds."""
        rows: Tensor = self.last(self.body(torch.cat([noise, wish], 1)))
        return rows


class Critic(nn.Module):
    """How real a pack of rows looks."""

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
        """One number a pack."""
        answer: Tensor = self.body(rows.reshape(-1, self.width))
        return answer

    def gradient_penalty(self, real: Tensor, made: Tensor) -> Tensor:
        """How far the slope between real and made packs is from 1."""
        share = torch.rand(len(real) // PACK, 1, device=real.device)
        between = torch.lerp(
            real.reshape(-1, self.width), made.reshape(-1, self.width), share
        ).requires_grad_()
        (slope,) = torch.autograd.grad(self.body(between).sum(), between, create_graph=True)
        steepness: Tensor = ((slope.norm(2, 1) - 1) ** 2).mean()
        return steepness


@dataclass(frozen=True)
class ConditionSampler:
    """What is asked of the writer: one kind of one column, the other columns being left open."""

    common: Tensor
    """Of all kinds one after another: how often the log has them, each column's adding up to 1."""
    blocks: ColumnLayout

    def drawn(self, count: int, *, evenly: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Wishes as rows of numbers, which column each is of, and which kind.

        Args:
            count: how many.
            evenly: kinds by the logarithm of how many rows have them; otherwise as the log has them.
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
    """What the writer says, softly: places between -1 and 1, and kinds nearly one."""
    spoken = torch.empty_like(rows)
    spoken[:, blocks.places] = torch.tanh(rows[:, blocks.places])
    for part in blocks.kinds:
        spoken[:, part] = functional.gumbel_softmax(rows[:, part], tau=TEMPERATURE)
    return spoken


def missed(rows: Tensor, column: Tensor, kind: Tensor, blocks: ColumnLayout) -> Tensor:
    """-ln p of the kinds that were wished for."""
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
    told: SampleProgress,
    keep: CheckpointStore | None = None,
) -> GeneratorNetwork:
    """A writer of rows like those, on the device the rows are on; torch's own seed decides."""
    device, steps = kinds.device, settings.steps
    batch = max(1, min(settings.batch, len(kinds)) // PACK) * PACK
    dense = blocks.dense(kinds, places)
    coded = kinds[:, blocks.kind_columns]
    # Rows that have each kind, so that a real row can be shown for every wish.
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
    for step in checkpointed_steps(steps, keep, device, **parts):
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
        if step % TOLD_EVERY == 0:
            told("learning", step / steps)
    told("learning", 1.0)
    return writer.eval()


def _shown(order: Tensor, ends: list[Tensor], column: Tensor, kind: Tensor) -> Tensor:
    """A row of the log for each wish."""
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
    """Places and kinds of `count` rows, wished for as the log has them."""
    blocks = writer.blocks
    wish, _, _ = ConditionSampler(writer.common, blocks).drawn(count, evenly=False)
    rows = writer(torch.randn(count, NOISE), wish)
    kinds = [functional.gumbel_softmax(rows[:, part], tau=TEMPERATURE).argmax(1) for part in blocks.kinds]
    return torch.tanh(rows[:, blocks.places]), kinds
