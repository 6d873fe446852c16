"""Decision points of a scheduling pass on a GPU cluster: which waiting job starts, and on which GPU type.

There are no reservations: only jobs that fit now can be chosen. The pass continues until no job fits, or the agent
takes the hold action.

If there is only one possible action, it is applied without a decision of the agent. With preemption the agent decides
at every pass in which jobs wait; a job that started in this instant cannot be preempted, so a pass ends.

Until a job that has waited longer than the bound fits, no other job starts on the types it may use.

With the setting `migrate`, running jobs migrate at the end of a pass, as with any policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.gpu.event_loop import ALL_JOBS_ENDED, BUFFER_FULL, advance, due
from kilowait.engine.gpu.job_progress import preempt, update_rates
from kilowait.engine.gpu.placement import fits as fits_node
from kilowait.engine.gpu.scheduling_pass import migrate_running, start_now
from kilowait.engine.gpu.state import ARRIVAL, ENDING, EVENT_KIND, REJECTED, RELEASE, RUNNING, WAITING
from kilowait.engine.kernels.heap import heapify
from kilowait.engine.kernels.jit import kernel, noinline
from kilowait.envs.kernels.decision_batch import zero_score
from kilowait.envs.kernels.step import DECISION, EPISODE_OVER, TRUNCATED

BETWEEN, PASS, PASSED = 0, 1, 2
"""Phases: between passes; within a pass; at the end of a pass, when running jobs may migrate."""


@kernel
def fitting_types(s: Any, fitting_cache: Any, moment: int, job: int) -> int:
    """Types, as bits, on which the job can be placed now. `fitting_cache` caches the result by job shape."""
    demand_class = s.job_state[job].demand_class
    if fitting_cache[demand_class, 0] != moment:
        fitting_cache[demand_class, 0] = moment
        fitting_cache[demand_class, 1] = _search(s, job)
    return fitting_cache[demand_class, 1]


@noinline
def _search(s: Any, job: int) -> int:
    """As `fitting_types`, without the cache. Which pieces fit does not depend on the placement policy."""
    job_state = s.job_state[job]
    bits = 0
    for kind in range(s.speed.shape[1]):
        if s.speed[job_state.speed_class, kind] > 0:
            pieces_fitting = 0
            i = s.type_lo[kind]
            while i < s.type_lo[kind + 1] and pieces_fitting < job_state.pieces:
                node = s.by_type[i]
                if fits_node(s, job_state, node):
                    pieces_fitting += (
                        _pieces_on(s, job_state, node) if job_state.spread == 1 and job_state.pieces > 1 else 1
                    )
                i += 1
            if pieces_fitting >= job_state.pieces:
                bits |= 1 << kind
    return bits


@kernel
def _pieces_on(s: Any, job_state: Any, node: int) -> int:
    """Pieces of one whole GPU each that the node can hold."""
    n = s.nodes[node]
    pieces_fitting = n.free_gpus // job_state.gpus
    if job_state.cpu > 0:
        pieces_fitting = min(pieces_fitting, n.cpu // job_state.cpu)
    if job_state.memory > 0:
        pieces_fitting = min(pieces_fitting, n.memory // job_state.memory)
    return pieces_fitting


@kernel
def waited_s(s: Any, job: int) -> float:
    """Time that a waiting job has been without allocated GPUs, seconds."""
    job_state = s.job_state[job]
    return s.clock[0].now - job_state.arrival_s - job_state.attained_s


@kernel
def first_late(s: Any, max_wait_s: float) -> int:
    """The first waiting job, by number, that has waited longer than the bound; -1: there is none."""
    k = s.clock[0]
    if max_wait_s < np.inf:
        for i in range(k.queue_lo, k.queue_hi):
            if waited_s(s, s.queue[i].job) > max_wait_s:
                return s.queue[i].job
    return -1


@kernel
def allowed(s: Any, may: Any, late: int, job: int, bits: int) -> int:
    """The types, of those on which the job fits, that it may start on now."""
    if late < 0 or late == job:
        return bits
    return bits & ~may[s.job_state[late].speed_class]


@kernel
def any_arrival_left(s: Any) -> bool:
    """Whether a job has yet to arrive."""
    at = s.clock[0].next_arrival
    while at < len(s.arrivals):
        if s.job_state[s.arrivals[at]].status != REJECTED:
            return True
        at += 1
    return False


@kernel
def may_hold(s: Any, late_fits: bool) -> bool:
    """Whether the agent may hold: another event must follow."""
    k = s.clock[0]
    return not late_fits and (k.running + k.ending > 0 or any_arrival_left(s))


@kernel
def preemptible(s: Any, job: int, starts: int) -> bool:
    """Whether a running job may be preempted: not in the instant it started, not before `min_run_before_preempt_s`,
    and not more than a maximum number of times.
    """
    k = s.clock[0]
    job_state = s.job_state[job]
    return (
        job_state.segment < k.first_new_segment
        and job_state.start_s + k.min_run_before_preempt_s <= k.now
        and job_state.starts < starts
    )


@kernel
def wanted_types(s: Any, may: Any) -> int:
    """Types, as bits, that some waiting job may use."""
    k = s.clock[0]
    bits = 0
    for i in range(k.queue_lo, k.queue_hi):
        bits |= may[s.job_state[s.queue[i].job].speed_class]
    return bits


@kernel
def type_of(s: Any, job: int) -> int:
    """The node type of a running job."""
    return s.nodes[s.places[s.job_state[job].place_lo, 0]].type


@kernel
def start_job(s: Any, copy: Any, job: int, only: int) -> None:
    """Start a waiting job, on type `only` unless that is -1."""
    copy.moment += 1
    if not start_now(s, job, only):
        copy.phase = PASSED


@kernel
def preempt_job(s: Any, copy: Any, pending_losses: Any, job: int) -> None:
    """Preempt a running job; its lost work is known when it releases its GPUs."""
    copy.moment += 1
    pending_losses[job] = s.job_state[job].segment
    preempt(s, job)


@kernel
def end_gpu_pass(s: Any, copy: Any) -> None:
    """End the scheduling pass."""
    copy.phase = PASSED


@noinline
def _drop_stale_events(s: Any) -> None:
    """Remove events that no longer have an effect from the heap."""
    k = s.clock[0]
    kept = 0
    for i in range(k.events):
        code = s.events[i].job
        number = code % EVENT_KIND
        if code < ARRIVAL:
            job_state = s.job_state[s.segments[number].job]
            valid = job_state.segment == number and (
                job_state.status in (RUNNING, ENDING) and job_state.finish_s == s.events[i].key
                if code < RELEASE
                else job_state.status == ENDING
            )
        else:
            valid = s.job_state[number].status == WAITING and s.job_state[number].starts == 0
        if valid:
            s.events[kept] = s.events[i]
            kept += 1
    k.events = kept
    heapify(s.events, kept)


@noinline
def _advance(s: Any) -> int:
    """Finish this instant and advance to the next event."""
    update_rates(s)
    outcome = advance(s, zero_score, s.score_cache[0])
    if outcome == BUFFER_FULL:
        _drop_stale_events(s)
    return outcome


@noinline
def advance_to_decision(s: Any, a: Any, source: Any, b: int) -> int:
    """Advance until the agent has a choice (DECISION), every job has finished (EPISODE_OVER), or the horizon is reached
    (TRUNCATED)."""
    copy = a.copies[b]
    fitting_cache = a.own.fitting_cache[b]
    env_settings = a.env_settings[0]
    by_type = env_settings.by_type != 0
    starts = env_settings.starts
    k = s.clock[0]
    dropped = False
    while True:
        if copy.phase == PASSED:
            if k.migrate:
                migrate_running(s, starts)
            copy.phase = BETWEEN
        if copy.phase == BETWEEN:
            if k.queue_hi == k.queue_lo and k.running + k.ending == 0 and not any_arrival_left(s):
                return EPISODE_OVER
            if k.now >= copy.until_s:
                return TRUNCATED
            outcome = _advance(s)
            if outcome == BUFFER_FULL and not dropped:
                dropped = True
                continue
            if outcome == BUFFER_FULL:
                raise RuntimeError("the arrays of an episode are too small")
            dropped = False
            copy.moment += 1
            if outcome == ALL_JOBS_ENDED:
                return EPISODE_OVER
            if k.now >= copy.until_s or not due(s):
                continue
            copy.phase = PASS
        late = first_late(s, env_settings.max_wait_s)
        late_fits = late >= 0 and fitting_types(s, fitting_cache, copy.moment, late) != 0
        count = 0
        job = -1
        first = 0
        for i in range(k.queue_lo, k.queue_hi):
            bits = fitting_types(s, fitting_cache, copy.moment, s.queue[i].job)
            if bits != 0:
                usable = allowed(s, source.may, late, s.queue[i].job, bits)
                if usable == bits or (by_type and usable != 0):
                    count += 1
                    if count > 1:
                        break
                    job = s.queue[i].job
                    first = usable
        if late_fits:
            count = 1
            job = late
            first = fitting_types(s, fitting_cache, copy.moment, late)
        several_choices = count > 1 or (
            count == 1 and (len(source.codes) > 1 or (by_type and first & (first - 1) != 0))
        )
        if several_choices or (count == 1 and env_settings.hold != 0 and may_hold(s, late_fits)):
            return DECISION
        if env_settings.victims > 0 and not late_fits and any_preemptible(s, source.may, starts):
            return DECISION
        if count == 0:
            copy.phase = PASSED
        else:
            k.placement = source.codes[0]
            bits = fitting_types(s, fitting_cache, copy.moment, job)
            start_job(s, copy, job, -1 if bits == first else _lowest(first))


@kernel
def any_preemptible(s: Any, may: Any, starts: int) -> bool:
    """Whether a running job may be preempted on a type that some waiting job may use."""
    k = s.clock[0]
    wanted = wanted_types(s, may)
    if wanted != 0:
        for i in range(k.running):
            job = s.running_jobs[i]
            if preemptible(s, job, starts) and (wanted >> type_of(s, job)) & 1:
                return True
    return False


@kernel
def _lowest(bits: int) -> int:
    """The lowest bit that is set."""
    at = 0
    while (bits >> at) & 1 == 0:
        at += 1
    return at


@noinline
def apply_action(s: Any, a: Any, source: Any, b: int, action: int) -> None:
    """Start a waiting job, preempt a running one, or end the pass."""
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    slot = action // env_settings.choices
    slots = a.slots.shape[1]
    if slot >= slots:
        end_gpu_pass(s, copy)
    elif slot >= slots - env_settings.victims:
        preempt_job(s, copy, a.own.pending_losses[b], a.slots[b, slot])
    else:
        choice = action % env_settings.choices
        choices_per_placement = env_settings.choices // len(source.codes)
        s.clock[0].placement = source.codes[choice // choices_per_placement]
        start_job(s, copy, a.slots[b, slot], choice % choices_per_placement - 1)
