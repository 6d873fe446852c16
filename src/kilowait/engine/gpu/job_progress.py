"""Wait queue, and the progress of jobs: start, speed, interference, checkpoints, preemption and end of segments."""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np

from kilowait.engine.gpu.placement import free_allocation
from kilowait.engine.gpu.state import ENDING, FINISH, PREEMPTED, RELEASE, RUNNING, WAITING
from kilowait.engine.kernels.heap import heapify, pop, push
from kilowait.engine.kernels.jit import kernel, memmove, noinline

# -- wait queue ------------------------------------------------------------------------------------


@noinline
def enqueue(s: Any, job: int) -> None:
    """Add a job to the queue: by (key, number), or by number for time-dependent policies."""
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


# -- progress --------------------------------------------------------------------------------------


@kernel
def done_at(job_state: Any, time: float) -> float:
    """Work done by a time; no work is done after `stop_s`."""
    until = min(time, job_state.stop_s)
    return job_state.done + (until - job_state.since) * job_state.rate if until > job_state.since else job_state.done


@kernel
def checkpointed_work(job_state: Any, done: float) -> float:
    """Part of the work done that a checkpoint preserves."""
    interval = job_state.checkpoint_s
    if interval == 0:
        return done
    return 0.0 if interval == np.inf else floor(done / interval) * interval


