"""One scheduling pass: who starts now, in which order, and who gets a reservation."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine import timeline
from kilowait.engine.compiling import kernel
from kilowait.engine.heap import heapify, pop, push
from kilowait.engine.planning import begin_pass, block, charge, place, reserve, start, take
from kilowait.engine.state import QUEUED, UNLIMITED
from kilowait.engine.waiting import compact

__all__ = ["schedule", "score_waiting"]

EVERY_GROUP = -1


@kernel
def score_waiting(s: Any, score: Any, parameters: Any) -> None:
    """Score every waiting job as of now."""
    k = s.clock[0]
    if k.half_life_s > 0:
        charge(s, 0, 0)
        total = s.usage[len(s.usage) - 1].amount
        for i in range(k.queue_lo, k.queue_hi):
            job = s.queue[i].job
            s.jobs[job].usage_share = s.usage[s.fate[job].user].amount / total if total > 0 else 0.0
    for i in range(k.queue_lo, k.queue_hi):
        value = score(s.jobs[s.queue[i].job], k.now, parameters)
        if value != value:
            k.bad_score = s.queue[i].job + 1
        s.queue[i].key = value


@kernel
def schedule(s: Any, all_applied: bool, own_score: Any, own_parameters: Any) -> None:
    """One pass; the queue is in order (fixed rules) or its keys are today's (moving ones)."""
    k = s.clock[0]
    if k.queue_lo == k.queue_hi:
        k.fresh = 0
        k.settled = 0
        k.plan_holds = 0
        return
    stale = k.running > 0 and s.beliefs[0].key <= k.now
    if k.next_announcement < len(s.announcements) and s.announcements[k.next_announcement] <= k.now:
        stale = True
        while k.next_announcement < len(s.announcements) and s.announcements[k.next_announcement] <= k.now:
            k.next_announcement += 1
    if k.settled and not stale:
        try_fresh(s, own_score, own_parameters)
    elif k.plan_holds and not stale:
        follow_plan(s)
    elif k.depth != UNLIMITED and not anything_free(s):
        k.settled = 0  # nobody can start, and reservations last for a pass only
    else:
        begin_pass(s, all_applied)
        if k.moving:
            in_moving_order(s, own_score, own_parameters)
        else:
            in_fixed_order(s, own_score, own_parameters)
    k.fresh = 0
    if k.queue_lo == k.queue_hi:
        k.queue_lo = 0
        k.queue_hi = 0


@kernel
def anything_free(s: Any) -> bool:
    """Whether any group has anything to give."""
    for g in range(len(s.groups)):
        if s.pools[s.groups[g].pool_lo].free > 0:
            return True
    return False


@kernel
def consider(s: Any, job: int) -> bool:
    """The head of what is left: start it, or reserve for it, or block behind it. True if it started."""
    k = s.clock[0]
    g = place(s, job, EVERY_GROUP if k.depth > 0 else k.open_groups)
    if g >= 0:
        take(s, job, g)
        return True
    if k.depth == 0:
        block(s, job)
    else:
        time = reserve(s, job)
        if k.depth == UNLIMITED:
            s.fate[job].planned_s = time
    return False


@kernel
def in_fixed_order(s: Any, own_score: Any, own_parameters: Any) -> None:
    """A pass over a queue that stands in the policy's order."""
    k = s.clock[0]
    at = k.queue_lo
    first_gap = -1
    first_aside = -1
    while at < k.queue_hi and k.open_groups != 0:
        job = s.queue[at].job
        if s.fate[job].allowed & k.open_groups == 0 and k.depth > 0:
            if first_aside < 0:
                first_aside = at
        elif consider(s, job):
            if at == k.queue_lo:
                k.queue_lo += 1
            elif first_gap < 0:
                first_gap = at
        at += 1
    if first_gap >= 0:
        waiting = k.queue_hi
        compact(s, first_gap)
        at -= waiting - k.queue_hi
        first_aside = first_gap if first_aside > first_gap else first_aside
    k.closed_at = at
    k.settled = 1 if k.open_groups == 0 else 0
    # Kept only where it is simple: one group, no capacity changes, whole instants.
    simple = len(s.groups) == 1 and len(s.changes) == 0 and not k.per_event
    k.plan_holds = 1 if k.depth == UNLIMITED and simple else 0
    if k.depth > 0 and k.depth != UNLIMITED:
        backfill(s, at if first_aside < 0 else first_aside, own_score, own_parameters)


