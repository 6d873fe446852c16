"""Sleep and wake decisions for free nodes, and the time of the next check."""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.jit import kernel, maybe_inline
from kilowait.engine.kernels.node_sleep import append_batch, fall_asleep, log_node_change
from kilowait.engine.kernels.state import UNLIMITED

__all__ = ["next_check_s", "put_to_sleep", "wake_nodes", "update_node_power", "wake_up"]


@maybe_inline
def wake_up(s: Any, g: int) -> None:
    """Mark free nodes that have finished waking as idle."""
    k = s.clock[0]
    group = s.sleep_state[g]
    while group.wake_lo < group.wake_hi and s.booting[g, group.wake_lo].time_s <= k.now:
        batch = s.booting[g, group.wake_lo]
        log_node_change(s, k.now, g, 0, 0, -batch.nodes)
        group.waking -= batch.nodes
        group.awake += batch.nodes
        lo, hi = append_batch(s.idle[g], group.idle_lo, group.idle_hi, k.now, batch.nodes)
        group.idle_lo = lo
        group.idle_hi = hi
        group.wake_lo += 1


@maybe_inline
def earliest_reservation(s: Any, g: int) -> tuple[float, int]:
    """Time of the earliest reservation on the group, and the free nodes it will need; infinite: none."""
    k = s.clock[0]
    if not s.power_control_state[0].pass_made or k.depth == 0:
        return np.inf, 0
    pool = s.pools[s.groups[g].pool_lo]
    time = s.groups[g].shadow_s
    need = s.groups[g].first_need
    left = pool.extra
    if k.depth == UNLIMITED:
        time = np.inf
        first = -1
        for i in range(k.queue_lo, k.queue_hi):
            job = s.queue[i].job
            job_extra = s.job_extra[job]
            if job_extra.reserved_on == g + 1 and (
                job_extra.reserved_s < time or (job_extra.reserved_s == time and job < first)
            ):
                time = job_extra.reserved_s
                first = job
                need = s.need[job, pool.need]
    if time == np.inf:
        return np.inf, 0
    if k.timeline:
        at = k.timeline_hi - 1
        while at > k.timeline_lo and s.timeline_s[at] > time:
            at -= 1
        left = s.timeline_free[at, s.groups[g].pool_lo]
    return time, max(0, min(need, pool.free, pool.free - left))


@kernel
def update_node_power(s: Any, g: int) -> None:
    """After a pass: wake needed nodes, put idle ones to sleep, and set the time of the next check."""
    k = s.clock[0]
    group = s.sleep_state[g]
    step = group.reserve_at + 1
    change_s = s.reserve[step].time_s if step < group.reserve_end else np.inf
    reserve = s.reserve[group.reserve_at].nodes + group.spare
    expires = s.idle[g, group.idle_lo].time_s + group.timeout_s if group.awake > reserve else np.inf
    if group.wake_ahead or change_s <= k.now or expires <= k.now or group.awake + group.waking < reserve:
        update_sleep(s, g)
    else:
        group.check_s = min(change_s, expires)


@kernel
def update_sleep(s: Any, g: int) -> None:
    """`update_node_power` if there may be nodes to wake or to put to sleep."""
    k = s.clock[0]
    group = s.sleep_state[g]
    while group.reserve_at + 1 < group.reserve_end and s.reserve[group.reserve_at + 1].time_s <= k.now:
        group.reserve_at += 1
    reserve = s.reserve[group.reserve_at].nodes + group.spare
    target = reserve
    due_s = np.inf
    needed = 0
    if group.wake_ahead:
        due_s, needed = earliest_reservation(s, g)
    if due_s - group.wake_s <= k.now:
        target = max(target, needed)
    fall_asleep(s, g)
    woken = min(group.asleep, target - group.awake - group.waking)
    if woken > 0:
        wake_nodes(s, g, woken)
    while (
        group.awake > target
        and group.idle_lo < group.idle_hi
        and s.idle[g, group.idle_lo].time_s + group.timeout_s <= k.now
    ):
        put_to_sleep(s, g, min(s.idle[g, group.idle_lo].nodes, group.awake - target))
    check = np.inf
    if group.reserve_at + 1 < group.reserve_end:
        check = s.reserve[group.reserve_at + 1].time_s
    if group.awake > reserve and group.idle_lo < group.idle_hi:
        expires = s.idle[g, group.idle_lo].time_s + group.timeout_s
        if expires > k.now:
            check = min(check, expires)
    if due_s - group.wake_s > k.now and group.asleep + group.shutting_down > 0:
        check = min(check, due_s - group.wake_s)
    group.check_s = check


@maybe_inline
def wake_nodes(s: Any, g: int, nodes: int) -> None:
    """Start to wake sleeping nodes."""
    k = s.clock[0]
    group = s.sleep_state[g]
    group.asleep -= nodes
    log_node_change(s, k.now, g, 0, -nodes, nodes)
    group.waking += nodes
    lo, hi = append_batch(s.booting[g], group.wake_lo, group.wake_hi, k.now + group.wake_s, nodes)
    group.wake_lo = lo
    group.wake_hi = hi
    if group.wake_s == 0:
        wake_up(s, g)


@kernel
def put_to_sleep(s: Any, g: int, nodes: int) -> None:
    """Start to shut down the longest idle nodes."""
    k = s.clock[0]
    group = s.sleep_state[g]
    batch = s.idle[g, group.idle_lo]
    batch.nodes -= nodes
    group.awake -= nodes
    if batch.nodes == 0:
        group.idle_lo += 1
    log_node_change(s, k.now, g, nodes, 0, 0)
    group.shutting_down += nodes
    lo, hi = append_batch(s.shutting_down[g], group.shutdown_lo, group.shutdown_hi, k.now + group.shutdown_s, nodes)
    group.shutdown_lo = lo
    group.shutdown_hi = hi
    fall_asleep(s, g)


@kernel
def next_check_s(s: Any) -> float:
    """Time of the next wake-up or check of any group."""
    time = np.inf
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        if group.sleeps:
            time = min(time, group.check_s)
            if group.wake_lo < group.wake_hi:
                time = min(time, s.booting[g, group.wake_lo].time_s)
    return time
