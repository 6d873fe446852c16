"""Tabular diffusion model (TabDDPM): a network that denoises rows.

After TabDDPM (A. Kotelnikov, D. Baranchuk, I. Rubachev, A. Babenko, ICML 2023): Gaussian noise is added to numbers,
here normal scores, and categories are replaced by random ones (E. Hoogeboom and others, "Argmax flows and multinomial
diffusion", NeurIPS 2021), here by the frequencies of the log. Time runs from 0 (data) to 1 (noise), with a cosine
schedule. The network predicts the data from a noisy row and the time. Sampling takes few steps from noise to data.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from kilowait.synth.checkpoint import CheckpointStore, checkpointed_steps
from kilowait.synth.lr_schedule import one_cycle_schedule
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.tabular.encoding import REACH
from kilowait.synth.tabular.layout import ColumnLayout, drawn, init_output_layer
from kilowait.synth.tabular.settings import DiffusionSettings

__all__ = ["Denoiser", "draw", "train"]

TIMES = 32
"""Dimension of the time embedding."""
CHUNK = 4096
"""Rows sampled at a time, so that the activations fit into the CPU cache."""
REPORT_EVERY = 20
"""Steps."""


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


class Denoiser(nn.Module):
    """Denoiser network: predicts the data from a noisy row."""

    common: Tensor
    firsts: Tensor

    def __init__(self, blocks: ColumnLayout, hidden: int, layers: int) -> None:
        super().__init__()
        self.blocks = blocks
        total = sum(blocks.sizes)
        self.register_buffer("common", torch.full((total,), 1.0))
        """Category frequencies of the log, concatenated by column; each column sums to 1."""
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
        """The velocity of scalar values, and logits of categories (of columns with several), at a time for each row."""
        turns = time[:, None] * torch.logspace(0, 2.5, TIMES, device=time.device)
        x = self.time(torch.cat([turns.sin(), turns.cos()], 1)) + self.place(places)
        if kinds.shape[1]:
            x = x + functional.embedding_bag(kinds + self.firsts, self.kind.weight, mode="sum")
        x = self.layers(x)
        return self.to_places(x), self.to_kinds(x)


def alpha_bar(time: Tensor) -> tuple[Tensor, Tensor]:
    """Signal and noise scale at a time; their squares sum to 1."""
    angle = time * (math.pi / 2)
    return angle.cos(), angle.sin()


def train(
    kinds: Tensor,
    places: Tensor,
    blocks: ColumnLayout,
    settings: DiffusionSettings,
    progress: SampleProgress,
    checkpoints: CheckpointStore | None = None,
) -> Denoiser:
    """Train a denoiser on these rows, on their device, with torch's global random state."""
    device, steps, batch = kinds.device, settings.steps, settings.batch
    network = Denoiser(blocks, settings.width, settings.layers).to(device)
    network.common.copy_(blocks.shares(kinds))
    init_output_layer(network.to_kinds, network.common)
    kinds, places = kinds[:, blocks.kind_columns], REACH * places[:, blocks.place_columns]
    optimizer = torch.optim.AdamW(network.parameters(), settings.rate, weight_decay=1e-4)
    rates = one_cycle_schedule(optimizer, settings.rate, steps)
    for step in checkpointed_steps(
        steps, checkpoints, device, network=network, optimizer=optimizer, rates=rates
    ):
        some = torch.randint(len(kinds), (batch,), device=device)
        # Stratified times over the batch.
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
        if step % REPORT_EVERY == 0:
            progress(f"training, loss {loss.item():.2f}", step / steps)
    progress("learning", 1.0)
    return network.eval()


def _others(network: Denoiser, count: int) -> Tensor:
    """Sample categories by the frequencies of the log, independently by column."""
    others = [
        torch.multinomial(chances, count, replacement=True)
        for chances in torch.split(network.common, network.blocks.sizes)
    ]
    device = network.common.device
    return torch.stack(others, 1) if others else torch.zeros(count, 0, dtype=torch.long, device=device)


@torch.inference_mode()
def draw(
    network: Denoiser, count: int, *, steps: int, progress: SampleProgress
) -> tuple[Tensor, list[Tensor]]:
    """Sample values and categories of `count` rows, in `steps` steps from noise."""
    times = [1.0 - step / steps for step in range(steps + 1)]
    all_places, all_kinds = [], []
    for done in range(0, count, CHUNK):
        progress("drawing", done / count)
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
    """Sample rows at an earlier time, given those at a later time and the network's prediction of the data."""
    kept, noise = alpha_bar(later)
    kept_before, noise_before = alpha_bar(earlier)
    velocity, logits = network(places, kinds, later.expand(len(places)))
    truth = kept * places - noise * velocity
    fresh = kept * velocity + noise * places
    # Add fresh noise, as in the DDPM posterior.
    anew = noise_before / noise * (1 - (kept / kept_before) ** 2).clamp(min=0).sqrt()
    held = (noise_before**2 - anew**2).clamp(min=0).sqrt()
    places = kept_before * truth + held * fresh + anew * torch.randn_like(places)
    if not kinds.shape[1]:
        return places, kinds
    guess = torch.stack([drawn(part) for part in logits.split(network.blocks.sizes, 1)], 1)
    if earlier == 0:
        return places, guess
    # q(earlier | later, prediction): the later category, the predicted one, or any other.
    share, stays = kept_before**2, (kept / kept_before) ** 2
    common = network.common[kinds + network.firsts]
    both = stays * share * (kinds == guess)
    same = stays * (1 - share) * common
    was = (1 - stays) * common * share
    other = (1 - stays) * common * (1 - share)
    coin = torch.rand(kinds.shape) * (both + same + was + other)
    known = torch.where(coin < both + same, kinds, guess)
    return places, torch.where(coin >= both + same + was, _others(network, len(kinds)), known)
