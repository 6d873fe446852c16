"""From event to event: applying what happens, and the native loop of a whole run."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.compiling import kernel
from kilowait.engine.heap import pop, push
from kilowait.engine.passes import schedule, score_waiting
from kilowait.engine.planning import charge
from kilowait.engine.state import (
    ARRIVAL,
    CANCELLED,
    CHANGE,
    DONE,
    HELD,
    KIND,
    QUEUED,
    REJECTED,
    TIMER,
    lend,
)
from kilowait.engine.waiting import enqueue, forget, remove

__all__ = ["advance", "next_event_s", "run"]


@kernel
def next_event_s(s: Any) -> float:
    """Time of the next event; infinite when none is left."""
    k = s.clock[0]
    time = s.events[0].key if k.events > 0 else np.inf
    if k.next_arrival < len(s.arrivals):
        time = min(time, s.fate[s.arrivals[k.next_arrival]].earliest_s)
    if k.next_change < len(s.changes):
        time = min(time, s.changes[k.next_change].time_s)
    return time


@kernel
def advance(s: Any, score: Any, parameters: Any, own_score: Any, own_parameters: Any) -> bool:
    """Move to the next instant and apply its events (or one event, with per_event). False: nothing is left."""
    k = s.clock[0]
    time = next_event_s(s)
    if time == np.inf:
        return False
    k.now = time
    while True:
        code = np.int64(4 * KIND)
        from_heap = k.events > 0 and s.events[0].key == time
        if from_heap:
            code = s.events[0].job
        if k.next_change < len(s.changes) and s.changes[k.next_change].time_s == time and CHANGE < code:
            apply_change(s)
        elif (
            k.next_arrival < len(s.arrivals)
            and s.fate[s.arrivals[k.next_arrival]].earliest_s == time
            and ARRIVAL + s.arrivals[k.next_arrival] < code
        ):
            job = s.arrivals[k.next_arrival]
            k.next_arrival += 1
            arrive(s, job, score, parameters, own_score, own_parameters)
        elif from_heap:
            pop(s.events, k.events)
            k.events -= 1
            if code < CHANGE:
                finish(s, s.segments[code])
            elif code < TIMER:
                arrive(s, code - ARRIVAL, score, parameters, own_score, own_parameters)
            else:
                ring(s, (code - TIMER) >> 1, (code - TIMER) & 1)
        else:
            break
        if k.per_event:
            break
    return True


@kernel
def apply_change(s: Any) -> None:
    """Nodes go away or come back, in every pool of their group."""
    k = s.clock[0]
    number = s.changes[k.next_change].number
    while k.next_change < len(s.changes) and s.changes[k.next_change].number == number:
        s.pools[s.changes[k.next_change].pool].free += s.changes[k.next_change].by
        k.next_change += 1
    k.settled = 0
    k.plan_holds = 0


@kernel
def finish(s: Any, job: int) -> None:
    """A job ends: its nodes fall free and those who waited for it may come."""
    k = s.clock[0]
    g = s.fate[job].group
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        s.pools[p].free += s.need[job, s.pools[p].need]
    forget(s, job)
    s.fate[job].status = DONE
    k.settled = 0
    if s.fate[job].believed_end_s != k.now:
        k.plan_holds = 0
    if k.half_life_s > 0:
        charge(s, job, -1)
    leave(s, job)


@kernel
def leave(s: Any, job: int) -> None:
    """Send for the jobs that were to come after this one."""
    k = s.clock[0]
    other = s.fate[job].first_dependent
    while other >= 0:
        time = max(s.fate[other].earliest_s, k.now + s.fate[other].think_s)
        push(s.events, k.events, time, ARRIVAL + other)
        k.events += 1
        other = s.fate[other].next_dependent


@kernel
def arrive(s: Any, job: int, score: Any, parameters: Any, own_score: Any, own_parameters: Any) -> None:
    """A job joins the queue, or is turned away for good because no group could ever hold it."""
    k = s.clock[0]
    s.fate[job].eligible_s = k.now
    if s.fate[job].allowed == 0:
        s.fate[job].status = REJECTED
        leave(s, job)
        return
    if s.jobs[job].submit_s != k.now:
        # It comes later than its log said: what was scored beforehand is scored again.
        s.jobs[job].submit_s = k.now
        s.jobs[job].since_first_s = k.now - k.first_submit_s
        s.fate[job].key = score(s.jobs[job], k.now, parameters)
        if k.own_order == 1:
            s.fate[job].own_key = own_score(s.jobs[job], k.now, own_parameters)
    enqueue(s, job)
    if s.fate[job].cancel_s < np.inf:
        push(s.events, k.events, max(s.fate[job].cancel_s, k.now), TIMER + 2 * job)
        k.events += 1


@kernel
def ring(s: Any, job: int, end_of_hold: int) -> None:
    """A timer rings: the job is withdrawn if it still waits, or comes back from a hold."""
    if end_of_hold:
        if s.fate[job].status == HELD:
            enqueue(s, job)
    elif s.fate[job].status == QUEUED or s.fate[job].status == HELD:
        remove(s, job, CANCELLED)
        leave(s, job)


@kernel
def score_beforehand(s: Any, score: Any, parameters: Any, own_score: Any, own_parameters: Any) -> None:
    """Fixed orders are scored once, as of each job's submission."""
    k = s.clock[0]
    if not k.moving:
        for job in range(len(s.fate)):
            s.fate[job].key = score(s.jobs[job], s.jobs[job].submit_s, parameters)
            if s.fate[job].key != s.fate[job].key:
                k.bad_score = job + 1
    if k.own_order == 1:
        for job in range(len(s.fate)):
            s.fate[job].own_key = own_score(s.jobs[job], s.jobs[job].submit_s, own_parameters)
            if s.fate[job].own_key != s.fate[job].own_key:
                k.bad_score = job + 1


def run(s: Any, score: Any, parameters: Any, own_score: Any, own_parameters: Any) -> None:
    """The whole run, natively: events, then a pass, until nothing is left (or a score was not a number)."""
    s = lend(s)
    k = s.clock[0]
    score_beforehand(s, score, parameters, own_score, own_parameters)
    while k.bad_score == 0 and advance(s, score, parameters, own_score, own_parameters):
        if k.queue_hi > k.queue_lo:
            if k.moving:
                score_waiting(s, score, parameters)
            all_applied = not k.per_event or next_event_s(s) > k.now
            schedule(s, all_applied, own_score, own_parameters)
