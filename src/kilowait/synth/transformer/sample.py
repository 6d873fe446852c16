"""Sampling of codes from the network: many users' job sequences in parallel, one job of each per step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kilowait.errors import InputError
from kilowait.synth.log_schema import Bools, Floats, Ints
from kilowait.synth.sampler import SampleProgress
from kilowait.synth.transformer.calendar import Calendar
from kilowait.synth.transformer.network import HEADS, KEY, NEVER, TransformerNetwork

MAX_SEQUENCE_JOBS = 512
"""Maximum jobs of a sequence. Longer histories are split into independent sequences."""
BATCH_SEQUENCES = 1024
"""Number of sequences sampled in parallel."""


@dataclass(frozen=True)
class JobSequences:
    """Segments of the calendar for which jobs are sampled."""

    begin: Ints
    """First row in the calendar."""
    length: Ints
    out: Ints
    """First row in the output."""


def job_sequences(rows: Ints, first: Bools, times: int) -> JobSequences:
    """Sequences for ascending rows of the calendar, repeated `times` times.

    >>> chains = job_sequences(np.array([0, 1, 2, 5, 6]), np.array([True, False, False, False, False, True, False]), 2)
    >>> chains.begin.tolist(), chains.length.tolist(), chains.out.tolist()
    ([0, 5, 0, 5], [3, 2, 3, 2], [0, 3, 5, 8])
    """
    new_sequence = first[rows].copy()
    new_sequence[0] = True
    new_sequence[1:] |= np.diff(rows) != 1
    position = np.arange(len(rows))
    index = position - np.maximum.accumulate(np.where(new_sequence, position, 0))
    starts = np.flatnonzero(index % MAX_SEQUENCE_JOBS == 0)
    length = np.diff(np.append(starts, len(rows)))
    out = np.concatenate([starts + repetition * len(rows) for repetition in range(times)])
    return JobSequences(np.tile(rows[starts], times), np.tile(length, times), out)


def sample_codes(
    network: TransformerNetwork,
    calendar: Calendar,
    sequences: JobSequences,
    *,
    request: tuple[int, Floats],
    runtime: tuple[int, Floats],
    seed: int,
    progress: SampleProgress,
) -> Ints:
    """Sample codes of the sequences' jobs, one row per job.

    Args:
        network: the model.
        calendar: of its log.
        sequences: the sequences to sample.
        request: its column, and the minimum value of each code in seconds.
        runtime: the same; a run time whose minimum is above the request is impossible.
        seed: same seed, same codes.
        progress: progress callback.
    """
    generator = torch.Generator().manual_seed(seed)
    total = int(sequences.length.sum())
    codes = torch.empty((total, len(network.shape.sizes)), dtype=torch.int16)
    order = np.argsort(-sequences.length, kind="stable")
    context = _SamplingContext(network, calendar, request, runtime)
    done = 0
    with torch.inference_mode():
        for low in range(0, len(order), BATCH_SEQUENCES):
            rows = order[low : low + BATCH_SEQUENCES]
            _sample_batch(
                context,
                codes,
                JobSequences(sequences.begin[rows], sequences.length[rows], sequences.out[rows]),
                generator,
            )
            done += int(sequences.length[rows].sum())
            progress("sampling jobs", done / total)
    return codes.numpy().astype(np.int64)


class _SamplingContext:
    """Constants of a sampling run."""

    def __init__(
        self, network: TransformerNetwork, calendar: Calendar, request: tuple[int, Floats], runtime: tuple[int, Floats]
    ) -> None:
        shape = network.shape
        self.network = network
        self.conditions = torch.as_tensor(calendar.conditions)
        self.in_session = torch.as_tensor(~calendar.start)
        self.block = torch.as_tensor(calendar.block)
        self.frequent_jobs = torch.full((*calendar.share.shape, len(shape.sizes)), 0)
        self.frequent_jobs[..., list(shape.copied)] = torch.as_tensor(calendar.frequent_jobs)
        self.slot_used = torch.as_tensor(calendar.share) > 0
        self.request, self.runtime = request[0], runtime[0]
        # A code can stand for any request of a bin: its minimum is a safe bound.
        self.impossible = torch.as_tensor(runtime[1][None, :] > request[1][:, None])
        with torch.inference_mode():
            vector = network.frequent_jobs_vector(
                torch.as_tensor(calendar.frequent_jobs),
                torch.as_tensor(calendar.share),
                torch.as_tensor(calendar.level),
            )
            self.frequent_key, self.frequent_value = network.key(vector), network.value(vector)


def _sample_batch(
    context: _SamplingContext, codes: Tensor, sequences: JobSequences, generator: torch.Generator
) -> None:
    """Sample sequences, longest first, so that unfinished ones are always the first."""
    network, shape = context.network, context.network.shape
    count, columns, head_width = len(sequences.begin), len(shape.sizes), shape.width // HEADS
    begin, out = torch.as_tensor(sequences.begin), torch.as_tensor(sequences.out)
    keys = torch.zeros(shape.layers, count, HEADS, shape.window, head_width)
    values = torch.zeros_like(keys)
    recent_key = torch.zeros(count, shape.recent, KEY)
    recent_value = torch.zeros(count, shape.recent, shape.width)
    recent_code = torch.zeros(count, shape.recent, columns, dtype=torch.int64)
    last = torch.tensor(shape.sizes).expand(count, columns).clone()
    active = np.searchsorted(-sequences.length, -np.arange(int(sequences.length[0])), side="left")
    for step in range(len(active)):
        active_count = int(active[step])
        row = begin[:active_count] + step
        condition = network.condition_vector(context.conditions[row])
        previous = network.job_vector(last[:active_count])
        state = _read(network, previous + condition, keys[:, :active_count], values[:, :active_count], step) + condition
        if step:
            slot = (step - 1) % shape.recent
            recent_key[:active_count, slot], recent_value[:active_count, slot] = (
                network.key(previous),
                network.value(previous),
            )
            recent_code[:active_count, slot] = last[:active_count]
        newest = torch.tensor([(step - 1 - back) % shape.recent for back in range(shape.recent)])
        block = context.block[row]
        key = torch.cat([recent_key[:active_count, newest], context.frequent_key[block]], 1)
        value = torch.cat([recent_value[:active_count, newest], context.frequent_value[block]], 1)
        available = torch.cat(
            [(torch.arange(shape.recent) < step).expand(active_count, -1), context.slot_used[block]], 1
        )
        copied = torch.cat([recent_code[:active_count, newest], context.frequent_jobs[block]], 1)
        for column in range(columns):
            hidden, pointer_logits = network.head_outputs(state[None], key, value, available, slice(column, column + 1))
            logits = torch.cat([network.answer[column](hidden[0]), pointer_logits[:, 0]], 1)
            if column == context.runtime:
                impossible = context.impossible[last[:active_count, context.request]]
                logits[:, : impossible.shape[1]][impossible] = NEVER
                logits[:, impossible.shape[1] :][impossible.gather(1, copied[:, :, column])] = NEVER
            code = _sample_code(logits, shape.sizes[column], copied[:, :, column], generator)
            if column == 0:
                code = torch.where(context.in_session[row], code, 0)
            last[:active_count, column] = code
            state = state + network.now(code + network.firsts[column])
        codes[out[:active_count] + step] = last[:active_count].to(torch.int16)


def _read(network: TransformerNetwork, x: Tensor, keys: Tensor, values: Tensor, step: int) -> Tensor:
    """Run the transformer for one more job; keys and values of the window are in a ring buffer."""
    window = network.shape.window
    distance = (step - torch.arange(window)) % window
    future = torch.where(distance <= step, 0.0, NEVER)
    for number, layer in enumerate(network.layers):
        query, key, value = layer.parts(x)
        keys[number, :, :, step % window], values[number, :, :, step % window] = key, value
        weight = (keys[number] @ query[..., None])[..., 0] / math.sqrt(query.shape[-1])
        weight = (weight + layer.distance[:, distance] + future).softmax(-1)
        x = layer.after(x, (weight[..., None, :] @ values[number]).flatten(1))
    return network.last(x)  # type: ignore[no-any-return]


def _sample_code(logits: Tensor, size: int, copied: Tensor, generator: torch.Generator) -> Tensor:
    """Sample one code per row: an output of the head, or a copied value."""
    cumulative = logits.softmax(1).cumsum(1)
    uniform = torch.rand(len(logits), 1, generator=generator) * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, uniform, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
    slot = chosen - size
    copied_code = copied.gather(1, slot.clamp(min=0)[:, None])[:, 0]
    code = torch.where(slot >= 0, copied_code, chosen)
    if bool((code >= size).any()):  # an empty slot, which has no share unless the weights are damaged
        raise InputError("the network of the generator samples values that do not exist: it is damaged; fit it again")
    return code
