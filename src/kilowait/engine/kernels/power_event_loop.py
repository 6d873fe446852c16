"""Event loop and scheduling passes with power controls: DVFS levels, node sleep, load shifting and a power budget.

They are the kernels of `event_loop`, `scheduling_pass` and `conservative`, specialized with the functions that differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels import conservative, event_loop, queue, reservations, scheduling_pass
from kilowait.engine.kernels.event_loop import NONE, OVER, next_event_s
from kilowait.engine.kernels.heap import push
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, replace_calls, specialize
from kilowait.engine.kernels.node_sleep import (
    fall_asleep,
    next_check_s,
    put_to_sleep,
    release_nodes,
    remove_nodes,
    update_node_power,
    wake_nodes,
    wake_up,
)
from kilowait.engine.kernels.power_reservations import (
    allocate,
    build,
    occupy,
    place,
    place_at,
    reserve,
    reset_trial,
    set_trial_level,
    start,
)
from kilowait.engine.kernels.queue import remove_expected_end
from kilowait.engine.kernels.reservations import charge
from kilowait.engine.kernels.state import CHANGE, DONE, HELD, KIND, QUEUED, TIMER

NODES, CHECK = 3, 4
"""Further sources of events: nodes that wake up, and sleep decisions."""

# -- scheduling passes -----------------------------------------------------------------------------


@kernel
def open_pass(s: Any) -> None:
    """Determine whether the backlog is large; if that has changed, the cached plan is invalid."""
    k = s.clock[0]
    control_state = s.power_control_state[0]
    control_state.pass_made = 1
    large_backlog = 0
    if control_state.full_speed_backlog_nodes >= 0:
        free = 0
        for g in range(len(s.groups)):
            free += s.pools[s.groups[g].pool_lo].free
        large_backlog = 1 if control_state.queued_nodes - free > control_state.full_speed_backlog_nodes else 0
    if large_backlog != control_state.large_backlog:
        k.unchanged = 0
        k.reservations_tight = 0
    control_state.large_backlog = large_backlog
    for g in range(len(s.groups)):
        if s.groups[g].shadow_s <= k.now:
            k.unchanged = 0  # the reserved time has come, but nodes must wake: make a new reservation
    if control_state.budget and control_state.levels > 1:
        k.reservations_tight = 0  # at another level a job may fit although its reservation cannot move


@maybe_inline
def apply_reservation(s: Any, job: int, g: int, start_s: float, times: int) -> None:
    """Like `conservative.apply_reservation`, at the level of the reservation."""
    set_trial_level(s, job, g, s.reserved_level[job])
    occupy(s, job, g, start_s, start_s + s.jobs[job].planned_s, times)
    reset_trial(s, job)


@kernel
def next_candidate(s: Any, at: int, free: int, latest: float, extra: int) -> int:
    """Like `scheduling_pass.next_candidate`; with a budget it also checks the job's minimum power."""
    if not s.power_control_state[0].budget:
        return scheduling_pass.next_candidate(s, at, free, latest, extra)
    k = s.clock[0]
    now = k.now
    hi = assume_nonnegative(k.queue_hi)
    at = assume_nonnegative(at)
    power = s.pools[len(s.pools) - 1]
    free_w = power.free
    extra_w = power.extra
    while at < hi:
        waiting = s.queue[at]
        need = waiting.need
        if need <= free and (need <= extra or now + waiting.planned_s <= latest):
            watts = s.least_watts[assume_nonnegative(waiting.job)]
            if watts <= free_w and (watts <= extra_w or now + waiting.planned_s <= latest):
                break
        at += 1
    return at


begin_pass = specialize(reservations.begin_pass, build=build)
backfill = specialize(scheduling_pass.backfill, place=place, start=start, next_candidate=next_candidate)
reserve_or_start = specialize(
    scheduling_pass.reserve_or_start, place=place, start=start, reserve=reserve, backfill=backfill
)
_schedule = specialize(
    scheduling_pass.schedule, begin_pass=begin_pass, reserve_or_start=reserve_or_start, backfill=backfill
)
remove_reservation = specialize(conservative.remove_reservation, apply_reservation=apply_reservation)
rebuild_plan = specialize(conservative.rebuild_plan, build=build, apply_reservation=apply_reservation)
_conservative_pass = specialize(
    conservative.conservative_pass,
    place_among=place,
    reserve_among=reserve,
    start=start,
    remove_reservation=remove_reservation,
    rebuild_plan=rebuild_plan,
)


