"""Event loop of GPU simulations."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.gpu.job_progress import close_segment, release, release_allocation, update_rates
from kilowait.engine.gpu.queue import enqueue, refresh_record, withdraw
from kilowait.engine.gpu.scheduling_pass import schedule
from kilowait.engine.gpu.state import (
    ARRIVAL,
    CANCEL,
    CANCELLED,
    COMPLETED,
    DONE,
    ENDING,
    EVENT_KIND,
    REJECTED,
    RELEASE,
    RUNNING,
    WAITING,
    gpu_state_without_refcount,
)
from kilowait.engine.kernels.heap import pop, push
from kilowait.engine.kernels.jit import kernel, noinline

__all__ = ["ALL_JOBS_ENDED", "BUFFER_FULL", "MAX_IDLE_ROUNDS", "MAX_STARTS", "advance", "due", "most_fruitless", "run"]

ALL_JOBS_ENDED, BUFFER_FULL, MOVED = 0, 1, 2
"""Results of `advance`: no event is left; arrays must grow first; advanced to the next instant."""

MAX_STARTS = 10_000
"""Maximum number of starts of a job; more indicates endless preemption."""

MAX_FRUITLESS = 1_000
"""Maximum number of segments in succession that keep no work, in a run of n jobs: this plus 10 n; more indicates
endless preemption."""

MAX_IDLE_ROUNDS = 10_000
"""Maximum number of consecutive round ticks without another event to come; more indicates that no job will start."""


@noinline
def _drop_stale_events(s: Any) -> None:
    """Drop stale events from the top of the heap."""
    s = gpu_state_without_refcount(s)
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
    s = gpu_state_without_refcount(s)
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
    s = gpu_state_without_refcount(s)
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
    s = gpu_state_without_refcount(s)
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
    """Whether a job has started too often, or too many segments in succession have kept no work."""
    k = s.clock[0]
    return k.max_starts > MAX_STARTS or k.fruitless > MAX_FRUITLESS + 10 * len(s.job_state)


def most_fruitless(jobs: int) -> int:
    """Maximum number of segments in succession that keep no work, in a run of this many jobs.

    >>> most_fruitless(200)
    3000
    """
    return MAX_FRUITLESS + 10 * jobs


def run(t: Any, score: Any, parameters: Any) -> int:
    """Run events and scheduling passes until the end (ALL_JOBS_ENDED) or until arrays must grow (BUFFER_FULL)."""
    s = gpu_state_without_refcount(t)
    k = s.clock[0]
    status = MOVED
    while status == MOVED and k.bad_score == 0 and not _is_endless_preemption(s):
        status = advance(s, score, parameters)
        if status == MOVED:
            if due(s):
                schedule(s, score, parameters)
            update_rates(s)
    return ALL_JOBS_ENDED if k.bad_score != 0 or _is_endless_preemption(s) else status
