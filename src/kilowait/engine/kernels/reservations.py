"""Job start and reservation: the operations of scheduling passes, agents and look-ahead.

Two representations give the same results. With at most one reservation per group and no future capacity change,
availability only grows, so a reservation is a shadow time and the resources left over at that time (extra). All other
runs use the timeline.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.heap import push
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline
from kilowait.engine.kernels.queue import add_expected_end, update_overrun_ends
from kilowait.engine.kernels.state import FINISH, RUNNING
from kilowait.engine.kernels.timeline import build, earliest, fits_until, occupy
from kilowait.engine.settings import UNLIMITED

EVERY_GROUP = -1
"""Bits of groups, all set."""


@kernel
def begin_pass(s: Any, all_applied: bool) -> None:
    """Drop the reservations of the last pass, update expected ends, and build the timeline if used."""
    k = s.clock[0]
    if all_applied:
        update_overrun_ends(s)
    for g in range(len(s.groups)):
        group = s.groups[g]
        group.reserved = 0
        group.shadow_s = np.inf
    k.open_groups = (1 << len(s.groups)) - 1
    if k.timeline:
        build(s)


@maybe_inline
def apply_announcements(s: Any) -> bool:
    """Count capacity changes announced by now as known; return whether there are new ones."""
    k = s.clock[0]
    announced = False
    while k.next_announcement < len(s.announcements) and s.announcements[k.next_announcement] <= k.now:
        k.next_announcement += 1
        announced = True
    return announced


@maybe_inline
def fits_now(s: Any, job: int, g: int) -> bool:
    """Whether the job can start on the group now without delaying a reservation."""
    k = s.clock[0]
    group = s.groups[g]
    if s.job_state[job].allowed >> g & 1 == 0:
        return False
    for p in range(group.pool_lo, group.pool_hi):
        pool = s.pools[p]
        if s.need[job, pool.need] > pool.free:
            return False
    if k.timeline:
        return fits_until(s, job, g, k.timeline_lo, k.now + s.jobs[job].planned_s) < 0
    if k.now + s.jobs[job].planned_s <= group.shadow_s:
        return True
    for p in range(group.pool_lo, group.pool_hi):
        pool = s.pools[p]
        if s.need[job, pool.need] > pool.extra:
            return False
    return True


@maybe_inline
def place_among(s: Any, job: int, groups: int) -> int:
    """`place` where there are several groups or pools, or a timeline."""
    k = s.clock[0]
    best = -1
    best_share = -np.inf
    for i in range(len(s.groups)):
        g = s.preference[s.job_state[job].preference_row, i]
        if g < 0:
            break
        if groups >> g & 1 and fits_now(s, job, g):
            if not k.balance:
                return g
            first = s.pools[s.groups[g].pool_lo]
            share = first.free / first.capacity
            if share > best_share:
                best = g
                best_share = share
    return best


@kernel
def place(s: Any, job: int, groups: int) -> int:
    """The group among `groups` (bits) on which the job would start now; -1: it fits none."""
    k = s.clock[0]
    job = assume_nonnegative(job)
    if not k.one_pool or k.timeline:
        return place_among(s, job, groups)
    need = s.job_state[job].least_need
    pool = s.pools[0]
    if need > pool.free or groups & 1 == 0:
        return -1
    in_time = k.now + s.jobs[job].planned_s <= s.groups[0].shadow_s
    return 0 if in_time or need <= pool.extra else -1


@kernel
def usage_now(s: Any, row: int) -> float:
    """Decayed node-seconds of a row of usage: they halve with every half-life since their use."""
    k = s.clock[0]
    used = s.usage[row]
    passed = k.now - used.as_of_s
    decay = 2.0 ** (-passed / k.half_life_s)
    return used.amount * decay + used.rate * (k.half_life_s / np.log(2.0)) * (1.0 - decay)


@kernel
def share_of(s: Any, job: int) -> float:
    """Share of the job's user in recent usage, 0 to 1."""
    total = usage_now(s, len(s.usage) - 1)
    return usage_now(s, s.job_extra[job].user) / total if total > 0 else 0.0


@maybe_inline
def update_share(s: Any, row: int) -> None:
    """Compute the share of a user in recent usage as of now."""
    k = s.clock[0]
    used = s.usage[row]
    if used.share_s != k.now:
        used.share_s = k.now
        used.gain_s = np.inf
        used.share = 0.0
        if used.rate != 0.0 or used.amount != 0.0:
            total = usage_now(s, len(s.usage) - 1)
            used.share = usage_now(s, row) / total if total > 0 else 0.0


@maybe_inline
def update_usage_shares(s: Any) -> None:
    """Update `usage_share` of every waiting job."""
    k = s.clock[0]
    for i in range(k.queue_lo, k.queue_hi):
        job = s.queue[i].job
        row = s.job_extra[job].user
        update_share(s, row)
        s.jobs[job].usage_share = s.usage[row].share


