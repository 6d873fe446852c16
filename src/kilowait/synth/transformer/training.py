"""How the network learns a log: stretches of users' jobs, each job foretold from those before it.

What a training needs to go on after a kill is in one state (weights, optimizer, random streams, what is left of the
pass), handed to a `Keep` every now and then; gone on with, it ends with the bytes it would have had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.errors import InputError
from kilowait.seeding import stream
from kilowait.synth.generator import Keep, Told
from kilowait.synth.transformer.calendar import Calendar
from kilowait.synth.transformer.lesson import Batch, Lesson, gathered, lesson_of, loss_of
from kilowait.synth.transformer.network import Network, Shape

__all__ = ["begin_with", "train"]

Ints = npt.NDArray[np.int64]

STRETCH = 128
"""Jobs of a stretch. Those of several users may lie in one; nobody sees another's."""
BATCH, JOBS_A_STRETCH = 8, 2000
"""Stretches of a step; fewer for a log with fewer jobs than this for each, so that it has steps enough to learn."""
RATE = 4e-3
TOLD_EVERY, KEPT_EVERY = 20, 200
"""Steps."""


@dataclass
class Course:
    """A training on its way."""

    network: Network
    optimizer: torch.optim.Optimizer
    rates: torch.optim.lr_scheduler.OneCycleLR
    rng: np.random.Generator
    starts: list[int]
    """Where the stretches begin that are left of this pass."""
    step: int = 0

    def state(self) -> dict[str, Any]:
        """All that decides how it goes on."""
        found = {
            "step": self.step,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rates": self.rates.state_dict(),
            "order": self.rng.bit_generator.state,
            "starts": self.starts,
            "torch": torch.get_rng_state(),
        }
        if self.network.firsts.is_cuda:
            found["cuda"] = torch.cuda.get_rng_state()
        return found

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Be where a state was taken."""
        try:
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.rates.load_state_dict(state["rates"])
            self.rng.bit_generator.state = state["order"]
            self.starts, self.step = list(state["starts"]), int(state["step"])
            torch.set_rng_state(state["torch"])
            if self.network.firsts.is_cuda:
                torch.cuda.set_rng_state(state["cuda"])
        except (KeyError, RuntimeError, ValueError, TypeError) as problem:
            raise InputError(
                f"the training that was begun does not fit this one ({str(problem).splitlines()[0]}); "
                "begin anew with --force"
            ) from None


def train(
    calendar: Calendar,
    codes: Ints,
    shape: Shape,
    *,
    passes: float,
    seed: int,
    told: Told,
    device: torch.device | None = None,
    keep: Keep | None = None,
) -> Network:
    """A network that has gone through the log `passes` times; same seed, same network, on one thread of a processor.

    Args:
        calendar: of the log.
        codes: of its jobs by user, one column for each generated one.
        shape: of the network.
        passes: times it goes through the log.
        seed: of weights and order.
        told: hears of progress.
        device: where it learns; the network comes back to the processor.
        keep: where the state of the training is kept, and one that is there is gone on with.
    """
    where = device or torch.device("cpu")
    jobs = len(codes)
    length = min(STRETCH, jobs)
    together = min(BATCH, max(1, jobs // JOBS_A_STRETCH))
    steps = max(1, math.ceil(passes * jobs / (together * length * 0.75)))
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(seed)
        network = Network(shape)
        begin_with(network, [np.bincount(codes[:, place]) for place in range(codes.shape[1])])
        lesson = lesson_of(calendar, codes, shape, where)
        network = network.to(where)
        optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01, betas=(0.9, 0.98))
        rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps + 1, pct_start=0.1)
        course = Course(network, optimizer, rates, stream(seed, "synth.transformer.order"), [])
        begun = None if keep is None else keep.read()
        if begun is not None:
            course.go_on(begun)
        while course.step < steps:
            loss = _step(course, lesson, length, together)
            if course.step % TOLD_EVERY == 1:
                told(f"learning, loss {loss.item():.2f}", course.step / steps)
            if keep is not None and course.step % KEPT_EVERY == 0 and course.step < steps:
                keep.write(course.state())
    told("learning", 1.0)
    return network.cpu().eval()


def _step(course: Course, lesson: Lesson, length: int, together: int) -> Tensor:
    while len(course.starts) < together:
        course.starts += _stretches(len(lesson.codes), length, course.rng)
    batch, course.starts = course.starts[:together], course.starts[together:]
    begins = torch.tensor(batch, device=lesson.codes.device)
    loss = loss_of(course.network, _of_stretches(lesson, begins, length))
    course.optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(course.network.parameters(), 1.0)
    course.optimizer.step()
    course.rates.step()
    course.step += 1
    return loss


def begin_with(network: Network, counts: list[npt.NDArray[Any]]) -> None:
    """Before it has learned anything, a network answers with each code as often as it was counted, column by column."""
    for answer, counted in zip(network.answer, counts, strict=True):
        often = torch.full((answer.out_features,), 0.5)
        often[: len(counted)] += torch.as_tensor(counted, dtype=torch.float32)
        answer.bias.data = (often / often.sum()).log()
        answer.weight.data *= 0.3


def _stretches(jobs: int, length: int, rng: np.random.Generator) -> list[int]:
    """Where stretches begin that cover the log once, somewhere else each time, in random order."""
    step = max(1, length - length // 4)
    begins = np.arange(-int(rng.integers(0, length)), jobs, step).clip(0, jobs - length)
    return [int(begin) for begin in rng.permutation(np.unique(begins))]


def _of_stretches(lesson: Lesson, begins: Tensor, length: int) -> Batch:
    place = torch.arange(length, device=begins.device)
    rows = begins[:, None] + place
    # The first quarter of a stretch that begins amid a user's jobs has seen too little of them.
    counted = (place >= length // 4) | (begins == 0)[:, None]
    return gathered(lesson, rows, lesson.user[rows], counted)
