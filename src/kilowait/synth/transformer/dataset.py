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

DROPPED = 0.1
"""Dropout of conditions in training."""


@dataclass(frozen=True)
class DatasetTensors:
    """A log as tensors; jobs sorted by user and submission."""

    codes: Tensor
    """One column for each generated one."""
    before: Tensor
    """The same of the user's previous job; the column's size where there is none."""
    conditions: Tensor
    first: Tensor
    inside: Tensor
    """Whether the job is not the first of a session, so that its gap is predicted."""
    user: Tensor
    block: Tensor
    frequent_jobs: Tensor
    offer: Tensor
    """Code of every column by block and slot of the frequent-jobs list; -1 for columns not in the list."""
    share: Tensor
    level: Tensor


def dataset_tensors(
    calendar: Calendar, codes: Ints, shape: NetworkShape, device: torch.device
) -> DatasetTensors:
    """The log as tensors."""
    made = torch.as_tensor(codes)
    before = made.roll(1, 0)
    first = torch.as_tensor(calendar.first)
    before[first] = torch.tensor(shape.sizes)
    frequent_jobs = torch.as_tensor(calendar.frequent_jobs)
    offer = torch.full((*frequent_jobs.shape[:2], len(shape.sizes)), -1)
    offer[..., list(shape.copied)] = frequent_jobs
    lesson = DatasetTensors(
        made,
        before,
        torch.as_tensor(calendar.conditions),
        first,
        torch.as_tensor(~calendar.start),
        torch.as_tensor(calendar.conditions[:, 0]),
        torch.as_tensor(calendar.block),
        frequent_jobs,
        offer,
        torch.as_tensor(calendar.share),
        torch.as_tensor(calendar.level),
    )
    return DatasetTensors(*(getattr(lesson, item.name).to(device) for item in fields(DatasetTensors)))


@dataclass(frozen=True)
class SequenceBatch:
    """Batch of job sequences, (sequences, jobs, ...), and the frequent-jobs lists of their blocks."""

    codes: Tensor
    before: Tensor
    conditions: Tensor
    first: Tensor
    inside: Tensor
    user: Tensor
    counted: Tensor
    """Jobs that count in the loss."""
    home: Tensor
    """Index of each job's frequent-jobs list."""
    frequent_jobs: Tensor
    offer: Tensor
    share: Tensor
    level: Tensor


def make_batch(lesson: DatasetTensors, rows: Tensor, user: Tensor, counted: Tensor) -> SequenceBatch:
    """Make a batch of rows; jobs attend only to jobs of the same `user`."""
    block, home = torch.unique(lesson.block[rows], return_inverse=True)
    return SequenceBatch(
        lesson.codes[rows],
        lesson.before[rows],
        lesson.conditions[rows],
        lesson.first[rows],
        lesson.inside[rows],
        user,
        counted,
        home,
        lesson.frequent_jobs[block],
        lesson.offer[block],
        lesson.share[block],
        lesson.level[block],
    )


def next_job_loss(network: TransformerNetwork, batch: SequenceBatch) -> Tensor:
    """Mean over the jobs of -ln p of their codes, summed over the columns."""
    shape, user = network.shape, batch.user
    place = torch.arange(user.shape[1], device=user.device)
    back = place[:, None] - place
    seen = (back >= 0) & (back < shape.window) & (user[:, :, None] == user[:, None, :])
    known = torch.nn.functional.dropout(network.condition_vector(batch.conditions), DROPPED)
    earlier = network.job_vector(batch.before)
    state = network.read(earlier + known, seen, back.clamp(0, shape.window - 1)) + known

    # Pointer targets: position p contains the job before p, so slot k is at position t - k.
    far = torch.arange(shape.recent, device=user.device)
    slot = (place[:, None] - far).clamp(min=0)
    there = (place[:, None] >= far) & (user[:, slot] == user[:, :, None]) & ~batch.first[:, slot]
    frequent_jobs = network.menu_vector(batch.frequent_jobs, batch.share, batch.level)
    keys = torch.cat([network.key(earlier)[:, slot], network.key(frequent_jobs)[batch.home]], 2).flatten(0, 1)
    values = torch.cat(
        [network.value(earlier)[:, slot], network.value(frequent_jobs)[batch.home]], 2
    ).flatten(0, 1)
    there = torch.cat([there, (batch.share > 0)[batch.home]], 2).flatten(0, 1)
    offered = torch.cat([batch.before[:, slot], batch.offer[batch.home]], 2).flatten(0, 1)

    codes = batch.codes.flatten(0, 1)
    made = network.now(codes + network.firsts).transpose(0, 1)
    states = state.flatten(0, 1) + made.cumsum(0) - made
    hidden, pointed = network.answers(states, keys, values, there, slice(None))
    total = torch.zeros((), device=user.device)
    for column, answer in enumerate(network.answer):
        logits = answer(hidden[column])
        points = pointed[:, column]
        code = codes[:, column, None]
        hits = torch.where(offered[:, :, column] == code, points, NEVER)
        right = torch.logsumexp(torch.cat([logits.gather(1, code), hits], 1), 1)
        lost = torch.logsumexp(torch.cat([logits, points], 1), 1) - right
        heeded = (batch.counted & batch.inside if column == 0 else batch.counted).flatten()
        total = total + (lost * heeded).sum() / heeded.sum().clamp(min=1)
    return total
