"""Node sleep: allocation and release of sleeping nodes, when they are ready, and sleep and wake decisions.

Nodes are counted in batches that share a time. Batches of nodes that are shutting down become asleep
lazily, when they are read; all other transitions are events.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.jit import kernel, maybe_inline, memmove
from kilowait.engine.settings import UNLIMITED


@kernel
def log_node_change(s: Any, time: float, g: int, shutting_down: int, asleep: int, waking: int) -> None:
    """Log a change of the numbers of nodes of a group by state."""
    control_state = s.power_control_state[0]
    change = s.node_changes[control_state.node_changes]
    change.time_s = time
    change.group = g
    change.shutting_down = shutting_down
    change.asleep = asleep
    change.waking = waking
    control_state.node_changes += 1


@kernel
def append_batch(batches: Any, lo: int, hi: int, time: float, nodes: int) -> tuple[int, int]:
    """Append a batch, or merge it into a last batch of the same time; return the new bounds."""
    if hi > lo and batches[hi - 1].time_s == time:
        batches[hi - 1].nodes += nodes
        return lo, hi
    if hi == len(batches):
        memmove(batches, 0, lo, hi - lo)
        hi -= lo
        lo = 0
    batches[hi].time_s = time
    batches[hi].nodes = nodes
    return lo, hi + 1


@kernel
def fall_asleep(s: Any, g: int) -> None:
    """Mark nodes that have finished shutting down as asleep."""
    k = s.clock[0]
    group = s.sleep_state[g]
    while group.shutdown_lo < group.shutdown_hi and s.shutting_down[g, group.shutdown_lo].time_s <= k.now:
        batch = s.shutting_down[g, group.shutdown_lo]
        group.shutting_down -= batch.nodes
        group.asleep += batch.nodes
        log_node_change(s, batch.time_s, g, -batch.nodes, batch.nodes, 0)
        group.shutdown_lo += 1


@kernel
def ready_s(s: Any, g: int, nodes: int) -> float:
    """Time at which this number of free nodes of a group is ready."""
    group = s.sleep_state[g]
    if not group.sleeps or nodes <= group.awake:
        return s.clock[0].now
    return ready_after_wake_s(s, g, nodes)


@maybe_inline
def ready_after_wake_s(s: Any, g: int, nodes: int) -> float:
    """`ready_s` where some of the nodes must wake."""
    k = s.clock[0]
    group = s.sleep_state[g]
    nodes -= group.awake
    ready = k.now
    i = group.wake_lo
    while nodes > 0 and i < group.wake_hi:
        ready = max(ready, s.booting[g, i].time_s)
        nodes -= s.booting[g, i].nodes
        i += 1
    if nodes <= 0:
        return ready
    fall_asleep(s, g)
    if group.asleep > 0:
        ready = max(ready, k.now + group.wake_s)
        nodes -= group.asleep
    i = group.shutdown_lo
    while nodes > 0 and i < group.shutdown_hi:
        ready = max(ready, s.shutting_down[g, i].time_s + group.wake_s)
        nodes -= s.shutting_down[g, i].nodes
        i += 1
    return ready


@kernel
def allocate_nodes(s: Any, g: int, nodes: int) -> float:
    """Allocate free nodes to a job; return when all are ready."""
    group = s.sleep_state[g]
    if not group.sleeps:
        return s.clock[0].now
    if nodes > group.awake:
        return allocate_waking_nodes(s, g, nodes)
    group.awake -= nodes
    while nodes > 0:  # those idle for the shortest time first
        batch = s.idle[g, group.idle_hi - 1]
        taken = min(nodes, batch.nodes)
        batch.nodes -= taken
        nodes -= taken
        if batch.nodes == 0:
            group.idle_hi -= 1
    return s.clock[0].now


@maybe_inline
def allocate_waking_nodes(s: Any, g: int, nodes: int) -> float:
    """`allocate_nodes` if too few nodes are awake."""
    k = s.clock[0]
    group = s.sleep_state[g]
    ready = ready_after_wake_s(s, g, nodes)
    left = nodes - group.awake
    group.awake = 0
    group.idle_hi = group.idle_lo
    while left > 0 and group.wake_lo < group.wake_hi:
        batch = s.booting[g, group.wake_lo]
        taken = min(left, batch.nodes)
        batch.nodes -= taken
        group.waking -= taken
        left -= taken
        log_node_change(s, batch.time_s, g, 0, 0, -taken)
        if batch.nodes == 0:
            group.wake_lo += 1
    if left > 0:
        fall_asleep(s, g)
        taken = min(left, group.asleep)
        if taken > 0:
            group.asleep -= taken
            left -= taken
            log_node_change(s, k.now, g, 0, -taken, taken)
            log_node_change(s, k.now + group.wake_s, g, 0, 0, -taken)
    while left > 0 and group.shutdown_lo < group.shutdown_hi:
        batch = s.shutting_down[g, group.shutdown_lo]
        taken = min(left, batch.nodes)
        batch.nodes -= taken
        group.shutting_down -= taken
        left -= taken
        log_node_change(s, batch.time_s, g, -taken, 0, taken)
        log_node_change(s, batch.time_s + group.wake_s, g, 0, 0, -taken)
        if batch.nodes == 0:
            group.shutdown_lo += 1
    return ready


@kernel
def release_nodes(s: Any, g: int, nodes: int) -> None:
    """Release nodes: they first serve a pending outage, the others are idle from now on."""
    k = s.clock[0]
    group = s.sleep_state[g]
    if not group.sleeps:
        return
    removed = min(nodes, group.pending_outage_nodes)
    group.pending_outage_nodes -= removed
    nodes -= removed
    if nodes > 0:
        group.awake += nodes
        lo, hi = append_batch(s.idle[g], group.idle_lo, group.idle_hi, k.now, nodes)
        group.idle_lo = lo
        group.idle_hi = hi


@maybe_inline
def remove_nodes(s: Any, g: int, nodes: int) -> None:
    """Remove nodes for an outage: longest idle first, then asleep, shutting down and waking ones."""
    k = s.clock[0]
    group = s.sleep_state[g]
    if not group.sleeps:
        return
    while nodes > 0 and group.idle_lo < group.idle_hi:
        batch = s.idle[g, group.idle_lo]
        taken = min(nodes, batch.nodes)
        batch.nodes -= taken
        group.awake -= taken
        nodes -= taken
        if batch.nodes == 0:
            group.idle_lo += 1
    fall_asleep(s, g)
    taken = min(nodes, group.asleep)
    if taken > 0:
        group.asleep -= taken
        nodes -= taken
        log_node_change(s, k.now, g, 0, -taken, 0)
    while nodes > 0 and group.shutdown_lo < group.shutdown_hi:
        batch = s.shutting_down[g, group.shutdown_lo]
        taken = min(nodes, batch.nodes)
        batch.nodes -= taken
        group.shutting_down -= taken
        nodes -= taken
        log_node_change(s, k.now, g, -taken, 0, 0)
        if batch.nodes == 0:
            group.shutdown_lo += 1
    while nodes > 0 and group.wake_lo < group.wake_hi:
        batch = s.booting[g, group.wake_lo]
        taken = min(nodes, batch.nodes)
        batch.nodes -= taken
        group.waking -= taken
        nodes -= taken
        log_node_change(s, k.now, g, 0, 0, -taken)
        if batch.nodes == 0:
            group.wake_lo += 1
    group.pending_outage_nodes += nodes


# -- decisions -------------------------------------------------------------------------------------


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
