"""Conservative backfilling: every waiting job has a reservation that may only move earlier."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.heap import pop
from kilowait.engine.kernels.jit import kernel, maybe_inline
from kilowait.engine.kernels.queue import compact, end_pass, promote_overdue, rank_waiting, update_overrun_ends
from kilowait.engine.kernels.reservations import EVERY_GROUP, apply_announcements, place_among, reserve_among, start
from kilowait.engine.kernels.timeline import advance, build, occupy


@kernel
def conservative_pass(s: Any, all_applied: bool) -> None:
    """A conservative pass: keep reservations, and move them earlier when resources were freed.

    The plan is *tight* if the last attempt moved no reservation. While it is tight and all jobs end as expected, only
    jobs whose reserved time has come and jobs without a reservation are processed.
    """
    k = s.clock[0]
    # Between events of one instant a known capacity change may be due but not applied: process all jobs then.
    if k.first_arrived > 0 and not k.time_dependent:
        promote_overdue(s)
    freed = open_plan(s, all_applied)
    every = freed and (k.reservations_tight == 0 or k.per_event != 0)
    if every or k.timeline_hi == 0:
        rebuild_plan(s)
    else:
        advance(s)
    moved = False
    started = False
    at = k.queue_lo
    left = rank_waiting(s) if k.time_dependent else k.queue_hi - k.queue_lo
    while left > 0:
        if k.time_dependent:
            job = s.candidates[0].job
            pop(s.candidates, left)
        else:
            job = s.queue[at].job
            at += 1
        left -= 1
        job_extra = s.job_extra[job]
        group_before = job_extra.reserved_on
        time_before = job_extra.reserved_s
        if group_before > 0 and time_before > k.now and not every:
            continue
        remove_reservation(s, job)
        g = place_among(s, job, EVERY_GROUP)
        if g >= 0:
            start(s, job, g)
            started = True
            same = g + 1 == group_before and time_before == k.now
        else:
            reserve_among(s, job)
            same = job_extra.reserved_on == group_before and job_extra.reserved_s == time_before
        if group_before > 0 and not same:
            moved = True  # jobs behind it may use the resources it had reserved
            every = freed
    if started:
        compact(s, k.queue_lo)
    if moved:
        k.reservations_tight = 0
    elif every:
        k.reservations_tight = 1
    end_pass(s)


@kernel
def open_plan(s: Any, all_applied: bool) -> bool:
    """Update the plan since the last pass; return whether resources were freed."""
    k = s.clock[0]
    if apply_announcements(s):
        k.reservations_invalid = 1
    if all_applied and update_overrun_ends(s):
        k.reservations_invalid = 1
    if k.reservations_invalid or (k.running == 0 and reservation_missed(s)):
        void_plan(s)
    freed = k.freed != 0
    k.freed = 0
    k.reservations_invalid = 0
    return freed


@maybe_inline
def reservation_missed(s: Any) -> bool:
    """Whether the reserved time of a waiting job is in the past, because other jobs ran longer than expected."""
    for i in range(s.clock[0].queue_lo, s.clock[0].queue_hi):
        job_extra = s.job_extra[s.queue[i].job]
        if job_extra.reserved_on > 0 and job_extra.reserved_s < s.clock[0].now:
            return True
    return False


@kernel
def rebuild_plan(s: Any) -> None:
    """Rebuild the timeline with the current reservations."""
    k = s.clock[0]
    k.open_groups = (1 << len(s.groups)) - 1
    build(s)
    for i in range(k.queue_lo, k.queue_hi):
        job = s.queue[i].job
        job_extra = s.job_extra[job]
        if job_extra.reserved_on > 0:
            apply_reservation(s, job, job_extra.reserved_on - 1, job_extra.reserved_s, 1)


@kernel
def void_plan(s: Any) -> None:
    """Drop every reservation: expected ends or capacity have changed, or a reserved time has passed."""
    k = s.clock[0]
    for i in range(k.queue_lo, k.queue_hi):
        s.job_extra[s.queue[i].job].reserved_on = 0
    k.freed = 1
    k.reservations_tight = 0


@kernel
def apply_reservation(s: Any, job: int, g: int, start: float, times: int) -> None:
    """Add the job's reservation to the timeline, or remove it with `times` -1."""
    occupy(s, job, g, start, start + s.jobs[job].planned_s, times)


@kernel
def remove_reservation(s: Any, job: int) -> None:
    """Remove the job's reservation, if it has one, from the timeline."""
    job_extra = s.job_extra[job]
    if job_extra.reserved_on > 0:
        apply_reservation(s, job, job_extra.reserved_on - 1, job_extra.reserved_s, -1)
        job_extra.reserved_on = 0
