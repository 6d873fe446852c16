"""Scheduling passes with power controls: the normal passes with DVFS, node sleep and power budget."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels import conservative, scheduling_pass, starts_and_reservations
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, specialize
from kilowait.engine.kernels.reservations_with_power_controls import build, occupy, place, reserve, start
from kilowait.engine.kernels.trial_starts_with_power_controls import reset_trial, set_trial_level

__all__ = [
    "begin_pass",
    "conservative_pass",
    "apply_reservation",
    "rebuild_plan",
    "remove_reservation",
    "open_pass",
    "schedule",
]


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


begin_pass = specialize(starts_and_reservations.begin_pass, build=build)
backfill = specialize(scheduling_pass.backfill, place=place, start=start, next_candidate=next_candidate)
reserve_or_start = specialize(
    scheduling_pass.reserve_or_start, place=place, start=start, reserve=reserve, backfill=backfill
)
schedule = specialize(
    scheduling_pass.schedule, begin_pass=begin_pass, reserve_or_start=reserve_or_start, backfill=backfill
)
remove_reservation = specialize(conservative.remove_reservation, apply_reservation=apply_reservation)
rebuild_plan = specialize(conservative.rebuild_plan, build=build, apply_reservation=apply_reservation)
conservative_pass = specialize(
    conservative.conservative_pass,
    place_among=place,
    reserve_among=reserve,
    start=start,
    remove_reservation=remove_reservation,
    rebuild_plan=rebuild_plan,
)
