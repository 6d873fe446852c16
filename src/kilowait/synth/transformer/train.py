"""Training of the transformer: next-job prediction on sequences of users' jobs, and its data as tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.rng import stream
from kilowait.synth import trainer
from kilowait.synth.log_schema import Ints
from kilowait.synth.trainer import HasStateDict, Training, gradient_step, one_cycle_schedule, seeded
from kilowait.synth.transformer.calendar import Calendar
from kilowait.synth.transformer.network import NEVER, NetworkShape, TransformerNetwork

CONDITION_DROPOUT = 0.1
"""Dropout of conditions in training."""


@dataclass(frozen=True)
class _JobTensors:
    """Jobs, and the frequent-jobs lists of their blocks."""

    codes: Tensor
    """One column for each generated column."""
    previous_codes: Tensor
    """Codes of the user's previous job; the column's size where there is none."""
    conditions: Tensor
    first: Tensor
    in_session: Tensor
    """Whether the job is not the first of a session, so that its gap is predicted."""
    user: Tensor
    frequent_jobs: Tensor
    slot_codes: Tensor
    """Code of every column by block and slot of the frequent-jobs list; -1 for columns not in the list."""
    share: Tensor
    level: Tensor


JOB_TENSORS = ("codes", "previous_codes", "conditions", "first", "in_session")
LIST_TENSORS = ("frequent_jobs", "slot_codes", "share", "level")
"""Tensors of jobs, and of frequent-jobs lists."""


@dataclass(frozen=True)
class DatasetTensors(_JobTensors):
    """A log as tensors; jobs sorted by user and submission."""

    block: Tensor


@dataclass(frozen=True)
class SequenceBatch(_JobTensors):
    """Batch of job sequences, (sequences, jobs, ...), and the frequent-jobs lists of their blocks."""

    counted: Tensor
    """Jobs that count in the loss."""
    list_index: Tensor
    """Index of each job's frequent-jobs list."""


def dataset_tensors(calendar: Calendar, codes: Ints, shape: NetworkShape, device: torch.device) -> DatasetTensors:
    """The log as tensors."""
    code_tensor = torch.as_tensor(codes)
    previous_codes = code_tensor.roll(1, 0)
    first = torch.as_tensor(calendar.first)
    previous_codes[first] = torch.tensor(shape.sizes)
    frequent_jobs = torch.as_tensor(calendar.frequent_jobs)
    slot_codes = torch.full((*frequent_jobs.shape[:2], len(shape.sizes)), -1)
    slot_codes[..., list(shape.copied)] = frequent_jobs
    tensors = {
        "codes": code_tensor,
        "previous_codes": previous_codes,
        "conditions": torch.as_tensor(calendar.conditions),
        "first": first,
        "in_session": torch.as_tensor(~calendar.start),
        "user": torch.as_tensor(calendar.conditions[:, 0]),
        "frequent_jobs": frequent_jobs,
        "slot_codes": slot_codes,
        "share": torch.as_tensor(calendar.share),
        "level": torch.as_tensor(calendar.level),
        "block": torch.as_tensor(calendar.block),
    }
    return DatasetTensors(**{name: tensor.to(device) for name, tensor in tensors.items()})


def make_batch(tensors: DatasetTensors, rows: Tensor, user: Tensor, counted: Tensor) -> SequenceBatch:
    """Make a batch of rows; jobs attend only to jobs of the same `user`."""
    block, list_index = torch.unique(tensors.block[rows], return_inverse=True)
    return SequenceBatch(
        **{name: getattr(tensors, name)[rows] for name in JOB_TENSORS},
        **{name: getattr(tensors, name)[block] for name in LIST_TENSORS},
        user=user,
        counted=counted,
        list_index=list_index,
    )


