"""Inference of a small network inside the engine: whole episodes without a return to Python.

The network scores every job from its features and the summary, and chooses the job with the largest score. Weights have
inputs as rows, so that the innermost loop runs over outputs and the compiler can vectorize it without reordering a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from kilowait.engine.kernels.jit import compile_entry, noinline, nth_row, without_refcount
from kilowait.envs.kernels.decision_batch import advance_to_decision, apply_choice
from kilowait.envs.kernels.observation_batch import write_observation
from kilowait.envs.kernels.reward import compute_reward
from kilowait.envs.kernels.step import EPISODE_OVER, store_results
from kilowait.errors import InputError

Floats = npt.NDArray[np.float32]


class NetworkWeights(NamedTuple):
    """Weights of the network: features, summary, hidden ReLU layers, one score per job."""

    job: Floats  # (features, width)
    summary: Floats  # (summary, width)
    bias: Floats  # (width,)
    hidden: Floats  # (layers, width, width)
    hidden_bias: Floats  # (layers, width)
    out: Floats  # (width,)


@noinline
def best_slot(weights: Any, jobs: Any, mask: Any, summary: Any, shown: int, base: Any, h: Any, h2: Any) -> int:
    """The allowed slot with the largest score; ties go to the first."""
    width = len(weights.bias)
    for o in range(width):
        base[o] = weights.bias[o]
    for i in range(len(summary)):
        for o in range(width):
            base[o] += weights.summary[i, o] * summary[i]
    best = -1
    best_value = np.float32(0.0)
    for slot in range(shown):
        if mask[slot] == 0:
            continue
        for o in range(width):
            h[o] = base[o]
        for i in range(jobs.shape[1]):
            for o in range(width):
                h[o] += weights.job[i, o] * jobs[slot, i]
        for layer in range(len(weights.hidden)):
            for o in range(width):
                h2[o] = weights.hidden_bias[layer, o]
            for i in range(width):
                if h[i] > 0:
                    for o in range(width):
                        h2[o] += weights.hidden[layer, i, o] * h[i]
            for o in range(width):
                h[o] = h2[o]
        score = np.float32(0.0)
        for o in range(width):
            if h[o] > 0:
                score += weights.out[o] * h[o]
        if best < 0 or score > best_value:
            best = slot
            best_value = score
    return best


def _run_many(t: Any, a: Any, source: Any, weights: Any, lo: int, hi: int) -> None:
    """Run copies `lo` to `hi`, each to the end of its episode; the reward is computed then, for the whole episode."""
    a = without_refcount(a)
    source = without_refcount(source)
    weights = without_refcount(weights)
    base = np.zeros(len(weights.bias), np.float32)
    h = np.zeros(len(weights.bias), np.float32)
    h2 = np.zeros(len(weights.bias), np.float32)
    for b in range(lo, hi):
        s = nth_row(t, b)
        copy = a.copies[b]
        while not copy.over:
            slot = best_slot(weights, a.jobs[b], a.mask[b], a.summary[b], copy.shown, base, h, h2)
            if slot >= 0:  # else an episode without a choice: it only has to be ended
                apply_choice(s, copy, a.slots[b, slot])
            copy.steps += 1
            outcome = advance_to_decision(s, a, source, b)
            copy.over = outcome == EPISODE_OVER
            a.over[b] = outcome == EPISODE_OVER
            write_observation(s, a, source, b, False)
        a.reward[b] += compute_reward(s, a, source, b)
        store_results(a, b)


@cache
def _compiled(state: Any, buffers: Any, source: Any, weights: Any) -> Callable[..., Any]:
    signature = types.void(state, buffers, source, weights, types.int64, types.int64)
    return compile_entry(_run_many, signature, "envs", allocates=True, announced=("the simulator of networks", "1 min"))


def inference_kernel(state: Any, buffers: Any, source: Any, weights: NetworkWeights) -> Callable[..., Any]:
    """The kernel that runs episodes with a network, compiled for the types of these arrays."""
    if weights.job.shape[0] != buffers.jobs.shape[2]:
        raise InputError(
            f"the network takes {weights.job.shape[0]} features of a job and the engine computes "
            f"{buffers.jobs.shape[2]}; "
            "a network with custom features runs from Python only"
        )
    if numba.config.DISABLE_JIT:
        return _compiled(types.int64, types.int64, types.int64, types.int64)
    return _compiled(*(numba.typeof(array) for array in (state, buffers, source, weights)))
