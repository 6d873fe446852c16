"""The queue of waiting jobs and the list of running ones."""

from __future__ import annotations

from typing import Any

from kilowait.engine.compiling import kernel
from kilowait.engine.state import QUEUED

__all__ = ["believe", "compact", "enqueue", "forget", "remove", "renew_beliefs"]


@kernel
def place_of(s: Any, key: float, job: int) -> int:
    """First position in the queue at or behind (key, job)."""
    k = s.clock[0]
    lo = k.queue_lo
    hi = k.queue_hi
    while lo < hi:
        middle = (lo + hi) >> 1
        if s.queue[middle].key < key or (s.queue[middle].key == key and s.queue[middle].job < job):
            lo = middle + 1
        else:
            hi = middle
    return lo


@kernel
def enqueue(s: Any, job: int) -> None:
    """Put a job into the queue; note whether the plan of the last pass outlives it."""
    k = s.clock[0]
    key = s.fate[job].key
    at = k.queue_hi
    if k.moving:  # scores change, so such a queue stands by number
        while at > k.queue_lo and s.queue[at - 1].job > job:
            at -= 1
    elif at > k.queue_lo and (
        s.queue[at - 1].key > key or (s.queue[at - 1].key == key and s.queue[at - 1].job > job)
    ):
        at = place_of(s, key, job)
    for i in range(k.queue_hi, at, -1):
        s.queue[i] = s.queue[i - 1]
    s.queue[at].job = job
    s.queue[at].key = key
    s.queue[at].estimate_s = s.fate[job].estimate_s
    least = 2**62
    for g in range(len(s.groups)):
        if s.fate[job].allowed >> g & 1:
            least = min(least, s.need[job, s.pools[s.groups[g].pool_lo].need])
    s.queue[at].need = least
    if at < k.closed_at:
        k.settled = 0
    if at < k.queue_hi:
        k.plan_holds = 0
    k.queue_hi += 1
    s.fate[job].status = QUEUED
    s.fresh[k.fresh] = job
    k.fresh += 1


@kernel
def compact(s: Any, start: int) -> None:
    """Close the gaps that started jobs left in the queue from position `start` on."""
    k = s.clock[0]
    at = start
    for i in range(start, k.queue_hi):
        if s.fate[s.queue[i].job].status == QUEUED:
            if at < i:
                s.queue[at] = s.queue[i]
            at += 1
    k.queue_hi = at


@kernel
def remove(s: Any, job: int, status: int) -> None:
    """Take a waiting job out of the queue (cancelled or held); the plan is void."""
    k = s.clock[0]
    s.fate[job].status = status
    compact(s, k.queue_lo)
    k.settled = 0
    k.plan_holds = 0


@kernel
def believe(s: Any, job: int, end: float) -> None:
    """Enter a running job in the list by believed end."""
    k = s.clock[0]
    at = k.running
    while at > 0 and (s.beliefs[at - 1].key > end or (s.beliefs[at - 1].key == end and s.beliefs[at - 1].job > job)):
        s.beliefs[at] = s.beliefs[at - 1]
        at -= 1
    s.beliefs[at].key = end
    s.beliefs[at].job = job
    s.fate[job].believed_end_s = end
    k.running += 1


@kernel
def forget(s: Any, job: int) -> None:
    """Take a job out of the list by believed end."""
    k = s.clock[0]
    end = s.fate[job].believed_end_s
    lo = 0
    hi = k.running
    while lo < hi:
        middle = (lo + hi) >> 1
        if s.beliefs[middle].key < end or (s.beliefs[middle].key == end and s.beliefs[middle].job < job):
            lo = middle + 1
        else:
            hi = middle
    k.running -= 1
    for i in range(lo, k.running):
        s.beliefs[i] = s.beliefs[i + 1]


@kernel
def renew_beliefs(s: Any) -> None:
    """Jobs that outlived their believed end are believed to double their estimate until it lies ahead."""
    k = s.clock[0]
    while k.running > 0 and s.beliefs[0].key <= k.now:
        job = s.beliefs[0].job
        forget(s, job)
        span = 2.0 * s.fate[job].estimate_s
        while s.fate[job].start_s + span <= k.now:
            span *= 2.0
        believe(s, job, s.fate[job].start_s + span)
        k.settled = 0
        k.plan_holds = 0
