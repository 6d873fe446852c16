"""Event loop: apply events, and run a whole simulation in compiled code, or a step of one that Python schedules.

`power_event_loop` specializes it for power controls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.conservative import (
    apply_reservation,
    conservative_pass,
    open_plan,
    rebuild_plan,
    remove_reservation,
)
from kilowait.engine.kernels.heap import pop, push
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline
from kilowait.engine.kernels.queue import compact, enqueue, remove, remove_expected_end, track_wait
from kilowait.engine.kernels.reservations import (
    EVERY_GROUP,
    begin_pass,
    charge,
    place,
    reserve,
    share_of,
    start,
    update_usage_shares,
)
from kilowait.engine.kernels.scheduling_pass import anything_free, apply_prediction, schedule, score_waiting
from kilowait.engine.kernels.score_bounds import schedule_by_bounds
from kilowait.engine.kernels.state import ARRIVAL, CANCELLED, CHANGE, DONE, HELD, KIND, QUEUED, REJECTED, TIMER
from kilowait.engine.settings import UNLIMITED

NONE = -1
STARTED = -1.0
HEAP, ARRIVALS, CHANGES = 0, 1, 2
OVER = -np.inf
"""Result of `begin_instant`: no event is left."""


@kernel
def next_event_s(s: Any) -> float:
    """Time of the next event; infinite when none is left."""
    k = s.clock[0]
    time = s.events[0].key if k.events > 0 else np.inf
    if k.next_arrival < len(s.arrivals):
        time = min(time, s.job_state[assume_nonnegative(s.arrivals[assume_nonnegative(k.next_arrival)])].earliest_s)
    if k.next_change < len(s.changes):
        time = min(time, s.changes[k.next_change].time_s)
    return time


@kernel
def advance(s: Any, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> bool:
    """Move to the next instant and apply its events (or one event, with per_event). False: no event is left."""
    k = s.clock[0]
    time = begin_instant(s)
    if time == OVER:
        return False
    while time == k.now:
        code, source = due_event(s, time)
        if source == HEAP:
            pop(s.events, k.events)
            k.events -= 1
        elif source == ARRIVALS:
            k.next_arrival += 1

        left = NONE
        queued = NONE
        if code < CHANGE:
            left = assume_nonnegative(s.segments[assume_nonnegative(code)])
            finish(s, left)
            if k.observes_jobs:
                notify_finish(s, left, score, parameters)
        elif code < ARRIVAL:
            apply_change(s, code)
        elif code < TIMER:
            job = assume_nonnegative(code - ARRIVAL)
            on_arrival(s, job, score, parameters, backfill_score, backfill_parameters)
            queued = job
        else:
            queued, left = on_timer(s, code)
        if queued != NONE:
            if is_usable(s, queued):
                enqueue(s, queued)
            else:
                s.job_state[queued].status = REJECTED
                left = queued
        if left != NONE and k.dependents:
            release_dependents(s, left)
        time = next_event_s(s)
        if k.per_event:
            break
    end_instant(s, time)
    return True


@kernel
def begin_instant(s: Any) -> float:
    """Move to the time of the next event, and return it; OVER if none is left."""
    time = next_event_s(s)
    if time == np.inf:
        return OVER
    s.clock[0].now = time
    return time


@kernel
def end_instant(s: Any, next_s: float) -> None:
    """All events of the instant have been applied (or one, with per_event); the next one is at `next_s`."""
    if s.clock[0].half_life_s > 0 and not s.clock[0].bounded:
        update_usage_shares(s)


@kernel
def due_event(s: Any, time: float) -> tuple[int, int]:
    """Code and source of the next event due now, by (kind, number), from the three event sources."""
    k = s.clock[0]
    code = 5 * KIND
    source = NONE
    if k.events > 0 and s.events[0].key == time:
        code = s.events[0].job
        source = HEAP
    if k.next_arrival < len(s.arrivals):
        job = assume_nonnegative(s.arrivals[assume_nonnegative(k.next_arrival)])
        if s.job_state[job].earliest_s == time and ARRIVAL + job < code:
            code = ARRIVAL + job
            source = ARRIVALS
    if k.next_change < len(s.changes) and s.changes[k.next_change].time_s == time and code > CHANGE:
        code = CHANGE
        source = CHANGES
    return code, source


@kernel
def on_timer(s: Any, code: int) -> tuple[int, int]:
    """A hold ends, or a waiting job is cancelled; return the job that is queued and the job that has left."""
    job = (code - TIMER) >> 1
    status = s.job_state[job].status
    if (code - TIMER) & 1:
        return job if status == HELD else NONE, NONE
    if status in (QUEUED, HELD):
        remove(s, job, CANCELLED)
        return NONE, job
    return NONE, NONE


@kernel
def finish(s: Any, job: int) -> None:
    """A job ends: release its resources."""
    k = s.clock[0]
    job_state = s.job_state[job]
    if k.one_pool:
        s.pools[0].free += job_state.least_need
    else:
        g = job_state.group
        for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
            pool = s.pools[p]
            pool.free += s.need[job, pool.need]
    job_state.status = DONE
    k.unchanged = 0
    if k.track_expected_ends:
        remove_expected_end(s, job)
        k.freed = 1
        if job_state.expected_end_s != k.now:
            k.reservations_tight = 0
    if k.half_life_s > 0:
        charge(s, job, -1)


@kernel
def notify_finish(s: Any, job: int, score: Any, parameters: Any) -> None:
    """Notify a policy that observes jobs of a job's end and run time."""
    k = s.clock[0]
    record = s.jobs[job]
    record.ran_s = max(k.now - s.job_state[job].start_s, 1e-9)
    score(record, k.now, parameters)