def next_job_loss(network: TransformerNetwork, batch: SequenceBatch) -> Tensor:
    """Mean over the jobs of -ln p of their codes, summed over the columns."""
    shape, user = network.shape, batch.user
    position = torch.arange(user.shape[1], device=user.device)
    distance = position[:, None] - position
    mask = (distance >= 0) & (distance < shape.window) & (user[:, :, None] == user[:, None, :])
    condition = torch.nn.functional.dropout(network.condition_vector(batch.conditions), CONDITION_DROPOUT)
    earlier = network.job_vector(batch.previous_codes)
    state = network.attend(earlier + condition, mask, distance.clamp(0, shape.window - 1)) + condition

    # Pointer targets: position p contains the job before p, so slot k is at position t - k.
    offset = torch.arange(shape.recent, device=user.device)
    slot = (position[:, None] - offset).clamp(min=0)
    available = (position[:, None] >= offset) & (user[:, slot] == user[:, :, None]) & ~batch.first[:, slot]
    frequent_jobs = network.frequent_jobs_vector(batch.frequent_jobs, batch.share, batch.level)
    keys = torch.cat([network.key(earlier)[:, slot], network.key(frequent_jobs)[batch.list_index]], 2).flatten(0, 1)
    values = torch.cat([network.value(earlier)[:, slot], network.value(frequent_jobs)[batch.list_index]], 2).flatten(
        0, 1
    )
    available = torch.cat([available, (batch.share > 0)[batch.list_index]], 2).flatten(0, 1)
    copied = torch.cat([batch.previous_codes[:, slot], batch.slot_codes[batch.list_index]], 2).flatten(0, 1)

    codes = batch.codes.flatten(0, 1)
    embedded = network.now(codes + network.firsts).transpose(0, 1)
    states = state.flatten(0, 1) + embedded.cumsum(0) - embedded
    hidden, pointer_logits = network.head_outputs(states, keys, values, available, slice(None))
    total = torch.zeros((), device=user.device)
    for column, answer in enumerate(network.answer):
        logits = answer(hidden[column])
        pointer = pointer_logits[:, column]
        code = codes[:, column, None]
        matching = torch.where(copied[:, :, column] == code, pointer, NEVER)
        log_score = torch.logsumexp(torch.cat([logits.gather(1, code), matching], 1), 1)
        loss = torch.logsumexp(torch.cat([logits, pointer], 1), 1) - log_score
        counted = (batch.counted & batch.in_session if column == 0 else batch.counted).flatten()
        total = total + (loss * counted).sum() / counted.sum().clamp(min=1)
    return total


# -- training -------------------------------------------------------------------------------------


SEQUENCE_JOBS = 128
"""Length of a sequence in jobs. It may span several users; attention is masked between users."""
BATCH, JOBS_PER_SEQUENCE = 8, 2000
"""Maximum batch size in sequences, and jobs of the log per sequence: small logs get smaller batches and more steps."""
LEARNING_RATE = 4e-3


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
    calendar: Calendar, codes: Ints, shape: NetworkShape, training: Training, *, passes: float
) -> TransformerNetwork:
    """Train a network for `passes` passes over the log; deterministic for a seed, on one CPU thread.

    Args:
        calendar: of the log.
        codes: of its jobs by user, one column for each generated column.
        shape: of the network, which is returned on the CPU.
        training: seed of the initial weights and the order, device and checkpoints.
        passes: number of passes over the log.
    """
    jobs, device = len(codes), training.device
    length = min(SEQUENCE_JOBS, jobs)
    batch_size = min(BATCH, max(1, jobs // JOBS_PER_SEQUENCE))
    steps = max(1, math.ceil(passes * jobs / (batch_size * length * 0.75)))
    with seeded(training.seed, device):
        network = TransformerNetwork(shape)
        init_output_layer(network, [np.bincount(codes[:, column]) for column in range(codes.shape[1])])
        tensors = dataset_tensors(calendar, codes, shape, device)
        network = network.to(device)
        optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=0.01, betas=(0.9, 0.98))
        lr_schedule = one_cycle_schedule(optimizer, LEARNING_RATE, steps)
        order = BatchOrder(jobs, length, stream(training.seed, "synth.transformer.order"))
        parts: dict[str, HasStateDict] = {"network": network, "optimizer": optimizer}
        parts |= {"rates": lr_schedule, "order": order}
        for step in training.steps(steps, parts):
            starts = torch.tensor(order.next(batch_size), device=device)
            loss = next_job_loss(network, _sequence_batch(tensors, starts, length))
            gradient_step(loss, optimizer, lr_schedule, clipped=network.parameters())
            if step % trainer.REPORT_EVERY == 0:
                training.progress(f"training, loss {loss.item():.2f}", (step + 1) / steps)
    training.progress("training", 1.0)
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
