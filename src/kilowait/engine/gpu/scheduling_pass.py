"""Scheduling pass: starts, preemption and migration."""

from __future__ import annotations

from typing import Any

from kilowait.engine.gpu.job_progress import (
    begin_segment,
    checkpointed_work,
    close_segment,
    compact,
    done_at,
    keep_work,
    preempt,
    rank_jobs,
    release_allocation,
    speed_at,
)
from kilowait.engine.gpu.placement import free_allocation, place_job, reallocate
from kilowait.engine.gpu.state import MIGRATED, RUNNING, WAITING
from kilowait.engine.kernels.heap import heapify, pop
from kilowait.engine.kernels.jit import kernel, noinline

ANY = 1 << 62
"""No limit on the number of starts."""


@kernel
def schedule(s: Any, score: Any, parameters: Any) -> None:
    """Start jobs in priority order."""
    k = s.clock[0]
    k.passes += 1
    k.claims = 0
    if k.time_dependent or k.preempt:
        count = rank_jobs(s, score, parameters)
        at = count - 1
        while at >= 0 and k.bad_score == 0:
            job = s.order[at].job
            if s.job_state[job].status == WAITING and not _start_or_claim(s, job, at) and k.head_of_line_blocking:
                break
            at -= 1
    else:
        at = k.queue_lo
        while at < k.queue_hi:
            if not start(s, s.queue[at].job, -1) and k.head_of_line_blocking:
                break
            at += 1
    compact(s)
    for i in range(k.claims):
        free_allocation(s, s.claimed[i])
        k.releases += 1
    if k.migrate:
        migrate_running(s, ANY)


@noinline
def start(s: Any, job: int, gpu_type: int) -> bool:
    """Start the job if it can be placed (on `gpu_type`; -1: on any type)."""
    k = s.clock[0]
    job_state = s.job_state[job]
    if gpu_type < 0 and s.failed[job_state.demand_class, 0] == k.releases:
        return False
    if not place_job(s, job, gpu_type):
        if gpu_type < 0:
            s.failed[job_state.demand_class, 0] = k.releases
        return False
    _begin(s, job)
    return True


@noinline
def start_now(s: Any, job: int, gpu_type: int) -> bool:
    """`start`, called outside a scheduling pass."""
    started = start(s, job, gpu_type)
    if started:
        compact(s)
    return started


@kernel
def _begin(s: Any, job: int) -> None:
    job_state = s.job_state[job]
    begin_segment(s, job, 0.0 if job_state.starts == 0 else job_state.checkpoint_load_s)


@noinline
def _start_or_claim(s: Any, job: int, at: int) -> bool:
    """Start the job, or claim resources of ending jobs, or preempt others for it."""
    k = s.clock[0]
    job_state = s.job_state[job]
    if start(s, job, -1):
        return True
    if s.failed[job_state.demand_class, 1] == k.passes or (k.ending == 0 and not k.preempt):
        return False
    _free_ending(s)
    if k.ending > 0 and place_job(s, job, -1):
        _reallocate_ending(s)
        _claim(s, job)
        return False
    victims = _find_victims(s, job, at) if k.preempt else 0
    if victims == 0:
        _reallocate_ending(s)
        s.failed[job_state.demand_class, 1] = k.passes
        return False
    _save_place(s, job)
    free_allocation(s, job)
    for i in range(victims):
        reallocate(s, s.victims[i])
    _reallocate_ending(s)
    for i in range(victims):
        preempt(s, s.victims[i])
    if place_job(s, job, -1):
        _begin(s, job)
        return True
    _swap_saved_place(s, job)
    reallocate(s, job)
    _claim(s, job)
    return False


@noinline
def _find_victims(s: Any, job: int, at: int) -> int:
    """Select running jobs of lower priority to preempt until the job fits; 0 (state unchanged) if it never fits."""
    k = s.clock[0]
    victims = 0
    for i in range(at):
        other = s.order[i].job
        job_state = s.job_state[other]
        if not s.order[i].key > s.order[at].key:
            break
        if (
            job_state.status != RUNNING
            or job_state.segment >= k.first_new_segment
            or not job_state.start_s + k.min_run_before_preempt_s <= k.now
        ):
            continue
        if not _on_allowed_type(s, other, s.job_state[job].speed_class):
            continue
        free_allocation(s, other)
        s.victims[victims] = other
        victims += 1
        if place_job(s, job, -1):
            needed = 0
            for v in range(victims):
                victim = s.victims[v]
                if _on_attempted_node(s, victim):
                    s.victims[needed] = victim
                    needed += 1
                else:
                    reallocate(s, victim)
            return needed
    for v in range(victims):
        reallocate(s, s.victims[v])
    return 0


