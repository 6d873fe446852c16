"""Step kernel of `kilowait/Gpu-v0`: one step of all environment copies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from kilowait.engine.gpu.state import gpu_state_without_refcount
from kilowait.engine.kernels.jit import compile_entry, kernel, noinline, without_refcount
from kilowait.envs.batched_sim_base import BEGIN, NOTHING, SAME_STEP, START_PREPARED
from kilowait.envs.kernels.gpu_env_decision import (
    DECISION,
    TRUNCATED,
    advance_to_decision,
    end_gpu_pass,
    preempt_job,
    start_job,
)
from kilowait.envs.kernels.gpu_env_job_graph import write_edges
from kilowait.envs.kernels.gpu_env_observation import write_observation
from kilowait.envs.kernels.gpu_env_reward import compute_reward
from kilowait.envs.kernels.gpu_env_states import log_arrays_without_refcount, nth_state, reset

__all__ = ["GPU_ENV_SETTINGS", "GpuStepBuffers", "compiled_gpu_step"]

GPU_ENV_SETTINGS = np.dtype(
    [
        ("gpus", np.float64),  # GPUs of the machine, at least 1
        ("widest", np.float64),  # GPUs of the largest node, at least 1
        ("max_wait_s", np.float64),  # a job that has waited longer must be chosen first
        ("sla_s", np.float64),
        ("horizon_s", np.float64),
        ("choices", np.int64),  # ways to start a job
        ("by_type", np.int64),  # the agent chooses the type
        ("hold", np.int64),  # the last action starts no job
        ("victims", np.int64),  # slots of running jobs
        ("starts", np.int64),  # maximum starts of a job
        ("autoreset", np.int64),
    ],
    align=True,
)
"""Settings shared by all copies."""


class GpuStepBuffers(NamedTuple):
    """Observations, rewards and bookkeeping; one row per copy."""

    env_settings: npt.NDArray[Any]  # (1,) GPU_ENV_SETTINGS
    weights: npt.NDArray[np.float64]  # (terms,)
    copies: npt.NDArray[Any]  # (B,) COPY
    jobs: npt.NDArray[np.float32]  # (B, slots, features)
    mask: npt.NDArray[np.int8]  # (B, actions)
    summary: npt.NDArray[np.float32]  # (B, summary)
    slots: npt.NDArray[np.int64]  # (B, slots) shown jobs, numbered from 0 in the episode
    edges: npt.NDArray[np.uint8]  # (B, slots, slots) or (B, 0, 0)
    free: npt.NDArray[np.int64]  # (B, types or 0, 2) scratch: thousandths of GPUs and of cores that are free
    fitting_cache: npt.NDArray[np.int64]  # (B, job shapes, 2) moment, types on which they fit
    alive: npt.NDArray[np.int64]  # (B, jobs) unfinished jobs
    pending_losses: npt.NDArray[
        np.int64
    ]  # (B, jobs) segments whose loss is not counted yet, -1: none; (B, 0) without preemption
    reward: npt.NDArray[np.float64]  # (B,)
    terms: npt.NDArray[np.float64]  # (B, terms) of this step
    settled: npt.NDArray[np.float64]  # (B, 7) sums over finished jobs, see reward_gpu
    accrued: npt.NDArray[np.float64]  # (B, terms) up to the last step
    over: npt.NDArray[np.bool_]  # (B,)
    cut: npt.NDArray[np.bool_]  # (B,) truncated
    last_jobs: npt.NDArray[np.float32]  # as jobs, mask and summary, at the end of an episode where the next
    last_mask: npt.NDArray[np.int8]  # began at once; (0, ...) without a horizon
    last_edges: npt.NDArray[np.uint8]
    last_summary: npt.NDArray[np.float32]
    finished: npt.NDArray[np.float64]  # (B, 3 + terms) of an episode that ended: return, steps, replaced, terms


@kernel
def buffers_without_refcount(a: Any) -> GpuStepBuffers:
    """The buffers as arrays without reference counts."""
    return GpuStepBuffers(
        without_refcount(a.env_settings),
        without_refcount(a.weights),
        without_refcount(a.copies),
        without_refcount(a.jobs),
        without_refcount(a.mask),
        without_refcount(a.summary),
        without_refcount(a.slots),
        without_refcount(a.edges),
        without_refcount(a.free),
        without_refcount(a.fitting_cache),
        without_refcount(a.alive),
        without_refcount(a.pending_losses),
        without_refcount(a.reward),
        without_refcount(a.terms),
        without_refcount(a.settled),
        without_refcount(a.accrued),
        without_refcount(a.over),
        without_refcount(a.cut),
        without_refcount(a.last_jobs),
        without_refcount(a.last_mask),
        without_refcount(a.last_edges),
        without_refcount(a.last_summary),
        without_refcount(a.finished),
    )


@noinline
def advance_copy(s: Any, a: Any, source: Any, b: int) -> int:
    """Advance to the next decision."""
    s = gpu_state_without_refcount(s)
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    env_settings = a.env_settings[0]
    return advance_to_decision(
        s,
        a.copies[b],
        source,
        a.fitting_cache[b],
        env_settings.by_type != 0,
        env_settings.hold != 0,
        env_settings.victims > 0,
        env_settings.starts,
        env_settings.max_wait_s,
    )


@noinline
def begin(s: Any, a: Any, source: Any, b: int) -> None:
    """Begin a new episode and advance it to its first decision."""
    s = gpu_state_without_refcount(s)
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    reset(s, a.copies[b], source, a.env_settings[0].horizon_s)
    for job in range(a.pending_losses.shape[1]):
        a.pending_losses[b, job] = -1
    advance_copy(s, a, source, b)
    a.over[b] = False
    a.cut[b] = False
    for column in range(a.settled.shape[1]):
        a.settled[b, column] = 0.0
    for term in range(len(a.weights)):
        a.accrued[b, term] = 0.0


@noinline
def observe(s: Any, a: Any, source: Any, b: int) -> None:
    """The observation of one copy."""
    s = gpu_state_without_refcount(s)
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    write_observation(
        s, a.copies[b], source, a.env_settings[0], a.fitting_cache[b], a.jobs[b], a.mask[b], a.summary[b], a.slots[b]
    )
    if a.edges.shape[1] > 0:
        write_edges(s, a.copies[b], source, a.env_settings[0].victims, a.free[b], a.slots[b], a.edges[b])


@noinline
def apply_action(s: Any, a: Any, source: Any, b: int, action: int) -> None:
    """Apply the action, or the first allowed one if the mask forbids it."""
    s = gpu_state_without_refcount(s)
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    mask = a.mask[b]
    if action >= len(mask) or mask[action] == 0:
        copy.invalid += 1
        action = 0
        while action < len(mask) and mask[action] == 0:
            action += 1
    if action >= len(mask):  # an episode without a decision: it is over
        return
    slot = action // env_settings.choices
    slots = a.slots.shape[1]
    if slot >= slots:
        end_gpu_pass(s, copy)
    elif slot >= slots - env_settings.victims:
        preempt_job(s, copy, a.pending_losses[b], a.slots[b, slot])
    else:
        choice = action % env_settings.choices
        choices_per_placement = env_settings.choices // len(source.codes)
        s.clock[0].placement = source.codes[choice // choices_per_placement]
        start_job(s, copy, a.slots[b, slot], choice % choices_per_placement - 1)


@noinline
def store_finished_episode(a: Any, b: int) -> None:
    """Store the final observation and the results of the episode."""
    a = buffers_without_refcount(a)
    copy = a.copies[b]
    results = a.finished[b]
    results[0] = copy.total
    results[1] = copy.steps
    results[2] = copy.invalid
    for term in range(len(a.weights)):
        results[3 + term] = a.accrued[b, term]
    for i in range(a.summary.shape[1]):
        a.last_summary[b, i] = a.summary[b, i]
    if len(a.last_jobs) > 0:
        for i in range(a.jobs.shape[1]):
            for f in range(a.jobs.shape[2]):
                a.last_jobs[b, i, f] = a.jobs[b, i, f]
        for i in range(a.mask.shape[1]):
            a.last_mask[b, i] = a.mask[b, i]
        for i in range(a.edges.shape[1]):
            for j in range(a.edges.shape[2]):
                a.last_edges[b, i, j] = a.edges[b, i, j]


def _step_many(t: Any, a: Any, source: Any, actions: Any, lo: int, hi: int) -> None:
    """One step of the copies from `lo` to `hi`; an action below 0 is BEGIN, NOTHING or START_PREPARED."""
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    env_settings = a.env_settings[0]
    for b in range(lo, hi):
        s = nth_state(t, b)
        copy = a.copies[b]
        if actions[b] == NOTHING:
            continue
        if actions[b] == START_PREPARED:
            outcome = advance_copy(s, a, source, b)
            copy.over = outcome != DECISION
            a.over[b] = outcome != DECISION
            observe(s, a, source, b)
            continue
        if copy.over or actions[b] == BEGIN:
            a.reward[b] = 0.0
            for term in range(len(a.weights)):
                a.terms[b, term] = 0.0
            begin(s, a, source, b)
            observe(s, a, source, b)
            continue
        apply_action(s, a, source, b, actions[b])
        outcome = advance_copy(s, a, source, b)
        a.reward[b] = compute_reward(
            s,
            copy,
            source.weight,
            env_settings.gpus,
            env_settings.sla_s,
            a.weights,
            a.alive[b],
            a.pending_losses[b],
            a.settled[b],
            a.accrued[b],
            a.terms[b],
        )
        copy.steps += 1
        observe(s, a, source, b)
        over = outcome != DECISION
        copy.over = over
        if over:
            store_finished_episode(a, b)
            if env_settings.autoreset == SAME_STEP:
                begin(s, a, source, b)
                observe(s, a, source, b)
        a.over[b] = over
        a.cut[b] = outcome == TRUNCATED


@cache
def compiled(state: Any, buffers: Any, source: Any) -> Callable[..., Any]:
    """The step compiled for these argument types."""
    signature = types.void(state, buffers, source, types.int64[::1], types.int64, types.int64)
    step = compile_entry(_step_many, signature, "envs")
    if numba.config.DISABLE_JIT:
        return step
    # Bypass the dispatcher: its type checks of every array take as long as the step itself.
    return next(iter(step.overloads.values())).entry_point  # type: ignore[attr-defined]


def compiled_gpu_step(state: Any, buffers: Any, source: Any) -> Callable[..., Any]:
    """The step compiled for the types of these arrays."""
    if numba.config.DISABLE_JIT:
        return compiled(types.int64, types.int64, types.int64)
    return compiled(numba.typeof(state), numba.typeof(buffers), numba.typeof(source))
