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
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, noinline
from kilowait.envs.kernels.decision_batch import BACKFILLING, HEAD, eligible, most_free, overdue
from kilowait.envs.kernels.state_stack import SAME_STEP
from kilowait.envs.observation_spec import FEATURES, FIXED

NEAR_S = 600.0
COLUMNS = len(FEATURES)
"""Number of basic features; further constant features come after them."""


@kernel
def fill_slots(heap: Any, count: int, slots: Any, first: int, end: int) -> int:
    """Fill the slots `first` to `end` with the jobs of the smallest of `count` keys; returns the first empty slot."""
    heapify(heap, count)
    while count > 0 and first < end:
        slots[first] = heap[0].job
        pop(heap, count)
        count -= 1
        first += 1
    return first


@kernel
def write_time(now: float, summary: Any, at: int) -> None:
    """Write the time of day and of week to the summary, from column `at` on."""
    day = 2.0 * pi * (now / 86400.0 - np.floor(now / 86400.0))
    week = 2.0 * pi * (now / 604800.0 - np.floor(now / 604800.0))
    summary[at] = sin(day)
    summary[at + 1] = cos(day)
    summary[at + 2] = sin(week)
    summary[at + 3] = cos(week)


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
    return fill_slots(s.candidates, count, slots, shown, slot_count)


@noinline
def write_observation(s: Any, a: Any, source: Any, b: int, last: bool) -> None:
    """Write the observation of one copy; the last one of an episode that the next one follows at once has no jobs."""
    hold = a.env_settings[0].hold != 0
    write_jobs(s, a, source, b, last, hold, a.mask[b])


@kernel
def write_jobs(s: Any, a: Any, source: Any, b: int, last: bool, hold: bool, mask: Any) -> None:
    """Write jobs, mask, summary and edges. Rows of slots that are no longer filled become zero."""
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    nodes = env_settings.nodes
    jobs = a.jobs[b]
    slots = a.slots[b]
    summary = a.last_summary[b] if last and env_settings.autoreset == SAME_STEP else a.summary[b]
    k = s.clock[0]
    now = k.now
    waiting = assume_nonnegative(k.queue_hi - k.queue_lo)
    free = float(most_free(s))
    late = overdue(s, env_settings.max_wait_s) if copy.phase == HEAD else -1
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
    write_time(now, summary, 7)
    if a.edges.shape[1] > 0:
        write_edges(s, copy, source, free, slots, shown, max(before, shown), a.edges[b])


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
