"""Decision points of a scheduling pass: the engine advances until the agent has a choice.

A pass runs when some waiting job fits the free nodes. While there is no reservation, any waiting job can be chosen: it
starts, or, if it does not fit, gets the earliest reservation. Then come the backfill candidates: in the order of a
policy, or, if the agent backfills too, one choice after another of those that can start without delaying the
reservation. If only one job can be chosen, it is chosen without a decision of the agent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.event_loop import advance, next_event_s
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, memmove, noinline
from kilowait.engine.kernels.queue import end_pass
from kilowait.engine.kernels.reservations import EVERY_GROUP, begin_pass, block_groups, place, reserve, start
from kilowait.engine.kernels.scheduling_pass import backfill
from kilowait.envs.kernels.step import DECISION, EPISODE_OVER

BETWEEN, HEAD, BACKFILLING = 0, 1, 2
"""Phases: between passes; choosing the head of the queue; choosing backfill candidates."""
HAS_RESERVATION = 1.0
"""Key in the queue of a job that got its reservation in this pass."""


@kernel
def zero_score(job: Any, now: float, parameters: Any) -> float:
    """Placeholder score function for the engine."""
    return 0.0


@kernel
def most_free(s: Any) -> int:
    """Free nodes of the group with the most free nodes."""
    free = 0
    for g in range(len(s.groups)):
        free = max(free, s.pools[s.groups[g].pool_lo].free)
    return free


@kernel
def any_fits(s: Any) -> bool:
    """Whether some waiting job fits the free nodes, ignoring reservations."""
    k = s.clock[0]
    free = most_free(s)
    if free > 0:
        for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
            if s.queue[i].need <= free:
                return True
    return False


@kernel
def eligible(s: Any, phase: int, at: int) -> bool:
    """Whether the job at that position of the queue may be chosen now."""
    k = s.clock[0]
    waiting = s.queue[assume_nonnegative(at)]
    if phase == HEAD:
        return (
            waiting.key != HAS_RESERVATION and s.job_state[assume_nonnegative(waiting.job)].allowed & k.open_groups != 0
        )
    return place(s, waiting.job, EVERY_GROUP) >= 0


@kernel
def overdue(s: Any, max_wait_s: float) -> int:
    """The longest-waiting eligible job, if it has waited longer than the bound; else -1."""
    k = s.clock[0]
    for i in range(k.queue_lo, k.queue_hi):
        job = s.queue[i].job
        if k.now - s.jobs[job].submit_s <= max_wait_s:
            break
        if eligible(s, HEAD, i):
            return job
    return -1


@kernel
def queue_position(s: Any, job: int) -> int:
    """Position of the job in the queue, which is sorted by job number."""
    k = s.clock[0]
    lo = k.queue_lo
    hi = k.queue_hi
    while lo < hi:
        middle = (lo + hi) >> 1
        if s.queue[assume_nonnegative(middle)].job < job:
            lo = middle + 1
        else:
            hi = middle
    return assume_nonnegative(lo)


@kernel
def apply_choice(s: Any, copy: Any, job: int) -> None:
    """Start the chosen job or make a reservation; without backfilling a job that does not fit blocks its groups."""
    k = s.clock[0]
    at = queue_position(s, job)
    g = place(s, job, EVERY_GROUP if k.depth > 0 else k.open_groups)
    if g >= 0:
        start(s, job, g)
        k.queue_hi -= 1
        memmove(s.queue, at, at + 1, k.queue_hi - at)
    elif k.depth == 0:
        block_groups(s, job)
    else:
        reserve(s, job)
        s.queue[at].key = HAS_RESERVATION


@maybe_inline
def finish_pass(s: Any, copy: Any) -> None:
    """End the scheduling pass."""
    end_pass(s)
    copy.phase = BETWEEN


@noinline
def advance_to_decision(s: Any, a: Any, source: Any, b: int) -> int:
    """Advance until the agent has a choice (DECISION) or every job has started (EPISODE_OVER)."""
    order = source.order
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    hold = env_settings.hold != 0
    no_parameters = s.timeline_s  # placeholder for policy parameters
    k = s.clock[0]
    while True:
        if copy.phase == BETWEEN:
            if k.segments >= copy.jobs or not advance(s, zero_score, no_parameters, zero_score, no_parameters):
                return EPISODE_OVER
            if k.queue_hi == k.queue_lo:
                continue
            if not any_fits(s):
                k.new_arrivals = 0
                continue
            begin_pass(s, True)
            for i in range(k.queue_lo, k.queue_hi):
                s.queue[i].key = 0.0
            copy.phase = HEAD
        if copy.phase == HEAD:
            if k.open_groups != 0 and any_fits(s):
                count, only = choices(s, copy.phase, 2)
                overdue_job = overdue(s, env_settings.max_wait_s)
                if overdue_job >= 0:
                    only = overdue_job
                    count = 1
                if count > 1 or (count == 1 and hold and overdue_job < 0 and next_event_s(s) < np.inf):
                    return DECISION
                if count == 1:
                    apply_choice(s, copy, only)
                    continue
            if k.depth > 0 and any_fits(s):
                if env_settings.agent_backfills != 0:
                    copy.phase = BACKFILLING
                else:
                    for i in range(k.queue_lo, k.queue_hi):
                        s.queue[i].key = order[assume_nonnegative(copy.first + s.queue[i].job)]
                    backfill(s, k.queue_lo, False, -1, 0, zero_score, no_parameters)
                    finish_pass(s, copy)
            else:
                finish_pass(s, copy)
        if copy.phase == BACKFILLING:
            count, only = choices(s, copy.phase, 2) if any_fits(s) else (0, -1)
            if count > 1:
                return DECISION
            if count == 1:
                apply_choice(s, copy, only)
            else:
                finish_pass(s, copy)


@kernel
def choices(s: Any, phase: int, enough: int) -> tuple[int, int]:
    """Number of eligible waiting jobs, counted up to `enough`, and the first of them."""
    k = s.clock[0]
    count = 0
    first = -1
    for i in range(k.queue_lo, k.queue_hi):
        if eligible(s, phase, i):
            count += 1
            if first < 0:
                first = s.queue[i].job
            if count >= enough:
                break
    return count, first


@noinline
def apply_action(s: Any, a: Any, source: Any, b: int, action: int) -> None:
    """Choose the job in slot `action`; the action after the slots ends the pass."""
    if action == a.slots.shape[1]:
        finish_pass(s, a.copies[b])
    else:
        apply_choice(s, a.copies[b], a.slots[b, action])
