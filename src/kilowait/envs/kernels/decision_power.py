"""Decision points of a scheduling pass with power controls: `envs.kernels.decision_batch` with DVFS and node sleep.

Besides the next job the agent chooses its DVFS state, or holds: no job starts until the next event, the next step of a
signal or the end of `hold_s`. Where nodes can be put to sleep or woken, that is decided too, once per pass: together
with the next job, or alone if no job can be chosen.
"""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.heap import push
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, noinline, specialize
from kilowait.engine.kernels.node_sleep import fall_asleep, put_to_sleep, wake_nodes
from kilowait.engine.kernels.power_event_loop import advance, backfill, begin_pass, open_pass
from kilowait.engine.kernels.power_reservations import place, reserve, reset_trial, start
from kilowait.engine.kernels.reservations import EVERY_GROUP
from kilowait.engine.kernels.scheduling_pass import anything_free
from kilowait.engine.kernels.state import TIMER
from kilowait.envs.kernels import decision_batch
from kilowait.envs.kernels.decision_batch import (
    BACKFILLING,
    BETWEEN,
    HAS_RESERVATION,
    HEAD,
    any_fits,
    finish_pass,
    zero_score,
)
from kilowait.envs.kernels.reward import integrate_node_energy
from kilowait.envs.kernels.state_stack import integrals
from kilowait.envs.kernels.step import DECISION, EPISODE_OVER, NODE_CHANGES_FULL

NODES_PHASE = 3
"""Phase: no job can be chosen, but nodes can be put to sleep or woken."""


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
    """As `decision_batch.eligible`, at full speed: a job that does not fit at full speed fits at no state.

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


overdue = specialize(decision_batch.overdue, eligible=eligible)
apply = specialize(decision_batch.apply_choice, place=place, start=start, reserve=reserve)


@kernel
def may_hold(s: Any, max_wait_for_hold_s: float) -> bool:
    """Whether another event follows, or the longest-waiting job may be held."""
    k = s.clock[0]
    if k.running > 0 or k.next_arrival < len(s.arrivals) or k.next_change < len(s.changes):
        return True
    return k.queue_hi > k.queue_lo and k.now - s.jobs[s.queue[k.queue_lo].job].submit_s < max_wait_for_hold_s


@maybe_inline
def hold(s: Any, copy: Any, power: Any, hold_s: float, max_wait_for_hold_s: float) -> None:
    """Start no job until the next event or the next step of a signal, for at most `hold_s`."""
    k = s.clock[0]
    if copy.phase != NODES_PHASE and copy.hold_end_s <= k.now:
        first = assume_nonnegative(s.queue[k.queue_lo].job)
        if k.now - s.jobs[first].submit_s < max_wait_for_hold_s:
            until = k.now + hold_s
            _, _, step = integrals(power, k.now)
            if step + 1 < len(power.edge_s):
                until = min(until, power.edge_s[step + 1])
            push(
                s.events, k.events, until, TIMER + 2 * first + 1
            )  # the job itself is not held: the timer only ends the hold
            k.events += 1
            copy.hold_end_s = until
    finish_pass(s, copy)


@kernel
def reserve_nodes(s: Any, g: int) -> int:
    """Idle nodes of the group that the power controls keep awake now."""
    group = s.sleep_state[g]
    while group.reserve_at + 1 < group.reserve_end and s.reserve[group.reserve_at + 1].time_s <= s.clock[0].now:
        group.reserve_at += 1
    return s.reserve[group.reserve_at].nodes + group.spare


@maybe_inline
def can_sleep(s: Any) -> bool:
    """Whether some idle node may be put to sleep."""
    for g in range(len(s.sleep_state)):
        if s.sleep_state[g].sleeps and s.sleep_state[g].awake > reserve_nodes(s, g):
            return True
    return False


@maybe_inline
def put_all_to_sleep(s: Any) -> None:
    """Put all idle nodes to sleep, except those that are kept awake."""
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        if group.sleeps:
            reserved = reserve_nodes(s, g)
            while group.awake > reserved:
                put_to_sleep(s, g, min(s.idle[g, group.idle_lo].nodes, group.awake - reserved))


@maybe_inline
def can_wake(s: Any) -> bool:
    """Whether some node sleeps and waiting jobs need more nodes than are awake or booting."""
    needed_nodes = s.power_control_state[0].queued_nodes
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        if group.sleeps:
            fall_asleep(s, g)
            if group.asleep > 0 and needed_nodes > group.awake + group.waking:
                return True
            needed_nodes -= group.awake + group.waking
    return False


@maybe_inline
def wake_for_waiting(s: Any) -> None:
    """Wake as many nodes as waiting jobs need beyond those awake or booting."""
    needed_nodes = s.power_control_state[0].queued_nodes
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        if group.sleeps:
            fall_asleep(s, g)
            woken = min(group.asleep, needed_nodes - group.awake - group.waking)
            if woken > 0:
                wake_nodes(s, g, woken)
            needed_nodes -= group.awake + group.waking


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
def advance_to_decision(s: Any, a: Any, source: Any, b: int) -> int:
    """Advance until the agent has a choice (DECISION), every job has ended (EPISODE_OVER), or, where node state changes
    are kept for a log, their array is full (NODE_CHANGES_FULL).
    """
    order = source.order
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    no_parameters = s.timeline_s  # placeholder for policy parameters
    k = s.clock[0]
    while True:
        if copy.phase == BETWEEN:
            if s.power_control_state[0].node_changes + env_settings.rows > len(s.node_changes):
                if env_settings.keep_node_steps != 0:
                    return NODE_CHANGES_FULL
                integrate_node_energy(s, copy, source.own, False)
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


@kernel
def apply_action(s: Any, a: Any, source: Any, b: int, action: int) -> None:
    """Start a job, hold, or put nodes to sleep or wake them."""
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    extra = action - a.slots.shape[1] * env_settings.levels
    if extra < 0:
        job = a.slots[b, action // env_settings.levels]
        s.preferred_level[job] = action % env_settings.levels
        apply(s, copy, job)
    elif extra == 0:
        hold(s, copy, source.own, env_settings.hold_s, env_settings.max_wait_for_hold_s)
    else:
        copy.sleep_decided = 1
        if extra == 1:
            put_all_to_sleep(s)
        else:
            wake_for_waiting(s)
