"""Trial starts at DVFS levels, and the common case of one group of whole nodes without timeline.

A waiting job has its full-speed times. A trial sets its need, planned time and run time to those on one group at one
level; `reset_trial` undoes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.jit import assume_nonnegative, kernel
from kilowait.engine.kernels.node_sleep import ready_s
from kilowait.engine.kernels.starts_and_reservations import shadow_time_single_pool

__all__ = ["factor_of", "first_level", "place_single_pool", "set_trial_level", "reserve_single_pool", "reset_trial"]


@kernel
def factor_of(s: Any, job: int, g: int, level: int) -> float:
    """Factor on the job's run time on the group at the level."""
    return s.factor[
        assume_nonnegative(g),
        0 if s.power_control_state[0].shared_factors else assume_nonnegative(job),
        assume_nonnegative(level),
    ]


@kernel
def set_trial_level(s: Any, job: int, g: int, level: int) -> None:
    """Set need, planned time and run time of the job to those on the group at the level."""
    factor = factor_of(s, job, g, level)
    job_state = s.job_state[job]
    job_state.run_s = s.run_s[job] * factor
    job_state.level = level
    s.jobs[job].planned_s = s.planned_s[job] * factor
    if s.power_control_state[0].budget:
        s.need[job, s.power_control_state[0].watts_column] = s.watts[g, job, level]


@kernel
def reset_trial(s: Any, job: int) -> None:
    """Restore planned time and level of a waiting job, as policies observe them."""
    s.jobs[job].planned_s = s.planned_s[job]
    s.job_state[job].level = 0


@kernel
def first_level(s: Any, job: int) -> int:
    """The first level at which a job is tried."""
    return 0 if s.power_control_state[0].large_backlog else s.preferred_level[job]


@kernel
def place_single_pool(s: Any, job: int) -> int:
    """`place` on the only group."""
    control_state = s.power_control_state[0]
    nodes = s.pools[0]
    need = s.job_state[job].least_need
    if need > nodes.free:
        return -1
    ready = ready_s(s, 0, need)
    planned = s.planned_s[job]
    level = first_level(s, job)
    last = control_state.levels - 1 if control_state.budget else level
    while level <= last:
        free = True
        extra = need <= nodes.extra
        if control_state.budget:
            watts = s.watts[0, job, level]
            free = watts <= s.pools[1].free
            extra = extra and watts <= s.pools[1].extra
        if free and (extra or ready + planned * factor_of(s, job, 0, level) <= s.groups[0].shadow_s):
            set_trial_level(s, job, 0, level)
            return 0
        level += 1
    return -1


@kernel
def shadow_under_budget(s: Any, job: int) -> float:
    """Earliest time at which the job fits the only group at one of its levels; sets extra.

    One scan of the expected ends serves all levels: it stops where the minimum watts over the levels fit, and there the
    first level that fits counts.
    """
    k = s.clock[0]
    first = first_level(s, job)
    least = s.watts[0, job, first]
    for level in range(first + 1, s.power_control_state[0].levels):
        least = min(least, s.watts[0, job, level])
    nodes = s.pools[0].free - s.job_state[job].least_need
    watts = s.pools[1].free
    time = k.now
    i = 0
    running = assume_nonnegative(k.running)
    while i < running:
        expected_end = s.expected_ends[i]
        if nodes >= 0 and watts >= least and expected_end.key > time:
            break
        time = max(time, expected_end.key)
        other = assume_nonnegative(expected_end.job)
        nodes += s.job_state[other].least_need
        watts += s.need[other, 1]
        i += 1
    if nodes < 0 or watts < least:
        return np.inf
    level = first
    while s.watts[0, job, level] > watts:
        level += 1
    s.pools[0].extra = nodes
    s.pools[1].extra = watts - s.watts[0, job, level]
    return time


@kernel
def reserve_single_pool(s: Any, job: int) -> float:
    """`reserve` on the only group."""
    k = s.clock[0]
    group = s.groups[0]
    group.shadow_s = shadow_under_budget(s, job) if s.power_control_state[0].budget else shadow_time_single_pool(s, job)
    group.first_need = s.job_state[job].least_need
    group.reserved = 1
    k.open_groups = 0
    return group.shadow_s
