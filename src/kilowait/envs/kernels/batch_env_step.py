"""Step kernel of `kilowait/Batch-v0`: one step of all environment copies, and the beginning of episodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from kilowait.engine.interface import JOB
from kilowait.engine.jit_entry import PARAMETERS_TYPE, SCORE_FUNCTION_TYPE
from kilowait.engine.kernels.jit import compile_entry, kernel, noinline, without_refcount
from kilowait.engine.kernels.state import state_without_refcount
from kilowait.envs.batched_sim_base import BEGIN, DISABLED, NOTHING, SAME_STEP, START_PREPARED
from kilowait.envs.kernels.batch_env_decision import EPISODE_OVER, advance_to_decision, apply_choice, finish_pass
from kilowait.envs.kernels.batch_env_observation import write_observation
from kilowait.envs.kernels.batch_env_reward import compute_reward
from kilowait.envs.kernels.batch_env_states import log_arrays_without_refcount, nth_state, reset

__all__ = ["DISABLED", "ENV_SETTINGS", "START_PREPARED", "StepBuffers", "static_score_kernel", "compiled_batch_step"]

ENV_SETTINGS = np.dtype(
    [
        ("nodes", np.float64),  # nodes of the machine
        ("max_wait_s", np.float64),  # a job that has waited longer must be chosen first
        ("sla_s", np.float64),
        ("agent_backfills", np.int64),  # the agent chooses backfill candidates too
        ("hold", np.int64),  # the last action starts no job
        ("autoreset", np.int64),
    ],
    align=True,
)
"""Settings shared by all copies."""


class StepBuffers(NamedTuple):
    """Observations, rewards and bookkeeping; one row per copy."""

    env_settings: npt.NDArray[Any]  # (1,) ENV_SETTINGS
    weights: npt.NDArray[np.float64]  # (terms,)
    copies: npt.NDArray[Any]  # (B,) COPY
    jobs: npt.NDArray[np.float32]  # (B, slots, features)
    mask: npt.NDArray[np.int8]  # (B, actions)
    summary: npt.NDArray[np.float32]  # (B, summary)
    slots: npt.NDArray[np.int64]  # (B, slots) shown jobs, numbered from 0 in the episode
    edges: npt.NDArray[np.uint8]  # (B, slots, slots) or (B, 0, 0)
    reward: npt.NDArray[np.float64]  # (B,)
    terms: npt.NDArray[np.float64]  # (B, terms) of this step
    settled: npt.NDArray[np.float64]  # (B, terms) of the jobs that have started
    accrued: npt.NDArray[np.float64]  # (B, terms) up to the last step
    over: npt.NDArray[np.bool_]  # (B,)
    last_summary: npt.NDArray[np.float32]  # (B, summary) at the end of the episode, where it began anew at once
    finished: npt.NDArray[np.float64]  # (B, 3 + terms) of an episode that ended: return, steps, replaced actions, terms


@kernel
def buffers_without_refcount(a: Any) -> StepBuffers:
    """The buffers as arrays without reference counts."""
    return StepBuffers(
        without_refcount(a.env_settings),
        without_refcount(a.weights),
        without_refcount(a.copies),
        without_refcount(a.jobs),
        without_refcount(a.mask),
        without_refcount(a.summary),
        without_refcount(a.slots),
        without_refcount(a.edges),
        without_refcount(a.reward),
        without_refcount(a.terms),
        without_refcount(a.settled),
        without_refcount(a.accrued),
        without_refcount(a.over),
        without_refcount(a.last_summary),
        without_refcount(a.finished),
    )


@noinline
def begin(s: Any, a: Any, source: Any, b: int) -> None:
    """Begin a new episode and advance it to its first decision."""
    s = state_without_refcount(s)
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    env_settings = a.env_settings[0]
    reset(s, a.copies[b], source, b)
    advance_to_decision(
        s, a.copies[b], source.order, env_settings.agent_backfills != 0, env_settings.hold != 0, env_settings.max_wait_s
    )
    a.over[b] = False
    for term in range(len(a.weights)):
        a.settled[b, term] = 0.0
        a.accrued[b, term] = 0.0


@noinline
def observe(s: Any, a: Any, source: Any, b: int, summary: Any) -> None:
    """Write the observation of one copy; its summary goes to `summary`."""
    s = state_without_refcount(s)
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    summary = without_refcount(summary)
    env_settings = a.env_settings[0]
    write_observation(
        s,
        a.copies[b],
        source,
        env_settings.nodes,
        env_settings.max_wait_s,
        env_settings.hold != 0,
        a.jobs[b],
        a.mask[b],
        summary[b],
        a.slots[b],
        a.edges[b],
    )


@noinline
def apply_action(s: Any, copy: Any, mask: Any, slots: Any, action: int) -> None:
    """Apply the action, or the first allowed one if the mask forbids it."""
    s = state_without_refcount(s)
    mask = without_refcount(mask)
    slots = without_refcount(slots)
    if action >= len(mask) or mask[action] == 0:
        copy.invalid += 1
        action = 0
        while action < len(mask) and mask[action] == 0:
            action += 1
    if action >= len(mask):  # an episode without a decision: it is over
        return
    if action == len(slots):
        finish_pass(s, copy)
    else:
        apply_choice(s, copy, slots[action])


def _step_many(t: Any, a: Any, source: Any, actions: Any, lo: int, hi: int) -> None:
    """One step of copies `lo` to `hi`; an action below 0 is BEGIN, NOTHING or START_PREPARED."""
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    env_settings = a.env_settings[0]
    for b in range(lo, hi):
        s = nth_state(t, b)
        copy = a.copies[b]
        if actions[b] == NOTHING:
            continue
        if actions[b] == START_PREPARED:
            outcome = advance_to_decision(
                s,
                copy,
                source.order,
                env_settings.agent_backfills != 0,
                env_settings.hold != 0,
                env_settings.max_wait_s,
            )
            copy.over = outcome == EPISODE_OVER
            a.over[b] = outcome == EPISODE_OVER
            observe(s, a, source, b, a.summary)
            continue
        if copy.over or actions[b] == BEGIN:
            a.reward[b] = 0.0
            a.terms[b] = 0.0
            begin(s, a, source, b)
            observe(s, a, source, b, a.summary)
            continue
        apply_action(s, copy, a.mask[b], a.slots[b], actions[b])
        outcome = advance_to_decision(
            s, copy, source.order, env_settings.agent_backfills != 0, env_settings.hold != 0, env_settings.max_wait_s
        )
        a.reward[b] = compute_reward(
            s, copy, source.user_weight[b], env_settings.sla_s, a.weights, a.settled[b], a.accrued[b], a.terms[b]
        )
        copy.steps += 1
        if outcome == EPISODE_OVER:
            copy.over = 1
            results = a.finished[b]
            results[0] = copy.total
            results[1] = copy.steps
            results[2] = copy.invalid
            for term in range(len(a.weights)):
                results[3 + term] = a.accrued[b, term]
            observe(s, a, source, b, a.last_summary if env_settings.autoreset == SAME_STEP else a.summary)
            if env_settings.autoreset == SAME_STEP:
                begin(s, a, source, b)
        a.over[b] = outcome == EPISODE_OVER
        if outcome != EPISODE_OVER or env_settings.autoreset == SAME_STEP:
            observe(s, a, source, b, a.summary)


def _score_all(jobs: Any, out: Any, score: Any, parameters: Any) -> None:
    for i in range(len(jobs)):
        out[i] = score(jobs[i], jobs[i].submit_s, parameters)


@cache
def static_score_kernel() -> Callable[..., Any]:
    """Kernel (jobs, out, score, parameters): score of each job by a static policy, at its submission."""
    records = types.Array(numba.from_dtype(JOB), 1, "C")
    return compile_entry(
        _score_all, types.void(records, types.float64[::1], SCORE_FUNCTION_TYPE, PARAMETERS_TYPE), "envs"
    )


@cache
def compiled(state: Any, buffers: Any, source: Any) -> Callable[..., Any]:
    """The step compiled for these argument types."""
    signature = types.void(state, buffers, source, types.int64[::1], types.int64, types.int64)
    kernel = compile_entry(_step_many, signature, "envs")
    if numba.config.DISABLE_JIT:
        return kernel
    # Bypass the dispatcher: its type checks of every array take as long as the step itself.
    return next(iter(kernel.overloads.values())).entry_point  # type: ignore[attr-defined]


def compiled_batch_step(state: Any, buffers: Any, source: Any) -> Callable[..., Any]:
    """The step compiled for the types of these arrays."""
    if numba.config.DISABLE_JIT:
        return compiled(types.int64, types.int64, types.int64)
    return compiled(numba.typeof(state), numba.typeof(buffers), numba.typeof(source))