@noinline
def speed_at(s: Any, job: int) -> float:
    """Speed of the job on its nodes, without interference."""
    job_state = s.job_state[job]
    lo = job_state.place_lo
    kind = s.nodes[s.places[lo, 0]].type
    rate = s.speed[job_state.speed_class, kind]
    if job_state.spread == 1 and job_state.pieces > 1:
        nodes = 0
        for i in range(lo, lo + job_state.pieces):
            counted = False
            for j in range(lo, i):
                counted = counted or s.places[j, 0] == s.places[i, 0]
            if not counted:
                nodes += 1
        if nodes > -(-job_state.pieces // s.max_node_gpus[kind]):
            rate = rate * s.factor[job_state.speed_class, kind]
    return rate


@noinline
def begin_segment(s: Any, job: int, delay: float) -> None:
    """Start a placed job; it works after the delay."""
    k = s.clock[0]
    job_state = s.job_state[job]
    job_state.status = RUNNING
    job_state.start_s = k.now
    job_state.since = k.now + delay
    job_state.done_at_start = job_state.done
    job_state.stop_s = np.inf
    job_state.starts += 1
    job_state.segment = k.segments
    job_state.uncontended_rate = speed_at(s, job)
    job_state.rate = job_state.uncontended_rate
    job_state.slot = k.running
    s.running_jobs[k.running] = job
    k.running += 1
    k.placed_pieces += job_state.pieces
    segment = s.segments[k.segments]
    segment.job = job
    segment.start_s = k.now
    segment.group = s.nodes[s.places[job_state.place_lo, 0]].group
    segment.outcome = 0
    k.segments += 1
    if k.interference and job_state.gpus > 0:
        _join_gpus(s, job)
    if job_state.gpu_milli == 1000 or not k.interference:
        _set_finish(s, job)


@noinline
def _set_finish(s: Any, job: int) -> None:
    k = s.clock[0]
    job_state = s.job_state[job]
    job_state.finish_s = job_state.since + max(job_state.run_s - job_state.done, 0.0) / job_state.rate
    if job_state.finish_s > job_state.stop_s:
        job_state.finish_s = np.inf
    else:
        push(s.events, k.events, job_state.finish_s, FINISH + job_state.segment)
        k.events += 1


@noinline
def _join_gpus(s: Any, job: int) -> None:
    """Add the job's load to its GPUs; jobs with a share of a GPU are listed there."""
    job_state = s.job_state[job]
    for i in range(job_state.place_lo, job_state.place_lo + job_state.pieces):
        n = s.nodes[s.places[i, 0]]
        for g in range(n.gpus):
            if (s.places[i, 1] >> g) & 1:
                s.gpu_load[n.gpu_lo + g] += job_state.load
                s.gpu_jobs[n.gpu_lo + g] += 1
                if job_state.gpu_milli < 1000:
                    job_state.next = s.gpu_first[n.gpu_lo + g]
                    s.gpu_first[n.gpu_lo + g] = job
                    _mark_changed(s, n.gpu_lo + g)


@noinline
def _leave_gpus(s: Any, job: int) -> None:
    """Undo `_join_gpus`."""
    job_state = s.job_state[job]
    for i in range(job_state.place_lo, job_state.place_lo + job_state.pieces):
        n = s.nodes[s.places[i, 0]]
        for g in range(n.gpus):
            if (s.places[i, 1] >> g) & 1:
                s.gpu_load[n.gpu_lo + g] -= job_state.load
                s.gpu_jobs[n.gpu_lo + g] -= 1
                if job_state.gpu_milli < 1000:
                    if s.gpu_first[n.gpu_lo + g] == job:
                        s.gpu_first[n.gpu_lo + g] = job_state.next
                    else:
                        before = s.gpu_first[n.gpu_lo + g]
                        while s.job_state[before].next != job:
                            before = s.job_state[before].next
                        s.job_state[before].next = job_state.next
                    _mark_changed(s, n.gpu_lo + g)


@kernel
def _mark_changed(s: Any, gpu: int) -> None:
    if not s.gpu_changed[gpu]:
        s.gpu_changed[gpu] = True
        s.changed_gpus[s.clock[0].changed_gpus] = gpu
        s.clock[0].changed_gpus += 1


@noinline
def update_rates(s: Any) -> None:
    """At the end of an instant, update the rates of jobs on GPUs whose jobs changed."""
    k = s.clock[0]
    for i in range(k.changed_gpus):
        gpu = s.changed_gpus[i]
        s.gpu_changed[gpu] = False
        speed = 1.0
        if s.gpu_jobs[gpu] > 1:
            row = 0
            while row < len(s.interference) - 1 and s.interference[row].job < s.gpu_load[gpu]:
                row += 1
            speed = s.interference[row].key
        job = s.gpu_first[gpu]
        while job >= 0:
            job_state = s.job_state[job]
            rate = job_state.uncontended_rate * speed
            new = job_state.segment >= k.first_new_segment
            if new or (rate != job_state.rate and k.now < job_state.stop_s):
                if not new and k.now > job_state.since:
                    job_state.done = done_at(job_state, k.now)
                    job_state.since = k.now
                job_state.rate = rate
                _set_finish(s, job)
            job = job_state.next
    k.changed_gpus = 0
    k.first_new_segment = k.segments


@noinline
def release_allocation(s: Any, job: int) -> None:
    """Release the job's allocation."""
    k = s.clock[0]
    job_state = s.job_state[job]
    if k.interference and job_state.gpus > 0:
        _leave_gpus(s, job)
    free_allocation(s, job)
    k.releases += 1
    k.placed_pieces -= job_state.pieces
    jobs = s.ending_jobs if job_state.status == ENDING else s.running_jobs
    if job_state.status == ENDING:
        k.ending -= 1
        last = k.ending
    else:
        k.running -= 1
        last = k.running
    jobs[job_state.slot] = jobs[last]
    s.job_state[jobs[last]].slot = job_state.slot


@noinline
def close_segment(s: Any, job: int, outcome: int, done: float, lost: float) -> None:
    """End the segment now and log its pieces, merged by node."""
    k = s.clock[0]
    job_state = s.job_state[job]
    job_state.attained_s += k.now - job_state.start_s
    segment = s.segments[job_state.segment]
    segment.end_s = k.now
    segment.outcome = outcome
    segment.work_s = done - job_state.done_at_start
    segment.lost_s = lost
    segment.piece_lo = k.pieces
    for i in range(job_state.place_lo, job_state.place_lo + job_state.pieces):
        at = segment.piece_lo
        while at < k.pieces and s.log[at].node != s.places[i, 0]:
            at += 1
        row = s.log[at]
        if at == k.pieces:
            row.node = s.places[i, 0]
            row.gpus = 0
            row.gpu_milli = 0
            row.count = 0
            k.pieces += 1
        row.gpus |= s.places[i, 1]
        row.gpu_milli += job_state.gpus * job_state.gpu_milli
        row.count += 1
    segment.piece_hi = k.pieces


@noinline
def preempt(s: Any, job: int) -> None:
    """Preempt a job: it stops after grace period and checkpoint, at once without either."""
    k = s.clock[0]
    job_state = s.job_state[job]
    job_state.stop_s = k.now + k.grace_s
    until = job_state.stop_s + k.checkpoint_write_s if job_state.checkpoint_s == 0 else job_state.stop_s
    if job_state.finish_s > job_state.stop_s:
        job_state.finish_s = np.inf
    k.running -= 1
    s.running_jobs[job_state.slot] = s.running_jobs[k.running]
    s.job_state[s.running_jobs[k.running]].slot = job_state.slot
    job_state.status = ENDING
    job_state.slot = k.ending
    s.ending_jobs[k.ending] = job
    k.ending += 1
    if until == k.now and job_state.finish_s > k.now:
        release(s, job)
    else:
        push(s.events, k.events, until, RELEASE + job_state.segment)
        k.events += 1


@kernel
def keep_work(s: Any, job: int, preserved: float) -> None:
    """The job's work after a preempted or migrated segment; count segments in succession that add none."""
    k = s.clock[0]
    job_state = s.job_state[job]
    if preserved > job_state.done_at_start:
        k.fruitless = 0
        job_state.fruitless_starts = 0
    else:
        k.fruitless += 1
        job_state.fruitless_starts += 1
        k.max_fruitless_starts = max(k.max_fruitless_starts, job_state.fruitless_starts)
    job_state.done = preserved


@noinline
def release(s: Any, job: int) -> None:
    """End a preempted segment: release its nodes and requeue the job with its checkpointed work."""
    job_state = s.job_state[job]
    done = done_at(job_state, job_state.stop_s)
    preserved = checkpointed_work(job_state, done)
    close_segment(s, job, PREEMPTED, done, done - preserved)
    release_allocation(s, job)
    keep_work(s, job, preserved)
    enqueue(s, job)
