"""Sampling of codes from the network: many users' job sequences in parallel, one job of each per step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kilowait.synth.generator import SampleProgress
from kilowait.synth.transformer.calendar import Calendar
from kilowait.synth.transformer.network import HEADS, KEY, NEVER, TransformerNetwork

__all__ = ["JobSequences", "job_sequences", "sample_codes"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LONGEST = 512
"""Maximum jobs of a sequence. Longer histories are split into independent sequences."""
TOGETHER = 1024
"""Number of sequences sampled in parallel."""


@dataclass(frozen=True)
class JobSequences:
    """Segments of the calendar for which jobs are sampled."""

    begin: Ints
    """First row in the calendar."""
    length: Ints
    out: Ints
    """First row in the output."""


def job_sequences(rows: Ints, first: npt.NDArray[np.bool_], times: int) -> JobSequences:
    """Sequences for ascending rows of the calendar, repeated `times` times.

    >>> chains = job_sequences(
    ...     np.array([0, 1, 2, 5, 6]), np.array([True, False, False, False, False, True, False]), 2
    ... )
    >>> chains.begin.tolist(), chains.length.tolist(), chains.out.tolist()
    ([0, 5, 0, 5], [3, 2, 3, 2], [0, 3, 5, 8])
    """
    fresh = first[rows].copy()
    fresh[0] = True
    fresh[1:] |= np.diff(rows) != 1
    place = np.arange(len(rows))
    since = place - np.maximum.accumulate(np.where(fresh, place, 0))
    heads = np.flatnonzero(since % LONGEST == 0)
    length = np.diff(np.append(heads, len(rows)))
    out = np.concatenate([heads + turn * len(rows) for turn in range(times)])
    return JobSequences(np.tile(rows[heads], times), np.tile(length, times), out)


def sample_codes(
    network: TransformerNetwork,
    calendar: Calendar,
    chains: JobSequences,
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
        chains: the sequences to sample.
        request: its column, and the minimum value of each code in seconds.
        runtime: the same; a run time whose minimum is above the request is impossible.
        seed: same seed, same codes.
        progress: progress callback.
    """
    generator = torch.Generator().manual_seed(seed)
    total = int(chains.length.sum())
    drawn = torch.empty((total, len(network.shape.sizes)), dtype=torch.int16)
    order = np.argsort(-chains.length, kind="stable")
    world = _SamplingContext(network, calendar, request, runtime)
    done = 0
    with torch.inference_mode():
        for low in range(0, len(order), TOGETHER):
            some = order[low : low + TOGETHER]
            _fill(
                world,
                drawn,
                JobSequences(chains.begin[some], chains.length[some], chains.out[some]),
                generator,
            )
            done += int(chains.length[some].sum())
            progress("sampling jobs", done / total)
    return drawn.numpy().astype(np.int64)


class _SamplingContext:
    """Constants of a sampling run."""

    def __init__(
        self,
        network: TransformerNetwork,
        calendar: Calendar,
        request: tuple[int, Floats],
        runtime: tuple[int, Floats],
    ) -> None:
        shape = network.shape
        self.network = network
        self.conditions = torch.as_tensor(calendar.conditions)
        self.inside = torch.as_tensor(~calendar.start)
        self.block = torch.as_tensor(calendar.block)
        self.frequent_jobs = torch.full((*calendar.share.shape, len(shape.sizes)), 0)
        self.frequent_jobs[..., list(shape.copied)] = torch.as_tensor(calendar.frequent_jobs)
        self.on_menu = torch.as_tensor(calendar.share) > 0
        self.request, self.runtime = request[0], runtime[0]
        # A code can stand for any request of a bin: its minimum is a safe bound.
        self.cannot = torch.as_tensor(runtime[1][None, :] > request[1][:, None])
        with torch.inference_mode():
            vector = network.menu_vector(
                torch.as_tensor(calendar.frequent_jobs),
                torch.as_tensor(calendar.share),
                torch.as_tensor(calendar.level),
            )
            self.menu_key, self.menu_value = network.key(vector), network.value(vector)


