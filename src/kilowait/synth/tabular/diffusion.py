"""Tabular diffusion: rows dissolve into noise, and a network learns the way back.

After TabDDPM (A. Kotelnikov, D. Baranchuk, I. Rubachev, A. Babenko, ICML 2023): normal noise is mixed into numbers,
here normal scores, and kinds are replaced by random ones (E. Hoogeboom and others, "Argmax flows and multinomial
diffusion", NeurIPS 2021), here as often as the log has them. Time runs from 0, the row, to 1, noise alone; what is
left of the row falls with a cosine. The network sees a row at some time and says what it was. Rows are drawn in few
steps from noise back to 0.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from kilowait.synth.checkpoint import CheckpointStore, checkpointed_steps
from kilowait.synth.lr_schedule import rates_of
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.tabular.encoding import REACH
from kilowait.synth.tabular.layout import ColumnLayout, begin_with, drawn
from kilowait.synth.tabular.settings import DiffusionSettings

__all__ = ["Denoiser", "draw", "train"]

TIMES = 32
"""Numbers that tell the network the time."""
CHUNK = 4096
"""Rows drawn at a time: what they need stays in the processor's cache."""
TOLD_EVERY = 20
"""Steps."""


class DenoiserLayer(nn.Module):
    """One step of thought."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.wide, self.narrow = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """What goes on to the next."""
        answer: Tensor = x + self.narrow(functional.silu(self.wide(self.norm(x))))
        return answer


class Denoiser(nn.Module):
    """What a row was, from what is left of it."""

    common: Tensor
    firsts: Tensor

    def __init__(self, blocks: ColumnLayout, hidden: int, layers: int) -> None:
        super().__init__()
        self.blocks = blocks
        total = sum(blocks.sizes)
        self.register_buffer("common", torch.full((total,), 1.0))
        """Of all kinds, one column after another: how often the log has them, each column's adding up to 1."""
        self.kind = nn.Embedding(max(total, 1), hidden)
        self.place = nn.Linear(len(blocks.places), hidden)
        self.time = nn.Linear(2 * TIMES, hidden)
        nn.init.normal_(self.kind.weight, std=0.3)
        self.layers = nn.Sequential(*(DenoiserLayer(hidden) for _ in range(layers)), nn.LayerNorm(hidden))
        self.to_places = nn.Linear(hidden, len(blocks.places))
        self.to_kinds = nn.Linear(hidden, total)
        firsts = torch.tensor([0, *blocks.sizes]).cumsum(0)[:-1]
        self.register_buffer("firsts", firsts, persistent=False)

    def forward(self, places: Tensor, kinds: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """The velocity of places, and logits of kinds, at a time for each row; kinds only of those with several."""
        turns = time[:, None] * torch.logspace(0, 2.5, TIMES, device=time.device)
        x = self.time(torch.cat([turns.sin(), turns.cos()], 1)) + self.place(places)
        if kinds.shape[1]:
            x = x + functional.embedding_bag(kinds + self.firsts, self.kind.weight, mode="sum")
        x = self.layers(x)
        return self.to_places(x), self.to_kinds(x)


def alpha_bar(time: Tensor) -> tuple[Tensor, Tensor]:
    """Shares of the row and of noise in it at a time; their squares add up to 1."""
    angle = time * (math.pi / 2)
    return angle.cos(), angle.sin()


def train(
    kinds: Tensor,
    places: Tensor,
    blocks: ColumnLayout,
    settings: DiffusionSettings,
    told: SampleProgress,
    keep: CheckpointStore | None = None,
) -> Denoiser:
    """A denoiser of rows like those, on the device the rows are on; torch's own seed decides."""
    device, steps, batch = kinds.device, settings.steps, settings.batch
    network = Denoiser(blocks, settings.width, settings.layers).to(device)
    network.common.copy_(blocks.shares(kinds))
    begin_with(network.to_kinds, network.common)
    kinds, places = kinds[:, blocks.kind_columns], REACH * places[:, blocks.place_columns]
    optimizer = torch.optim.AdamW(network.parameters(), settings.rate, weight_decay=1e-4)
    rates = rates_of(optimizer, settings.rate, steps)
    for step in checkpointed_steps(steps, keep, device, network=network, optimizer=optimizer, rates=rates):
        some = torch.randint(len(kinds), (batch,), device=device)
        # Times spread evenly over the batch.
        time = (torch.arange(batch, device=device) + torch.rand(1, device=device)) / batch
        kept, noise = alpha_bar(time)
        x, fresh = places[some], torch.randn(batch, places.shape[1], device=device)
        mixed = kept[:, None] * x + noise[:, None] * fresh
        velocity = kept[:, None] * fresh - noise[:, None] * x
        truth = kinds[some]
        dissolved = torch.rand(truth.shape, device=device) >= (kept**2)[:, None]
        shown = torch.where(dissolved, _others(network, batch), truth)
        guess, logits = network(mixed, shown, time)
        loss = ((guess - velocity) ** 2).sum(1).mean()
        for column, part in enumerate(logits.split(blocks.sizes, 1)):
            loss = loss + functional.cross_entropy(part, truth[:, column])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        rates.step()
        if step % TOLD_EVERY == 0:
            told(f"learning, loss {loss.item():.2f}", step / steps)
    told("learning", 1.0)
    return network.eval()


def _others(network: Denoiser, count: int) -> Tensor:
    """Kinds as the log has them, each column for itself."""
    others = [
        torch.multinomial(chances, count, replacement=True)
        for chances in torch.split(network.common, network.blocks.sizes)
    ]
    device = network.common.device
    return torch.stack(others, 1) if others else torch.zeros(count, 0, dtype=torch.long, device=device)


@torch.inference_mode()
def draw(network: Denoiser, count: int, *, steps: int, told: SampleProgress) -> tuple[Tensor, list[Tensor]]:
    """Places and kinds of `count` new rows, in so many steps from noise."""
    times = [1.0 - step / steps for step in range(steps + 1)]
    all_places, all_kinds = [], []
    for done in range(0, count, CHUNK):
        told("drawing", done / count)
        rows = min(CHUNK, count - done)
        places = torch.randn(rows, len(network.blocks.places))
        kinds = _others(network, rows)
        for later, earlier in pairwise(times):
            places, kinds = _back(network, places, kinds, torch.tensor(later), torch.tensor(earlier))
        all_places.append(places)
        all_kinds.append(kinds)
    return torch.cat(all_places) / REACH, list(torch.cat(all_kinds).unbind(1))


def _back(
    network: Denoiser, places: Tensor, kinds: Tensor, later: Tensor, earlier: Tensor
) -> tuple[Tensor, Tensor]:
    """Rows at an earlier time, drawn given those at a later one and what the network thinks they were."""
    kept, noise = alpha_bar(later)
    kept_before, noise_before = alpha_bar(earlier)
    velocity, logits = network(places, kinds, later.expand(len(places)))
    truth = kept * places - noise * velocity
    fresh = kept * velocity + noise * places
    # Part of the noise that is left comes anew, as much as the way there would have added (DDPM).
    anew = noise_before / noise * (1 - (kept / kept_before) ** 2).clamp(min=0).sqrt()
    held = (noise_before**2 - anew**2).clamp(min=0).sqrt()
    places = kept_before * truth + held * fresh + anew * torch.randn_like(places)
    if not kinds.shape[1]:
        return places, kinds
    guess = torch.stack([drawn(part) for part in logits.split(network.blocks.sizes, 1)], 1)
    if earlier == 0:
        return places, guess
    # q(earlier | later, guess): it is what it will be, what it is to have been, or any other.
    share, stays = kept_before**2, (kept / kept_before) ** 2
    common = network.common[kinds + network.firsts]
    both = stays * share * (kinds == guess)
    same = stays * (1 - share) * common
    was = (1 - stays) * common * share
    other = (1 - stays) * common * (1 - share)
    coin = torch.rand(kinds.shape) * (both + same + was + other)
    known = torch.where(coin < both + same, kinds, guess)
    return places, torch.where(coin >= both + same + was, _others(network, len(kinds)), known)
