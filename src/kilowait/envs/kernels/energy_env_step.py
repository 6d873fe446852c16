"""Step kernel of `kilowait/Energy-v0`: one step of all environment copies, with power controls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

from kilowait.engine.kernels.jit import compile_entry, noinline, without_refcount
from kilowait.engine.kernels.state_with_power_controls import power_state_without_refcount
from kilowait.envs.batched_sim_base import BEGIN, NOTHING, SAME_STEP, START_PREPARED
from kilowait.envs.kernels.batch_env_decision import EPISODE_OVER
from kilowait.envs.kernels.batch_env_step import ENV_SETTINGS as PLAIN
from kilowait.envs.kernels.batch_env_step import buffers_without_refcount
from kilowait.envs.kernels.energy_env_decision import advance_to_decision, apply, hold
from kilowait.envs.kernels.energy_env_observation import write_observation
from kilowait.envs.kernels.energy_env_reward import compute_reward
from kilowait.envs.kernels.energy_env_states import log_arrays_without_refcount, nth_state, reset
from kilowait.envs.kernels.energy_integral import integrate_node_energy
from kilowait.envs.kernels.node_sleep_actions import put_all_to_sleep, wake_for_waiting

__all__ = ["POWER_ENV_SETTINGS", "compiled_energy_step"]

POWER_ENV_SETTINGS = np.dtype(
    [(name, PLAIN[name]) for name in PLAIN.names or ()]
    + [
        ("levels", np.int64),  # DVFS states to choose from
        ("sleep_actions", np.int64),  # there are sleep and wake actions
        ("wake_ahead", np.int64),  # nodes boot in time for reservations
        ("signals", np.int64),  # bits: carbon, price
        ("keep_node_steps", np.int64),  # node state changes are kept for a log
        ("rows", np.int64),  # maximum node state changes of one instant
        ("hold_s", np.float64),  # maximum duration of the hold action
        ("max_wait_for_hold_s", np.float64),  # a job that has waited longer is not held
    ],
    align=True,
)
"""Settings shared by all copies."""


@noinline
def apply_action(s: Any, copy: Any, source: Any, env_settings: Any, mask: Any, slots: Any, action: int) -> None:
    """Apply the action, or the first allowed one if the mask forbids it."""
    s = power_state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    mask = without_refcount(mask)
    slots = without_refcount(slots)
    if action >= len(mask) or mask[action] == 0:
        copy.invalid += 1
        action = 0
        while action < len(mask) and mask[action] == 0:
            action += 1
    if action >= len(mask):  # an episode without a decision: it is over
        return
    extra = action - len(slots) * env_settings.levels
    if extra < 0:
        job = slots[action // env_settings.levels]
        s.preferred_level[job] = action % env_settings.levels
        apply(s, copy, job)
    elif extra == 0:
        hold(s, copy, source, env_settings.hold_s, env_settings.max_wait_for_hold_s)
    else:
        copy.sleep_decided = 1
        if extra == 1:
            put_all_to_sleep(s)
        else:
            wake_for_waiting(s)


def _step_many(t: Any, a: Any, source: Any, actions: Any, lo: int, hi: int) -> None:
    """One step of the copies from `lo` to `hi`; an action below 0 is BEGIN, NOTHING or START_PREPARED.

    All kernels are called from here: nested calls would be compiled again for each caller.
    """
    a = buffers_without_refcount(a)
    source = log_arrays_without_refcount(source)
    env_settings = a.env_settings[0]
    for b in range(lo, hi):
        if actions[b] == NOTHING:
            continue
        s = nth_state(t, b)
        copy = a.copies[b]
        begins = actions[b] == BEGIN or (copy.over != 0 and actions[b] != START_PREPARED)
        a.over[b] = False
        if not begins:
            if actions[b] != START_PREPARED:
                apply_action(s, copy, source, env_settings, a.mask[b], a.slots[b], actions[b])
            over = advance_to_decision(s, copy, source, env_settings) == EPISODE_OVER
            if actions[b] != START_PREPARED:
                a.reward[b] = compute_reward(
                    s,
                    copy,
                    source,
                    source.user_weight[b],
                    env_settings,
                    a.weights,
                    a.settled[b],
                    a.accrued[b],
                    a.terms[b],
                )
                copy.steps += 1
            copy.over = over
            a.over[b] = over
        else:
            a.reward[b] = 0.0
            a.terms[b] = 0.0
        if copy.over != 0 and not begins:
            results = a.finished[b]
            results[0] = copy.total
            results[1] = copy.steps
            results[2] = copy.invalid
            for term in range(len(a.weights)):
                results[3 + term] = a.accrued[b, term]
            if env_settings.autoreset == SAME_STEP:
                write_observation(
                    s, copy, source, env_settings,
                    a.jobs[b], a.mask[b], a.last_summary[b], a.slots[b], a.edges[b], source.choosable[b],
                )  # fmt: skip
                begins = True
        if begins:
            reset(s, copy, source, b)
            advance_to_decision(s, copy, source, env_settings)
            integrate_node_energy(s, copy, source, False)
            for term in range(len(a.weights)):
                a.settled[b, term] = 0.0
                a.accrued[b, term] = 0.0
        write_observation(
            s, copy, source, env_settings,
            a.jobs[b], a.mask[b], a.summary[b], a.slots[b], a.edges[b], source.choosable[b],
        )  # fmt: skip


@cache
def compiled(state: Any, buffers: Any, source: Any) -> Callable[..., Any]:
    """The step compiled for these argument types."""
    signature = types.void(state, buffers, source, types.int64[::1], types.int64, types.int64)
    kernel = compile_entry(_step_many, signature, "envs")
    if numba.config.DISABLE_JIT:
        return kernel
    return next(iter(kernel.overloads.values())).entry_point  # type: ignore[attr-defined]


def compiled_energy_step(state: Any, buffers: Any, source: Any) -> Callable[..., Any]:
    """The step compiled for the types of these arrays."""
    if numba.config.DISABLE_JIT:
        return compiled(types.int64, types.int64, types.int64)
    return compiled(numba.typeof(state), numba.typeof(buffers), numba.typeof(source))
