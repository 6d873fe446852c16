"""Training of the transformer: next-job prediction on sequences of users' jobs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.rng import stream
from kilowait.synth.checkpoint import CheckpointStore, checkpointed_steps
from kilowait.synth.lr_schedule import one_cycle_schedule
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.transformer.calendar import Calendar
from kilowait.synth.transformer.dataset import (
    DatasetTensors,
    SequenceBatch,
    dataset_tensors,
    make_batch,
    next_job_loss,
)
from kilowait.synth.transformer.network import NetworkShape, TransformerNetwork

__all__ = ["init_output_layer", "train"]

Ints = npt.NDArray[np.int64]

STRETCH = 128
"""Length of a sequence in jobs. It may span several users; attention is masked between users."""
BATCH, JOBS_A_STRETCH = 8, 2000
"""Maximum batch size in sequences, and jobs of the log per sequence: small logs get smaller batches and more steps."""
RATE = 4e-3
REPORT_EVERY = 20
"""Steps."""


@dataclass
class BatchOrder:
    """Order of the training sequences: random sequences that cover the log once per pass."""

    jobs: int
    length: int
    """Length of a sequence in jobs."""
    rng: np.random.Generator
    starts: list[int] = field(default_factory=list)
    """Start rows of the remaining sequences of this pass."""

    def next(self, count: int) -> list[int]:
        """Start rows of the sequences of a step."""
        while len(self.starts) < count:
            self.starts += _stretches(self.jobs, self.length, self.rng)
        taken, self.starts = self.starts[:count], self.starts[count:]
        return taken

    def state_dict(self) -> dict[str, Any]:
        """The state that determines how it continues."""
        return {"rng": self.rng.bit_generator.state, "starts": self.starts}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Restore the state."""
        self.rng.bit_generator.state = state["rng"]
        self.starts = list(state["starts"])


def train(
    calendar: Calendar,
    codes: Ints,
    shape: NetworkShape,
    *,
    passes: float,
    seed: int,
    progress: SampleProgress,
    device: torch.device | None = None,
    checkpoints: CheckpointStore | None = None,
) -> TransformerNetwork:
    """Train a network for `passes` passes over the log; deterministic for a seed, on one CPU thread.

    Args:
        calendar: of the log.
        codes: of its jobs by user, one column for each generated one.
        shape: of the network.
        passes: number of passes over the log.
        seed: of the initial weights and the order.
        progress: progress callback.
        device: where it is trained; the network is returned on the CPU.
        checkpoints: checkpoint store; a stored state is resumed.
    """
    where = device or torch.device("cpu")
    jobs = len(codes)
    length = min(STRETCH, jobs)
    together = min(BATCH, max(1, jobs // JOBS_A_STRETCH))
    steps = max(1, math.ceil(passes * jobs / (together * length * 0.75)))
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        torch.manual_seed(seed)
        network = TransformerNetwork(shape)
        init_output_layer(network, [np.bincount(codes[:, place]) for place in range(codes.shape[1])])
        lesson = dataset_tensors(calendar, codes, shape, where)
        network = network.to(where)
        optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01, betas=(0.9, 0.98))
        rates = one_cycle_schedule(optimizer, RATE, steps)
        order = BatchOrder(jobs, length, stream(seed, "synth.transformer.order"))
        for step in checkpointed_steps(
            steps, checkpoints, where, network=network, optimizer=optimizer, rates=rates, order=order
        ):
            begins = torch.tensor(order.next(together), device=where)
            loss = next_job_loss(network, _of_stretches(lesson, begins, length))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            rates.step()
            if step % REPORT_EVERY == 0:
                progress(f"training, loss {loss.item():.2f}", (step + 1) / steps)
    progress("learning", 1.0)
    return network.cpu().eval()


def init_output_layer(network: TransformerNetwork, counts: list[npt.NDArray[Any]]) -> None:
    """Initialize the output layers to the frequencies of the codes, column by column."""
    for answer, counted in zip(network.answer, counts, strict=True):
        often = torch.full((answer.out_features,), 0.5)
        often[: len(counted)] += torch.as_tensor(counted, dtype=torch.float32)
        answer.bias.data = (often / often.sum()).log()
        answer.weight.data *= 0.3


def _stretches(jobs: int, length: int, rng: np.random.Generator) -> list[int]:
    """Start rows of sequences that cover the log once, with a random offset, in random order."""
    step = max(1, length - length // 4)
    begins = np.arange(-int(rng.integers(0, length)), jobs, step).clip(0, jobs - length)
    return [int(begin) for begin in rng.permutation(np.unique(begins))]


def _of_stretches(lesson: DatasetTensors, begins: Tensor, length: int) -> SequenceBatch:
    place = torch.arange(length, device=begins.device)
    rows = begins[:, None] + place
    # The first quarter of a sequence that starts amid a user's jobs has too little context.
    counted = (place >= length // 4) | (begins == 0)[:, None]
    return make_batch(lesson, rows, lesson.user[rows], counted)
