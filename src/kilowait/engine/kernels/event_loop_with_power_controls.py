"""Event loop with power controls: node sleep, load shifting and a power budget."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels import event_loop, scheduling_pass
from kilowait.engine.kernels.event_loop import NONE, next_event_s, notify_finish, notify_starts, release_dependents
from kilowait.engine.kernels.heap import pop, push
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, specialize
from kilowait.engine.kernels.node_sleep import fall_asleep, release_nodes, remove_nodes
from kilowait.engine.kernels.node_wake import next_check_s, update_node_power, wake_up
from kilowait.engine.kernels.predicted_run_times import apply_prediction_at_full_speed
from kilowait.engine.kernels.queue import enqueue, remove, remove_expected_end
from kilowait.engine.kernels.reservations_with_power_controls import allocate
from kilowait.engine.kernels.scheduling_pass_with_power_controls import conservative_pass, open_pass, schedule
from kilowait.engine.kernels.starts_and_reservations import charge, update_usage_shares
from kilowait.engine.kernels.state import ARRIVAL, CANCELLED, CHANGE, DONE, HELD, KIND, QUEUED, REJECTED, TIMER
from kilowait.engine.kernels.state_with_power_controls import power_state_without_refcount

__all__ = ["advance", "next_event_or_check_s", "has_buffer_space", "run", "run_conservative"]

HEAP, ARRIVALS, CHANGES, NODES, CHECK = 0, 1, 2, 3, 4

on_arrival = specialize(event_loop.on_arrival, apply_prediction=apply_prediction_at_full_speed)
score_waiting = specialize(scheduling_pass.score_waiting, apply_prediction=apply_prediction_at_full_speed)


@kernel
def next_event_or_check_s(s: Any) -> float:
    """Time of the next event, wake-up or sleep decision."""
    return min(next_event_s(s), next_check_s(s))


@kernel
def finish(s: Any, job: int) -> None:
    """A job ends: release its resources; its nodes are idle."""
    k = s.clock[0]
    job_state = s.job_state[job]
    g = assume_nonnegative(job_state.group)
    allocate(s, job, g, -1)
    if s.sleep_state[g].sleeps:
        release_nodes(s, g, s.need[job, s.pools[s.groups[g].pool_lo].need])
    job_state.status = DONE
    k.unchanged = 0
    if k.track_expected_ends:
        remove_expected_end(s, job)
        k.freed = 1
        if job_state.expected_end_s != k.now:
            k.reservations_tight = 0
    if k.half_life_s > 0:
        charge(s, job, -1)


@maybe_inline
def apply_change(s: Any) -> None:
    """Apply a capacity change: of nodes, or of the watts of the power budget."""
    k = s.clock[0]
    number = s.changes[k.next_change].number
    while k.next_change < len(s.changes) and s.changes[k.next_change].number == number:
        change = s.changes[k.next_change]
        s.pools[change.pool].free += change.amount
        for g in range(len(s.groups)):
            if s.groups[g].pool_lo == change.pool:
                if change.amount < 0:
                    remove_nodes(s, g, -change.amount)
                else:
                    release_nodes(s, g, change.amount)
        k.next_change += 1
    k.unchanged = 0
    k.reservations_invalid = 1


@kernel
def enqueue_job(s: Any, job: int) -> None:
    """Put a job into the queue and count its nodes."""
    enqueue(s, job)
    s.power_control_state[0].queued_nodes += s.job_state[job].least_need


@kernel
def enqueue_or_shift(s: Any, job: int) -> None:
    """Put an arrived job into the queue, or delay it until `hold_until_s`."""
    k = s.clock[0]
    if s.power_control_state[0].load_shifting and s.hold_until_s[job] > k.now:
        s.job_state[job].status = HELD
        push(s.events, k.events, s.hold_until_s[job], TIMER + 2 * job + 1)
        k.events += 1
    else:
        enqueue_job(s, job)


@maybe_inline
def cancel(s: Any, job: int) -> None:
    """Cancel a waiting or held job; a held job is not in the queue."""
    if s.job_state[job].status == QUEUED:
        s.power_control_state[0].queued_nodes -= s.job_state[job].least_need
        remove(s, job, CANCELLED)
    else:
        s.job_state[job].status = CANCELLED


@kernel
def close_instant(s: Any) -> None:
    """Make the sleep decisions of the instant, after its scheduling pass."""
    control_state = s.power_control_state[0]
    if control_state.instant_complete and control_state.sleeps:
        for g in range(len(s.sleep_state)):
            if s.sleep_state[g].sleeps:
                update_node_power(s, g)


@maybe_inline
def begin_run(s: Any, time: float) -> None:
    """At the first instant: all nodes are awake, and idle from now on."""
    s.power_control_state[0].started = 1
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        if group.sleeps:
            group.awake = s.pools[s.groups[g].pool_lo].free
            batch = s.idle[g, 0]
            batch.time_s = time
            batch.nodes = group.awake
            group.idle_hi = 1


@kernel
def advance(s: Any, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> bool:
    """Like `event_loop.advance`; before the next instant it makes the sleep decisions of this one."""
    k = s.clock[0]
    control_state = s.power_control_state[0]
    close_instant(s)
    control_state.pass_made = 0
    event = next_event_s(s)
    check_s = next_check_s(s)
    time = min(event, check_s)
    if control_state.started and not control_state.instant_complete and time > k.now:
        control_state.instant_complete = 1  # the waking nodes were allocated to a job: an event without effect
        return True
    if event == np.inf and time > k.now:
        for g in range(len(s.sleep_state)):
            fall_asleep(s, g)
        return False  # only changes of node states are left
    k.now = time
    if not control_state.started:
        begin_run(s, time)
    while time == k.now:
        code = 5 * KIND
        source = NONE
        group = 0
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
        for g in range(len(s.sleep_state) if check_s == time else 0):
            sleeper = s.sleep_state[g]
            if (
                sleeper.wake_lo < sleeper.wake_hi
                and s.booting[g, sleeper.wake_lo].time_s == time
                and CHANGE + 1 + g < code
            ):
                code = CHANGE + 1 + g
                source = NODES
                group = g
            if sleeper.sleeps and sleeper.check_s == time and 4 * KIND + g < code:
                code = 4 * KIND + g
                source = CHECK
                group = g
        if source == HEAP:
            pop(s.events, k.events)
            k.events -= 1
        elif source == ARRIVALS:
            k.next_arrival += 1

        left = NONE
        if source == NODES:
            wake_up(s, group)
        elif source == CHECK:  # one event for all groups
            for g in range(len(s.sleep_state)):
                if s.sleep_state[g].check_s == time:
                    s.sleep_state[g].check_s = np.inf
        elif code < CHANGE:
            left = assume_nonnegative(s.segments[assume_nonnegative(code)])
            finish(s, left)
            if k.observes_jobs:
                notify_finish(s, left, score, parameters)
        elif code < ARRIVAL:
            apply_change(s)
        elif code < TIMER:
            job = assume_nonnegative(code - ARRIVAL)
            on_arrival(s, job, score, parameters, backfill_score, backfill_parameters)
            job_state = s.job_state[job]
            if job_state.allowed != 0:
                enqueue_or_shift(s, job)
            else:
                job_state.status = REJECTED
                left = job
        else:
            job = (code - TIMER) >> 1
            status = s.job_state[job].status
            if (code - TIMER) & 1:
                if status == HELD:
                    enqueue_job(s, job)
            elif status in (QUEUED, HELD):
                cancel(s, job)
                left = job
        if left != NONE and k.dependents:
            release_dependents(s, left)
        check_s = next_check_s(s)
        time = min(next_event_s(s), check_s)
        if k.per_event:
            break
    control_state.instant_complete = 1 if time > k.now else 0
    if k.half_life_s > 0:
        update_usage_shares(s)
    return True


# -- whole runs ----------------------------------------------------------------------------------


@kernel
def has_buffer_space(s: Any) -> bool:
    """Whether the buffer of node changes has space for one more instant."""
    k = s.clock[0]
    control_state = s.power_control_state[0]
    if not control_state.sleeps:
        return True
    coming = k.events + (len(s.jobs) if k.dependents else 0)  # ends of holds, and all jobs that may depend on others
    time = next_event_s(s)
    at = k.next_arrival
    while (
        at < len(s.arrivals) and s.job_state[assume_nonnegative(s.arrivals[assume_nonnegative(at)])].earliest_s <= time
    ):
        coming += 1
        at += 1
    rows = 16 + 4 * (k.queue_hi - k.queue_lo + coming)
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        batches = group.idle_hi - group.idle_lo + group.shutdown_hi - group.shutdown_lo + group.wake_hi - group.wake_lo
        rows += 16 + 4 * batches
    control_state.buffer_full = 1 if control_state.node_changes + rows > len(s.node_changes) else 0
    return control_state.buffer_full == 0


def run(s: Any, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> None:
    """Run the whole simulation; it stops when the buffer of node changes is full, and can be continued."""
    s = power_state_without_refcount(s)
    k = s.clock[0]
    while (
        k.bad_score == 0 and has_buffer_space(s) and advance(s, score, parameters, backfill_score, backfill_parameters)
    ):
        if k.queue_hi > k.queue_lo:
            if k.time_dependent and (k.predicts or scheduling_pass.anything_free(s)):
                score_waiting(s, score, parameters)
            before = k.segments
            open_pass(s)
            schedule(s, not k.per_event or next_event_or_check_s(s) > k.now, backfill_score, backfill_parameters)
            if k.observes_jobs:
                notify_starts(s, before, score, parameters)


def run_conservative(s: Any, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> None:
    """`run` with conservative backfilling."""
    s = power_state_without_refcount(s)
    k = s.clock[0]
    while (
        k.bad_score == 0 and has_buffer_space(s) and advance(s, score, parameters, backfill_score, backfill_parameters)
    ):
        if k.queue_hi > k.queue_lo:
            if k.time_dependent:
                score_waiting(s, score, parameters)
            before = k.segments
            open_pass(s)
            conservative_pass(s, not k.per_event or next_event_or_check_s(s) > k.now)
            if k.observes_jobs:
                notify_starts(s, before, score, parameters)
