"""Compiled kernels that are called from Python in runs with power controls; see `jit_entry`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from numba import types

from kilowait.cluster import Cluster, PowerControls
from kilowait.engine.initial_state_with_power_controls import build_power_state
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.jit_entry import PARAMETERS_TYPE, SCORE_FUNCTION_TYPE, no_score
from kilowait.engine.kernels import conservative, node_sleep, node_wake, queue, starts_and_reservations
from kilowait.engine.kernels import event_loop_with_power_controls as event_loop
from kilowait.engine.kernels import reservations_with_power_controls as reservations
from kilowait.engine.kernels import scheduling_pass_with_power_controls as scheduling_pass
from kilowait.engine.kernels import trial_starts_with_power_controls as trial_starts
from kilowait.engine.kernels.heap import push
from kilowait.engine.kernels.jit import cache_location_text, compile_entry, is_compiled
from kilowait.engine.kernels.state import HELD, TIMER, UNLIMITED
from kilowait.engine.kernels.state_with_power_controls import power_state_without_refcount
from kilowait.engine.pools import resource_pools
from kilowait.engine.settings import Settings
from kilowait.jobs import JobTable

__all__ = ["compiled_power_kernel"]


def _advance(t: Any, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> bool:
    s = power_state_without_refcount(t)
    return event_loop.has_buffer_space(s) and event_loop.advance(
        s, score, parameters, backfill_score, backfill_parameters
    )


def _schedule(t: Any, backfill_score: Any, backfill_parameters: Any) -> None:
    s = power_state_without_refcount(t)
    k = s.clock[0]
    all_applied = not k.per_event or event_loop.next_event_or_check_s(s) > k.now
    scheduling_pass.open_pass(s)
    if k.depth == UNLIMITED:
        scheduling_pass.conservative_pass(s, all_applied)
    else:
        scheduling_pass.schedule(s, all_applied, backfill_score, backfill_parameters)


def _begin(t: Any) -> bool:
    s = power_state_without_refcount(t)
    k = s.clock[0]
    k.unchanged = 0
    k.new_arrivals = 0
    all_applied = not k.per_event or event_loop.next_event_or_check_s(s) > k.now
    freed = False
    scheduling_pass.open_pass(s)
    if k.depth == UNLIMITED:
        freed = conservative.open_plan(s, all_applied)
        scheduling_pass.rebuild_plan(s)
    else:
        scheduling_pass.begin_pass(s, all_applied)
    return freed


def _start(t: Any, job: int, group: int, level: int, apply: bool) -> int:
    """Like `jit_entry._start`; level -1 takes the first level that fits, like a scheduling pass."""
    s = power_state_without_refcount(t)
    k = s.clock[0]
    reserved_on = 0
    if k.depth == UNLIMITED:
        reserved_on = s.job_extra[job].reserved_on
        scheduling_pass.remove_reservation(s, job)
    groups = starts_and_reservations.EVERY_GROUP if group < 0 else 1 << group
    g = reservations.place(s, job, groups) if level < 0 else reservations.place_at(s, job, groups, level)
    if g >= 0 and apply:
        reservations.start(s, job, g)
        queue.compact(s, k.queue_lo)
    else:
        trial_starts.reset_trial(s, job)
        if reserved_on > 0:
            scheduling_pass.apply_reservation(s, job, reserved_on - 1, s.job_extra[job].reserved_s, 1)
            s.job_extra[job].reserved_on = reserved_on
    return g


def _reserve(t: Any, job: int) -> float:
    s = power_state_without_refcount(t)
    if s.clock[0].depth == UNLIMITED:
        scheduling_pass.remove_reservation(s, job)
    return reservations.reserve(s, job)


def _hold(t: Any, job: int, until: float) -> None:
    s = power_state_without_refcount(t)
    k = s.clock[0]
    if k.depth == UNLIMITED:
        scheduling_pass.remove_reservation(s, job)
    s.power_control_state[0].queued_nodes -= s.job_state[job].least_need
    queue.remove(s, job, HELD)
    push(s.events, k.events, until, TIMER + 2 * job + 1)
    k.events += 1


def _wake(t: Any, group: int, nodes: int) -> int:
    """Wake up to `nodes` sleeping nodes of a group now; return their number."""
    s = power_state_without_refcount(t)
    node_sleep.fall_asleep(s, group)
    woken = min(nodes, s.sleep_state[group].asleep)
    if woken > 0:
        node_wake.wake_nodes(s, group, woken)
    return woken


def _sleep(t: Any, group: int, nodes: int) -> int:
    """Put up to `nodes` idle nodes of a group to sleep now, longest idle first; return their number."""
    s = power_state_without_refcount(t)
    sleeper = s.sleep_state[group]
    count = 0
    while count < nodes and sleeper.idle_lo < sleeper.idle_hi:
        batch = min(nodes - count, s.idle[group, sleeper.idle_lo].nodes)
        node_wake.put_to_sleep(s, group, batch)
        count += batch
    return count


@cache
def compiled_power_kernel(name: str) -> Callable[..., Any]:
    """Like `jit_entry.compiled`, for runs with power controls; also wake and sleep."""
    job, state = types.int64, _state_type()
    score = (SCORE_FUNCTION_TYPE, PARAMETERS_TYPE)
    table: dict[str, tuple[Callable[..., Any], Any]] = {
        "run": (event_loop.run, types.void(state, *score, *score)),
        "run_conservative": (event_loop.run_conservative, types.void(state, *score, *score)),
        "advance": (_advance, types.boolean(state, *score, *score)),
        "schedule": (_schedule, types.void(state, *score)),
        "begin": (_begin, types.boolean(state)),
        "start": (_start, types.int64(state, job, job, job, types.boolean)),
        "reserve": (_reserve, types.float64(state, job)),
        "hold": (_hold, types.void(state, job, types.float64)),
        "wake": (_wake, types.int64(state, job, job)),
        "sleep": (_sleep, types.int64(state, job, job)),
    }
    function, signature = table[name]
    if name.startswith("run") and not is_compiled(function):
        logging.getLogger("kilowait").warning(
            "compiling the simulator with power controls, once, for about a minute%s", cache_location_text()
        )
    return compile_entry(function, signature)


def _state_type() -> Any:
    if numba.config.DISABLE_JIT:
        return types.int64
    example = JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1])
    policy = PriorityPolicy("none", no_score)
    machine = resource_pools(Cluster.from_nodes(1))
    return numba.typeof(build_power_state(example, None, machine, Settings(), policy, None, PowerControls()))