@kernel
def in_moving_order(s: Any, own_score: Any, own_parameters: Any) -> None:
    """A pass over a queue whose order is today's scores: taken from a heap, only as far as needed."""
    k = s.clock[0]
    k.settled = 0
    k.plan_holds = 0
    count = 0
    for i in range(k.queue_lo, k.queue_hi):
        s.picks[count].key = s.queue[i].key
        s.picks[count].job = s.queue[i].job
        count += 1
    heapify(s.picks, count)
    started = False
    aside = False
    while count > 0 and k.open_groups != 0:
        job = s.picks[0].job
        pop(s.picks, count)
        count -= 1
        if s.fate[job].allowed & k.open_groups == 0 and k.depth > 0:
            aside = True
        elif consider(s, job):
            started = True
    if started:
        compact(s, k.queue_lo)
    if k.depth > 0 and (count > 0 or aside):
        backfill(s, k.queue_lo, own_score, own_parameters)


@kernel
def bounds(s: Any) -> tuple[int, float, int]:
    """What a candidate must meet in any case: most free, latest shadow, most extra, over the groups."""
    k = s.clock[0]
    free = -(2**62)
    latest = -np.inf
    extra = -(2**62)
    for g in range(len(s.groups)):
        p = s.groups[g].pool_lo
        if s.pools[p].free > 0:
            free = max(free, s.pools[p].free)
            latest = max(latest, np.inf if k.timeline else s.groups[g].shadow_s)
            extra = max(extra, s.pools[p].extra)
    return free, latest, extra


@kernel
def backfill(s: Any, at: int, own_score: Any, own_parameters: Any) -> None:
    """Phase 2: try the candidates from position `at` on, in the policy's or in their own order."""
    k = s.clock[0]
    free, latest, extra = bounds(s)
    if free <= 0 or at >= k.queue_hi:
        return
    if k.own_order == 0 and not k.moving:
        first_gap = -1
        for i in range(at, k.queue_hi):
            need = s.queue[i].need
            if need <= free and (need <= extra or k.now + s.queue[i].estimate_s <= latest):
                job = s.queue[i].job
                g = place(s, job, EVERY_GROUP)
                if g >= 0:
                    take(s, job, g)
                    if first_gap < 0:
                        first_gap = i
                    free, latest, extra = bounds(s)
                    if free <= 0:
                        break
        if first_gap >= 0:
            compact(s, first_gap)
        return
    count = 0
    for i in range(at, k.queue_hi):
        need = s.queue[i].need
        if need <= free and (need <= extra or k.now + s.queue[i].estimate_s <= latest):
            job = s.queue[i].job
            key = s.queue[i].key
            if k.own_order == 1:
                key = s.fate[job].own_key
            elif k.own_order == 2:
                key = own_score(s.jobs[job], k.now, own_parameters)
                if key != key:
                    k.bad_score = job + 1
            push(s.picks, count, key, job)
            count += 1
    try_picked(s, count, at)


@kernel
def try_picked(s: Any, count: int, at: int) -> None:
    """Start those of the picked candidates that fit, in order; the queue has gaps from `at` on at the earliest."""
    started = False
    while count > 0:
        job = s.picks[0].job
        pop(s.picks, count)
        count -= 1
        g = place(s, job, EVERY_GROUP)
        if g >= 0:
            take(s, job, g)
            started = True
    if started:
        compact(s, at)


@kernel
def try_fresh(s: Any, own_score: Any, own_parameters: Any) -> None:
    """Only jobs behind the closed part of the queue came: nobody else's chances have grown."""
    k = s.clock[0]
    if k.depth == 0:
        return
    if k.timeline:
        timeline.move_up(s)
    count = 0
    for i in range(k.fresh):
        job = s.fresh[i]
        if s.fate[job].status == QUEUED:
            key = s.fate[job].key
            if k.own_order == 1:
                key = s.fate[job].own_key
            elif k.own_order == 2:
                key = own_score(s.jobs[job], k.now, own_parameters)
                if key != key:
                    k.bad_score = job + 1
            push(s.picks, count, key, job)
            count += 1
    try_picked(s, count, k.closed_at)


@kernel
def follow_plan(s: Any) -> None:
    """Conservative, fixed order, all as believed: start those whose time has come, then plan for those behind."""
    k = s.clock[0]
    timeline.move_up(s)
    at = k.queue_lo
    first_gap = -1
    known = k.queue_hi - k.fresh
    while at < k.queue_hi:
        job = s.queue[at].job
        started = False
        if at >= known:
            started = consider(s, job)
        elif s.fate[job].planned_s <= k.now:
            start(s, job, 0)
            started = True
        if started:
            if at == k.queue_lo:
                k.queue_lo += 1
            elif first_gap < 0:
                first_gap = at
        at += 1
    if first_gap >= 0:
        compact(s, first_gap)