@maybe_inline
def charge(s: Any, job: int, by: int) -> None:
    """Change the usage rate of the job's user and of the machine by `by` times the size of the job, from now on."""
    k = s.clock[0]
    for row in (s.job_extra[job].user, len(s.usage) - 1):
        used = s.usage[row]
        used.amount = usage_now(s, row)
        used.as_of_s = k.now
        used.rate += s.jobs[job].units * by


@maybe_inline
def take_from_pools(s: Any, job: int, g: int, late: bool) -> None:
    """Subtract the job's need from free, and from extra if it ends after the shadow time."""
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        pool = s.pools[p]
        need = s.need[job, pool.need]
        pool.free -= need
        if late:
            pool.extra -= need


@kernel
def start(s: Any, job: int, g: int) -> None:
    """Start the job on the group now. The caller takes it out of the queue."""
    k = s.clock[0]
    job = assume_nonnegative(job)
    job_state = s.job_state[job]
    end = k.now + s.jobs[job].planned_s
    late = end > s.groups[g].shadow_s
    if k.one_pool:
        pool = s.pools[0]
        pool.free -= job_state.least_need
        if late:
            pool.extra -= job_state.least_need
    else:
        take_from_pools(s, job, g, late)
    if k.timeline:
        occupy(s, job, g, k.now, end, 1)
    job_state.status = RUNNING
    job_state.start_s = k.now
    job_state.group = g
    if k.track_expected_ends:
        add_expected_end(s, job, end)
    push(s.events, k.events, k.now + job_state.run_s, FINISH + k.segments)
    k.events += 1
    s.segments[k.segments] = job
    k.segments += 1
    if k.half_life_s > 0:
        charge(s, job, 1)


@kernel
def shadow_time_single_pool(s: Any, job: int) -> float:
    """`shadow` where there is one pool."""
    k = s.clock[0]
    pool = s.pools[0]
    extra = pool.free - s.job_state[job].least_need
    time = k.now
    i = 0
    running = assume_nonnegative(k.running)
    while i < running:
        expected_end = s.expected_ends[i]
        if extra >= 0 and expected_end.key > time:
            break
        time = max(time, expected_end.key)
        extra += s.job_state[assume_nonnegative(expected_end.job)].least_need
        i += 1
    pool.extra = extra
    return time if extra >= 0 else np.inf


@maybe_inline
def shadow(s: Any, job: int, g: int) -> float:
    """Shadow time: earliest time at which expected ends free enough for the job on the group; sets extra."""
    k = s.clock[0]
    lo = s.groups[g].pool_lo
    hi = s.groups[g].pool_hi
    for p in range(lo, hi):
        s.pools[p].extra = s.pools[p].free - s.need[job, s.pools[p].need]
    time = k.now
    i = 0
    while True:
        # All releases at the same time count.
        while i < k.running and s.expected_ends[i].key <= time:
            other = s.expected_ends[i].job
            if s.job_state[other].group == g:
                for p in range(lo, hi):
                    s.pools[p].extra += s.need[other, s.pools[p].need]
            i += 1
        fits = True
        for p in range(lo, hi):
            if s.pools[p].extra < 0:
                fits = False
        if fits:
            return time
        if i >= k.running:
            return np.inf
        time = s.expected_ends[i].key


@maybe_inline
def reserve_among(s: Any, job: int) -> float:
    """`reserve` where there are several groups or pools, or a timeline."""
    k = s.clock[0]
    best = -1
    best_s = np.inf
    for i in range(len(s.groups)):
        g = s.preference[s.job_state[job].preference_row, i]
        if g < 0:
            break
        if s.job_state[job].allowed & k.open_groups & (1 << g):
            time = earliest(s, job, g) if k.timeline else shadow(s, job, g)
            if time < best_s:
                best = g
                best_s = time
    if best >= 0:
        if k.timeline:
            occupy(s, job, best, best_s, best_s + s.jobs[job].planned_s, 1)
        else:
            s.groups[best].shadow_s = best_s
        if k.depth == UNLIMITED:
            job_extra = s.job_extra[job]
            job_extra.reserved_s = best_s
            job_extra.reserved_on = best + 1
        group = s.groups[best]
        group.reserved += 1
        if group.reserved >= k.depth:
            k.open_groups &= ~(1 << best)
    return best_s


@kernel
def reserve(s: Any, job: int) -> float:
    """Reserve for the job on the open group where it fits earliest; return the time, infinite if it never fits."""
    k = s.clock[0]
    if not k.one_pool or k.timeline:
        return reserve_among(s, job)
    time = shadow_time_single_pool(s, job)
    group = s.groups[0]
    group.shadow_s = time
    group.reserved = 1
    k.open_groups = 0
    return time


@kernel
def block_groups(s: Any, job: int) -> None:
    """Without backfilling: a job that does not fit closes all its groups to the jobs behind it."""
    k = s.clock[0]
    k.open_groups &= ~s.job_state[job].allowed
