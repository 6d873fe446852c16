"""Reward of a step: the increase of each reward term (`envs.reward_terms`), for each environment.

With power controls, energy, CO2 and cost are exact, and computed incrementally.
IT power is that of the idle machine, plus the power of each running job above its idle nodes, plus the change of
power by each node state change from its time on. Let X(t) be the integral of 1, the carbon intensity or the price.
The sum up to T is (watts of the idle machine) x X(T) + sum of (watts of a job) x (X(end) - X(start)) + sum of (watts
of a change) x (X(T) - X(time)), so each job and change is added once. A future change, as when nodes boot for a job,
is added at once.
"""

from __future__ import annotations

from typing import Any

from kilowait.engine.gpu.state import DONE, ENDING, PREEMPTED, REJECTED, RUNNING
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, noinline
from kilowait.engine.kernels.node_sleep import fall_asleep
from kilowait.envs.kernels.state_stack import integrals

MIN_RUN_S = 10.0
HOUR_S = 3600.0
KWH = 3.6e6
THOUSAND_KWH = 3.6e9
GPU_SUMS = 8
"""Sums over finished jobs in `compute_gpu_reward`."""


@kernel
def slowdown(turnaround: float, run: float) -> float:
    """Bounded slowdown less 1; with power controls, `run` is the run time at full speed."""
    return max(turnaround / max(run, MIN_RUN_S), 1.0) - 1.0


@noinline
def reset_reward(s: Any, a: Any, source: Any, b: int) -> None:
    """Begin the sums of the terms of an episode."""
    for column in range(a.settled.shape[1]):
        a.settled[b, column] = 0.0
    for term in range(len(a.weights)):
        a.accrued[b, term] = 0.0


@kernel
def charge(a: Any, b: int, totals: Any) -> float:
    """The reward for the increase of the terms to these totals."""
    reward = 0.0
    for term in range(len(a.weights)):
        a.terms[b, term] = totals[term] - a.accrued[b, term]
        a.accrued[b, term] = totals[term]
        reward -= a.weights[term] * a.terms[b, term]
    a.copies[b].total += reward
    return reward


@noinline
def compute_reward(s: Any, a: Any, source: Any, b: int) -> float:
    """The reward since the last call; writes the unweighted cost of each term to `terms`."""
    user_weight = source.user_weight[b]
    settled = a.settled[b]
    copy = a.copies[b]
    sla_s = a.env_settings[0].sla_s
    k = s.clock[0]
    share = 1.0 / max(copy.jobs, 1)
    while copy.counted < k.segments:
        job = assume_nonnegative(s.segments[assume_nonnegative(copy.counted)])
        wait = s.job_state[job].start_s - s.jobs[job].submit_s
        slow = slowdown(wait + s.job_state[job].run_s, s.job_state[job].run_s)
        settled[0] += share * slow
        settled[1] += share * wait / 3600.0
        settled[2] += share if wait > sla_s else 0.0
        settled[3] += user_weight[job] * slow
        settled[4] += wait * s.jobs[job].nodes * s.job_state[job].run_s
        copy.counted += 1
    waiting_slowdown = 0.0
    waiting_s = 0.0
    violations = 0
    waiting_fairness = 0.0
    waiting_work = 0.0
    for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
        job = assume_nonnegative(s.queue[i].job)
        wait = k.now - s.jobs[job].submit_s
        slow = slowdown(wait + s.job_state[job].run_s, s.job_state[job].run_s)
        waiting_slowdown += slow
        waiting_s += wait
        violations += 1 if wait > sla_s else 0
        waiting_fairness += user_weight[job] * slow
        waiting_work += wait * s.jobs[job].nodes * s.job_state[job].run_s
    totals = (
        settled[0] + share * waiting_slowdown,
        settled[1] + share * waiting_s / 3600.0,
        settled[2] + share * violations,
        settled[3] + waiting_fairness,
        share * (settled[4] + waiting_work) / a.env_settings[0].nodes / HOUR_S**2,
    )
    return charge(a, b, totals)


@maybe_inline
def integrate_node_energy(s: Any, copy: Any, power: Any, keep_node_steps: bool) -> None:
    """Add the recorded node state changes to the sums, and remove them unless they are kept for a log."""
    first_s = s.clock[0].first_submit_s
    control_state = s.power_control_state[0]
    for g in range(len(s.sleep_state)):
        fall_asleep(s, g)
    while copy.counted_node_steps < control_state.node_changes:
        step = s.node_changes[copy.counted_node_steps]
        state_w = power.state_w[step.group]
        watts = step.shutting_down * state_w[0] + step.asleep * state_w[1] + step.waking * state_w[2]
        carbon, price, _ = integrals(power, step.time_s)
        copy.nodes_w += watts
        copy.nodes_j += watts * (step.time_s - first_s)
        copy.nodes_carbon += watts * (carbon - copy.first_carbon)
        copy.nodes_price += watts * (price - copy.first_price)
        copy.counted_node_steps += 1
    if not keep_node_steps:
        control_state.node_changes = 0
        copy.counted_node_steps = 0


