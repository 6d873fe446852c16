"""Training data of the transformer: a log as tensors, batches of job sequences, and the loss."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.synth.transformer.calendar import Calendar
from kilowait.synth.transformer.network import NEVER, NetworkShape, TransformerNetwork

__all__ = ["SequenceBatch", "DatasetTensors", "make_batch", "dataset_tensors", "next_job_loss"]

Ints = npt.NDArray[np.int64]

CONDITION_DROPOUT = 0.1
"""Dropout of conditions in training."""


@dataclass(frozen=True)
class DatasetTensors:
    """A log as tensors; jobs sorted by user and submission."""

    codes: Tensor
    """One column for each generated column."""
    previous_codes: Tensor
    """Codes of the user's previous job; the column's size where there is none."""
    conditions: Tensor
    first: Tensor
    in_session: Tensor
    """Whether the job is not the first of a session, so that its gap is predicted."""
    user: Tensor
    block: Tensor
    frequent_jobs: Tensor
    slot_codes: Tensor
    """Code of every column by block and slot of the frequent-jobs list; -1 for columns not in the list."""
    share: Tensor
    level: Tensor


def dataset_tensors(calendar: Calendar, codes: Ints, shape: NetworkShape, device: torch.device) -> DatasetTensors:
    """The log as tensors."""
    code_tensor = torch.as_tensor(codes)
    previous_codes = code_tensor.roll(1, 0)
    first = torch.as_tensor(calendar.first)
    previous_codes[first] = torch.tensor(shape.sizes)
    frequent_jobs = torch.as_tensor(calendar.frequent_jobs)
    slot_codes = torch.full((*frequent_jobs.shape[:2], len(shape.sizes)), -1)
    slot_codes[..., list(shape.copied)] = frequent_jobs
    tensors = DatasetTensors(
        code_tensor,
        previous_codes,
        torch.as_tensor(calendar.conditions),
        first,
        torch.as_tensor(~calendar.start),
        torch.as_tensor(calendar.conditions[:, 0]),
        torch.as_tensor(calendar.block),
        frequent_jobs,
        slot_codes,
        torch.as_tensor(calendar.share),
        torch.as_tensor(calendar.level),
    )
    return DatasetTensors(*(getattr(tensors, item.name).to(device) for item in fields(DatasetTensors)))


@dataclass(frozen=True)
class SequenceBatch:
    """Batch of job sequences, (sequences, jobs, ...), and the frequent-jobs lists of their blocks."""

    codes: Tensor
    previous_codes: Tensor
    conditions: Tensor
    first: Tensor
    in_session: Tensor
    user: Tensor
    counted: Tensor
    """Jobs that count in the loss."""
    list_index: Tensor
    """Index of each job's frequent-jobs list."""
    frequent_jobs: Tensor
    slot_codes: Tensor
    share: Tensor
    level: Tensor


def make_batch(tensors: DatasetTensors, rows: Tensor, user: Tensor, counted: Tensor) -> SequenceBatch:
    """Make a batch of rows; jobs attend only to jobs of the same `user`."""
    block, list_index = torch.unique(tensors.block[rows], return_inverse=True)
    return SequenceBatch(
        tensors.codes[rows],
        tensors.previous_codes[rows],
        tensors.conditions[rows],
        tensors.first[rows],
        tensors.in_session[rows],
        user,
        counted,
        list_index,
        tensors.frequent_jobs[block],
        tensors.slot_codes[block],
        tensors.share[block],
        tensors.level[block],
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
