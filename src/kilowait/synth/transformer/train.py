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
from kilowait.synth.transformer.dataset import DatasetTensors, SequenceBatch, dataset_tensors, make_batch, next_job_loss
from kilowait.synth.transformer.network import NetworkShape, TransformerNetwork

__all__ = ["init_output_layer", "train"]

Ints = npt.NDArray[np.int64]

SEQUENCE_JOBS = 128
"""Length of a sequence in jobs. It may span several users; attention is masked between users."""
BATCH, JOBS_PER_SEQUENCE = 8, 2000
"""Maximum batch size in sequences, and jobs of the log per sequence: small logs get smaller batches and more steps."""
LEARNING_RATE = 4e-3
REPORT_EVERY = 20
"""Steps between progress reports."""


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
            self.starts += _sequence_starts(self.jobs, self.length, self.rng)
        batch, self.starts = self.starts[:count], self.starts[count:]
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The state from which the order continues."""
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
        codes: of its jobs by user, one column for each generated column.
        shape: of the network.
        passes: number of passes over the log.
        seed: of the initial weights and the order.
        progress: progress callback.
        device: where it is trained; the network is returned on the CPU.
        checkpoints: checkpoint store; a stored state is resumed.
    """
    target_device = device or torch.device("cpu")
    jobs = len(codes)
    length = min(SEQUENCE_JOBS, jobs)
    batch_size = min(BATCH, max(1, jobs // JOBS_PER_SEQUENCE))
    steps = max(1, math.ceil(passes * jobs / (batch_size * length * 0.75)))
    with torch.random.fork_rng(devices=[target_device] if target_device.type == "cuda" else []):
        torch.manual_seed(seed)
        network = TransformerNetwork(shape)
        init_output_layer(network, [np.bincount(codes[:, column]) for column in range(codes.shape[1])])
        tensors = dataset_tensors(calendar, codes, shape, target_device)
        network = network.to(target_device)
        optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.01, betas=(0.9, 0.98))
        lr_schedule = one_cycle_schedule(optimizer, LEARNING_RATE, steps)
        order = BatchOrder(jobs, length, stream(seed, "synth.transformer.order"))
        for step in checkpointed_steps(
            steps, checkpoints, target_device, network=network, optimizer=optimizer, rates=lr_schedule, order=order
        ):
            starts = torch.tensor(order.next(batch_size), device=target_device)
            loss = next_job_loss(network, _sequence_batch(tensors, starts, length))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            lr_schedule.step()
            if step % REPORT_EVERY == 0:
                progress(f"training, loss {loss.item():.2f}", (step + 1) / steps)
    progress("training", 1.0)
    return network.cpu().eval()


def init_output_layer(network: TransformerNetwork, counts: list[npt.NDArray[Any]]) -> None:
    """Initialize the output layers to the frequencies of the codes, column by column."""
    for answer, code_counts in zip(network.answer, counts, strict=True):
        frequency = torch.full((answer.out_features,), 0.5)
        frequency[: len(code_counts)] += torch.as_tensor(code_counts, dtype=torch.float32)
        answer.bias.data = (frequency / frequency.sum()).log()
        answer.weight.data *= 0.3


def _sequence_starts(jobs: int, length: int, rng: np.random.Generator) -> list[int]:
    """Start rows of sequences that cover the log once, with a random offset, in random order."""
    step = max(1, length - length // 4)
    starts = np.arange(-int(rng.integers(0, length)), jobs, step).clip(0, jobs - length)
    return [int(begin) for begin in rng.permutation(np.unique(starts))]


def _sequence_batch(tensors: DatasetTensors, starts: Tensor, length: int) -> SequenceBatch:
    offset = torch.arange(length, device=starts.device)
    rows = starts[:, None] + offset
    # The first quarter of a sequence that starts amid a user's jobs has too little context.
    counted = (offset >= length // 4) | (starts == 0)[:, None]
    return make_batch(tensors, rows, tensors.user[rows], counted)