@kernel
def _on_allowed_type(s: Any, victim: int, kind: int) -> bool:
    """Whether the victim is on a node type that a job of this kind may use."""
    job_state = s.job_state[victim]
    for i in range(job_state.place_lo, job_state.place_lo + job_state.pieces):
        if s.speed[kind, s.nodes[s.places[i, 0]].type] > 0:
            return True
    return False


@kernel
def _on_attempted_node(s: Any, victim: int) -> bool:
    """Whether the victim is on a node used by the last placement attempt."""
    job_state = s.job_state[victim]
    for i in range(job_state.place_lo, job_state.place_lo + job_state.pieces):
        if s.nodes[s.places[i, 0]].attempt == s.clock[0].attempt:
            return True
    return False


@kernel
def _claim(s: Any, job: int) -> None:
    """Keep the job's places allocated for the rest of the pass, so that no job behind it takes them."""
    k = s.clock[0]
    s.claimed[k.claims] = job
    k.claims += 1


@kernel
def _free_ending(s: Any) -> None:
    for i in range(s.clock[0].ending):
        free_allocation(s, s.ending_jobs[i])


@kernel
def _reallocate_ending(s: Any) -> None:
    for i in range(s.clock[0].ending):
        reallocate(s, s.ending_jobs[i])


@kernel
def _save_place(s: Any, job: int) -> None:
    job_state = s.job_state[job]
    for i in range(job_state.pieces):
        s.saved_places[i, 0] = s.places[job_state.place_lo + i, 0]
        s.saved_places[i, 1] = s.places[job_state.place_lo + i, 1]


@kernel
def _swap_saved_place(s: Any, job: int) -> None:
    """Swap the job's places with the saved ones."""
    job_state = s.job_state[job]
    for i in range(job_state.pieces):
        for side in range(2):
            value = s.places[job_state.place_lo + i, side]
            s.places[job_state.place_lo + i, side] = s.saved_places[i, side]
            s.saved_places[i, side] = value


@noinline
def migrate_running(s: Any, starts: int) -> None:
    """Migrate running jobs with fewer than `starts` starts to nodes where their expected end is earlier."""
    k = s.clock[0]
    count = 0
    for i in range(k.running):
        job_state = s.job_state[s.running_jobs[i]]
        if (
            job_state.segment < k.first_new_segment
            and job_state.start_s + k.min_run_before_preempt_s <= k.now
            and job_state.starts < starts
        ):
            s.order[count].key = 0.0 + s.running_jobs[i]
            s.order[count].job = s.running_jobs[i]
            count += 1
    heapify(s.order, count)
    for left in range(count, 0, -1):
        job = s.order[0].job
        pop(s.order, left)
        migrate(s, job, -1, False)


@noinline
def migrate(s: Any, job: int, gpu_type: int, always: bool) -> bool:
    """Migrate the job to nodes of `gpu_type` (-1: any type) if its expected end is earlier there, or `always`."""
    k = s.clock[0]
    job_state = s.job_state[job]
    done = done_at(job_state, k.now)
    preserved = checkpointed_work(job_state, done)
    delay = (k.checkpoint_write_s if job_state.checkpoint_s == 0 else 0.0) + job_state.checkpoint_load_s
    _save_place(s, job)
    free_allocation(s, job)
    placed = place_job(s, job, gpu_type)
    better = False
    if placed:
        expected_s = max(job_state.estimate_s - done, 1.0) / job_state.uncontended_rate
        better = always or delay + max(job_state.estimate_s - preserved, 1.0) / speed_at(s, job) < expected_s
        free_allocation(s, job)
    _swap_saved_place(s, job)
    reallocate(s, job)
    if not better:
        return False
    close_segment(s, job, MIGRATED, done, done - preserved)
    release_allocation(s, job)
    _swap_saved_place(s, job)
    reallocate(s, job)
    keep_work(s, job, preserved)
    begin_segment(s, job, delay)
    return True