def _fill(world: _SamplingContext, drawn: Tensor, chains: JobSequences, generator: torch.Generator) -> None:
    """Sample sequences, longest first, so that unfinished ones are always the first."""
    network, shape = world.network, world.network.shape
    count, columns, part = len(chains.begin), len(shape.sizes), shape.width // HEADS
    begin, out = torch.as_tensor(chains.begin), torch.as_tensor(chains.out)
    keys = torch.zeros(shape.layers, count, HEADS, shape.window, part)
    values = torch.zeros_like(keys)
    recent_key = torch.zeros(count, shape.recent, KEY)
    recent_value = torch.zeros(count, shape.recent, shape.width)
    recent_code = torch.zeros(count, shape.recent, columns, dtype=torch.int64)
    last = torch.tensor(shape.sizes).expand(count, columns).clone()
    going = np.searchsorted(-chains.length, -np.arange(int(chains.length[0])), side="left")
    for turn in range(len(going)):
        n = int(going[turn])
        row = begin[:n] + turn
        known = network.condition_vector(world.conditions[row])
        earlier = network.job_vector(last[:n])
        state = _read(network, earlier + known, keys[:, :n], values[:, :n], turn) + known
        if turn:
            slot = (turn - 1) % shape.recent
            recent_key[:n, slot], recent_value[:n, slot] = network.key(earlier), network.value(earlier)
            recent_code[:n, slot] = last[:n]
        newest = torch.tensor([(turn - 1 - back) % shape.recent for back in range(shape.recent)])
        block = world.block[row]
        key = torch.cat([recent_key[:n, newest], world.menu_key[block]], 1)
        value = torch.cat([recent_value[:n, newest], world.menu_value[block]], 1)
        there = torch.cat([(torch.arange(shape.recent) < turn).expand(n, -1), world.on_menu[block]], 1)
        offered = torch.cat([recent_code[:n, newest], world.frequent_jobs[block]], 1)
        for column in range(columns):
            hidden, pointed = network.answers(state[None], key, value, there, slice(column, column + 1))
            logits = torch.cat([network.answer[column](hidden[0]), pointed[:, 0]], 1)
            if column == world.runtime:
                cannot = world.cannot[last[:n, world.request]]
                logits[:, : cannot.shape[1]][cannot] = NEVER
                logits[:, cannot.shape[1] :][cannot.gather(1, offered[:, :, column])] = NEVER
            code = _drawn(logits, shape.sizes[column], offered[:, :, column], generator)
            if column == 0:
                code = torch.where(world.inside[row], code, 0)
            last[:n, column] = code
            state = state + network.now(code + network.firsts[column])
        drawn[out[:n] + turn] = last[:n].to(torch.int16)


def _read(network: TransformerNetwork, x: Tensor, keys: Tensor, values: Tensor, turn: int) -> Tensor:
    """Run the transformer for one more job; keys and values of the window are in a ring buffer."""
    window = network.shape.window
    distance = (turn - torch.arange(window)) % window
    future = torch.where(distance <= turn, 0.0, NEVER)
    for number, layer in enumerate(network.layers):
        query, key, value = layer.parts(x)
        keys[number, :, :, turn % window], values[number, :, :, turn % window] = key, value
        weight = (keys[number] @ query[..., None])[..., 0] / math.sqrt(query.shape[-1])
        weight = (weight + layer.distance[:, distance] + future).softmax(-1)
        x = layer.after(x, (weight[..., None, :] @ values[number]).flatten(1))
    return network.last(x)  # type: ignore[no-any-return]


def _drawn(logits: Tensor, size: int, offered: Tensor, generator: torch.Generator) -> Tensor:
    """Sample one code per row: an output of the head, or a copied value."""
    reached = logits.softmax(1).cumsum(1)
    wanted = torch.rand(len(logits), 1, generator=generator) * reached[:, -1:]
    chosen = torch.searchsorted(reached, wanted, right=True)[:, 0].clamp(max=logits.shape[1] - 1)
    pointing = chosen - size
    taken = offered.gather(1, pointing.clamp(min=0)[:, None])[:, 0]
    return torch.where(pointing >= 0, taken, chosen)
