"""Wait queue, and the job order of a scheduling pass."""

from __future__ import annotations

from typing import Any

from kilowait.engine.gpu.state import RUNNING, WAITING, gpu_state_without_refcount
from kilowait.engine.kernels.heap import heapify, pop
from kilowait.engine.kernels.jit import kernel, memmove, noinline

__all__ = ["compact", "enqueue", "rank_jobs", "refresh_record", "withdraw"]


@noinline
def enqueue(s: Any, job: int) -> None:
    """Add a job to the queue: by (key, number), or by number for time-dependent policies."""
    s = gpu_state_without_refcount(s)
    k = s.clock[0]
    job_state = s.job_state[job]
    job_state.status = WAITING
    if k.queue_hi == len(s.queue):
        memmove(s.queue, 0, k.queue_lo, k.queue_hi - k.queue_lo)
        k.queue_hi -= k.queue_lo
        k.queue_lo = 0
    key = 0.0 if k.time_dependent else job_state.key
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
    entry = s.queue[lo]
    entry.key = key
    entry.job = job
    k.queue_hi += 1


@noinline
def compact(s: Any) -> None:
    """Remove jobs that no longer wait from the queue."""
    s = gpu_state_without_refcount(s)
    k = s.clock[0]
    while k.queue_lo < k.queue_hi and s.job_state[s.queue[k.queue_lo].job].status != WAITING:
        k.queue_lo += 1
    to = k.queue_lo
    for i in range(k.queue_lo, k.queue_hi):
        if s.job_state[s.queue[i].job].status == WAITING:
            if to < i:
                s.queue[to] = s.queue[i]
            to += 1
    k.queue_hi = to


@noinline
def withdraw(s: Any, job: int, status: int) -> None:
    """Remove a waiting job with a final status."""
    s = gpu_state_without_refcount(s)
    s.job_state[job].status = status
    compact(s)


@kernel
def refresh_record(s: Any, job: int) -> Any:
    """The job's record with its current progress."""
    k = s.clock[0]
    job_state = s.job_state[job]
    record = s.jobs[job]
    record.attained_s = job_state.attained_s
    record.done_s = job_state.done
    record.running = 0
    if job_state.status == RUNNING:
        record.running = 1
        record.attained_s += k.now - job_state.start_s
        if k.now > job_state.since:
            record.done_s = job_state.done + (k.now - job_state.since) * job_state.rate
    record.remaining_s = max(job_state.estimate_s - record.done_s, 1.0)
    record.waited_s = k.now - job_state.arrival_s - record.attained_s
    return record


@kernel
def rank_jobs(s: Any, score: Any, parameters: Any) -> int:
    """Fill `order` with waiting (and with preemption running) jobs, lowest priority first."""
    k = s.clock[0]
    count = 0
    for i in range(k.queue_lo, k.queue_hi):
        s.order[count].job = s.queue[i].job
        count += 1
    if k.preempt:
        for i in range(k.running):
            s.order[count].job = s.running_jobs[i]
            count += 1
    for i in range(count):
        entry = s.order[i]
        job_state = s.job_state[entry.job]
        if k.time_dependent:
            job_state.key = score(refresh_record(s, entry.job), k.now, parameters)
            if job_state.key != job_state.key:
                k.bad_score = entry.job + 1
        entry.key = job_state.key
    heapify(s.order, count)
    for left in range(count, 1, -1):
        key = s.order[0].key
        job = s.order[0].job
        pop(s.order, left)
        s.order[left - 1].key = key
        s.order[left - 1].job = job
    return count
