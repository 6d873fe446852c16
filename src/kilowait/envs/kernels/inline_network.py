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

from kilowait.engine.kernels.jit import (
    compile_entry,
    kernel,
    noinline,
    without_refcount,
)
from kilowait.envs.kernels.decision import OVER, advance_to_decision, apply
from kilowait.envs.kernels.reward import compute_reward
from kilowait.envs.kernels.state_stack import log_arrays_without_refcount, nth_state
from kilowait.envs.kernels.step import buffers_without_refcount, observe
from kilowait.errors import InputError

__all__ = ["NetworkWeights", "inference_kernel"]

Floats = npt.NDArray[np.float32]


class NetworkWeights(NamedTuple):
    """Weights of the network: features, summary, hidden ReLU layers, one score per job."""

    job: Floats  # (features, width)
    summary: Floats  # (summary, width)
    bias: Floats  # (width,)
    hidden: Floats  # (layers, width, width)
    hidden_bias: Floats  # (layers, width)
    out: Floats  # (width,)


@kernel
def network_without_refcount(a: Any) -> NetworkWeights:
    """The weights without reference counts."""
    return NetworkWeights(
        without_refcount(a.job),
        without_refcount(a.summary),
        without_refcount(a.bias),
        without_refcount(a.hidden),
        without_refcount(a.hidden_bias),
        without_refcount(a.out),
    )


@noinline
def best_slot(net: Any, jobs: Any, mask: Any, summary: Any, shown: int, context: Any, h: Any, h2: Any) -> int:
    """The allowed slot with the largest score; ties go to the first."""
    net = network_without_refcount(net)
    jobs = without_refcount(jobs)
    mask = without_refcount(mask)
    summary = without_refcount(summary)
    context = without_refcount(context)
    h = without_refcount(h)
    h2 = without_refcount(h2)
    width = len(net.bias)
    for o in range(width):
        context[o] = net.bias[o]
    for i in range(len(summary)):
        for o in range(width):
            context[o] += net.summary[i, o] * summary[i]
    best = -1
    most = np.float32(0.0)
    for slot in range(shown):
        if mask[slot] == 0:
            continue
        for o in range(width):
            h[o] = context[o]
        for i in range(jobs.shape[1]):
            for o in range(width):
                h[o] += net.job[i, o] * jobs[slot, i]
        for layer in range(len(net.hidden)):
            for o in range(width):
                h2[o] = net.hidden_bias[layer, o]
            for i in range(width):
                if h[i] > 0:
                    for o in range(width):
                        h2[o] += net.hidden[layer, i, o] * h[i]
            for o in range(width):
                h[o] = h2[o]
        value = np.float32(0.0)
        for o in range(width):
            if h[o] > 0:
                value += net.out[o] * h[o]
        if best < 0 or value > most:
            best = slot
            most = value
    return best


def _run_many(t: Any, a: Any, source: Any, net: Any, lo: int, hi: int) -> None:
    """Run copies `lo` to `hi`, each to the end of its episode; the reward is computed then, for the whole episode."""
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    net = network_without_refcount(net)
    env_settings = a.env_settings[0]
    context = np.zeros(len(net.bias), np.float32)
    h = np.zeros(len(net.bias), np.float32)
    h2 = np.zeros(len(net.bias), np.float32)
    for b in range(lo, hi):
        s = nth_state(t, b)
        copy = a.copies[b]
        while not copy.over:
            slot = best_slot(net, a.jobs[b], a.mask[b], a.summary[b], copy.shown, context, h, h2)
            if slot >= 0:  # else an episode without a choice: it only has to be ended
                apply(s, copy, a.slots[b, slot])
            copy.steps += 1
            on = advance_to_decision(
                s,
                copy,
                source.order,
                env_settings.agent_backfills != 0,
                env_settings.hold != 0,
                env_settings.max_wait_s,
            )
            copy.over = on == OVER
            a.over[b] = on == OVER
            observe(s, a, source, b, a.summary)
        a.reward[b] += compute_reward(
            s, copy, source.user_weight[b], env_settings.sla_s, a.weights, a.settled[b], a.paid[b], a.terms[b]
        )
        note = a.finished[b]
        note[0] = copy.total
        note[1] = copy.steps
        note[2] = copy.invalid
        for term in range(len(a.weights)):
            note[3 + term] = a.paid[b, term]


@cache
def _compiled(state: Any, buffers: Any, source: Any, net: Any) -> Callable[..., Any]:
    signature = types.void(state, buffers, source, net, types.int64, types.int64)
    return compile_entry(_run_many, signature, "envs")


def inference_kernel(state: Any, buffers: Any, source: Any, net: NetworkWeights) -> Callable[..., Any]:
    """The kernel that runs episodes with a network, compiled for the types of these arrays."""
    if net.job.shape[0] != buffers.jobs.shape[2]:
        raise InputError(
            f"the network takes {net.job.shape[0]} features of a job and the engine computes {buffers.jobs.shape[2]}; "
            "a network with custom features runs from Python only"
        )
    if numba.config.DISABLE_JIT:
        return _compiled(types.int64, types.int64, types.int64, types.int64)
    return _compiled(*(numba.typeof(each) for each in (state, buffers, source, net)))
