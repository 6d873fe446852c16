"""Observation of `kilowait/Energy-v0`: that of `observation_batch`, then DVFS, power, node states and signals."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import assume_nonnegative, maybe_inline, noinline, specialize
from kilowait.envs.kernels import observation_batch
from kilowait.envs.kernels.decision_batch import BACKFILLING, HEAD
from kilowait.envs.kernels.decision_power import NODES_PHASE, can_sleep, can_wake, eligible, fits, may_hold, overdue
from kilowait.envs.kernels.state_stack import SAME_STEP, integrals
from kilowait.envs.observation_spec import CARBON_UNIT, FORECAST_STEP_S, MAX_SIGNAL_RATIO, PRICE_UNIT, SUMMARY

SUMMARY_COLUMNS = len(SUMMARY)
UNITS = (CARBON_UNIT, PRICE_UNIT)

_write_jobs_at_full_speed = specialize(
    observation_batch.write_jobs,
    eligible=eligible,
    overdue=overdue,
    most_relevant=specialize(observation_batch.most_relevant, inlined=False, eligible=eligible),
)


@maybe_inline
def running_w(s: Any, copy: Any, power: Any) -> float:
    """Watts of the running jobs above their idle nodes."""
    k = s.clock[0]
    watts = 0.0
    for i in range(assume_nonnegative(k.running)):
        job = assume_nonnegative(s.expected_ends[i].job)
        job_state = s.job_state[job]
        if job_state.start_s <= k.now:
            watts += power.above_w[job_state.group, power.kind[assume_nonnegative(copy.first + job)], job_state.level]
    return watts


@maybe_inline
def write_node_summary(s: Any, copy: Any, power: Any, nodes: float, summary: Any) -> None:
    """Write power and node states to the summary."""
    watts = power.building[0].base_w + running_w(s, copy, power)
    idle = 0.0
    asleep = 0
    shutting_down_or_booting = 0
    for g in range(len(s.groups)):
        group = s.sleep_state[g]
        idle += s.pools[s.groups[g].pool_lo].free - group.shutting_down - group.asleep - group.waking
        asleep += group.asleep
        shutting_down_or_booting += group.shutting_down + group.waking
        state_w = power.state_w[g]
        watts += group.shutting_down * state_w[0] + group.asleep * state_w[1] + group.waking * state_w[2]
    summary[SUMMARY_COLUMNS] = watts / power.building[0].full_w
    summary[SUMMARY_COLUMNS + 1] = idle / nodes
    summary[SUMMARY_COLUMNS + 2] = asleep / nodes
    summary[SUMMARY_COLUMNS + 3] = shutting_down_or_booting / nodes


@maybe_inline
def write_signal_summary(s: Any, power: Any, signals: int, summary: Any) -> None:
    """Write the given signals (bits) and their forecasts to the summary."""
    now = s.clock[0].now
    _, _, step = integrals(power, now)
    row = int((now - power.edge_s[0]) / FORECAST_STEP_S)
    forecasts = power.forecasts[assume_nonnegative(min(max(row, 0), len(power.forecasts) - 1))]
    at = SUMMARY_COLUMNS + 4
    for signal in range(2):
        if signals >> signal & 1:
            value = power.value[step, signal]
            summary[at] = value / UNITS[signal]
            summary[at + 1] = min(max(value * forecasts[signal, 0], -MAX_SIGNAL_RATIO), MAX_SIGNAL_RATIO)
            for lead in range(1, forecasts.shape[1]):
                summary[at + 1 + lead] = forecasts[signal, lead]
            at += 1 + forecasts.shape[1]


@noinline
def write_observation(s: Any, a: Any, source: Any, b: int, last: bool) -> None:
    """Write the observation of one copy; the last one of an episode that the next one follows at once has no jobs."""
    power = source.own
    copy = a.copies[b]
    env_settings = a.env_settings[0]
    slots = a.slots[b]
    mask = a.mask[b]
    choosable = power.choosable[b]
    summary = a.last_summary[b] if last and env_settings.autoreset == SAME_STEP else a.summary[b]
    levels = assume_nonnegative(env_settings.levels)
    before = copy.shown
    _write_jobs_at_full_speed(s, a, source, b, last, False, choosable)
    late = overdue(s, env_settings.max_wait_s) if copy.phase == HEAD else -1
    chooses = copy.phase in (HEAD, BACKFILLING)
    for i in range(assume_nonnegative(copy.shown)):
        job = assume_nonnegative(slots[i])
        log_row = assume_nonnegative(copy.first + job)
        may = power.may[assume_nonnegative(power.kind[log_row])]
        for level in range(levels):
            allowed = chooses and choosable[i] != 0 and may[level] != 0
            if allowed and level > 0 and copy.phase == BACKFILLING:
                allowed = fits(s, job, level)
            mask[i * levels + level] = allowed
    for i in range(copy.shown * levels, before * levels):
        mask[i] = 0
    extra = len(slots) * levels
    mask[extra] = copy.phase == NODES_PHASE or (chooses and late < 0 and may_hold(s, env_settings.max_wait_for_hold_s))
    if env_settings.sleep_actions != 0:
        sleep_actions = copy.phase > 0 and copy.sleep_decided == 0
        mask[extra + 1] = sleep_actions and can_sleep(s)
        mask[extra + 2] = sleep_actions and can_wake(s)
    write_node_summary(s, copy, power, env_settings.nodes, summary)
    write_signal_summary(s, power, env_settings.signals, summary)
