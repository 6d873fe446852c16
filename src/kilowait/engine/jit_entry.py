"""Compiled kernels that are called from Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from numba import types

from kilowait.cluster import Cluster
from kilowait.engine.initial_state import build_initial_state
from kilowait.engine.interface import JOB, PriorityPolicy
from kilowait.engine.kernels import conservative, event_loop, queue, scheduling_pass, starts_and_reservations
from kilowait.engine.kernels.heap import push
from kilowait.engine.kernels.jit import cache_location_text, compile_entry, is_compiled
from kilowait.engine.kernels.state import HELD, TIMER, UNLIMITED, state_without_refcount
from kilowait.engine.pools import resource_pools
from kilowait.engine.settings import Settings
from kilowait.jobs import JobTable

__all__ = [
    "FOUR_NUMBERS_SIGNATURE",
    "PARAMETERS_TYPE",
    "SCORE_SIGNATURE",
    "SCORE_FUNCTION_TYPE",
    "compiled_kernel",
    "no_score",
    "no_score_compiled",
]

SCORE_SIGNATURE = types.float64(numba.from_dtype(JOB), types.float64, types.float64[::1])
"""Signature of a priority policy: (job, now, parameters) to score."""

FOUR_NUMBERS_SIGNATURE = types.UniTuple(types.float64, 4)(*SCORE_SIGNATURE.args)
"""Signature of a function that returns four values for a job."""

SCORE_FUNCTION_TYPE = types.FunctionType(SCORE_SIGNATURE)
PARAMETERS_TYPE = types.float64[::1]


def no_score(job: Any, now: float, parameters: Any) -> float:
    """Placeholder score of runs without a priority policy."""
    return 0.0


@cache
def no_score_compiled() -> Any:
    """`no_score`, compiled."""
    return compile_entry(no_score, SCORE_SIGNATURE)


def _advance(t: Any, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> bool:
    return event_loop.advance(state_without_refcount(t), score, parameters, backfill_score, backfill_parameters)


def _schedule(t: Any, backfill_score: Any, backfill_parameters: Any) -> None:
    s = state_without_refcount(t)
    k = s.clock[0]
    all_applied = not k.per_event or event_loop.next_event_s(s) > k.now
    if k.depth == UNLIMITED:
        conservative.conservative_pass(s, all_applied)
    else:
        scheduling_pass.schedule(s, all_applied, backfill_score, backfill_parameters)


def _begin(t: Any) -> bool:
    """Open a pass; return whether resources were freed since the last one (conservative only)."""
    s = state_without_refcount(t)
    k = s.clock[0]
    k.unchanged = 0
    k.new_arrivals = 0
    all_applied = not k.per_event or event_loop.next_event_s(s) > k.now
    freed = False
    if k.depth == UNLIMITED:
        freed = conservative.open_plan(s, all_applied)
        conservative.rebuild_plan(s)
    else:
        starts_and_reservations.begin_pass(s, all_applied)
    return freed


def _start(t: Any, job: int, group: int, apply: bool) -> int:
    """Start the job, or with `apply` False only return its group; its own reservation is ignored."""
    s = state_without_refcount(t)
    k = s.clock[0]
    reserved_on = 0
    if k.depth == UNLIMITED:
        reserved_on = s.job_extra[job].reserved_on
        conservative.remove_reservation(s, job)
    g = starts_and_reservations.place(s, job, starts_and_reservations.EVERY_GROUP if group < 0 else 1 << group)
    if g >= 0 and apply:
        starts_and_reservations.start(s, job, g)
        queue.compact(s, k.queue_lo)
    elif reserved_on > 0:
        conservative.apply_reservation(s, job, reserved_on - 1, s.job_extra[job].reserved_s, 1)
        s.job_extra[job].reserved_on = reserved_on
    return g


def _reserve(t: Any, job: int) -> float:
    s = state_without_refcount(t)
    if s.clock[0].depth == UNLIMITED:
        conservative.remove_reservation(s, job)
    return starts_and_reservations.reserve(s, job)


def _hold(t: Any, job: int, until: float) -> None:
    s = state_without_refcount(t)
    k = s.clock[0]
    if k.depth == UNLIMITED:
        conservative.remove_reservation(s, job)
    queue.remove(s, job, HELD)
    push(s.events, k.events, until, TIMER + 2 * job + 1)
    k.events += 1


@cache
def compiled_kernel(name: str) -> Callable[..., Any]:
    """The kernel of that name: run, run_conservative, advance, schedule, begin, start, reserve or hold.

    The first use compiles it and logs a warning; later processes load it from the cache.
    """
    job, state = types.int64, _state_type()
    score = (SCORE_FUNCTION_TYPE, PARAMETERS_TYPE)
    table: dict[str, tuple[Callable[..., Any], Any]] = {
        "run": (event_loop.run, types.void(state, *score, *score)),
        "run_conservative": (event_loop.run_conservative, types.void(state, *score, *score)),
        "advance": (_advance, types.boolean(state, *score, *score)),
        "schedule": (_schedule, types.void(state, *score)),
        "begin": (_begin, types.boolean(state)),
        "start": (_start, types.int64(state, job, job, types.boolean)),
        "reserve": (_reserve, types.float64(state, job)),
        "hold": (_hold, types.void(state, job, types.float64)),
    }
    function, signature = table[name]
    if name.startswith("run") and not is_compiled(function):
        logging.getLogger("kilowait").warning("compiling the simulator, once, for about 20 s%s", cache_location_text())
    return compile_entry(function, signature)


def _state_type() -> Any:
    if numba.config.DISABLE_JIT:
        return types.int64  # signatures are ignored then
    example = JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1])
    return numba.typeof(
        build_initial_state(
            example, resource_pools(Cluster.from_nodes(1)), Settings(), PriorityPolicy("none", no_score), None
        )
    )
