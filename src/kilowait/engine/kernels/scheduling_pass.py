"""Scheduling pass with EASY or no backfilling: starts and reservations."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.heap import heapify, pop
from kilowait.engine.kernels.jit import assume_nonnegative, kernel
from kilowait.engine.kernels.queue import (
    close_gaps,
    end_pass,
    has_waited_too_long,
    position_of,
    promote_overdue,
    rank_waiting,
    update_overrun_ends,
)
from kilowait.engine.kernels.reservations import (
    EVERY_GROUP,
    apply_announcements,
    begin_pass,
    block_groups,
    place,
    reserve,
    start,
    update_share,
)
from kilowait.engine.kernels.state import QUEUED
from kilowait.engine.kernels.timeline import advance


@kernel
def apply_prediction(s: Any, job: int) -> float:
    """Clip predicted times to at least 1 s and the planned time to the limit; return the planned time."""
    record = s.jobs[job]
    if not record.estimate_s >= 1.0:  # also true of NaN
        record.estimate_s = 1.0
    if not record.planned_s >= 1.0:
        record.planned_s = 1.0
    record.planned_s = min(record.planned_s, record.limit_s)
    return record.planned_s


@kernel
def score_now(s: Any, job: int, score: Any, parameters: Any) -> float:
    """Score of a waiting job as of now: minus infinity if it has waited too long."""
    k = s.clock[0]
    record = s.jobs[job]
    if k.bounded and k.half_life_s > 0:
        row = s.job_extra[job].user
        update_share(s, row)
        record.usage_share = s.usage[row].share
    value = score(record, k.now, parameters)
    return -np.inf if value == value and has_waited_too_long(s, job) else value


@kernel
def score_waiting(s: Any, score: Any, parameters: Any) -> None:
    """Score every waiting job as of now; if a predicted time changes, reservations are invalid."""
    k = s.clock[0]
    for i in range(k.queue_lo, k.queue_hi):
        waiting = s.queue[i]
        value = score(s.jobs[waiting.job], k.now, parameters)
        if value != value:
            k.bad_score = waiting.job + 1
        waiting.key = -np.inf if has_waited_too_long(s, waiting.job) else value
        if k.predicts:
            planned = apply_prediction(s, waiting.job)
            if planned != waiting.planned_s:
                waiting.planned_s = planned
                k.reservations_invalid = 1


@kernel
def schedule(s: Any, all_applied: bool, backfill_score: Any, backfill_parameters: Any) -> None:
    """One pass; the queue is sorted by score, or its scores are as of now (time-dependent policies).

    Only changes since the last pass are processed. If only jobs behind the closed part of the queue have arrived,
    only these can start.
    """
    k = s.clock[0]
    if k.first_arrived > 0 and not k.time_dependent:
        promote_overdue(s)
    stale = k.running > 0 and s.expected_ends[0].key <= k.now
    if k.next_announcement < len(s.announcements):
        stale = apply_announcements(s) or stale
    if k.unchanged and not stale:
        if k.depth > 0:
            backfill(s, k.closed_at, True, -1, 0, backfill_score, backfill_parameters)
    elif not anything_free(s):
        k.unchanged = 0  # no job can start, and reservations last for a pass only
        if all_applied:
            update_overrun_ends(s)
    else:
        begin_pass(s, all_applied)
        reserve_or_start(s, backfill_score, backfill_parameters)
    end_pass(s)


@kernel
def anything_free(s: Any) -> bool:
    """Whether any group has free resources."""
    for g in range(len(s.groups)):
        if s.pools[s.groups[g].pool_lo].free > 0:
            return True
    return False


@kernel
def reserve_or_start(s: Any, backfill_score: Any, backfill_parameters: Any) -> None:
    """Phase 1: in the policy's order, start, reserve or block, until every group is closed; then phase 2."""
    k = s.clock[0]
    at = k.queue_lo
    left = rank_waiting(s) if k.time_dependent else 0
    gaps = 0
    first_gap = -1
    first_skipped = -1
    while k.open_groups != 0 and (left > 0 if k.time_dependent else at < k.queue_hi):
        job = s.queue[at].job
        if k.time_dependent:
            job = s.candidates[0].job
            pop(s.candidates, left)
            left -= 1
        if s.job_state[job].allowed & k.open_groups == 0 and k.depth > 0:
            if first_skipped < 0:
                first_skipped = at
        else:
            g = place(s, job, EVERY_GROUP if k.depth > 0 else k.open_groups)
            if g >= 0:
                start(s, job, g)
                if not k.time_dependent and at == k.queue_lo:
                    k.queue_lo += 1
                else:
                    gaps += 1
                    if first_gap < 0:
                        first_gap = k.queue_lo if k.time_dependent else at
            elif k.depth == 0:
                block_groups(s, job)
            else:
                reserve(s, job)
        if not k.time_dependent:
            at += 1
    k.closed_at = at - gaps
    k.unchanged = 1 if k.open_groups == 0 and not k.time_dependent else 0
    if k.depth > 0:
        candidates = k.queue_lo if k.time_dependent else (at if first_skipped < 0 else first_skipped)
        backfill(s, candidates, False, first_gap, gaps, backfill_score, backfill_parameters)
    else:
        close_gaps(s, first_gap, gaps)


