"""Jobs at work: starting, how fast they go, what they have done, how segments end."""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np

from kilowait.engine.gpu.allocation import free_allocation
from kilowait.engine.gpu.queue import enqueue
from kilowait.engine.gpu.state import (
    ENDING,
    FINISH,
    PREEMPTED,
    RELEASE,
    RUNNING,
    lend,
)
from kilowait.engine.kernels.heap import push
from kilowait.engine.kernels.jit import noinline, kernel

__all__ = ["begin", "close", "done_at", "checkpointed_work", "preempt", "release", "update_rates", "speed_at", "release_allocation"]


@kernel
def done_at(fate: Any, time: float) -> float:
    """Work done by then; none is done after its stop."""
    until = min(time, fate.stop_s)
    return fate.done + (until - fate.since) * fate.rate if until > fate.since else fate.done


@kernel
def checkpointed_work(fate: Any, done: float) -> float:
    """What a checkpoint keeps of the work done."""
    every = fate.checkpoint_s
    if every == 0:
        return done
    return 0.0 if every == np.inf else floor(done / every) * every


@noinline
def speed_at(s: Any, job: int) -> float:
    """The rate at the job's place, without interference."""
    s = lend(s)
    fate = s.fate[job]
    lo = fate.place_lo
    kind = s.nodes[s.places[lo, 0]].type
    rate = s.speed[fate.kind, kind]
    if fate.spread == 1 and fate.pieces > 1:
        nodes = 0
        for i in range(lo, lo + fate.pieces):
            seen = False
            for j in range(lo, i):
                seen = seen or s.places[j, 0] == s.places[i, 0]
            if not seen:
                nodes += 1
        if nodes > -(-fate.pieces // s.least[kind]):
            rate = rate * s.factor[fate.kind, kind]
    return rate


@noinline
def begin(s: Any, job: int, delay: float) -> None:
    """The job has its place, and works after the delay."""
    s = lend(s)
    k = s.clock[0]
    fate = s.fate[job]
    fate.status = RUNNING
    fate.start_s = k.now
    fate.since = k.now + delay
    fate.began = fate.done
    fate.stop_s = np.inf
    fate.starts += 1
    k.most_starts = max(k.most_starts, fate.starts)
    fate.segment = k.segments
    fate.plain_rate = speed_at(s, job)
    fate.rate = fate.plain_rate
    fate.slot = k.running
    s.runners[k.running] = job
    k.running += 1
    k.held += fate.pieces
    segment = s.segments[k.segments]
    segment.job = job
    segment.start_s = k.now
    segment.group = s.nodes[s.places[fate.place_lo, 0]].group
    segment.outcome = 0
    k.segments += 1
    if k.interference and fate.gpus > 0:
        _join(s, job)
    if fate.milli == 1000 or not k.interference:
        _set_finish(s, job)


@noinline
def _set_finish(s: Any, job: int) -> None:
    s = lend(s)
    k = s.clock[0]
    fate = s.fate[job]
    fate.finish_s = fate.since + max(fate.run_s - fate.done, 0.0) / fate.rate
    if fate.finish_s > fate.stop_s:
        fate.finish_s = np.inf
    else:
        push(s.events, k.events, fate.finish_s, FINISH + fate.segment)
        k.events += 1


@noinline
def _join(s: Any, job: int) -> None:
    """The job loads its GPUs; those with a part of one are listed there."""
    s = lend(s)
    fate = s.fate[job]
    for i in range(fate.place_lo, fate.place_lo + fate.pieces):
        n = s.nodes[s.places[i, 0]]
        for g in range(n.gpus):
            if (s.places[i, 1] >> g) & 1:
                s.gpu_load[n.gpu_lo + g] += fate.load
                s.gpu_jobs[n.gpu_lo + g] += 1
                if fate.milli < 1000:
                    fate.next = s.gpu_first[n.gpu_lo + g]
                    s.gpu_first[n.gpu_lo + g] = job
                    _freshen(s, n.gpu_lo + g)


@noinline
def _part(s: Any, job: int) -> None:
    s = lend(s)
    fate = s.fate[job]
    for i in range(fate.place_lo, fate.place_lo + fate.pieces):
        n = s.nodes[s.places[i, 0]]
        for g in range(n.gpus):
            if (s.places[i, 1] >> g) & 1:
                s.gpu_load[n.gpu_lo + g] -= fate.load
                s.gpu_jobs[n.gpu_lo + g] -= 1
                if fate.milli < 1000:
                    if s.gpu_first[n.gpu_lo + g] == job:
                        s.gpu_first[n.gpu_lo + g] = fate.next
                    else:
                        before = s.gpu_first[n.gpu_lo + g]
                        while s.fate[before].next != job:
                            before = s.fate[before].next
                        s.fate[before].next = fate.next
                    _freshen(s, n.gpu_lo + g)


@kernel
def _freshen(s: Any, gpu: int) -> None:
    if not s.fresh_mark[gpu]:
        s.fresh_mark[gpu] = True
        s.fresh[s.clock[0].fresh] = gpu
        s.clock[0].fresh += 1


@noinline
def update_rates(s: Any) -> None:
    """At the end of an instant: jobs on GPUs whose jobs changed get the rate of how things lie now."""
    s = lend(s)
    k = s.clock[0]
    for i in range(k.fresh):
        gpu = s.fresh[i]
        s.fresh_mark[gpu] = False
        value = 1.0
        if s.gpu_jobs[gpu] > 1:
            row = 0
            while row < len(s.interference) - 1 and s.interference[row].job < s.gpu_load[gpu]:
                row += 1
            value = s.interference[row].key
        job = s.gpu_first[gpu]
        while job >= 0:
            fate = s.fate[job]
            rate = fate.plain_rate * value
            new = fate.segment >= k.first_new
            if new or (rate != fate.rate and k.now < fate.stop_s):
                if not new and k.now > fate.since:
                    fate.done = done_at(fate, k.now)
                    fate.since = k.now
                fate.rate = rate
                _set_finish(s, job)
            job = fate.next
    k.fresh = 0
    k.first_new = k.segments


@noinline
def release_allocation(s: Any, job: int) -> None:
    """The job leaves its place."""
    s = lend(s)
    k = s.clock[0]
    fate = s.fate[job]
    if k.interference and fate.gpus > 0:
        _part(s, job)
    free_allocation(s, job)
    k.gives += 1
    k.held -= fate.pieces
    listed = s.enders if fate.status == ENDING else s.runners
    if fate.status == ENDING:
        k.ending -= 1
        last = k.ending
    else:
        k.running -= 1
        last = k.running
    listed[fate.slot] = listed[last]
    s.fate[listed[last]].slot = fate.slot


@noinline
def close(s: Any, job: int, outcome: int, done: float, lost: float) -> None:
    """The segment ends now: it is written down with its pieces, those on one node together."""
    s = lend(s)
    k = s.clock[0]
    fate = s.fate[job]
    fate.attained_s += k.now - fate.start_s
    segment = s.segments[fate.segment]
    segment.end_s = k.now
    segment.outcome = outcome
    segment.work_s = done - fate.began
    segment.lost_s = lost
    segment.piece_lo = k.pieces
    for i in range(fate.place_lo, fate.place_lo + fate.pieces):
        at = segment.piece_lo
        while at < k.pieces and s.log[at].node != s.places[i, 0]:
            at += 1
        row = s.log[at]
        if at == k.pieces:
            row.node = s.places[i, 0]
            row.gpus = 0
            row.milli = 0
            row.count = 0
            k.pieces += 1
        row.gpus |= s.places[i, 1]
        row.milli += fate.gpus * fate.milli
        row.count += 1
    segment.piece_hi = k.pieces


@noinline
def preempt(s: Any, job: int) -> None:
    """The job has notice to leave; where there is neither grace nor a checkpoint to write it leaves at once."""
    s = lend(s)
    k = s.clock[0]
    fate = s.fate[job]
    fate.stop_s = k.now + k.grace_s
    until = fate.stop_s + k.save_s if fate.checkpoint_s == 0 else fate.stop_s
    if fate.finish_s > fate.stop_s:
        fate.finish_s = np.inf
    k.running -= 1
    s.runners[fate.slot] = s.runners[k.running]
    s.fate[s.runners[k.running]].slot = fate.slot
    fate.status = ENDING
    fate.slot = k.ending
    s.enders[k.ending] = job
    k.ending += 1
    if until == k.now and fate.finish_s > k.now:
        release(s, job)
    else:
        push(s.events, k.events, until, RELEASE + fate.segment)
        k.events += 1


@noinline
def release(s: Any, job: int) -> None:
    """A preempted job gives its place back and waits again, with what it keeps."""
    s = lend(s)
    fate = s.fate[job]
    done = done_at(fate, fate.stop_s)
    kept = checkpointed_work(fate, done)
    close(s, job, PREEMPTED, done, done - kept)
    release_allocation(s, job)
    fate.done = kept
    enqueue(s, job)
