"""How the network learns a log: stretches of users' jobs, each job foretold from those before it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.seeding import stream
from kilowait.synth.generator import Told
from kilowait.synth.transformer.calendar import Calendar
from kilowait.synth.transformer.network import NEVER, Network, Shape

__all__ = ["train"]

Ints = npt.NDArray[np.int64]

STRETCH = 128
"""Jobs of a stretch. Those of several users may lie in one; nobody sees another's."""
BATCH, JOBS_A_STRETCH = 8, 2000
"""Stretches of a step; fewer for a log with fewer jobs than this for each, so that it has steps enough to learn."""
RATE = 4e-3
DROPPED = 0.1
"""Share of what is known beforehand that is hidden in training."""
TOLD_EVERY = 20
"""Steps."""


@dataclass(frozen=True)
class Lesson:
    """A log as the network sees it; jobs by user, then by submission."""

    codes: Tensor
    """One column for each generated one."""
    before: Tensor
    """The same of the user's job before; the column's size where there is none."""
    conditions: Tensor
    first: Tensor
    inside: Tensor
    """Not the first of a session, so that there is a gap to foretell."""
    user: Tensor
    block: Tensor
    menu: Tensor
    share: Tensor
    level: Tensor


def lesson_of(calendar: Calendar, codes: Ints, shape: Shape) -> Lesson:
    """The log as tensors."""
    made = torch.as_tensor(codes)
    before = made.roll(1, 0)
    first = torch.as_tensor(calendar.first)
    before[first] = torch.tensor(shape.sizes)
    return Lesson(
        made,
        before,
        torch.as_tensor(calendar.conditions),
        first,
        torch.as_tensor(~calendar.start),
        torch.as_tensor(calendar.conditions[:, 0]),
        torch.as_tensor(calendar.block),
        torch.as_tensor(calendar.menu),
        torch.as_tensor(calendar.share),
        torch.as_tensor(calendar.level),
    )


def train(calendar: Calendar, codes: Ints, shape: Shape, *, passes: float, seed: int, told: Told) -> Network:
    """A network that has gone through the log `passes` times; same seed, same network, on one thread."""
    rng = stream(seed, "synth.transformer.order")
    jobs = len(codes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(shape)
        _begin_with_frequencies(network, codes)
        lesson = lesson_of(calendar, codes, shape)
        length = min(STRETCH, jobs)
        together = min(BATCH, max(1, jobs // JOBS_A_STRETCH))
        steps = max(1, math.ceil(passes * jobs / (together * length * 0.75)))
        optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01, betas=(0.9, 0.98))
        rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps + 1, pct_start=0.1)
        starts: list[int] = []
        for step in range(steps):
            while len(starts) < together:
                starts += _stretches(jobs, length, rng)
            batch, starts = starts[:together], starts[together:]
            loss = _loss(network, lesson, torch.tensor(batch), length)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            rates.step()
            if step % TOLD_EVERY == 0:
                told(f"learning, loss {loss.item():.2f}", step / steps)
    told("learning", 1.0)
    return network.eval()


def _begin_with_frequencies(network: Network, codes: Ints) -> None:
    """Before it has learned anything, a network answers with each code as often as the log does."""
    for column, answer in enumerate(network.answer):
        counts = torch.bincount(torch.as_tensor(codes[:, column]), minlength=answer.out_features) + 0.5
        answer.bias.data = (counts / counts.sum()).log()
        answer.weight.data *= 0.3


def _stretches(jobs: int, length: int, rng: np.random.Generator) -> list[int]:
    """Where stretches begin that cover the log once, somewhere else each time, in random order."""
    step = max(1, length - length // 4)
    begins = np.arange(-int(rng.integers(0, length)), jobs, step).clip(0, jobs - length)
    return [int(begin) for begin in rng.permutation(np.unique(begins))]


def _loss(network: Network, lesson: Lesson, begins: Tensor, length: int) -> Tensor:
    """Mean over the jobs of -ln p of their codes, summed over the columns."""
    shape = network.shape
    place = torch.arange(length)
    rows = begins[:, None] + place
    user = lesson.user[rows]
    back = place[:, None] - place
    seen = (back >= 0) & (back < shape.window) & (user[:, :, None] == user[:, None, :])
    known = torch.nn.functional.dropout(network.condition_vector(lesson.conditions[rows]), DROPPED)
    earlier = network.job_vector(lesson.before[rows])
    state = network.read(earlier + known, seen, back.clamp(0, shape.window - 1)) + known

    # What can be pointed at: position p holds the job before p, so slot k is at position t - k.
    slot = (place[:, None] - torch.arange(shape.recent)).clamp(min=0)
    there = (place[:, None] >= torch.arange(shape.recent)) & (user[:, slot] == user[:, :, None])
    there &= ~lesson.first[rows][:, slot]
    block, home = torch.unique(lesson.block[rows], return_inverse=True)
    menu = network.menu_vector(lesson.menu[block], lesson.share[block], lesson.level[block])
    keys = torch.cat([network.key(earlier)[:, slot], network.key(menu)[home]], 2).flatten(0, 1)
    values = torch.cat([network.value(earlier)[:, slot], network.value(menu)[home]], 2).flatten(0, 1)
    there = torch.cat([there, (lesson.share[block] > 0)[home]], 2).flatten(0, 1)

    codes = lesson.codes[rows].flatten(0, 1)
    made = network.now(codes + network.firsts).transpose(0, 1)
    states = state.flatten(0, 1) + made.cumsum(0) - made
    hidden, pointed = network.answers(states, keys, values, there, slice(None))
    offered = _offered(lesson, rows, slot, block, home, shape)
    # The first quarter of a stretch that begins amid a user's jobs has seen too little of them.
    counted = (place >= length // 4) | (begins == 0)[:, None]
    total = torch.zeros(())
    for column, answer in enumerate(network.answer):
        logits = answer(hidden[column])
        points = pointed[:, column]
        code = codes[:, column, None]
        hits = torch.where(offered[:, :, column] == code, points, NEVER)
        right = torch.logsumexp(torch.cat([logits.gather(1, code), hits], 1), 1)
        lost = torch.logsumexp(torch.cat([logits, points], 1), 1) - right
        heeded = (counted & lesson.inside[rows] if column == 0 else counted).flatten()
        total = total + (lost * heeded).sum() / heeded.sum().clamp(min=1)
    return total


def _offered(lesson: Lesson, rows: Tensor, slot: Tensor, block: Tensor, home: Tensor, shape: Shape) -> Tensor:
    """Codes of what can be pointed at: (jobs, slots, columns); -1 where a menu has no such column."""
    recent = lesson.before[rows][:, slot]
    menu = torch.full((*home.shape, shape.menu, len(shape.sizes)), -1)
    menu[..., list(shape.copied)] = lesson.menu[block][home]
    return torch.cat([recent, menu], 2).flatten(0, 1)