@kernel
def next_candidate(s: Any, at: int, free: int, latest: float, extra: int) -> int:
    """First queue position from `at` on whose job passes the `bounds` for backfilling."""
    k = s.clock[0]
    now = k.now
    hi = assume_nonnegative(k.queue_hi)
    at = assume_nonnegative(at)
    while at < hi:
        waiting = s.queue[at]
        need = waiting.need
        if need <= free and (need <= extra or now + waiting.planned_s <= latest):
            break
        at += 1
    return at


@kernel
def bounds(s: Any) -> tuple[int, float, int]:
    """Necessary conditions for backfilling: maximum free, latest shadow time and maximum extra over the groups."""
    k = s.clock[0]
    free = -(2**62)
    latest = -np.inf
    extra = -(2**62)
    for g in range(len(s.groups)):
        group = s.groups[g]
        pool = s.pools[group.pool_lo]
        if pool.free > 0:
            free = max(free, pool.free)
            latest = max(latest, np.inf if k.timeline else group.shadow_s)
            extra = max(extra, pool.extra)
    return free, latest, extra


@kernel
def backfill(
    s: Any, at: int, new_only: bool, first_gap: int, gaps: int, backfill_score: Any, backfill_parameters: Any
) -> None:
    """Phase 2: try backfill candidates from position `at` on (or only new arrivals), by score or backfill score.

    `gaps` jobs behind the first one have started in phase 1, the first of them at `first_gap` (-1: none).
    """
    k = s.clock[0]
    free, latest, extra = bounds(s)
    ranked = k.backfill_order != 0 or k.time_dependent != 0 or new_only
    count = 0
    if new_only:
        count = k.new_arrivals
        for i in range(count):
            candidate = s.candidates[i]
            candidate.job = s.new_arrivals[i]
            candidate.key = s.job_state[s.new_arrivals[i]].key
        if k.timeline:
            advance(s)
    elif ranked and free > 0:
        i = next_candidate(s, at, free, latest, extra)
        while i < k.queue_hi:
            candidate = s.candidates[count]
            candidate.key = s.queue[i].key
            candidate.job = s.queue[i].job
            count += 1
            i = next_candidate(s, i + 1, free, latest, extra)
    if k.backfill_order != 0:
        for i in range(count):
            candidate = s.candidates[i]
            job = candidate.job
            if k.backfill_order == 1:
                overdue = has_waited_too_long(s, job)
                candidate.key = -np.inf if overdue else s.job_extra[job].backfill_key
            else:
                candidate.key = score_now(s, job, backfill_score, backfill_parameters)
                if candidate.key != candidate.key:
                    k.bad_score = -(job + 1)
    if count > 1:
        heapify(s.candidates, count)
    while free > 0:
        if ranked:
            if count == 0:
                break
            job = s.candidates[0].job
            pop(s.candidates, count)
            count -= 1
        else:
            at = next_candidate(s, at, free, latest, extra)
            if at >= k.queue_hi:
                break
            job = s.queue[at].job
            at += 1
        if s.job_state[job].status == QUEUED:
            g = place(s, job, EVERY_GROUP)
            if g >= 0:
                start(s, job, g)
                # Position of the gap; a ranked candidate may be anywhere behind closed_at. The long queues of runs
                # with bounded scores are sorted by number; the queues of look-ahead are not.
                gap = at - 1
                if ranked:
                    gap = k.closed_at if new_only else (position_of(s, job) if k.bounded else k.queue_lo)
                first_gap = gap if first_gap < 0 else min(gap, first_gap)
                gaps += 1
                free, latest, extra = bounds(s)
    close_gaps(s, first_gap, gaps)
