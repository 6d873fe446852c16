"""Decision points of a scheduling pass with power controls: `envs.kernels.batch_env_decision` with DVFS and node sleep.

Besides the next job the agent chooses its DVFS state, or holds: no job starts until the next event, the next step of a
signal or the end of `hold_s`. Where nodes can be put to sleep or woken, that is decided too, once per pass: together
with the next job, or alone if no job can be chosen.
"""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.event_loop_with_power_controls import advance
from kilowait.engine.kernels.heap import push
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, noinline, specialize, without_refcount
from kilowait.engine.kernels.reservations_with_power_controls import place, reserve, start
from kilowait.engine.kernels.scheduling_pass import anything_free
from kilowait.engine.kernels.scheduling_pass_with_power_controls import backfill, begin_pass, open_pass
from kilowait.engine.kernels.starts_and_reservations import EVERY_GROUP
from kilowait.engine.kernels.state import TIMER
from kilowait.engine.kernels.state_with_power_controls import power_state_without_refcount
from kilowait.engine.kernels.trial_starts_with_power_controls import reset_trial
from kilowait.envs.kernels import batch_env_decision
from kilowait.envs.kernels.batch_env_decision import (
    BACKFILLING,
    BETWEEN,
    DECISION,
    EPISODE_OVER,
    HAS_RESERVATION,
    HEAD,
    any_fits,
    finish_pass,
    zero_score,
)
from kilowait.envs.kernels.energy_env_states import integrals, log_arrays_without_refcount
from kilowait.envs.kernels.energy_integral import integrate_node_energy
from kilowait.envs.kernels.node_sleep_actions import can_sleep, can_wake

__all__ = [
    "NODE_CHANGES_FULL",
    "NODES_PHASE",
    "apply",
    "eligible",
    "fits",
    "hold",
    "may_hold",
    "overdue",
    "advance_to_decision",
]

NODES_PHASE = 3
"""Phase: no job can be chosen, but nodes can be put to sleep or woken."""
NODE_CHANGES_FULL = 2
"""Result: the array of node state changes is full."""


@kernel
def fits(s: Any, job: int, level: int) -> bool:
    """Whether the job could start now at the DVFS state (or, under a budget, a slower one) without delaying a
    reservation."""
    before = s.preferred_level[assume_nonnegative(job)]
    s.preferred_level[assume_nonnegative(job)] = level
    g = place(s, job, EVERY_GROUP)
    if g >= 0:
        reset_trial(s, assume_nonnegative(job))
    s.preferred_level[assume_nonnegative(job)] = before
    return g >= 0


@kernel
def eligible(s: Any, phase: int, at: int) -> bool:
    """As `batch_env_decision.eligible`, at full speed: a job that does not fit at full speed fits at no state.

    In phase NODES all jobs are eligible.
    """
    waiting = s.queue[assume_nonnegative(at)]
    if phase == HEAD:
        return (
            waiting.key != HAS_RESERVATION
            and s.job_state[assume_nonnegative(waiting.job)].allowed & s.clock[0].open_groups != 0
        )
    return phase != BACKFILLING or fits(s, waiting.job, 0)


@kernel
def any_eligible(s: Any, phase: int) -> bool:
    """Whether some waiting job may be chosen."""
    k = s.clock[0]
    for i in range(k.queue_lo, k.queue_hi):
        if eligible(s, phase, i):
            return True
    return False


overdue = specialize(batch_env_decision.overdue, eligible=eligible)
apply = specialize(batch_env_decision.apply_choice, place=place, start=start, reserve=reserve)


@kernel
def may_hold(s: Any, max_wait_for_hold_s: float) -> bool:
    """Whether another event follows, or the longest-waiting job may be held."""
    k = s.clock[0]
    if k.running > 0 or k.next_arrival < len(s.arrivals) or k.next_change < len(s.changes):
        return True
    return k.queue_hi > k.queue_lo and k.now - s.jobs[s.queue[k.queue_lo].job].submit_s < max_wait_for_hold_s


