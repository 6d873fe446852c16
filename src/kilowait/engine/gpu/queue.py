"""The queue of waiting jobs, and the order in which a pass takes them."""

from __future__ import annotations

from typing import Any

from kilowait.engine.gpu.state import RUNNING, WAITING, lend
from kilowait.engine.kernels.heap import heapify, pop
from kilowait.engine.kernels.jit import noinline, kernel, memmove

__all__ = ["compact", "enqueue", "rank_jobs", "refresh_view", "withdraw"]


@noinline
def enqueue(s: Any, job: int) -> None:
    """A job waits: in order of (key, number) where the rule is fixed, of number where it moves."""
    s = lend(s)
    k = s.clock[0]
    fate = s.fate[job]
    fate.status = WAITING
    if k.queue_hi == len(s.queue):
        memmove(s.queue, 0, k.queue_lo, k.queue_hi - k.queue_lo)
        k.queue_hi -= k.queue_lo
        k.queue_lo = 0
    key = 0.0 if k.moving else fate.key
    lo = k.queue_lo
    hi = k.queue_hi
    while lo < hi:
        middle = (lo + hi) >> 1
        other = s.queue[middle]
        if other.key < key or (other.key == key and other.job < job):
            lo = middle + 1
        else:
            hi = middle
    memmove(s.queue, lo + 1, lo, k.queue_hi - lo)
    place = s.queue[lo]
    place.key = key
    place.job = job
    k.queue_hi += 1


@noinline
def compact(s: Any) -> None:
    """Drop from the queue those that wait no more."""
    s = lend(s)
    k = s.clock[0]
    while k.queue_lo < k.queue_hi and s.fate[s.queue[k.queue_lo].job].status != WAITING:
        k.queue_lo += 1
    to = k.queue_lo
    for i in range(k.queue_lo, k.queue_hi):
        if s.fate[s.queue[i].job].status == WAITING:
            if to < i:
                s.queue[to] = s.queue[i]
            to += 1
    k.queue_hi = to


@noinline
def withdraw(s: Any, job: int, status: int) -> None:
    """A waiting job leaves."""
    s = lend(s)
    s.fate[job].status = status
    compact(s)


@kernel
def refresh_view(s: Any, job: int) -> Any:
    """What a decider may know of the job now."""
    k = s.clock[0]
    fate = s.fate[job]
    seen = s.seen[job]
    seen.attained_s = fate.attained_s
    seen.done_s = fate.done
    seen.running = 0
    if fate.status == RUNNING:
        seen.running = 1
        seen.attained_s += k.now - fate.start_s
        if k.now > fate.since:
            seen.done_s = fate.done + (k.now - fate.since) * fate.rate
    seen.remaining_s = max(fate.estimate_s - seen.done_s, 1.0)
    seen.waited_s = k.now - fate.arrival_s - seen.attained_s
    return seen


@kernel
def rank_jobs(s: Any, score: Any, parameters: Any) -> int:
    """Put those a pass looks at into `order`, last first: waiting jobs, and with preemption running ones."""
    k = s.clock[0]
    many = 0
    for i in range(k.queue_lo, k.queue_hi):
        s.order[many].job = s.queue[i].job
        many += 1
    if k.preempt:
        for i in range(k.running):
            s.order[many].job = s.runners[i]
            many += 1
    for i in range(many):
        entry = s.order[i]
        fate = s.fate[entry.job]
        if k.moving:
            fate.key = score(refresh_view(s, entry.job), k.now, parameters)
            if fate.key != fate.key:
                k.bad_score = entry.job + 1
        entry.key = fate.key
    heapify(s.order, many)
    for left in range(many, 1, -1):
        key = s.order[0].key
        job = s.order[0].job
        pop(s.order, left)
        s.order[left - 1].key = key
        s.order[left - 1].job = job
    return many
