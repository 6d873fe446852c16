"""Linear power policy, evaluated inside the engine: job order, DVFS state, node sleep and load shifting.

The DVFS state of a job follows from its allowed slowdown: a linear function of features of the job and of the system.
The hand-tuned power controls are points in this parameter space: ``dvfs=1.1`` is 0.1, reduced to 0 where jobs
request more nodes than are free; ``sleep=timeout:600:reserve=8`` is a constant timeout and share of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp, floor, log1p
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from kilowait.engine.kernels.jit import (
    assume_nonnegative,
    compile_entry,
    kernel,
    maybe_inline,
    noinline,
    nth_row,
    specialize,
    without_refcount,
)
from kilowait.envs.kernels import decision_power
from kilowait.envs.kernels.decision_batch import BACKFILLING, BETWEEN, HEAD
from kilowait.envs.kernels.decision_power import NODES_PHASE, apply, eligible, fits, hold, may_hold
from kilowait.envs.kernels.reward import compute_power_reward
from kilowait.envs.kernels.state_stack import integrals
from kilowait.envs.kernels.step import EPISODE_OVER, NODE_CHANGES_FULL
from kilowait.envs.observation_spec import FORECAST_STEP_S
from kilowait.envs.power_setup import PowerSetup

Floats = npt.NDArray[np.float64]

HOUR_S = 3600.0
MAX_SHIFT_S = 86400.0
"""Maximum shift of a job, seconds."""
MIN_LN_S, MAX_LN_S = 0.0, 20.0
"""Bounds of ln(timeout / 1 s)."""
TOLERANCE = 1e-9
"""Tolerance of the allowed slowdown."""

SYSTEM_FEATURES: dict[str, str] = {
    "age": "order: per ln(1 + wait / 1 h) / 3",
    "patience": "order: per ln(1 + wait / estimate) / 3",
    "crowded": "slowdown: where jobs request more nodes than are free",
    "backlog": "slowdown: per ln(1 + waiting node-hours / nodes of the machine)",
    "backfill": "slowdown: for backfilled jobs",
    "signal": "slowdown: per (carbon intensity or price now / its mean forecast for 24 h) - 1",
    "timeout": "sleep: ln of the seconds that nodes stay idle",
    "timeout_waiting": "sleep: added to that while jobs wait",
    "timeout_busy": "sleep: added to that, times the share of allocated nodes",
    "spare": "idle nodes kept awake / nodes of the group",
    "spare_demand": "added to that, times nodes requested in the last hour / nodes of the machine",
    "spare_waiting": "added to that while jobs wait",
    "hold": "shift: maximum shift of a job / 10 h, per (carbon intensity or price now / its mean for 24 h) - 1",
}
"""Features of the system and their effects, in the order of `PowerPolicyWeights.weights`."""

(
    AGE, PATIENCE, CROWDED, BACKLOG, BACKFILL, SIGNAL, TIMEOUT, TIMEOUT_WAITING, TIMEOUT_BUSY, SPARE, SPARE_DEMAND,
    SPARE_WAITING, HOLD,
) = range(len(SYSTEM_FEATURES))  # fmt: skip


class PowerPolicyWeights(NamedTuple):
    """Weights for the kernel; N jobs of the log, R kinds of jobs, L DVFS states."""

    first: Floats  # (N,) constant part of the priority, smaller first
    allowed_slowdown: Floats  # (N,) constant part of the allowed slowdown, less 1
    slow: Floats  # (R, L) slowdown
    spent: Floats  # (R, L) watts x slowdown, of the power caused by the job
    weights: Floats  # (len(SYSTEM_FEATURES),)
    signal: int  # 0: carbon, 1: price; -1: neither


def power_policy_weights(
    power_setup: PowerSetup, first: Floats, allowed_slowdown: Floats, weights: npt.ArrayLike, signal: str | None
) -> PowerPolicyWeights:
    """Weights for the jobs of `powered`; `signal` is carbon, price or None."""
    power_tables, power_controls, model = (power_setup.power_tables, power_setup.power_controls, power_setup.model)
    kinds, levels = power_tables.may.shape
    sleeping_nodes = np.zeros((len(model.groups), kinds, 1))
    sleep_saving_w = np.zeros(len(model.groups))
    for g, group in enumerate(model.groups):
        sleeps = group.name in power_controls.sleep and group.sleep is not None
        sleep_saving_w[g] = group.idle_w - group.sleep.sleep_w if sleeps and group.sleep is not None else 0.0
        sleeping_nodes[g, :, 0] = power_tables.nodes_held[g]
    slow = np.ones((kinds, levels))
    if power_setup.tables is not None:
        slow = np.max([table.factor[:, :levels] for table in power_setup.tables.values()], axis=0)
    watts = (power_tables.above_w[:, :, :levels] + sleeping_nodes * sleep_saving_w[:, None, None]).mean(axis=0)
    watts = np.maximum(watts, 0.0)  # a job that draws less than its idle nodes adds nothing
    return PowerPolicyWeights(
        np.ascontiguousarray(first, np.float64),
        np.ascontiguousarray(allowed_slowdown, np.float64),
        np.ascontiguousarray(slow),
        np.ascontiguousarray(watts * slow),
        np.ascontiguousarray(weights, np.float64),
        -1 if signal is None or signal not in power_setup.names else ("carbon", "price").index(signal),
    )


@kernel
def always(s: Any) -> bool:
    """The policy decides about node sleep at every instant."""
    return True


_advance_to_decision = specialize(decision_power.advance_to_decision, inlined=False, can_sleep=always)


@maybe_inline
def above_mean(s: Any, power: Any, signal: int) -> float:
    """The signal now over its mean forecast for the coming day, less 1."""
    if signal < 0:
        return 0.0
    now = s.clock[0].now
    _, _, step = integrals(power, now)
    row = int((now - power.edge_s[0]) / FORECAST_STEP_S)
    forecasts = power.forecasts[assume_nonnegative(min(max(row, 0), len(power.forecasts) - 1))]
    mean = forecasts[signal, forecasts.shape[1] - 1]
    return power.value[step, signal] * forecasts[signal, 0] / mean - 1.0 if mean > 0 else 0.0


@maybe_inline
def node_hours(s: Any, nodes: float) -> float:
    """ln(1 + estimated node-hours of the waiting jobs / nodes of the machine)."""
    k = s.clock[0]
    total = 0.0
    for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
        job = assume_nonnegative(s.queue[i].job)
        total += s.job_state[job].least_need * s.jobs[job].estimate_s
    return log1p(total / HOUR_S / nodes)


@maybe_inline
def crowded(s: Any) -> float:
    """1 if waiting jobs request more nodes than are free."""
    free = 0
    for g in range(len(s.groups)):
        free += s.pools[s.groups[g].pool_lo].free
    return 1.0 if s.power_control_state[0].queued_nodes > free else 0.0


@maybe_inline
def level_for(power: Any, policy: Any, log_row: int, allowed_slowdown: float) -> int:
    """The DVFS state with the minimum energy within the allowed slowdown."""
    kind = assume_nonnegative(power.kind[log_row])
    may = power.may[kind]
    best = 0
    for level in range(1, len(may)):
        if (
            may[level] != 0
            and policy.slow[kind, level] - 1.0 <= allowed_slowdown + TOLERANCE
            and policy.spent[kind, level] < policy.spent[kind, best]
        ):
            best = level
    return best


@maybe_inline
def set_sleep_policy(s: Any, policy: Any, nodes: float) -> None:
    """Set the sleep timeout and the number of idle nodes kept awake."""
    k = s.clock[0]
    w = policy.weights
    waiting = 1.0 if k.queue_hi > k.queue_lo else 0.0
    free = 0
    for g in range(len(s.groups)):
        free += s.pools[s.groups[g].pool_lo].free
    demand = 0.0
    if w[SPARE_DEMAND] != 0.0:
        at = k.next_arrival - 1
        while at >= 0 and s.jobs[s.arrivals[assume_nonnegative(at)]].submit_s > k.now - HOUR_S:
            demand += s.job_state[s.arrivals[assume_nonnegative(at)]].least_need
            at -= 1
    seconds = w[TIMEOUT] + w[TIMEOUT_WAITING] * waiting + w[TIMEOUT_BUSY] * (1.0 - free / nodes)
    seconds = exp(min(max(seconds, MIN_LN_S), MAX_LN_S))
    share = w[SPARE] + w[SPARE_DEMAND] * demand / nodes + w[SPARE_WAITING] * waiting
    share = min(max(share, 0.0), 1.0)
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        if group.sleeps:
            group.timeout_s = seconds
            group.spare = floor(share * s.pools[s.groups[g].pool_lo].capacity + 0.5)


@noinline
def run_power_policy(s: Any, a: Any, source: Any, b: int, policy: Any, score: Any) -> None:
    """Advance until the run is over, or, where a log is kept, the array of node state changes is full."""
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    power = source.own
    w = policy.weights
    k = s.clock[0]
    scored_s = -np.inf
    extra_slowdown = 0.0
    shift_s = 0.0
    while not copy.over:
        if copy.phase == NODES_PHASE:
            set_sleep_policy(s, policy, env_settings.nodes)
            copy.sleep_decided = 1
        elif copy.phase != BETWEEN:
            if scored_s != k.now:
                scored_s = k.now
                signal = above_mean(s, power, policy.signal)
                extra_slowdown = w[CROWDED] * crowded(s) + w[SIGNAL] * signal
                if w[BACKLOG] != 0.0:
                    extra_slowdown += w[BACKLOG] * node_hours(s, env_settings.nodes)
                shift_s = min(w[HOLD] * 10.0 * HOUR_S * max(signal, 0.0), MAX_SHIFT_S)
                for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
                    job = assume_nonnegative(s.queue[i].job)
                    value = policy.first[assume_nonnegative(copy.first + job)]
                    wait = max(k.now - s.jobs[job].submit_s, 0.0)
                    if w[AGE] != 0.0:
                        value += w[AGE] * log1p(wait / HOUR_S) / 3.0
                    if w[PATIENCE] != 0.0:
                        value += w[PATIENCE] * log1p(wait / max(s.jobs[job].estimate_s, 1.0)) / 3.0
                    score[job] = value
            best = -1
            level = 0
            shifting = False
            for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
                job = assume_nonnegative(s.queue[i].job)
                if best >= 0 and score[job] >= score[best]:
                    continue
                if copy.phase == HEAD and not eligible(s, HEAD, i):
                    continue
                if shift_s > 0.0 and k.now - s.jobs[job].submit_s < shift_s:
                    shifting = True
                    continue
                log_row = assume_nonnegative(copy.first + job)
                allowed_slowdown = policy.allowed_slowdown[log_row] + extra_slowdown
                if copy.phase == BACKFILLING:
                    allowed_slowdown += w[BACKFILL]
                level_wanted = level_for(power, policy, log_row, allowed_slowdown)
                if copy.phase == BACKFILLING and not fits(s, job, level_wanted):
                    continue
                best = job
                level = level_wanted
            if best >= 0:
                s.preferred_level[best] = level
                apply(s, copy, best)
            elif shifting and may_hold(s, env_settings.max_wait_for_hold_s):
                set_sleep_policy(s, policy, env_settings.nodes)
                hold(s, copy, power, env_settings.hold_s, env_settings.max_wait_for_hold_s)
            elif shifting:
                shift_s = 0.0  # no other event follows: start the first job
                continue
            else:
                copy.phase = NODES_PHASE
                copy.sleep_decided = 0
        outcome = _advance_to_decision(s, a, source, b)
        if outcome == NODE_CHANGES_FULL:
            return
        copy.over = outcome == EPISODE_OVER


def _run_many(t: Any, a: Any, source: Any, policy: Any, lo: int, hi: int) -> None:
    """Run copies `lo` to `hi`, each to the end of its episode; the reward is computed then, for the whole episode."""
    a = without_refcount(a)
    source = without_refcount(source)
    policy = without_refcount(policy)
    env_settings = a.env_settings[0]
    score = np.empty(t.jobs.shape[1])
    for b in range(lo, hi):
        s = nth_row(t, b)
        copy = a.copies[b]
        run_power_policy(s, a, source, b, policy, score)
        a.over[b] = copy.over != 0
        if copy.over and env_settings.keep_node_steps == 0:
            compute_power_reward(s, a, source, b)
            for term in range(len(a.weights)):
                a.finished[b, 3 + term] = a.accrued[b, term]


@cache
def _compiled(state: Any, buffers: Any, source: Any, policy: Any) -> Callable[..., Any]:
    signature = types.void(state, buffers, source, policy, types.int64, types.int64)
    announced = ("the simulator of agents with power controls", "1 min")
    return compile_entry(_run_many, signature, "envs", allocates=True, announced=announced)


def power_policy_kernel(state: Any, buffers: Any, source: Any, policy: PowerPolicyWeights) -> Callable[..., Any]:
    """The kernel that runs episodes with this policy, compiled for the types of these arrays."""
    if numba.config.DISABLE_JIT:
        return _compiled(types.int64, types.int64, types.int64, types.int64)
    return _compiled(*(numba.typeof(each) for each in (state, buffers, source, policy)))
