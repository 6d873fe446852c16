"""Event loop of GPU simulations, and its compiled kernels that are called from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.errors import NumbaError

from kilowait.cluster import Cluster, NodeGroup
from kilowait.engine.gpu.initial_state import build_gpu_state
from kilowait.engine.gpu.job_progress import (
    close_segment,
    enqueue,
    preempt,
    refresh_record,
    release,
    release_allocation,
    update_rates,
    withdraw,
)
from kilowait.engine.gpu.scheduling_pass import migrate, schedule, start_now
from kilowait.engine.gpu.settings import GpuSettings
from kilowait.engine.gpu.state import (
    ARRIVAL,
    CANCEL,
    CANCELLED,
    COMPLETED,
    DONE,
    ENDING,
    EVENT_KIND,
    GPU_JOB,
    REJECTED,
    RELEASE,
    RUNNING,
    WAITING,
)
from kilowait.engine.interface import PriorityPolicy
from kilowait.engine.kernels.heap import pop, push
from kilowait.engine.kernels.jit import compile_entry, kernel, noinline
from kilowait.errors import InputError
from kilowait.jobs import JobTable

ALL_JOBS_ENDED, BUFFER_FULL, MOVED = 0, 1, 2
"""Results of `advance`: no event is left; arrays must grow first; advanced to the next instant."""

MAX_FRUITLESS_STARTS = 10_000
"""Maximum number of starts of a job in succession that keep no work; more indicates endless preemption."""

MAX_FRUITLESS = 1_000
"""Maximum number of segments in succession that keep no work, in a run of n jobs: this plus 10 n; more indicates
endless preemption."""

MAX_IDLE_ROUNDS = 10_000
"""Maximum number of consecutive round ticks without another event to come; more indicates that no job will start."""


@noinline
def _drop_stale_events(s: Any) -> None:
    """Drop stale events from the top of the heap."""
    k = s.clock[0]
    while k.events > 0:
        code = s.events[0].job
        number = code % EVENT_KIND
        if code < ARRIVAL:
            job_state = s.job_state[s.segments[number].job]
            current = job_state.segment == number
            if code < RELEASE:
                valid = current and job_state.status in (RUNNING, ENDING) and job_state.finish_s == s.events[0].key
            else:
                valid = current and job_state.status == ENDING
        else:
            valid = s.job_state[number].status == WAITING and s.job_state[number].starts == 0
        if valid:
            return
        pop(s.events, k.events)
        k.events -= 1


@kernel
def _active(s: Any) -> int:
    """Number of waiting, running and ending jobs."""
    k = s.clock[0]
    return k.queue_hi - k.queue_lo + k.running + k.ending


@noinline
def _buffers_too_small(s: Any, time: float) -> bool:
    """Whether the arrays may be too small for the events of this instant."""
    k = s.clock[0]
    count = _active(s) + 16
    at = k.next_arrival
    while at < len(s.arrivals) and s.job_state[s.arrivals[at]].arrival_s == time:
        at += 1
        count += 1
    return (
        len(s.events) - k.events < 4 * count
        or len(s.segments) - k.segments < 2 * count
        or len(s.log) - k.pieces < 2 * k.placed_pieces + count
    )


@kernel
def advance(s: Any, score: Any, parameters: Any) -> int:
    """Move to the next instant and apply its events: ALL_JOBS_ENDED, BUFFER_FULL or MOVED.

    Round ticks alone do not continue a run for more than MAX_IDLE_ROUNDS.
    """
    k = s.clock[0]
    _drop_stale_events(s)
    time = s.events[0].key if k.events > 0 else np.inf
    if k.next_arrival < len(s.arrivals):
        time = min(time, s.job_state[s.arrivals[k.next_arrival]].arrival_s)
    idle = time == np.inf
    if k.round_interval_s > 0:
        time = _next_tick(s, time)
    if time == np.inf or (idle and k.idle_rounds == MAX_IDLE_ROUNDS):
        return ALL_JOBS_ENDED
    if _buffers_too_small(s, time):
        return BUFFER_FULL
    k.idle_rounds = k.idle_rounds + 1 if idle else 0
    k.now = time
    while True:
        _drop_stale_events(s)
        code = s.events[0].job if k.events > 0 and s.events[0].key == time else 4 * EVENT_KIND
        if k.next_arrival < len(s.arrivals):
            job = s.arrivals[k.next_arrival]
            if s.job_state[job].arrival_s == time and ARRIVAL + job < code:
                k.next_arrival += 1
                _on_arrival(s, job, score, parameters)
                continue
        if code == 4 * EVENT_KIND:
            break
        pop(s.events, k.events)
        k.events -= 1
        if code < RELEASE:
            _finish(s, s.segments[code].job)
        elif code < ARRIVAL:
            release(s, s.segments[code - RELEASE].job)
        else:
            withdraw(s, code - CANCEL, CANCELLED)
    k.is_round_tick = k.round_interval_s > 0 and k.next_tick_s == time
    return MOVED


@noinline
def _next_tick(s: Any, time: float) -> float:
    """The next instant, including round ticks; without active jobs, ticks resume with the next arrival."""
    k = s.clock[0]
    if _active(s) == 0:
        if time == np.inf:
            return time
        if k.ticks < 0:
            k.origin_s = time
            k.ticks = 0
        k.ticks = max(k.ticks, np.int64((time - k.origin_s) / k.round_interval_s) - 1)
        while k.origin_s + k.ticks * k.round_interval_s < time:
            k.ticks += 1
    else:
        while k.origin_s + k.ticks * k.round_interval_s <= k.now:
            k.ticks += 1
    k.next_tick_s = k.origin_s + k.ticks * k.round_interval_s
    return min(time, k.next_tick_s)


@noinline
def _finish(s: Any, job: int) -> None:
    job_state = s.job_state[job]
    close_segment(s, job, COMPLETED, job_state.run_s, 0.0)
    release_allocation(s, job)
    job_state.done = job_state.run_s
    job_state.status = DONE
    s.clock[0].fruitless = 0


@kernel
def _on_arrival(s: Any, job: int, score: Any, parameters: Any) -> None:
    """A job arrives."""
    k = s.clock[0]
    job_state = s.job_state[job]
    if job_state.status == REJECTED:
        return
    record = s.jobs[job]
    record.submit_s = k.now
    record.since_first_s = k.now - k.first_submit_s
    if not k.time_dependent:
        job_state.key = score(refresh_record(s, job), k.now, parameters)
        if job_state.key != job_state.key:
            k.bad_score = job + 1
    enqueue(s, job)
    if job_state.cancel_s < np.inf:
        push(s.events, k.events, max(job_state.cancel_s, k.now), CANCEL + job)
        k.events += 1


@kernel
def due(s: Any) -> bool:
    """Whether a scheduling pass is due at this instant."""
    k = s.clock[0]
    has_jobs = k.queue_hi > k.queue_lo or (k.migrate and k.running > 0)
    return has_jobs and (k.is_round_tick or not k.rounds)


@kernel
def _is_endless_preemption(s: Any) -> bool:
    """Whether too many segments in succession, of one job or of all, have kept no work."""
    k = s.clock[0]
    return k.max_fruitless_starts > MAX_FRUITLESS_STARTS or k.fruitless > MAX_FRUITLESS + 10 * len(s.job_state)


def most_fruitless(jobs: int) -> int:
    """Maximum number of segments in succession that keep no work, in a run of this many jobs.

    >>> most_fruitless(200)
    3000
    """
    return MAX_FRUITLESS + 10 * jobs


def run(s: Any, score: Any, parameters: Any) -> int:
    """Run events and scheduling passes until the end (ALL_JOBS_ENDED) or until arrays must grow (BUFFER_FULL)."""
    k = s.clock[0]
    status = MOVED
    while status == MOVED and k.bad_score == 0 and not _is_endless_preemption(s):
        status = advance(s, score, parameters)
        if status == MOVED:
            if due(s):
                schedule(s, score, parameters)
            update_rates(s)
    return ALL_JOBS_ENDED if k.bad_score != 0 or _is_endless_preemption(s) else status


def migrate_now(s: Any, job: int, gpu_type: int) -> bool:
    """Migrate the job to nodes of `gpu_type` (-1: any type) although it may end later there."""
    return migrate(s, job, gpu_type, True)


# -- compiled kernels that are called from Python --------------------------------------------------

SCORE = types.float64(numba.from_dtype(GPU_JOB), types.float64, types.float64[::1])
"""Signature of a priority policy of the GPU engine."""


@cache
def _compiled_score(function: Callable[..., float], cached: bool) -> Any:
    if cached or numba.config.DISABLE_JIT:
        return compile_entry(function, SCORE)
    return numba.njit(SCORE, nogil=True)(function)


def compiled_gpu_score(policy: PriorityPolicy) -> Any:
    """The policy's score, compiled for the GPU engine."""
    if not policy.compiled:
        raise InputError(
            f"policy {policy.name!r} could not be compiled; GPU simulations need a compiled policy or a step policy"
        )
    function = getattr(policy.score, "py_func", policy.score)
    try:
        return _compiled_score(function, function.__closure__ is None)
    except (NumbaError, KeyError) as problem:
        reason = next((line.strip() for line in str(problem).splitlines() if line.strip()), "no reason given")
        raise InputError(f"policy {policy.name!r} cannot be compiled for GPU simulations: {reason}") from None


