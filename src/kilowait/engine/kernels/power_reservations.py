"""Job start and reservation with DVFS levels, node sleep and power budget, in place of those in `reservations`.

A waiting job has its full-speed times. A trial sets its need, planned time and run time to those on one group at one
level; `reset_trial` undoes it. One group of whole nodes without timeline, the common case, has its own functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels import timeline
from kilowait.engine.kernels.heap import push
from kilowait.engine.kernels.jit import assume_nonnegative, kernel, maybe_inline, specialize
from kilowait.engine.kernels.node_sleep import allocate_nodes, ready_s
from kilowait.engine.kernels.queue import add_expected_end
from kilowait.engine.kernels.reservations import charge, shadow, shadow_time_single_pool
from kilowait.engine.kernels.state import FINISH, RUNNING
from kilowait.engine.kernels.timeline import earliest, fits_until
from kilowait.engine.settings import UNLIMITED


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


@maybe_inline
def fits_now(s: Any, job: int, g: int) -> bool:
    """Whether the job can start on the group at its trial level now without delaying a reservation."""
    k = s.clock[0]
    group = s.groups[g]
    for p in range(group.pool_lo, group.pool_hi):
        pool = s.pools[p]
        if s.need[job, pool.need] > pool.free:
            return False
    if k.depth == 0 and not k.timeline:
        return True
    end = ready_s(s, g, s.need[job, s.pools[group.pool_lo].need]) + s.jobs[job].planned_s
    if k.timeline:
        return fits_until(s, job, g, k.timeline_lo, end) < 0
    if end <= group.shadow_s:
        return True
    for p in range(group.pool_lo, group.pool_hi):
        pool = s.pools[p]
        if s.need[job, pool.need] > pool.extra:
            return False
    return True


@maybe_inline
def place_at(s: Any, job: int, groups: int, level: int) -> int:
    """The group among `groups` (bits) on which the job would start now at a level; -1: it fits none."""
    k = s.clock[0]
    best = -1
    best_share = -np.inf
    for i in range(len(s.groups)):
        g = s.preference[s.job_state[job].preference_row, i]
        if g < 0:
            break
        if groups >> g & 1 and s.job_state[job].allowed >> g & 1:
            set_trial_level(s, job, g, level)
            if fits_now(s, job, g):
                first = s.pools[s.groups[g].pool_lo]
                share = first.free / first.capacity if k.balance else np.inf
                if share > best_share:
                    best = g
                    best_share = share
                if not k.balance:
                    break
    if best >= 0:
        set_trial_level(s, job, best, level)
    else:
        reset_trial(s, job)
    return best


@maybe_inline
def place_among(s: Any, job: int, groups: int) -> int:
    """`place` where there are several groups or pools, or a timeline."""
    control_state = s.power_control_state[0]
    if control_state.budget and s.least_watts[job] > s.pools[len(s.pools) - 1].free:
        return -1
    level = first_level(s, job)
    last = control_state.levels - 1 if control_state.budget else level
    g = -1
    while g < 0 and level <= last:
        g = place_at(s, job, groups, level)
        level += 1
    return g


@kernel
def place(s: Any, job: int, groups: int) -> int:
    """The group on which the job would start now, at the first trial level that fits; -1: none fits."""
    job = assume_nonnegative(job)
    if not s.power_control_state[0].one_pool or s.clock[0].timeline:
        return place_among(s, job, groups)
    return place_single_pool(s, job) if groups & 1 else -1


@maybe_inline
def allocate_among(s: Any, job: int, g: int, times: int) -> None:
    """`allocate` where there are several groups or pools."""
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        s.pools[p].free -= s.need[job, s.pools[p].need] * times
    if s.power_control_state[0].budget:
        watts = s.need[job, s.power_control_state[0].watts_column] * times
        for other in range(len(s.groups)):
            if other != g:
                s.pools[s.groups[other].pool_hi - 1].free -= watts


@kernel
def allocate(s: Any, job: int, g: int, times: int) -> None:
    """Allocate the job's need, or release it with `times` -1; all groups share the watts."""
    if not s.power_control_state[0].one_pool:
        allocate_among(s, job, g, times)
        return
    s.pools[0].free -= s.job_state[job].least_need * times
    if s.power_control_state[0].budget:
        s.pools[1].free -= s.need[job, 1] * times