@maybe_inline
def hold(s: Any, copy: Any, source: Any, hold_s: float, max_wait_for_hold_s: float) -> None:
    """Start no job until the next event or the next step of a signal, for at most `hold_s`."""
    k = s.clock[0]
    if copy.phase != NODES_PHASE and copy.hold_end_s <= k.now:
        first = assume_nonnegative(s.queue[k.queue_lo].job)
        if k.now - s.jobs[first].submit_s < max_wait_for_hold_s:
            until = k.now + hold_s
            _, _, step = integrals(source, k.now)
            if step + 1 < len(source.edge_s):
                until = min(until, source.edge_s[step + 1])
            push(
                s.events, k.events, until, TIMER + 2 * first + 1
            )  # the job itself is not held: the timer only ends the hold
            k.events += 1
            copy.hold_end_s = until
    finish_pass(s, copy)


@kernel
def drop_hold_timer(s: Any, copy: Any) -> None:
    """Remove the timer of a hold if no job waits and no other event follows."""
    k = s.clock[0]
    if (
        k.events == 1
        and copy.hold_end_s > k.now
        and k.queue_hi == k.queue_lo
        and k.next_arrival == len(s.arrivals)
        and k.next_change == len(s.changes)
    ):
        k.events = 0
        copy.hold_end_s = k.now


@kernel
def worth_choosing(s: Any, wake_ahead: bool) -> bool:
    """Whether the choice matters: a job fits, or nodes boot in time for a reservation."""
    return any_fits(s) or (wake_ahead and s.clock[0].depth > 0 and anything_free(s))


@noinline
def advance_to_decision(s: Any, copy: Any, source: Any, env_settings: Any) -> int:
    """Advance until the agent has a choice (DECISION), every job has ended (OVER), or, where node state changes are
    kept for a log, their array is full (FULL).
    """
    s = power_state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    order = without_refcount(source.order)
    no_parameters = s.timeline_s  # placeholder for policy parameters
    k = s.clock[0]
    while True:
        if copy.phase == BETWEEN:
            if s.power_control_state[0].node_changes + env_settings.rows > len(s.node_changes):
                if env_settings.keep_node_steps != 0:
                    return NODE_CHANGES_FULL
                integrate_node_energy(s, copy, source, False)
            drop_hold_timer(s, copy)
            if not advance(s, zero_score, no_parameters, zero_score, no_parameters):
                return EPISODE_OVER
            if k.segments >= copy.jobs and k.running == 0:
                return EPISODE_OVER
            copy.sleep_decided = 0
            copy.phase = NODES_PHASE
            if k.queue_hi > k.queue_lo:
                open_pass(s)
                if worth_choosing(s, env_settings.wake_ahead != 0):
                    begin_pass(s, True)
                    for i in range(k.queue_lo, k.queue_hi):
                        s.queue[i].key = 0.0
                    copy.phase = HEAD
        if copy.phase == HEAD:
            if k.open_groups != 0 and worth_choosing(s, env_settings.wake_ahead != 0) and any_eligible(s, HEAD):
                return DECISION
            copy.phase = NODES_PHASE
            if k.depth > 0 and any_fits(s):
                if env_settings.agent_backfills != 0:
                    copy.phase = BACKFILLING
                else:
                    for i in range(k.queue_lo, k.queue_hi):
                        s.queue[i].key = order[assume_nonnegative(copy.first + s.queue[i].job)]
                    backfill(s, k.queue_lo, False, -1, 0, zero_score, no_parameters)
        if copy.phase == BACKFILLING:
            if any_fits(s) and any_eligible(s, BACKFILLING):
                return DECISION
            copy.phase = NODES_PHASE
        if copy.phase == NODES_PHASE:
            if env_settings.sleep_actions != 0 and copy.sleep_decided == 0 and (can_sleep(s) or can_wake(s)):
                return DECISION
            finish_pass(s, copy)
