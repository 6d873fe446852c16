"""Write the observation: the shown jobs and their features, the mask, the summary, the edges.

All waiting jobs are shown if there are enough slots. Otherwise half the slots have the jobs that have waited longest,
so that no job is hidden forever, and half those with the fewest estimated node-seconds, among the eligible jobs only.
"""

from __future__ import annotations

from math import cos, log1p, pi, sin
from typing import Any

import numpy as np

from kilowait.engine.kernels.event_loop import next_event_s
from kilowait.engine.kernels.heap import heapify, pop
from kilowait.engine.kernels.jit import assume_nonnegative, maybe_inline, noinline, without_refcount
from kilowait.engine.kernels.state import state_without_refcount
from kilowait.envs.kernels.batch_env_decision import BACKFILLING, HEAD, eligible, most_free, overdue
from kilowait.envs.kernels.batch_env_states import log_arrays_without_refcount
from kilowait.envs.observation_spec import FEATURES, FIXED

__all__ = ["write_observation"]

NEAR_S = 600.0
COLUMNS = len(FEATURES)
"""Number of basic features; further constant features come after them."""


@maybe_inline
def most_relevant(s: Any, copy: Any, slots: Any) -> int:
    """Fill the slots if more jobs wait than there are slots; returns the number of filled slots."""
    k = s.clock[0]
    slot_count = len(slots)
    shown = 0
    at = k.queue_lo
    while at < k.queue_hi and shown < slot_count // 2:
        if eligible(s, copy.phase, at):
            slots[shown] = s.queue[at].job
            shown += 1
        at += 1
    count = 0
    while at < k.queue_hi:
        entry = s.queue[at]
        if eligible(s, copy.phase, at):
            s.candidates[count].key = entry.need * s.jobs[assume_nonnegative(entry.job)].estimate_s
            s.candidates[count].job = entry.job
            count += 1
        at += 1
    heapify(s.candidates, count)
    while count > 0 and shown < slot_count:
        slots[shown] = s.candidates[0].job
        pop(s.candidates, count)
        count -= 1
        shown += 1
    return shown


@noinline
def write_observation(
    s: Any, copy: Any, source: Any, nodes: float, max_wait_s: float, hold: bool,
    jobs: Any, mask: Any, summary: Any, slots: Any, edges: Any,
) -> None:  # fmt: skip
    """Write the observation of one copy. Rows of slots that are no longer filled become zero."""
    s = state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    jobs = without_refcount(jobs)
    mask = without_refcount(mask)
    summary = without_refcount(summary)
    slots = without_refcount(slots)
    edges = without_refcount(edges)
    k = s.clock[0]
    now = k.now
    waiting = assume_nonnegative(k.queue_hi - k.queue_lo)
    free = float(most_free(s))
    late = overdue(s, max_wait_s) if copy.phase == HEAD else -1
    before = copy.shown
    if waiting <= len(slots):
        shown = waiting
        for i in range(waiting):
            slots[i] = s.queue[assume_nonnegative(k.queue_lo + i)].job
    else:
        shown = most_relevant(s, copy, slots)
    shown = assume_nonnegative(shown)
    for i in range(shown):
        job = assume_nonnegative(slots[i])
        job_record = s.jobs[job]
        estimate = job_record.estimate_s
        need = float(s.job_state[job].least_need)
        wait = now - job_record.submit_s
        row = jobs[i]
        fixed = source.features[assume_nonnegative(copy.first + job)]
        for f in range(FIXED):
            row[f] = fixed[f]
        row[4] = wait / (wait + 3600.0)
        row[5] = wait / (wait + 86400.0)
        row[6] = wait / (wait + estimate)
        row[7] = 1.0 if need <= free else 0.0
        row[8] = (free - need) / nodes
        row[9] = i / waiting
        for f in range(FIXED, len(fixed)):
            row[COLUMNS - FIXED + f] = fixed[f]
        if late >= 0:
            mask[i] = late == job
        elif waiting <= len(slots):
            mask[i] = eligible(s, copy.phase, k.queue_lo + i)
        else:
            mask[i] = 1
    for i in range(shown, before):
        mask[i] = 0
        for f in range(jobs.shape[1]):
            jobs[i, f] = 0.0
    copy.shown = shown
    if hold:
        mask[len(slots)] = copy.phase == HEAD and late < 0 and next_event_s(s) < np.inf
    work = 0.0
    for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
        work += s.queue[i].need * s.jobs[assume_nonnegative(s.queue[i].job)].estimate_s
    release = max(s.expected_ends[0].key - now, 0.0) if k.running > 0 else 0.0
    summary[0] = free / nodes
    summary[1] = log1p(float(waiting)) / 5.0
    summary[2] = log1p(work / (3600.0 * nodes)) / 3.0
    summary[3] = log1p(float(k.running)) / 5.0
    summary[4] = release / (release + 3600.0)
    summary[5] = 1.0 if copy.phase == BACKFILLING else 0.0
    summary[6] = (waiting - shown) / waiting if waiting > 0 else 0.0
    day = 2.0 * pi * (now / 86400.0 - np.floor(now / 86400.0))
    week = 2.0 * pi * (now / 604800.0 - np.floor(now / 604800.0))
    summary[7] = sin(day)
    summary[8] = cos(day)
    summary[9] = sin(week)
    summary[10] = cos(week)
    if len(edges) > 0:
        write_edges(s, copy, source, free, slots, shown, max(before, shown), edges)


@maybe_inline
def write_edges(s: Any, copy: Any, source: Any, free: float, slots: Any, shown: int, before: int, edges: Any) -> None:
    """Edges between the shown jobs, as bits of `observation_spec.EDGES`."""
    for a in range(before):
        for b in range(before):
            bits = 0
            if a < shown and b < shown:
                one = slots[a]
                other = slots[b]
                one_row = copy.first + one
                other_row = copy.first + other
                if source.user[one_row] == source.user[other_row] or (
                    source.account[one_row] >= 0 and source.account[one_row] == source.account[other_row]
                ):
                    bits |= 1
                if s.job_state[one].least_need + s.job_state[other].least_need > free:
                    bits |= 2
                if abs(s.jobs[one].submit_s - s.jobs[other].submit_s) <= NEAR_S:
                    bits |= 4
            edges[a, b] = bits