@kernel
def schedule(s: Any, all_applied: bool, backfill_score: Any, backfill_parameters: Any) -> None:
    """A scheduling pass with EASY or no backfilling."""
    open_pass(s)
    _schedule(s, all_applied, backfill_score, backfill_parameters)


@kernel
def conservative_pass(s: Any, all_applied: bool) -> None:
    """A scheduling pass with conservative backfilling."""
    open_pass(s)
    _conservative_pass(s, all_applied)


# -- events ----------------------------------------------------------------------------------------


@kernel
def apply_prediction_at_full_speed(s: Any, job: int) -> float:
    """`apply_prediction` in runs with power controls: stores the planned time at full speed."""
    planned = scheduling_pass.apply_prediction(s, job)
    s.planned_s[job] = planned
    return planned


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
def apply_change(s: Any, code: int) -> None:
    """Wake nodes up, or apply a capacity change: of nodes, or of the watts of the power budget."""
    if code > CHANGE:
        wake_up(s, code - CHANGE - 1)
        return
    k = s.clock[0]
    number = s.changes[k.next_change].number
    while k.next_change < len(s.changes) and s.changes[k.next_change].number == number:
        change = s.changes[k.next_change]
        s.pools[change.pool].free += change.amount
        if change.amount < 0:
            end_reservation(s, change.pool)
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
def enqueue(s: Any, job: int) -> None:
    """Put a job into the queue and count its nodes, or delay it until `hold_until_s`."""
    k = s.clock[0]
    if s.power_control_state[0].load_shifting and s.hold_until_s[job] > k.now:
        s.job_state[job].status = HELD
        push(s.events, k.events, s.hold_until_s[job], TIMER + 2 * job + 1)
        k.events += 1
    else:
        queue.enqueue(s, job)
        s.power_control_state[0].queued_nodes += s.job_state[job].least_need


@maybe_inline
def remove(s: Any, job: int, status: int) -> None:
    """Cancel or hold a job; a job that is held already is not in the queue."""
    if s.job_state[job].status == QUEUED:
        s.power_control_state[0].queued_nodes -= s.job_state[job].least_need
        queue.remove(s, job, status)
    else:
        s.job_state[job].status = status


end_reservation = specialize(event_loop.end_reservation, inlined=False, remove=remove)


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
def begin_instant(s: Any) -> float:
    """Like `event_loop.begin_instant`, also for sleep decisions; first it makes those of the last instant.

    If the time returned is later than now, this instant has ended without an event.
    """
    k = s.clock[0]
    control_state = s.power_control_state[0]
    close_instant(s)
    control_state.pass_made = 0
    event = next_event_s(s)
    time = min(event, next_check_s(s))
    if control_state.started and not control_state.instant_complete and time > k.now:
        return time  # the waking nodes were allocated to a job: an event without effect
    if event == np.inf and time > k.now:
        for g in range(len(s.sleep_state)):
            fall_asleep(s, g)
        return OVER  # only changes of node states are left
    k.now = time
    if not control_state.started:
        begin_run(s, time)
    return time


@kernel
def end_instant(s: Any, next_s: float) -> None:
    """Like `event_loop.end_instant`; sleep decisions are made once all events of the instant have been applied."""
    s.power_control_state[0].instant_complete = 1 if next_s > s.clock[0].now else 0
    event_loop.end_instant(s, next_s)


@kernel
def due_event(s: Any, time: float) -> tuple[int, int]:
    """Like `event_loop.due_event`; wake-ups of group g come after capacity changes, sleep decisions last."""
    code, source = event_loop.due_event(s, time)
    for g in range(len(s.sleep_state) if next_check_s(s) == time else 0):
        sleeper = s.sleep_state[g]
        if sleeper.wake_lo < sleeper.wake_hi and s.booting[g, sleeper.wake_lo].time_s == time and CHANGE + 1 + g < code:
            code = CHANGE + 1 + g
            source = NODES
        if sleeper.sleeps and sleeper.check_s == time and 4 * KIND + g < code:
            code = 4 * KIND + g
            source = CHECK
    return code, source