@maybe_inline
def notify_starts(s: Any, before: int, score: Any, parameters: Any) -> None:
    """Notify a policy that observes jobs of all started jobs after the first `before`."""
    k = s.clock[0]
    for i in range(before, k.segments):
        record = s.jobs[assume_nonnegative(s.segments[i])]
        record.ran_s = STARTED
        score(record, k.now, parameters)


@kernel
def is_usable(s: Any, job: int) -> bool:
    """Whether a group is usable for the job: large enough, and not of a reservation of the cluster that has ended."""
    return s.job_state[job].allowed & ~s.clock[0].ended_groups != 0


@maybe_inline
def apply_change(s: Any, code: int) -> None:
    """Apply a capacity change to every pool of its group."""
    k = s.clock[0]
    number = s.changes[k.next_change].number
    while k.next_change < len(s.changes) and s.changes[k.next_change].number == number:
        change = s.changes[k.next_change]
        s.pools[change.pool].free += change.amount
        if change.amount < 0:
            end_reservation(s, change.pool)
        k.next_change += 1
    k.unchanged = 0
    k.reservations_invalid = 1


@maybe_inline
def end_reservation(s: Any, pool: int) -> None:
    """If the pool's group belongs to a reservation of the cluster that ends now, reject its waiting jobs."""
    k = s.clock[0]
    for g in range(len(s.groups)):
        group = s.groups[g]
        if group.pool_lo == pool and group.reservation_end_s <= k.now:
            k.ended_groups |= 1 << g
            at = k.queue_lo
            while at < k.queue_hi:
                job = s.queue[at].job
                if is_usable(s, job):
                    at += 1
                else:
                    remove(s, job, REJECTED)
                    if k.dependents:
                        release_dependents(s, job)


