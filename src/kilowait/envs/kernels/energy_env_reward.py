"""Reward of a step of `kilowait/Energy-v0`: the increase of each reward term, energy, CO2 and cost included."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import assume_nonnegative, kernel, noinline, without_refcount
from kilowait.engine.kernels.state_with_power_controls import power_state_without_refcount
from kilowait.envs.kernels.batch_env_reward import MIN_RUN_S
from kilowait.envs.kernels.energy_env_states import integrals, log_arrays_without_refcount
from kilowait.envs.kernels.energy_integral import integrate_node_energy

__all__ = ["compute_reward"]

KWH = 3.6e6
THOUSAND_KWH = 3.6e9


@kernel
def slowdown(turnaround: float, run: float) -> float:
    """Bounded slowdown less 1; `run` is the run time at full speed."""
    return max(turnaround / max(run, MIN_RUN_S), 1.0) - 1.0


@noinline
def compute_reward(
    s: Any, copy: Any, source: Any, user_weight: Any, env_settings: Any, weights: Any, settled: Any, accrued: Any,
    terms: Any,
) -> float:  # fmt: skip
    """The reward since the last call; writes the unweighted cost of each term to `terms`."""
    s = power_state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    user_weight = without_refcount(user_weight)
    weights = without_refcount(weights)
    settled = without_refcount(settled)
    accrued = without_refcount(accrued)
    terms = without_refcount(terms)
    k = s.clock[0]
    sla_s = env_settings.sla_s
    integrate_node_energy(s, copy, source, env_settings.keep_node_steps != 0)
    share = 1.0 / max(copy.jobs, 1)
    while copy.counted < k.segments:
        job = assume_nonnegative(s.segments[assume_nonnegative(copy.counted)])
        job_state = s.job_state[job]
        run = job_state.run_s
        wait = job_state.start_s - s.jobs[job].submit_s
        slow = slowdown(wait + run, s.run_s[job])
        settled[0] += share * slow
        settled[1] += share * wait / 3600.0
        settled[2] += share if wait > sla_s else 0.0
        settled[3] += user_weight[job] * slow
        settled[4] += share * (wait + run) / 3600.0
        watts = source.above_w[job_state.group, source.kind[copy.first + job], job_state.level]
        carbon, price, _ = integrals(source, job_state.start_s)
        carbon_end, price_end, _ = integrals(source, job_state.start_s + run)
        settled[5] += watts * run
        settled[6] += watts * (carbon_end - carbon)
        settled[7] += watts * (price_end - price)
        copy.counted += 1
    waiting_slowdown = 0.0
    waiting_s = 0.0
    violations = 0
    waiting_fairness = 0.0
    waiting_run_s = 0.0
    for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
        job = assume_nonnegative(s.queue[i].job)
        wait = k.now - s.jobs[job].submit_s
        slow = slowdown(wait + s.run_s[job], s.run_s[job])
        waiting_slowdown += slow
        waiting_s += wait
        waiting_run_s += s.run_s[job]
        violations += 1 if wait > sla_s else 0
        waiting_fairness += user_weight[job] * slow
    building = source.building[0]
    idle_w = building.base_w
    facility_idle_w = building.per_it * idle_w + building.fixed_w
    elapsed_s = k.now - k.first_submit_s
    carbon, price, _ = integrals(source, k.now)
    carbon -= copy.first_carbon
    price -= copy.first_price
    joules = idle_w * elapsed_s + settled[5] + copy.nodes_w * elapsed_s - copy.nodes_j
    it_integral = settled[6] + copy.nodes_w * carbon - copy.nodes_carbon
    grams = facility_idle_w * carbon + building.per_it * it_integral
    it_integral = settled[7] + copy.nodes_w * price - copy.nodes_price
    money = facility_idle_w * price + building.per_it * it_integral
    totals = (
        settled[0] + share * waiting_slowdown,
        settled[1] + share * waiting_s / 3600.0,
        settled[2] + share * violations,
        settled[3] + waiting_fairness,
        settled[4] + share * (waiting_s + waiting_run_s) / 3600.0,
        share * joules / KWH,
        share * grams / THOUSAND_KWH,
        share * money / THOUSAND_KWH,
    )
    reward = 0.0
    for term in range(len(weights)):
        terms[term] = totals[term] - accrued[term]
        accrued[term] = totals[term]
        reward -= weights[term] * terms[term]
    copy.total += reward
    return reward
