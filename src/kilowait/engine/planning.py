"""Starting and reserving: the moves a scheduling pass is made of, for rules, agents and rehearsals alike.

Two ways of planning give the same answers. With at most one reservation per group and no capacity change
ahead, availability only grows, so a reservation is a shadow time and what is left over at that time. All
else uses the timeline.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine import timeline
from kilowait.engine.compiling import kernel
from kilowait.engine.heap import push
from kilowait.engine.state import FINISH, RUNNING
from kilowait.engine.waiting import believe, renew_beliefs

__all__ = ["begin_pass", "block", "charge", "fits_now", "place", "reserve", "start", "take"]


@kernel
def begin_pass(s: Any, all_applied: bool) -> None:
    """Forget the reservations of the last pass; look anew at beliefs, and lay out the timeline where it is used."""
    k = s.clock[0]
    if all_applied:
        renew_beliefs(s)
    for g in range(len(s.groups)):
        s.groups[g].reserved = 0
        s.groups[g].shadow_s = np.inf
    k.open_groups = (1 << len(s.groups)) - 1
    if k.timeline:
        timeline.build(s)


@kernel
def fits_now(s: Any, job: int, g: int) -> bool:
    """Whether the job can start on the group at this moment and disturb no reservation."""
    k = s.clock[0]
    if s.fate[job].allowed >> g & 1 == 0:
        return False
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        if s.need[job, s.pools[p].need] > s.pools[p].free:
            return False
    if k.timeline:
        return timeline.fits_from(s, job, g, k.line_lo, k.now) < 0
    if k.now + s.fate[job].estimate_s <= s.groups[g].shadow_s:
        return True
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        if s.need[job, s.pools[p].need] > s.pools[p].extra:
            return False
    return True


@kernel
def place(s: Any, job: int, groups: int) -> int:
    """The group, of those in the bits of `groups`, on which the job would start now; -1 if it fits none."""
    k = s.clock[0]
    best = -1
    best_share = -np.inf
    for i in range(len(s.groups)):
        g = s.preference[s.fate[job].choice, i]
        if g < 0:
            break
        if groups >> g & 1 and fits_now(s, job, g):
            if not k.balance:
                return g
            share = s.pools[s.groups[g].pool_lo].free / s.pools[s.groups[g].pool_lo].capacity
            if share > best_share:
                best = g
                best_share = share
    return best


@kernel
def charge(s: Any, job: int, by: int) -> None:
    """Bring usage up to now and let the job's user (and the machine) use `by` times its nodes more per second."""
    k = s.clock[0]
    passed = k.now - k.usage_at
    if passed > 0:
        keep = 2.0 ** (-passed / k.half_life_s)
        grow = k.half_life_s / np.log(2.0) * (1.0 - keep)
        for u in range(len(s.usage)):
            s.usage[u].amount = s.usage[u].amount * keep + s.usage[u].rate * grow
        k.usage_at = k.now
    if by != 0:
        nodes = s.jobs[job].nodes * by
        s.usage[s.fate[job].user].rate += nodes
        s.usage[len(s.usage) - 1].rate += nodes


@kernel
def start(s: Any, job: int, g: int) -> None:
    """Start the job on the group now; the plan knows of it. The caller takes it out of the queue."""
    k = s.clock[0]
    end = k.now + s.fate[job].estimate_s
    late = end > s.groups[g].shadow_s
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        need = s.need[job, s.pools[p].need]
        s.pools[p].free -= need
        if late:
            s.pools[p].extra -= need
    s.fate[job].status = RUNNING
    s.fate[job].start_s = k.now
    s.fate[job].group = g
    believe(s, job, end)
    push(s.events, k.events, k.now + s.fate[job].run_s, FINISH + k.segments)
    k.events += 1
    s.segments[k.segments] = job
    k.segments += 1
    if k.half_life_s > 0:
        charge(s, job, 1)


@kernel
def take(s: Any, job: int, g: int) -> None:
    """Start the job on the group now and let the plan know."""
    k = s.clock[0]
    if k.timeline:
        timeline.occupy(s, job, g, k.now)
    start(s, job, g)


@kernel
def shadow(s: Any, job: int, g: int) -> float:
    """The earliest time at which believed releases make room for the job on the group; leaves the rest in extra."""
    k = s.clock[0]
    lo = s.groups[g].pool_lo
    hi = s.groups[g].pool_hi
    for p in range(lo, hi):
        s.pools[p].extra = s.pools[p].free - s.need[job, s.pools[p].need]
    time = k.now
    i = 0
    while True:
        # Everything released by the same moment counts.
        while i < k.running and s.beliefs[i].key <= time:
            other = s.beliefs[i].job
            if s.fate[other].group == g:
                for p in range(lo, hi):
                    s.pools[p].extra += s.need[other, s.pools[p].need]
            i += 1
        room = True
        for p in range(lo, hi):
            if s.pools[p].extra < 0:
                room = False
        if room:
            return time
        if i >= k.running:
            return np.inf
        time = s.beliefs[i].key


@kernel
def reserve(s: Any, job: int) -> float:
    """Reserve for the job on that of its open groups where it fits earliest; the time, infinite if there is none."""
    k = s.clock[0]
    best = -1
    best_s = np.inf
    for i in range(len(s.groups)):
        g = s.preference[s.fate[job].choice, i]
        if g < 0:
            break
        if s.fate[job].allowed & k.open_groups & (1 << g):
            time = timeline.earliest(s, job, g) if k.timeline else shadow(s, job, g)
            if time < best_s:
                best = g
                best_s = time
    if best >= 0:
        if k.timeline:
            timeline.occupy(s, job, best, best_s)
        else:
            s.groups[best].shadow_s = best_s
        s.groups[best].reserved += 1
        if s.groups[best].reserved >= k.depth:
            k.open_groups &= ~(1 << best)
    return best_s


@kernel
def block(s: Any, job: int) -> None:
    """Without backfilling, a job that does not fit closes all its groups to those behind it."""
    k = s.clock[0]
    k.open_groups &= ~s.fate[job].allowed
