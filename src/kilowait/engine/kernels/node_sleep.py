"""Node sleep: allocation and release of sleeping nodes, and when they are ready.

Nodes are counted in batches that share a time. Batches of nodes that are shutting down become asleep
lazily, when they are read; all other transitions are events.
"""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import kernel, maybe_inline, memmove

__all__ = [
    "append_batch",
    "allocate_nodes",
    "release_nodes",
    "fall_asleep",
    "log_node_change",
    "ready_s",
    "remove_nodes",
]


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
