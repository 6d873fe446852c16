"""One step of all environment copies; the kernels it calls are those of the environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import numba
from numba import types

from kilowait.engine.kernels.jit import compile_entry, kernel, nth_row
from kilowait.envs.kernels.state_stack import SAME_STEP

BEGIN, NOTHING, START_PREPARED = -1, -2, -3
"""Codes in place of an action: begin the next episode; leave the copy unchanged; run the prepared state to its first
decision."""
EPISODE_OVER, DECISION, TRUNCATED, NODE_CHANGES_FULL = 0, 1, 2, 3
"""Results of `advance_to_decision`: every job has started (with power controls or GPUs: ended); the agent has a choice;
the horizon is reached; the array of node state changes, which are kept for a log, is full."""


@dataclass(frozen=True)
class KernelSet:
    """Kernels of one environment. All take the state of a copy, the buffers, the log arrays and the copy's number."""

    name: str
    title: str
    """What the environment is, for the message before it is compiled."""
    compile_time: str
    """About how long this takes on one core, for the message."""
    reset: Callable[..., None]
    """Begin the next episode: copy its window of the log, and empty the machine."""
    advance_to_decision: Callable[..., int]
    """Advance the simulation to the next decision; returns one of the codes above."""
    apply_action: Callable[..., None]
    """Apply an allowed action, the last argument."""
    write_observation: Callable[..., None]
    """Write the observation; the last argument: whether the episode is over."""
    reset_reward: Callable[..., None]
    """Begin the sums of the reward terms of an episode."""
    compute_reward: Callable[..., float]
    """The reward since the last call."""

    def compiled_step(self, states: Any, buffers: Any, log_arrays: Any) -> Callable[..., Any]:
        """The step compiled for the types of these arrays."""
        if numba.config.DISABLE_JIT:
            return _compiled(self, types.int64, types.int64, types.int64)
        return _compiled(self, numba.typeof(states), numba.typeof(buffers), numba.typeof(log_arrays))


_PLACEHOLDER: Any = None
reset = advance_to_decision = apply_action = write_observation = reset_reward = compute_reward = _PLACEHOLDER
"""In `_step_many`, the kernels of a set stand in their places."""


@kernel
def allowed_action(a: Any, b: int, action: int) -> int:
    """The action, or the first allowed one if the mask forbids it; -1 if there is none."""
    mask = a.mask[b]
    if action < len(mask) and mask[action] != 0:
        return action
    a.copies[b].invalid += 1
    for other in range(len(mask)):
        if mask[other] != 0:
            return other
    return -1


@kernel
def store_results(a: Any, b: int) -> None:
    """Store the return, the length and the terms of an episode that is over."""
    copy = a.copies[b]
    results = a.finished[b]
    results[0] = copy.total
    results[1] = copy.steps
    results[2] = copy.invalid
    for term in range(len(a.weights)):
        results[3 + term] = a.accrued[b, term]


def _step_many(t: Any, a: Any, source: Any, actions: Any, lo: int, hi: int) -> None:
    """One step of the copies from `lo` to `hi`; an action below 0 is BEGIN, NOTHING or START_PREPARED.

    All kernels are called from here: nested calls would be compiled again for each caller.
    """
    for b in range(lo, hi):
        action = actions[b]
        if action == NOTHING:
            continue
        s = nth_row(t, b)
        copy = a.copies[b]
        begins = action == BEGIN or (copy.over != 0 and action != START_PREPARED)
        over = False
        truncated = False
        if begins:
            a.reward[b] = 0.0
            for term in range(len(a.weights)):
                a.terms[b, term] = 0.0
        else:
            if action != START_PREPARED:
                allowed = allowed_action(a, b, action)
                if allowed >= 0:  # else an episode without a decision: it is over
                    apply_action(s, a, source, b, allowed)
            outcome = advance_to_decision(s, a, source, b)
            truncated = outcome == TRUNCATED
            over = truncated or outcome == EPISODE_OVER
            copy.over = over
            if action != START_PREPARED:
                a.reward[b] = compute_reward(s, a, source, b)
                copy.steps += 1
            if over:
                store_results(a, b)
                write_observation(s, a, source, b, True)
                begins = a.env_settings[0].autoreset == SAME_STEP
        if begins:
            reset(s, a, source, b)
            advance_to_decision(s, a, source, b)
            reset_reward(s, a, source, b)
        if begins or not over:
            write_observation(s, a, source, b, False)
        a.over[b] = over
        a.cut[b] = truncated


@cache
def _compiled(kernels: KernelSet, states: Any, buffers: Any, log_arrays: Any) -> Callable[..., Any]:
    names = {**_step_many.__globals__, **vars(kernels)}
    step = FunctionType(_step_many.__code__, names, f"step_{kernels.name}")
    step.__qualname__ = step.__name__
    signature = types.void(states, buffers, log_arrays, types.int64[::1], types.int64, types.int64)
    compiled: Any = compile_entry(step, signature, "envs", announced=(kernels.title, kernels.compile_time))
    if numba.config.DISABLE_JIT:
        return compiled
    # Bypass the dispatcher: its type checks of every array take as long as the step itself.
    return next(iter(compiled.overloads.values())).entry_point
