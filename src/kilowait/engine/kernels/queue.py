"""Wait queue, running jobs by expected end, and the new expected end of jobs that exceed it (docs/engine.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.heap import heapify
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, memmove
from kilowait.engine.kernels.state import QUEUED
from kilowait.engine.settings import QUANTILE, STEPS

STEPS_S = (
    60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18000.0, 36000.0, 72000.0, 180000.0, 360000.0,
)  # fmt: skip
"""Tsafrir, Etsion, Feitelson (TPDS 2007): increments of a prediction each time it is exceeded; the last one repeats."""


@kernel
def doubled(span: float, start_s: float, now: float) -> float:
    """The time span, doubled at least once and until its end is in the future."""
    span *= 2.0
    while start_s + span <= now:
        span *= 2.0
    return span


@kernel
def stepped(span: float, start_s: float, now: float) -> float:
    """The time span plus as many steps as needed for its end to be in the future."""
    step = 0
    while True:
        span += STEPS_S[step]
        if start_s + span > now:
            return span
        step = min(step + 1, len(STEPS_S) - 1)


@maybe_inline
def renewed_end_s(s: Any, job: int) -> float:
    """New expected end of a running job that has exceeded its expected end."""
    k = s.clock[0]
    now = k.now
    record = s.jobs[job]
    start_s = s.job_state[job].start_s
    limit = record.limit_s
    if start_s + limit <= now:
        return start_s + doubled(limit, start_s, now)
    if k.overrun == STEPS:
        span = stepped(record.planned_s, start_s, now)
    elif k.overrun == QUANTILE and start_s + record.overrun_planned_s > now:
        span = record.overrun_planned_s
    elif k.overrun == QUANTILE and limit < np.inf:
        span = limit
    elif k.overrun == QUANTILE:
        span = doubled(max(record.planned_s, record.overrun_planned_s), start_s, now)
    else:
        span = doubled(record.planned_s, start_s, now)
    return start_s + min(span, limit)


@kernel
def insert_position(order: Any, lo: int, hi: int, key: float, job: int) -> int:
    """First position in order[lo:hi], sorted by (key, job), whose entry is not smaller than the given one."""
    while lo < hi:
        middle = assume_nonnegative((lo + hi) >> 1)
        entry = order[middle]
        if entry.key < key or (entry.key == key and entry.job < job):
            lo = middle + 1
        else:
            hi = middle
    return lo


@kernel
def enqueue(s: Any, job: int) -> None:
    """Put a job into the queue; mark the plan of the last pass as changed if the job precedes backfill candidates."""
    k = s.clock[0]
    job = assume_nonnegative(job)
    job_state = s.job_state[job]
    key = job_state.key
    at = assume_nonnegative(k.queue_hi)
    if k.time_dependent:  # scores change, so the queue is sorted by number
        while at > k.queue_lo and s.queue[at - 1].job > job:
            at -= 1
    elif at > k.queue_lo and (s.queue[at - 1].key > key or (s.queue[at - 1].key == key and s.queue[at - 1].job > job)):
        at = insert_position(s.queue, k.queue_lo, k.queue_hi, key, job)
    if at < k.queue_hi:
        memmove(s.queue, at + 1, at, k.queue_hi - at)
    entry = s.queue[at]
    entry.key = key
    entry.job = job
    entry.need = job_state.least_need
    entry.planned_s = s.jobs[job].planned_s
    if at < k.closed_at:
        k.unchanged = 0
    k.queue_hi += 1
    job_state.status = QUEUED
    s.new_arrivals[k.new_arrivals] = job
    k.new_arrivals += 1


@kernel
def position_of(s: Any, job: int) -> int:
    """Position of a job in a queue that is sorted by number."""
    k = s.clock[0]
    lo = k.queue_lo
    hi = k.queue_hi
    while lo < hi:
        middle = (lo + hi) >> 1
        if s.queue[middle].job < job:
            lo = middle + 1
        else:
            hi = middle
    return lo


@maybe_inline
def dequeue(s: Any, job: int) -> None:
    """Take a started job out of a queue that is sorted by number; the shorter part of the queue moves."""
    k = s.clock[0]
    at = position_of(s, job)
    if at - k.queue_lo < k.queue_hi - at:
        memmove(s.queue, k.queue_lo + 1, k.queue_lo, at - k.queue_lo)
        k.queue_lo += 1
    else:
        memmove(s.queue, at, at + 1, k.queue_hi - at - 1)
        k.queue_hi -= 1


@kernel
def has_waited_too_long(s: Any, job: int) -> bool:
    """Whether the job has waited for longer than the longest wait of the settings."""
    return s.clock[0].now - s.jobs[job].submit_s > s.clock[0].max_wait_s


@maybe_inline
def track_wait(s: Any, job: int) -> None:
    """Append a job that arrives to the list of jobs in the order of their arrivals."""
    k = s.clock[0]
    if k.first_arrived == 0:
        k.first_arrived = job + 1
    else:
        s.job_extra[k.last_arrived].next_arrived = job + 1
    k.last_arrived = job


@maybe_inline
def promote_overdue(s: Any) -> None:
    """Move the jobs that have waited too long to the front of a queue that is sorted by score."""
    k = s.clock[0]
    while k.first_arrived > 0 and has_waited_too_long(s, k.first_arrived - 1):
        job = k.first_arrived - 1
        k.first_arrived = s.job_extra[job].next_arrived
        key = s.job_state[job].key
        s.job_state[job].key = -np.inf  # for a held job: when it joins the queue
        if s.job_state[job].status == QUEUED:
            at = insert_position(s.queue, k.queue_lo, k.queue_hi, key, job)
            entry = s.queue[at]
            need = entry.need
            planned_s = entry.planned_s
            to = insert_position(s.queue, k.queue_lo, at, -np.inf, job)
            memmove(s.queue, to + 1, to, at - to)
            entry = s.queue[to]
            entry.key = -np.inf
            entry.job = job
            entry.need = need
            entry.planned_s = planned_s
            k.unchanged = 0


@kernel
def close_gaps(s: Any, start: int, gaps: int) -> None:
    """Remove the `gaps` started jobs from the queue; a single one is at `start`, several are at `start` or behind."""
    k = s.clock[0]
    if gaps == 1 and s.job_state[s.queue[start].job].status != QUEUED:
        k.queue_hi -= 1
        memmove(s.queue, start, start + 1, k.queue_hi - start)
    elif gaps > 0:
        compact(s, start)


@kernel
def end_pass(s: Any) -> None:
    """End a pass: clear the new arrivals; an empty queue restarts at the front of its array."""
    k = s.clock[0]
    k.new_arrivals = 0
    if k.queue_lo == k.queue_hi:
        k.queue_lo = 0
        k.queue_hi = 0
        k.unchanged = 0


@maybe_inline
def compact(s: Any, start: int) -> None:
    """Remove jobs that no longer wait from the queue, from position `start` on."""
    k = s.clock[0]
    at = start
    for i in range(start, k.queue_hi):
        if s.job_state[s.queue[i].job].status == QUEUED:
            if at < i:
                s.queue[at] = s.queue[i]
            at += 1
    k.queue_hi = at


@maybe_inline
def remove(s: Any, job: int, status: int) -> None:
    """Take a waiting job out of the queue (cancelled or held); its plan changes."""
    k = s.clock[0]
    s.job_state[job].status = status
    compact(s, k.queue_lo)
    k.unchanged = 0
    k.freed = 1
    k.reservations_tight = 0


@kernel
def add_expected_end(s: Any, job: int, end: float) -> None:
    """Enter a running job in the list by expected end."""
    k = s.clock[0]
    job = assume_nonnegative(job)
    at = insert_position(s.expected_ends, 0, k.running, end, job)
    if at < k.running:
        memmove(s.expected_ends, at + 1, at, k.running - at)
    expected_end = s.expected_ends[at]
    expected_end.key = end
    expected_end.job = job
    s.job_state[job].expected_end_s = end
    k.running += 1


@kernel
def remove_expected_end(s: Any, job: int) -> None:
    """Take a job out of the list by expected end."""
    k = s.clock[0]
    job = assume_nonnegative(job)
    at = insert_position(s.expected_ends, 0, k.running, s.job_state[job].expected_end_s, job)
    k.running -= 1
    if at < k.running:
        memmove(s.expected_ends, at, at + 1, k.running - at)


@maybe_inline
def rank_waiting(s: Any) -> int:
    """All waiting jobs by (score, number), as a heap: it is emptied only as far as needed."""
    k = s.clock[0]
    count = k.queue_hi - k.queue_lo
    for i in range(count):
        s.candidates[i].key = s.queue[k.queue_lo + i].key
        s.candidates[i].job = s.queue[k.queue_lo + i].job
    heapify(s.candidates, count)
    return count


@maybe_inline
def renew_expected_ends(s: Any) -> None:
    """Give jobs that have exceeded their expected end a later one, by the overrun rule."""
    k = s.clock[0]
    while k.running > 0 and s.expected_ends[0].key <= k.now:
        job = s.expected_ends[0].job
        remove_expected_end(s, job)
        add_expected_end(s, job, renewed_end_s(s, job))
        k.unchanged = 0


@kernel
def update_overrun_ends(s: Any) -> bool:
    """Renew expected ends in the past; return whether there were any."""
    k = s.clock[0]
    stale = k.running > 0 and s.expected_ends[0].key <= k.now
    if stale:
        renew_expected_ends(s)
    return stale
