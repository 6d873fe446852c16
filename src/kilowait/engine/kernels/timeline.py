"""Timeline: expected availability of every pool from now on.

Breakpoint i is valid from timeline_s[i] to timeline_s[i + 1], the last one without end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.jit import kernel, maybe_inline


@maybe_inline
def build(s: Any) -> None:
    """Rebuild the timeline: free resources, expected ends, known capacity changes."""
    k = s.clock[0]
    pools = len(s.pools)
    for p in range(pools):
        s.timeline_free[0, p] = s.pools[p].free
    s.timeline_s[0] = k.now
    last = 0
    i = 0
    c = k.next_change
    changes = len(s.changes)
    while True:
        while c < changes and (s.changes[c].announced_s > k.now or s.changes[c].time_s <= k.now):
            c += 1
        release = s.expected_ends[i].key if i < k.running else np.inf
        change = s.changes[c].time_s if c < changes else np.inf
        time = min(release, change)
        if time == np.inf:
            break
        if time > s.timeline_s[last]:
            last += 1
            s.timeline_s[last] = time
            for p in range(pools):
                s.timeline_free[last, p] = s.timeline_free[last - 1, p]
        if release <= change:
            job = s.expected_ends[i].job
            subtract(s, job, s.job_state[job].group, last, last + 1, -1)
            i += 1
        else:
            s.timeline_free[last, s.changes[c].pool] += s.changes[c].amount
            c += 1
    k.timeline_lo = 0
    k.timeline_hi = last + 1


@kernel
def advance(s: Any) -> None:
    """Advance the start of the timeline to now."""
    k = s.clock[0]
    while k.timeline_lo + 1 < k.timeline_hi and s.timeline_s[k.timeline_lo + 1] <= k.now:
        k.timeline_lo += 1
    s.timeline_s[k.timeline_lo] = k.now


@kernel
def enough(s: Any, job: int, g: int, at: int) -> bool:
    """Whether the job's need is free at breakpoint `at` in every pool of the group."""
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        if s.timeline_free[at, p] < s.need[job, s.pools[p].need]:
            return False
    return True


@kernel
def fits_until(s: Any, job: int, g: int, at: int, end: float) -> int:
    """-1 if the job fits from breakpoint `at` to the time `end`, else the first breakpoint where it does not fit."""
    k = s.clock[0]
    while at < k.timeline_hi and s.timeline_s[at] < end:
        if not enough(s, job, g, at):
            return at
        at += 1
    return -1


@maybe_inline
def earliest(s: Any, job: int, g: int) -> float:
    """The earliest time from now on at which the job fits the group; infinite if there is none."""
    k = s.clock[0]
    at = k.timeline_lo
    while at < k.timeline_hi:
        blocked = fits_until(s, job, g, at, s.timeline_s[at] + s.jobs[job].planned_s)
        if blocked < 0:
            return s.timeline_s[at]
        at = blocked + 1
    return np.inf


@kernel
def split_at(s: Any, time: float) -> int:
    """Index of the breakpoint at `time`, inserted if there is none."""
    k = s.clock[0]
    at = k.timeline_hi
    while s.timeline_s[at - 1] > time:
        at -= 1
    if s.timeline_s[at - 1] == time:
        return at - 1
    pools = len(s.pools)
    for i in range(k.timeline_hi, at, -1):
        s.timeline_s[i] = s.timeline_s[i - 1]
        for p in range(pools):
            s.timeline_free[i, p] = s.timeline_free[i - 1, p]
    s.timeline_s[at] = time
    for p in range(pools):
        s.timeline_free[at, p] = s.timeline_free[at - 1, p]
    k.timeline_hi += 1
    return at


@kernel
def subtract(s: Any, job: int, g: int, begin: int, end: int, times: int) -> None:
    """Subtract `times` times the job's need from breakpoints `begin` to `end` - 1."""
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        need = s.need[job, s.pools[p].need] * times
        for i in range(begin, end):
            s.timeline_free[i, p] -= need


@maybe_inline
def occupy(s: Any, job: int, g: int, start: float, until: float, times: int) -> None:
    """Subtract the job's need from the timeline from `start` to `until`; add it with `times` -1.

    A reservation may start in the past: if a job ended later than expected and no pass was made in between.
    """
    now = s.timeline_s[s.clock[0].timeline_lo]
    if until <= now:
        return
    begin = split_at(s, max(start, now))
    end = split_at(s, until)
    subtract(s, job, g, begin, end, times)