@kernel
def on_arrival(s: Any, job: int, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> None:
    """A job arrives: score it (fixed order or predictions) and schedule its cancellation."""
    k = s.clock[0]
    job_state = s.job_state[job]
    record = s.jobs[job]
    record.submit_s = k.now
    record.since_first_s = k.now - k.first_submit_s
    record.number = job
    if k.half_life_s > 0:
        record.usage_share = share_of(s, job)
    if not k.time_dependent or k.predicts:
        job_state.key = score(record, k.now, parameters)
        if job_state.key != job_state.key:
            k.bad_score = job + 1
    if k.predicts:
        apply_prediction(s, job)
    if k.backfill_order == 1:
        s.job_extra[job].backfill_key = backfill_score(record, k.now, backfill_parameters)
        if s.job_extra[job].backfill_key != s.job_extra[job].backfill_key:
            k.bad_score = -(job + 1)
    if k.max_wait_s < np.inf:
        track_wait(s, job)
    if k.cancels and is_usable(s, job) and s.job_extra[job].cancel_s < np.inf:
        push(s.events, k.events, max(s.job_extra[job].cancel_s, k.now), TIMER + 2 * job)
        k.events += 1


@maybe_inline
def release_dependents(s: Any, job: int) -> None:
    """A job has left: submit its dependents after their think time."""
    k = s.clock[0]
    other = s.job_extra[job].first_dependent - 1
    while other >= 0:
        time = max(s.job_state[other].earliest_s, k.now + s.job_extra[other].think_s)
        push(s.events, k.events, time, ARRIVAL + other)
        k.events += 1
        other = s.job_extra[other].next_dependent - 1


# -- whole runs ----------------------------------------------------------------------------------


def run(s: Any, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> None:
    """Run the whole simulation: events, then a pass, until no event is left (or a score is NaN)."""
    k = s.clock[0]
    while k.bad_score == 0 and advance(s, score, parameters, backfill_score, backfill_parameters):
        if k.queue_hi > k.queue_lo:
            all_applied = not k.per_event or next_event_s(s) > k.now
            before = k.segments
            if k.bounded:
                schedule_by_bounds(s, all_applied, score, parameters, backfill_score, backfill_parameters)
            else:
                if k.time_dependent and (k.predicts or anything_free(s)):
                    score_waiting(s, score, parameters)
                schedule(s, all_applied, backfill_score, backfill_parameters)
            if k.observes_jobs:
                notify_starts(s, before, score, parameters)


def run_conservative(s: Any, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> None:
    """`run` with conservative backfilling; a separate kernel, so that other runs compile faster."""
    k = s.clock[0]
    while k.bad_score == 0 and advance(s, score, parameters, backfill_score, backfill_parameters):
        if k.queue_hi > k.queue_lo:
            if k.time_dependent:
                score_waiting(s, score, parameters)
            before = k.segments
            conservative_pass(s, not k.per_event or next_event_s(s) > k.now)
            if k.observes_jobs:
                notify_starts(s, before, score, parameters)


# -- steps of a run that Python schedules ----------------------------------------------------------

advance_step = advance


def pass_step(s: Any, backfill_score: Any, backfill_parameters: Any) -> None:
    """Make a scheduling pass in the order of the scores that the queue has."""
    k = s.clock[0]
    all_applied = not k.per_event or next_event_s(s) > k.now
    if k.depth == UNLIMITED:
        conservative_pass(s, all_applied)
    else:
        schedule(s, all_applied, backfill_score, backfill_parameters)


def begin_step(s: Any) -> bool:
    """Open a pass; return whether resources were freed since the last one (conservative only)."""
    k = s.clock[0]
    k.unchanged = 0
    k.new_arrivals = 0
    all_applied = not k.per_event or next_event_s(s) > k.now
    freed = False
    if k.depth == UNLIMITED:
        freed = open_plan(s, all_applied)
        rebuild_plan(s)
    else:
        begin_pass(s, all_applied)
    return freed


@kernel
def find_group(s: Any, job: int, groups: int, level: int, apply: bool) -> int:
    """The group among `groups` (bits) on which the job would start now; -1: none. There are no levels."""
    return place(s, job, groups)


def start_step(s: Any, job: int, group: int, level: int, apply: bool) -> int:
    """Start the job, or with `apply` False only return its group; its own reservation is ignored."""
    k = s.clock[0]
    reserved_on = 0
    if k.depth == UNLIMITED:
        reserved_on = s.job_extra[job].reserved_on
        remove_reservation(s, job)
    g = find_group(s, job, EVERY_GROUP if group < 0 else 1 << group, level, apply)
    if g >= 0 and apply:
        start(s, job, g)
        compact(s, k.queue_lo)
    elif reserved_on > 0:
        apply_reservation(s, job, reserved_on - 1, s.job_extra[job].reserved_s, 1)
        s.job_extra[job].reserved_on = reserved_on
    return g


def reserve_step(s: Any, job: int) -> float:
    """Reserve the earliest start of the job; return its time, infinite if it never fits."""
    if s.clock[0].depth == UNLIMITED:
        remove_reservation(s, job)
    return reserve(s, job)


def hold_step(s: Any, job: int, until: float) -> None:
    """Take the job out of the queue until a time."""
    k = s.clock[0]
    if k.depth == UNLIMITED:
        remove_reservation(s, job)
    remove(s, job, HELD)
    push(s.events, k.events, until, TIMER + 2 * job + 1)
    k.events += 1
