"""Reward of a step: the increase of each reward term."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import assume_nonnegative, kernel, noinline, without_refcount
from kilowait.engine.kernels.state import state_without_refcount

__all__ = ["compute_reward"]

MIN_RUN_S = 10.0


@kernel
def slowdown(wait: float, run: float) -> float:
    """Bounded slowdown less 1."""
    return max((wait + run) / max(run, MIN_RUN_S), 1.0) - 1.0


@noinline
def compute_reward(
    s: Any, copy: Any, user_weight: Any, sla_s: float, weights: Any, settled: Any, accrued: Any, terms: Any
) -> float:
    """The reward since the last call; writes the unweighted cost of each term to `terms`."""
    s = state_without_refcount(s)
    user_weight = without_refcount(user_weight)
    weights = without_refcount(weights)
    settled = without_refcount(settled)
    accrued = without_refcount(accrued)
    terms = without_refcount(terms)
    k = s.clock[0]
    share = 1.0 / max(copy.jobs, 1)
    while copy.counted < k.segments:
        job = assume_nonnegative(s.segments[assume_nonnegative(copy.counted)])
        wait = s.job_state[job].start_s - s.jobs[job].submit_s
        slow = slowdown(wait, s.job_state[job].run_s)
        settled[0] += share * slow
        settled[1] += share * wait / 3600.0
        settled[2] += share if wait > sla_s else 0.0
        settled[3] += user_weight[job] * slow
        copy.counted += 1
    waiting_slowdown = 0.0
    waiting_s = 0.0
    violations = 0
    waiting_fairness = 0.0
    for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
        job = assume_nonnegative(s.queue[i].job)
        wait = k.now - s.jobs[job].submit_s
        slow = slowdown(wait, s.job_state[job].run_s)
        waiting_slowdown += slow
        waiting_s += wait
        violations += 1 if wait > sla_s else 0
        waiting_fairness += user_weight[job] * slow
    totals = (
        settled[0] + share * waiting_slowdown,
        settled[1] + share * waiting_s / 3600.0,
        settled[2] + share * violations,
        settled[3] + waiting_fairness,
    )
    reward = 0.0
    for term in range(len(weights)):
        terms[term] = totals[term] - accrued[term]
        accrued[term] = totals[term]
        reward -= weights[term] * terms[term]
    copy.total += reward
    return reward