@kernel
def reset_power_reward(s: Any, a: Any, source: Any, b: int) -> None:
    """Begin the sums of the terms of an episode; node state changes up to its first decision count."""
    integrate_node_energy(s, a.copies[b], source.own, False)
    reset_reward(s, a, source, b)


@kernel
def compute_power_reward(s: Any, a: Any, source: Any, b: int) -> float:
    """The reward since the last call; writes the unweighted cost of each term to `terms`."""
    power = source.own
    user_weight = source.user_weight[b]
    settled = a.settled[b]
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    k = s.clock[0]
    sla_s = env_settings.sla_s
    integrate_node_energy(s, copy, power, env_settings.keep_node_steps != 0)
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
        watts = power.above_w[job_state.group, power.kind[copy.first + job], job_state.level]
        carbon, price, _ = integrals(power, job_state.start_s)
        carbon_end, price_end, _ = integrals(power, job_state.start_s + run)
        settled[5] += watts * run
        settled[6] += watts * (carbon_end - carbon)
        settled[7] += watts * (price_end - price)
        settled[8] += wait * s.jobs[job].nodes * s.run_s[job]
        copy.counted += 1
    waiting_slowdown = 0.0
    waiting_s = 0.0
    violations = 0
    waiting_fairness = 0.0
    waiting_run_s = 0.0
    waiting_work = 0.0
    for i in range(assume_nonnegative(k.queue_lo), assume_nonnegative(k.queue_hi)):
        job = assume_nonnegative(s.queue[i].job)
        wait = k.now - s.jobs[job].submit_s
        slow = slowdown(wait + s.run_s[job], s.run_s[job])
        waiting_slowdown += slow
        waiting_s += wait
        waiting_run_s += s.run_s[job]
        waiting_work += wait * s.jobs[job].nodes * s.run_s[job]
        violations += 1 if wait > sla_s else 0
        waiting_fairness += user_weight[job] * slow
    building = power.building[0]
    idle_w = building.base_w
    facility_idle_w = building.per_it * idle_w + building.fixed_w
    elapsed_s = k.now - k.first_submit_s
    carbon, price, _ = integrals(power, k.now)
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
        share * (settled[8] + waiting_work) / env_settings.nodes / HOUR_S**2,
    )
    return charge(a, b, totals)


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
def compute_gpu_reward(s: Any, a: Any, source: Any, b: int) -> float:
    """The reward since the last call; writes the unweighted cost of each term to `terms`.

    `settled` has the sums over finished jobs: completion times, times without allocated GPUs, slowdowns, violations,
    weighted completion times, lost GPU-hours, allocated GPU-seconds, and times without allocated GPUs x work.
    """
    weight = source.weight
    alive = a.own.alive[b]
    pending_losses = a.own.pending_losses[b]
    settled = a.settled[b]
    copy = a.copies[b]
    gpus = a.env_settings[0].gpus
    sla_s = a.env_settings[0].sla_s
    k = s.clock[0]
    _add_arrivals(s, copy, alive)
    ages = 0.0
    waits = 0.0
    slow = 0.0
    late = 0.0
    weighted = 0.0
    busy = 0.0
    waiting_work = 0.0
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
        bounded_slowdown = slowdown(age, job_state.run_s)
        violated = 1.0 if wait > sla_s else 0.0
        weighted_age = weight[copy.first + job] * age
        used = s.jobs[job].gpu_share * allocated_s
        work = wait * s.jobs[job].gpu_share * job_state.run_s
        if finished:
            settled[0] += age
            settled[1] += wait
            settled[2] += bounded_slowdown
            settled[3] += violated
            settled[4] += weighted_age
            settled[6] += used
            settled[7] += work
            copy.alive -= 1
            alive[i] = alive[copy.alive]
        else:
            ages += age
            waits += wait
            slow += bounded_slowdown
            late += violated
            weighted += weighted_age
            busy += used
            waiting_work += work
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
        share * (settled[7] + waiting_work) / max(gpus, 1e-300) / HOUR_S**2,
    )
    return charge(a, b, totals)