_on_timer = specialize(event_loop.on_timer, remove=remove)


@kernel
def on_timer(s: Any, code: int) -> tuple[int, int]:
    """Like `event_loop.on_timer`; a sleep decision is one event for all groups."""
    if code < 4 * KIND:
        return _on_timer(s, code)
    for g in range(len(s.sleep_state)):
        if s.sleep_state[g].check_s == s.clock[0].now:
            s.sleep_state[g].check_s = np.inf
    return NONE, NONE


on_arrival = specialize(event_loop.on_arrival, apply_prediction=apply_prediction_at_full_speed)
score_waiting = specialize(scheduling_pass.score_waiting, apply_prediction=apply_prediction_at_full_speed)
advance = specialize(
    event_loop.advance,
    begin_instant=begin_instant,
    due_event=due_event,
    finish=finish,
    apply_change=apply_change,
    on_arrival=on_arrival,
    on_timer=on_timer,
    enqueue=enqueue,
    next_event_s=next_event_or_check_s,
    end_instant=end_instant,
)


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


@kernel
def advance_if_space(s: Any, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any) -> bool:
    """`advance`, unless the buffer of node changes is full: then the run stops, and can be continued."""
    return has_buffer_space(s) and advance(s, score, parameters, backfill_score, backfill_parameters)


@kernel
def no_bounds(
    s: Any, all_applied: bool, score: Any, parameters: Any, backfill_score: Any, backfill_parameters: Any
) -> None:
    """Bounds of scores are not used in runs with power controls."""


_RUN = {"advance": advance_if_space, "score_waiting": score_waiting, "next_event_s": next_event_or_check_s}
run = replace_calls(event_loop.run, schedule=schedule, schedule_by_bounds=no_bounds, **_RUN)
run_conservative = replace_calls(event_loop.run_conservative, conservative_pass=conservative_pass, **_RUN)


# -- steps of a run that Python schedules ----------------------------------------------------------

advance_step = advance_if_space
pass_step = replace_calls(
    event_loop.pass_step, schedule=schedule, conservative_pass=conservative_pass, next_event_s=next_event_or_check_s
)
reserve_step = replace_calls(event_loop.reserve_step, remove_reservation=remove_reservation, reserve=reserve)
hold_step = replace_calls(event_loop.hold_step, remove_reservation=remove_reservation, remove=remove)
_begin_step = specialize(
    event_loop.begin_step, rebuild_plan=rebuild_plan, begin_pass=begin_pass, next_event_s=next_event_or_check_s
)


def begin_step(s: Any) -> bool:
    """Like `event_loop.begin_step`."""
    open_pass(s)
    return _begin_step(s)


@kernel
def find_group(s: Any, job: int, groups: int, level: int, apply: bool) -> int:
    """Like `event_loop.find_group`, at a level; -1: at the first that fits, like a scheduling pass."""
    g = place(s, job, groups) if level < 0 else place_at(s, job, groups, level)
    if g < 0 or not apply:
        reset_trial(s, job)
    return g


start_step = replace_calls(
    event_loop.start_step,
    find_group=find_group,
    start=start,
    remove_reservation=remove_reservation,
    apply_reservation=apply_reservation,
)


def wake_step(s: Any, group: int, nodes: int) -> int:
    """Wake up to `nodes` sleeping nodes of a group now; return their number."""
    fall_asleep(s, group)
    woken = min(nodes, s.sleep_state[group].asleep)
    if woken > 0:
        wake_nodes(s, group, woken)
    return woken


def sleep_step(s: Any, group: int, nodes: int) -> int:
    """Put up to `nodes` idle nodes of a group to sleep now, longest idle first; return their number."""
    sleeper = s.sleep_state[group]
    count = 0
    while count < nodes and sleeper.idle_lo < sleeper.idle_hi:
        batch = min(nodes - count, s.idle[group, sleeper.idle_lo].nodes)
        put_to_sleep(s, group, batch)
        count += batch
    return count