@maybe_inline
def subtract(s: Any, job: int, g: int, begin: int, end: int, times: int) -> None:
    """Like `timeline.subtract`; watts are subtracted for every group."""
    for p in range(s.groups[g].pool_lo, s.groups[g].pool_hi):
        need = s.need[job, s.pools[p].need] * times
        for i in range(begin, end):
            s.timeline_free[i, p] -= need
    if s.power_control_state[0].budget:
        watts = s.need[job, s.power_control_state[0].watts_column] * times
        for other in range(len(s.groups)):
            if other != g:
                for i in range(begin, end):
                    s.timeline_free[i, s.groups[other].pool_hi - 1] -= watts


occupy = specialize(timeline.occupy, inlined=False, subtract=subtract)
build = specialize(timeline.build, inlined=False, subtract=subtract)


@kernel
def start(s: Any, job: int, g: int) -> None:
    """Start the job on the group at its trial level; it begins when its nodes are ready. The caller dequeues it."""
    k = s.clock[0]
    job = assume_nonnegative(job)
    job_state = s.job_state[job]
    group = s.groups[g]
    nodes = s.need[job, s.pools[group.pool_lo].need]
    begins = allocate_nodes(s, g, nodes)
    record = s.jobs[job]
    factor = factor_of(s, job, g, job_state.level)
    record.estimate_s *= factor
    record.limit_s *= factor
    record.overrun_planned_s *= factor
    end = begins + record.planned_s
    allocate(s, job, g, 1)
    if k.timeline:
        occupy(s, job, g, k.now, end, 1)
    elif end > group.shadow_s:
        for p in range(group.pool_lo, group.pool_hi):
            s.pools[p].extra -= s.need[job, s.pools[p].need]
    s.power_control_state[0].queued_nodes -= job_state.least_need
    job_state.status = RUNNING
    job_state.start_s = begins
    job_state.group = g
    if k.track_expected_ends:
        add_expected_end(s, job, end)
    push(s.events, k.events, begins + job_state.run_s, FINISH + k.segments)
    k.events += 1
    s.segments[k.segments] = job
    k.segments += 1
    if k.half_life_s > 0:
        charge(s, job, 1)


@kernel
def earliest_on(s: Any, job: int, g: int) -> float:
    """Earliest time at which the job fits the group at its trial level; without a timeline it also sets extra."""
    return earliest(s, job, g) if s.clock[0].timeline else shadow(s, job, g)


@kernel
def reserve(s: Any, job: int) -> float:
    """Reserve for the job on the open group and at the level at which it fits earliest; return the time.

    With a power budget slower levels are tried too, so that a reservation stays valid when a job's first level changes.
    """
    job = assume_nonnegative(job)
    if not s.power_control_state[0].one_pool or s.clock[0].timeline:
        return reserve_among(s, job)
    return reserve_single_pool(s, job)


@maybe_inline
def reserve_among(s: Any, job: int) -> float:
    """`reserve` where there are several groups or pools, or a timeline."""
    k = s.clock[0]
    control_state = s.power_control_state[0]
    first = first_level(s, job)
    best = -1
    best_level = first
    best_s = np.inf
    for level in range(first, control_state.levels if control_state.budget else first + 1):
        for i in range(len(s.groups)):
            g = s.preference[s.job_state[job].preference_row, i]
            if g < 0:
                break
            if s.job_state[job].allowed & k.open_groups & (1 << g):
                set_trial_level(s, job, g, level)
                time = earliest_on(s, job, g)
                if time < best_s:
                    best = g
                    best_level = level
                    best_s = time
    if best >= 0:
        set_trial_level(s, job, best, best_level)
        group = s.groups[best]
        if k.timeline:
            occupy(s, job, best, best_s, best_s + s.jobs[job].planned_s, 1)
        else:
            earliest_on(s, job, best)  # extra is that of the last trial: compute it again for the best
        if best_s < group.shadow_s or (best_s == group.shadow_s and job < group.first_job) or not k.timeline:
            group.shadow_s = best_s
            group.first_need = s.need[job, s.pools[group.pool_lo].need]
            group.first_job = job
        if k.depth == UNLIMITED:
            job_extra = s.job_extra[job]
            job_extra.reserved_s = best_s
            job_extra.reserved_on = best + 1
            s.reserved_level[job] = best_level
        group.reserved += 1
        if group.reserved >= k.depth:
            k.open_groups &= ~(1 << best)
    reset_trial(s, job)
    return best_s
