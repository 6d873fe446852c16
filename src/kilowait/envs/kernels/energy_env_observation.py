"""Observation of `Energy-v0`: that of `batch_env_observation`, then DVFS, power, nodes and signals."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import assume_nonnegative, maybe_inline, noinline, specialize, without_refcount
from kilowait.engine.kernels.state_with_power_controls import power_state_without_refcount
from kilowait.envs.kernels import batch_env_observation
from kilowait.envs.kernels.batch_env_decision import BACKFILLING, HEAD
from kilowait.envs.kernels.energy_env_decision import NODES_PHASE, eligible, fits, may_hold, overdue
from kilowait.envs.kernels.energy_env_states import integrals, log_arrays_without_refcount
from kilowait.envs.kernels.node_sleep_actions import can_sleep, can_wake
from kilowait.envs.observation_spec import SUMMARY
from kilowait.envs.power.observation_spec import CARBON_UNIT, PRICE_UNIT
from kilowait.envs.power.signal_features import FORECAST_STEP_S, MAX_RATIO

__all__ = ["write_observation"]

COLUMNS = len(SUMMARY)
UNITS = (CARBON_UNIT, PRICE_UNIT)

_write_base_observation = specialize(
    batch_env_observation.write_observation,
    state_without_refcount=power_state_without_refcount,
    log_arrays_without_refcount=log_arrays_without_refcount,
    eligible=eligible,
    overdue=overdue,
    most_relevant=specialize(batch_env_observation.most_relevant, inlined=False, eligible=eligible),
)


@maybe_inline
def running_w(s: Any, copy: Any, source: Any) -> float:
    """Watts of the running jobs above their idle nodes."""
    k = s.clock[0]
    watts = 0.0
    for i in range(assume_nonnegative(k.running)):
        job = assume_nonnegative(s.expected_ends[i].job)
        job_state = s.job_state[job]
        if job_state.start_s <= k.now:
            watts += source.above_w[job_state.group, source.kind[assume_nonnegative(copy.first + job)], job_state.level]
    return watts


@maybe_inline
def write_node_summary(s: Any, copy: Any, source: Any, nodes: float, summary: Any) -> None:
    """Write power and node states to the summary."""
    watts = source.building[0].base_w + running_w(s, copy, source)
    idle = 0.0
    asleep = 0
    shutting_down_or_booting = 0
    for g in range(len(s.groups)):
        group = s.sleep_state[g]
        idle += s.pools[s.groups[g].pool_lo].free - group.shutting_down - group.asleep - group.waking
        asleep += group.asleep
        shutting_down_or_booting += group.shutting_down + group.waking
        state_w = source.state_w[g]
        watts += group.shutting_down * state_w[0] + group.asleep * state_w[1] + group.waking * state_w[2]
    summary[COLUMNS] = watts / source.building[0].full_w
    summary[COLUMNS + 1] = idle / nodes
    summary[COLUMNS + 2] = asleep / nodes
    summary[COLUMNS + 3] = shutting_down_or_booting / nodes


@maybe_inline
def write_signal_summary(s: Any, source: Any, signals: int, summary: Any) -> None:
    """Write the given signals (bits) and their forecasts to the summary."""
    now = s.clock[0].now
    _, _, step = integrals(source, now)
    row = int((now - source.edge_s[0]) / FORECAST_STEP_S)
    forecasts = source.forecasts[assume_nonnegative(min(max(row, 0), len(source.forecasts) - 1))]
    at = COLUMNS + 4
    for signal in range(2):
        if signals >> signal & 1:
            value = source.value[step, signal]
            summary[at] = value / UNITS[signal]
            summary[at + 1] = min(max(value * forecasts[signal, 0], -MAX_RATIO), MAX_RATIO)
            for lead in range(1, forecasts.shape[1]):
                summary[at + 1 + lead] = forecasts[signal, lead]
            at += 1 + forecasts.shape[1]


@noinline
def write_observation(
    s: Any, copy: Any, source: Any, env_settings: Any,
    jobs: Any, mask: Any, summary: Any, slots: Any, edges: Any, choosable: Any,
) -> None:  # fmt: skip
    """Write the observation of one copy."""
    s = power_state_without_refcount(s)
    source = log_arrays_without_refcount(source)
    jobs = without_refcount(jobs)
    mask = without_refcount(mask)
    summary = without_refcount(summary)
    slots = without_refcount(slots)
    edges = without_refcount(edges)
    choosable = without_refcount(choosable)
    levels = assume_nonnegative(env_settings.levels)
    before = copy.shown
    _write_base_observation(
        s, copy, source, env_settings.nodes, env_settings.max_wait_s, False, jobs, choosable, summary, slots, edges
    )
    late = overdue(s, env_settings.max_wait_s) if copy.phase == HEAD else -1
    chooses = copy.phase in (HEAD, BACKFILLING)
    for i in range(assume_nonnegative(copy.shown)):
        job = assume_nonnegative(slots[i])
        log_row = assume_nonnegative(copy.first + job)
        may = source.may[assume_nonnegative(source.kind[log_row])]
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
    write_node_summary(s, copy, source, env_settings.nodes, summary)
    write_signal_summary(s, source, env_settings.signals, summary)
