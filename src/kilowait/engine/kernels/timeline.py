"""Timeline: expected availability of every pool from now on.

Breakpoint i holds from line_s[i] until line_s[i + 1]; the last one holds for ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.jit import kernel, maybe_inline

__all__ = ["build", "earliest", "fits_until", "advance", "occupy", "subtract"]


@maybe_inline
def build(s: Any) -> None:
    """Rebuild the timeline: free resources, expected ends, known capacity changes."""
    k = s.clock[0]
    pools = len(s.pools)
    for p in range(pools):
        s.line_free[0, p] = s.pools[p].free
    s.line_s[0] = k.now
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
        if time > s.line_s[last]:
            last += 1
            s.line_s[last] = time
            for p in range(pools):
                s.line_free[last, p] = s.line_free[last - 1, p]
        if release <= change:
            job = s.expected_ends[i].job
            subtract(s, job, s.job_state[job].group, last, last + 1, -1)
            i += 1
        else:
            s.line_free[last, s.changes[c].pool] += s.changes[c].by
            c += 1
    k.line_lo = 0
    k.line_hi = last + 1


@kernel
def advance(s: Any) -> None:
    """Advance the start of the timeline to now."""
    k = s.clock[0]
    while k.line_lo + 1 < k.line_hi and s.line_s[k.line_lo + 1] <= k.now:
        k.line_lo += 1
    s.line_s[k.line_lo] = k.now


@kernel
def enough(s: Any, job: int, g: int, at: int) -> bool:
    """Whether breakpoint `at` leaves the job's need in every pool of the group."""
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        if s.line_free[at, p] < s.need[job, s.pools[p].need]:
            return False
    return True


@kernel
def fits_until(s: Any, job: int, g: int, at: int, end: float) -> int:
    """-1 if the job fits from breakpoint `at` to the time `end`; else the breakpoint in the way."""
    k = s.clock[0]
    while at < k.line_hi and s.line_s[at] < end:
        if not enough(s, job, g, at):
            return at
        at += 1
    return -1


@maybe_inline
def earliest(s: Any, job: int, g: int) -> float:
    """The earliest time from now on at which the job fits the group; infinite if there is none."""
    k = s.clock[0]
    at = k.line_lo
    while at < k.line_hi:
        blocked = fits_until(s, job, g, at, s.line_s[at] + s.jobs[job].planned_s)
        if blocked < 0:
            return s.line_s[at]
        at = blocked + 1
    return np.inf


@kernel
def split_at(s: Any, time: float) -> int:
    """The breakpoint at `time`, made if there is none."""
    k = s.clock[0]
    at = k.line_hi
    while s.line_s[at - 1] > time:
        at -= 1
    if s.line_s[at - 1] == time:
        return at - 1
    pools = len(s.pools)
    for i in range(k.line_hi, at, -1):
        s.line_s[i] = s.line_s[i - 1]
        for p in range(pools):
            s.line_free[i, p] = s.line_free[i - 1, p]
    s.line_s[at] = time
    for p in range(pools):
        s.line_free[at, p] = s.line_free[at - 1, p]
    k.line_hi += 1
    return at


@kernel
def subtract(s: Any, job: int, g: int, begin: int, end: int, times: int) -> None:
    """Take the job's need off the breakpoints from `begin` to before `end`, `times` times."""
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        need = s.need[job, s.pools[p].need] * times
        for i in range(begin, end):
            s.line_free[i, p] -= need


@maybe_inline
def occupy(s: Any, job: int, g: int, start: float, until: float, times: int) -> None:
    """Take the job's need off the timeline from `start` to `until`; give it back with `times` -1.

    A reservation may lie back in time: a job that was believed to end then ended later, and no pass came between.
    """
    now = s.line_s[s.clock[0].line_lo]
    if until <= now:
        return
    begin = split_at(s, max(start, now))
    end = split_at(s, until)
    subtract(s, job, g, begin, end, times)
