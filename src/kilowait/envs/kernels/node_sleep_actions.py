"""Sleep and wake actions of the agent, beside the sleep policy of the machine."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import kernel, maybe_inline
from kilowait.engine.kernels.node_sleep import fall_asleep
from kilowait.engine.kernels.node_wake import put_to_sleep, wake_nodes

__all__ = ["can_sleep", "can_wake", "put_all_to_sleep", "wake_for_waiting"]


@kernel
def reserve_nodes(s: Any, g: int) -> int:
    """Idle nodes of the group that the power controls keep awake now."""
    group = s.sleep_state[g]
    while group.reserve_at + 1 < group.reserve_end and s.reserve[group.reserve_at + 1].time_s <= s.clock[0].now:
        group.reserve_at += 1
    return s.reserve[group.reserve_at].nodes + group.spare


@maybe_inline
def can_sleep(s: Any) -> bool:
    """Whether some idle node may be put to sleep."""
    for g in range(len(s.sleep_state)):
        if s.sleep_state[g].sleeps and s.sleep_state[g].awake > reserve_nodes(s, g):
            return True
    return False


@maybe_inline
def put_all_to_sleep(s: Any) -> None:
    """Put all idle nodes to sleep, except those that are kept awake."""
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        if group.sleeps:
            reserved = reserve_nodes(s, g)
            while group.awake > reserved:
                put_to_sleep(s, g, min(s.idle[g, group.idle_lo].nodes, group.awake - reserved))


@maybe_inline
def can_wake(s: Any) -> bool:
    """Whether some node sleeps and waiting jobs need more nodes than are awake or booting."""
    needed_nodes = s.power_control_state[0].queued_nodes
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        if group.sleeps:
            fall_asleep(s, g)
            if group.asleep > 0 and needed_nodes > group.awake + group.waking:
                return True
            needed_nodes -= group.awake + group.waking
    return False


@maybe_inline
def wake_for_waiting(s: Any) -> None:
    """Wake as many nodes as waiting jobs need beyond those awake or booting."""
    needed_nodes = s.power_control_state[0].queued_nodes
    for g in range(len(s.sleep_state)):
        group = s.sleep_state[g]
        if group.sleeps:
            fall_asleep(s, g)
            woken = min(group.asleep, needed_nodes - group.awake - group.waking)
            if woken > 0:
                wake_nodes(s, g, woken)
            needed_nodes -= group.awake + group.waking
