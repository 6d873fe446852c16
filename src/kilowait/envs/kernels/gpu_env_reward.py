"""Reward of a step of `kilowait/Gpu-v0`: the increase of each reward term."""

from __future__ import annotations

from typing import Any

from kilowait.engine.gpu.state import DONE, ENDING, PREEMPTED, REJECTED, RUNNING, gpu_state_without_refcount
from kilowait.engine.kernels.jit import kernel, noinline, without_refcount

__all__ = ["compute_reward"]

MIN_RUN_S = 10.0
HOUR_S = 3600.0


@kernel
def _add_arrivals(s: Any, copy: Any, alive: Any) -> None:
    """Add the jobs that have arrived since the last call to the unfinished jobs."""
    k = s.clock[0]
    while copy.known < k.next_arrival:
        job = s.arrivals[copy.known]
        if s.job_state[job].status != REJECTED:
            alive[copy.alive] = job
            copy.alive += 1
        copy.known += 1


@kernel
def _lost_gpu_hours(s: Any, pending_losses: Any, job: int) -> float:
    """GPU-hours that a preempted job has lost; returned once, when it has released its GPUs."""
    number = pending_losses[job]
    if number < 0 or s.segments[number].outcome == 0:
        return 0.0
    pending_losses[job] = -1
    segment = s.segments[number]
    if segment.outcome != PREEMPTED:
        return 0.0
    node_type = s.nodes[s.log[segment.piece_lo].node].type
    return s.jobs[job].gpu_share * segment.lost_s / s.speed[s.job_state[job].speed_class, node_type] / HOUR_S


@noinline
def compute_reward(
    s: Any, copy: Any, weight: Any, gpus: float, sla_s: float, weights: Any, alive: Any, pending_losses: Any,
    settled: Any, accrued: Any, terms: Any,
) -> float:  # fmt: skip
    """The reward since the last call; writes the unweighted cost of each term to `terms`.

    `settled` has the sums over finished jobs: completion times, times without allocated GPUs, slowdowns, violations,
    weighted completion times, lost GPU-hours, and allocated GPU-seconds.
    """
    s = gpu_state_without_refcount(s)
    weight = without_refcount(weight)
    weights = without_refcount(weights)
    alive = without_refcount(alive)
    pending_losses = without_refcount(pending_losses)
    settled = without_refcount(settled)
    accrued = without_refcount(accrued)
    terms = without_refcount(terms)
    k = s.clock[0]
    _add_arrivals(s, copy, alive)
    ages = 0.0
    waits = 0.0
    slow = 0.0
    late = 0.0
    weighted = 0.0
    busy = 0.0
    i = 0
    while i < copy.alive:
        job = alive[i]
        job_state = s.job_state[job]
        if len(pending_losses) > 0:
            settled[5] += _lost_gpu_hours(s, pending_losses, job)
        finished = job_state.status >= DONE
        end = s.segments[job_state.segment].end_s if finished and job_state.segment >= 0 else k.now
        age = end - job_state.arrival_s
        allocated_s = job_state.attained_s
        if job_state.status in (RUNNING, ENDING):
            allocated_s += k.now - job_state.start_s
        wait = age - allocated_s
        slowdown = max(age / max(job_state.run_s, MIN_RUN_S), 1.0) - 1.0
        violated = 1.0 if wait > sla_s else 0.0
        weighted_age = weight[copy.first + job] * age
        used = s.jobs[job].gpu_share * allocated_s
        if finished:
            settled[0] += age
            settled[1] += wait
            settled[2] += slowdown
            settled[3] += violated
            settled[4] += weighted_age
            settled[6] += used
            copy.alive -= 1
            alive[i] = alive[copy.alive]
        else:
            ages += age
            waits += wait
            slow += slowdown
            late += violated
            weighted += weighted_age
            busy += used
            i += 1
    share = 1.0 / max(copy.jobs, 1)
    span = k.now - copy.first_s
    totals = (
        share * (settled[0] + ages) / HOUR_S,
        share * (settled[1] + waits) / HOUR_S,
        share * (settled[2] + slow),
        share * (settled[3] + late),
        (settled[4] + weighted) / max(copy.weight, 1e-300) / HOUR_S,
        settled[5],
        span / HOUR_S,
        (gpus * span - settled[6] - busy) / HOUR_S,
    )
    reward = 0.0
    for term in range(len(weights)):
        terms[term] = totals[term] - accrued[term]
        accrued[term] = totals[term]
        reward -= weights[term] * terms[term]
    copy.total += reward
    return reward