@cache
def compiled_gpu_kernel(name: str) -> Callable[..., Any]:
    """The kernel of that name: run, advance, due, schedule, update_rates, start, preempt or migrate."""
    job, state = types.int64, _state_type()
    score = (types.FunctionType(SCORE), types.float64[::1])
    table: dict[str, tuple[Callable[..., Any], Any]] = {
        "run": (run, types.int64(state, *score)),
        "advance": (advance, types.int64(state, *score)),
        "due": (due, types.boolean(state)),
        "schedule": (schedule, types.void(state, *score)),
        "update_rates": (update_rates, types.void(state)),
        "start": (start_now, types.boolean(state, job, job)),
        "preempt": (preempt, types.void(state, job)),
        "migrate": (migrate_now, types.boolean(state, job, job)),
    }
    function, signature = table[name]
    return compile_entry(function, signature, announced=("the GPU simulator", "15 s") if name == "run" else None)


def _state_type() -> Any:
    if numba.config.DISABLE_JIT:
        return types.int64  # signatures are ignored then
    example = JobTable(job_id=[1], submit_s=[0], runtime_s=[1], nodes=[1], cores=[1])
    cluster = Cluster(groups=(NodeGroup("one", 1, node_level=True),))
    return numba.typeof(build_gpu_state(example, cluster, GpuSettings(), PriorityPolicy("none", _no_score)))


def _no_score(job: Any, now: float, parameters: Any) -> float:
    return 0.0
