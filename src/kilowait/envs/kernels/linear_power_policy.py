"""A few numbers that steer a run inside the engine: who is next, how fast it runs, when nodes sleep, who is held.

Every level is chosen from how much longer a job may be made: a sum of what is known of the job and of the moment. The
levers written by hand are points of this form: ``dvfs=1.1`` is 0.1 that turns into nothing where more nodes are asked
for than are free, ``sleep=timeout:600:reserve=8`` is a time and a share of the nodes that depend on nothing.
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
    specialize,
    without_refcount,
)
from kilowait.engine.kernels.power_state import power_state_without_refcount
from kilowait.envs.kernels import decision_power
from kilowait.envs.kernels.decision import (
    BEHIND,
    BETWEEN,
    HEAD,
    OVER,
)
from kilowait.envs.kernels.decision_power import (
    FULL,
    NODES,
    apply,
    eligible,
    fits,
    hold,
    may_hold,
)
from kilowait.envs.kernels.reward_power import pay
from kilowait.envs.kernels.state_stack_power import integrals, lend_source, one
from kilowait.envs.kernels.step import lend_scene
from kilowait.envs.power.power_setup import PowerSetup
from kilowait.envs.power.signal_features import TOLD_EVERY_S

__all__ = ["MOMENT", "PowerPolicyWeights", "steering_of", "steered_for"]

Floats = npt.NDArray[np.float64]

HOUR_S = 3600.0
HELD_S = 86400.0
"""No job is held longer, whatever the numbers say."""
LEAST_LN_S, MOST_LN_S = 0.0, 20.0
"""Bounds of ln(timeout / 1 s)."""
SAME = 1e-9
"""Levels that are slower than allowed by less than this are allowed."""

MOMENT: dict[str, str] = {
    "age": "order: per ln(1 + wait / 1 h) / 3",
    "patience": "order: per ln(1 + wait / estimate) / 3",
    "crowded": "longer by, where more nodes are asked for than are free",
    "backlog": "longer by, per ln(1 + node-hours that wait / nodes of the machine)",
    "behind": "longer by, for jobs that are filled in behind a reservation",
    "signal": "longer by, per (carbon intensity or price now / its mean forecast for 24 h) - 1",
    "timeout": "sleep: ln of the seconds that nodes stay idle",
    "timeout_waiting": "sleep: to be added to that while jobs wait",
    "timeout_busy": "sleep: to be added to that, times the share of nodes that jobs hold",
    "spare": "idle nodes to be kept awake / nodes of the group",
    "spare_demand": "to be added to that, times nodes asked for in the last hour / nodes of the machine",
    "spare_waiting": "to be added to that while jobs wait",
    "hold": "10 h for which a job is held at most, per (carbon intensity or price now / its mean for 24 h) - 1",
}
"""What depends on the moment, in the order of `Steering.weights`."""

(
    AGE, PATIENCE, CROWDED, BACKLOG, BESIDE, SIGNAL, TIMEOUT, TIMEOUT_WAITING, TIMEOUT_BUSY, SPARE, SPARE_DEMAND,
    SPARE_WAITING, HOLD,
) = range(len(MOMENT))  # fmt: skip


class PowerPolicyWeights(NamedTuple):
    """What the kernel takes; N jobs of the log, R kinds of jobs, L levels."""

    first: Floats  # (N,) who goes first, smaller before larger: the part that does not change
    longer: Floats  # (N,) how many times as long a job may be made, less 1: the part that does not change
    slow: Floats  # (R, L) how many times as long it is
    spent: Floats  # (R, L) watts x times as long, of what would not be drawn without the job
    weights: Floats  # (len(MOMENT),)
    signal: int  # 0: carbon, 1: price; -1: neither


def steering_of(
    powered: PowerSetup, first: Floats, longer: Floats, weights: npt.ArrayLike, signal: str | None
) -> PowerPolicyWeights:
    """Numbers for the jobs of `powered`; `signal` is carbon, price, or None where none is looked at."""
    drawing, levers, model = powered.drawing, powered.levers, powered.model
    kinds, levels = drawing.may.shape
    held = np.zeros((len(model.groups), kinds, 1))
    spared_w = np.zeros(len(model.groups))
    for g, group in enumerate(model.groups):
        asleep = group.name in levers.sleep and group.sleep is not None
        spared_w[g] = group.idle_w - group.sleep.sleep_w if asleep and group.sleep is not None else 0.0
        held[g, :, 0] = drawing.held[g]
    slow = np.ones((kinds, levels))
    if powered.tables is not None:
        slow = np.max([table.factor[:, :levels] for table in powered.tables.values()], axis=0)
    watts = (drawing.above_w[:, :, :levels] + held * spared_w[:, None, None]).mean(axis=0)
    watts = np.maximum(
        watts, 0.0
    )  # who draws less than its nodes would without it adds nothing, however long
    return PowerPolicyWeights(
        np.ascontiguousarray(first, np.float64),
        np.ascontiguousarray(longer, np.float64),
        np.ascontiguousarray(slow),
        np.ascontiguousarray(watts * slow),
        np.ascontiguousarray(weights, np.float64),
        -1 if signal is None or signal not in powered.names else ("carbon", "price").index(signal),
    )


@kernel
def lend_steering(a: Any) -> PowerPolicyWeights:
    """The numbers with references that are not counted."""
    return PowerPolicyWeights(
        without_refcount(a.first),
        without_refcount(a.longer),
        without_refcount(a.slow),
        without_refcount(a.spent),
        without_refcount(a.weights),
        a.signal,
    )


@kernel
def always(s: Any) -> bool:
    """Whoever steers is asked about the nodes at every instant."""
    return True


_until_asked = specialize(decision_power.advance_to_decision, inlined=False, can_sleep=always)


@maybe_inline
def above_mean(s: Any, source: Any, signal: int) -> float:
    """The signal now over its mean forecast for the coming day, less 1."""
    if signal < 0:
        return 0.0
    now = s.clock[0].now
    _, _, step = integrals(source, now)
    row = int((now - source.edge_s[0]) / TOLD_EVERY_S)
    told = source.told[assume_nonnegative(min(max(row, 0), len(source.told) - 1))]
    mean = told[signal, told.shape[1] - 1]
    return source.value[step, signal] * told[signal, 0] / mean - 1.0 if mean > 0 else 0.0


@maybe_inline
def node_hours(s: Any, nodes: float) -> float:
    """ln(1 + estimated node-hours of the jobs that wait / nodes of the machine)."""
    k = s.clock[0]
    total = 0.0
    for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
        job = assume_nonnegative(s.queue[i].job)
        total += s.job_state[job].least_need * s.jobs[job].estimate_s
    return log1p(total / HOUR_S / nodes)


@maybe_inline
def crowded(s: Any) -> float:
    """1 where waiting jobs ask for more nodes than are free."""
    free = 0
    for g in range(len(s.groups)):
        free += s.pools[s.groups[g].pool_lo].free
    return 1.0 if s.lever[0].asked > free else 0.0


@maybe_inline
def level_for(source: Any, net: Any, there: int, longer: float) -> int:
    """The level of least energy of those that make the job of the log at most so much longer."""
    kind = assume_nonnegative(source.kind[there])
    may = source.may[kind]
    best = 0
    for level in range(1, len(may)):
        if (
            may[level] != 0
            and net.slow[kind, level] - 1.0 <= longer + SAME
            and net.spent[kind, level] < net.spent[kind, best]
        ):
            best = level
    return best


@maybe_inline
def set_sleep_policy(s: Any, net: Any, nodes: float) -> None:
    """How long nodes stay idle before they sleep, and how many are kept awake, from now on."""
    k = s.clock[0]
    w = net.weights
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
    seconds = exp(min(max(seconds, LEAST_LN_S), MOST_LN_S))
    share = w[SPARE] + w[SPARE_DEMAND] * demand / nodes + w[SPARE_WAITING] * waiting
    share = min(max(share, 0.0), 1.0)
    for g in range(len(s.sleepers)):
        group = s.sleepers[g]
        if group.sleeps:
            group.timeout_s = seconds
            group.spare = floor(share * s.pools[s.groups[g].pool_lo].capacity + 0.5)


@noinline
def run_power_policy(s: Any, copy: Any, source: Any, how: Any, net: Any, score: Any) -> None:
    """Go on until the run is over; or, where a log is kept, until there is no room for what nodes do."""
    s = power_state_without_refcount(s)
    source = lend_source(source)
    net = lend_steering(net)
    score = without_refcount(score)
    w = net.weights
    k = s.clock[0]
    looked_s = -np.inf
    add = 0.0
    held_s = 0.0
    while not copy.over:
        if copy.phase == NODES:
            set_sleep_policy(s, net, how.nodes)
            copy.turned = 1
        elif copy.phase != BETWEEN:
            if looked_s != k.now:
                looked_s = k.now
                signal = above_mean(s, source, net.signal)
                add = w[CROWDED] * crowded(s) + w[SIGNAL] * signal
                if w[BACKLOG] != 0.0:
                    add += w[BACKLOG] * node_hours(s, how.nodes)
                held_s = min(w[HOLD] * 10.0 * HOUR_S * max(signal, 0.0), HELD_S)
                for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
                    job = assume_nonnegative(s.queue[i].job)
                    value = net.first[assume_nonnegative(copy.first + job)]
                    wait = max(k.now - s.jobs[job].submit_s, 0.0)
                    if w[AGE] != 0.0:
                        value += w[AGE] * log1p(wait / HOUR_S) / 3.0
                    if w[PATIENCE] != 0.0:
                        value += w[PATIENCE] * log1p(wait / max(s.jobs[job].estimate_s, 1.0)) / 3.0
                    score[job] = value
            best = -1
            level = 0
            waits = False
            for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
                job = assume_nonnegative(s.queue[i].job)
                if best >= 0 and score[job] >= score[best]:
                    continue
                if copy.phase == HEAD and not eligible(s, HEAD, i):
                    continue
                if held_s > 0.0 and k.now - s.jobs[job].submit_s < held_s:
                    waits = True
                    continue
                there = assume_nonnegative(copy.first + job)
                longer = net.longer[there] + add
                if copy.phase == BEHIND:
                    longer += w[BESIDE]
                wanted = level_for(source, net, there, longer)
                if copy.phase == BEHIND and not fits(s, job, wanted):
                    continue
                best = job
                level = wanted
            if best >= 0:
                s.preferred_level[best] = level
                apply(s, copy, best)
            elif waits and may_hold(s, how.max_wait_for_hold_s):
                set_sleep_policy(s, net, how.nodes)
                hold(s, copy, source, how.hold_s, how.max_wait_for_hold_s)
            elif waits:
                held_s = 0.0  # nothing else will ever happen: whoever is first goes
                continue
            else:
                copy.phase = NODES
                copy.turned = 0
        on = _until_asked(s, copy, source, how)
        if on == FULL:
            return
        copy.over = on == OVER


def _steer_many(t: Any, a: Any, source: Any, net: Any, lo: int, hi: int) -> None:
    """Play the copies from `lo` to `hi`, each to the end of its run; what is earned is paid then, all at once."""
    a = lend_scene(a)
    source = lend_source(source)
    net = lend_steering(net)
    how = a.how[0]
    score = np.empty(t.jobs.shape[1])
    for b in range(lo, hi):
        s = one(t, b)
        copy = a.copies[b]
        run_power_policy(s, copy, source, how, net, score)
        a.over[b] = copy.over != 0
        if copy.over and how.keep == 0:
            pay(s, copy, source, source.user_weight[b], how, a.weights, a.settled[b], a.paid[b], a.terms[b])
            for term in range(len(a.weights)):
                a.finished[b, 3 + term] = a.paid[b, term]


@cache
def _compiled(state: Any, scene: Any, source: Any, net: Any) -> Callable[..., Any]:
    signature = types.void(state, scene, source, net, types.int64, types.int64)
    return compile_entry(_steer_many, signature, "envs")


def steered_for(state: Any, scene: Any, source: Any, net: PowerPolicyWeights) -> Callable[..., Any]:
    """The kernel that plays these very arrays with these numbers."""
    if numba.config.DISABLE_JIT:
        return _compiled(types.int64, types.int64, types.int64, types.int64)
    return _compiled(*(numba.typeof(each) for each in (state, scene, source, net)))
