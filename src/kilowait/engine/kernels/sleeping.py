"""Nodes that sleep: who takes which, when they are ready, and what they do when nobody wants them.

Nodes are counted in batches that share a time. A batch of falling nodes becomes one of sleeping nodes when somebody
looks; all else happens at an instant of the clock.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kilowait.engine.kernels.compiling import kernel, move, outlined
from kilowait.engine.kernels.state import UNLIMITED

__all__ = ["claim", "come_free", "look_ahead", "next_look_s", "ready_s", "settle", "take_away", "wake_up"]


@kernel
def note(s: Any, time: float, g: int, falling: int, asleep: int, waking: int) -> None:
    """Write down that these numbers of the group change by so many at a time."""
    lever = s.lever[0]
    step = s.steps[lever.steps]
    step.time_s = time
    step.group = g
    step.falling = falling
    step.asleep = asleep
    step.waking = waking
    lever.steps += 1


@kernel
def append(batches: Any, lo: int, hi: int, time: float, nodes: int) -> tuple[int, int]:
    """A batch at the end, one with the same time growing; where the batches lie then."""
    if hi > lo and batches[hi - 1].time_s == time:
        batches[hi - 1].nodes += nodes
        return lo, hi
    if hi == len(batches):
        move(batches, 0, lo, hi - lo)
        hi -= lo
        lo = 0
    batches[hi].time_s = time
    batches[hi].nodes = nodes
    return lo, hi + 1


@outlined
def fall_asleep(s: Any, g: int) -> None:
    """Those whose time has come are asleep."""
    k = s.clock[0]
    group = s.sleepers[g]
    while group.fall_lo < group.fall_hi and s.fallers[g, group.fall_lo].time_s <= k.now:
        batch = s.fallers[g, group.fall_lo]
        group.falling -= batch.nodes
        group.asleep += batch.nodes
        note(s, batch.time_s, g, -batch.nodes, batch.nodes, 0)
        group.fall_lo += 1


@kernel
def ready_s(s: Any, g: int, nodes: int) -> float:
    """When so many of the free nodes of a group would all be ready."""
    group = s.sleepers[g]
    if not group.sleeps or nodes <= group.awake:
        return s.clock[0].now
    return woken_s(s, g, nodes)


@outlined
def woken_s(s: Any, g: int, nodes: int) -> float:
    """`ready_s` where some of the nodes must wake."""
    k = s.clock[0]
    group = s.sleepers[g]
    nodes -= group.awake
    ready = k.now
    i = group.wake_lo
    while nodes > 0 and i < group.wake_hi:
        ready = max(ready, s.wakers[g, i].time_s)
        nodes -= s.wakers[g, i].nodes
        i += 1
    if nodes <= 0:
        return ready
    fall_asleep(s, g)
    if group.asleep > 0:
        ready = max(ready, k.now + group.wake_s)
        nodes -= group.asleep
    i = group.fall_lo
    while nodes > 0 and i < group.fall_hi:
        ready = max(ready, s.fallers[g, i].time_s + group.wake_s)
        nodes -= s.fallers[g, i].nodes
        i += 1
    return ready


@kernel
def claim(s: Any, g: int, nodes: int) -> float:
    """A job takes so many free nodes; when they are all ready."""
    group = s.sleepers[g]
    if not group.sleeps:
        return s.clock[0].now
    if group.idle_hi > group.idle_lo and s.idle[g, group.idle_hi - 1].nodes > nodes:
        s.idle[g, group.idle_hi - 1].nodes -= nodes  # the usual case: some of those idle since the same time
        group.awake -= nodes
        return s.clock[0].now
    return claim_several(s, g, nodes)


@outlined
def claim_several(s: Any, g: int, nodes: int) -> float:
    """`claim` where one batch is not enough."""
    k = s.clock[0]
    group = s.sleepers[g]
    ready = ready_s(s, g, nodes)
    left = nodes
    while left > 0 and group.idle_lo < group.idle_hi:  # those idle for the shortest time first
        batch = s.idle[g, group.idle_hi - 1]
        taken = min(left, batch.nodes)
        batch.nodes -= taken
        group.awake -= taken
        left -= taken
        if batch.nodes == 0:
            group.idle_hi -= 1
    while left > 0 and group.wake_lo < group.wake_hi:
        batch = s.wakers[g, group.wake_lo]
        taken = min(left, batch.nodes)
        batch.nodes -= taken
        group.waking -= taken
        left -= taken
        note(s, batch.time_s, g, 0, 0, -taken)
        if batch.nodes == 0:
            group.wake_lo += 1
    if left > 0:
        fall_asleep(s, g)
        taken = min(left, group.asleep)
        if taken > 0:
            group.asleep -= taken
            left -= taken
            note(s, k.now, g, 0, -taken, taken)
            note(s, k.now + group.wake_s, g, 0, 0, -taken)
    while left > 0 and group.fall_lo < group.fall_hi:
        batch = s.fallers[g, group.fall_lo]
        taken = min(left, batch.nodes)
        batch.nodes -= taken
        group.falling -= taken
        left -= taken
        note(s, batch.time_s, g, -taken, 0, taken)
        note(s, batch.time_s + group.wake_s, g, 0, 0, -taken)
        if batch.nodes == 0:
            group.fall_lo += 1
    return ready


@kernel
def come_free(s: Any, g: int, nodes: int) -> None:
    """Nodes fall free: they pay a debt first, and are idle from now on."""
    k = s.clock[0]
    group = s.sleepers[g]
    if not group.sleeps:
        return
    paid = min(nodes, group.debt)
    group.debt -= paid
    nodes -= paid
    if nodes > 0:
        group.awake += nodes
        lo, hi = append(s.idle[g], group.idle_lo, group.idle_hi, k.now, nodes)
        group.idle_lo = lo
        group.idle_hi = hi


@outlined
def take_away(s: Any, g: int, nodes: int) -> None:
    """An outage takes nodes: idle ones first, those idle longest; then sleeping, falling and waking ones."""
    k = s.clock[0]
    group = s.sleepers[g]
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
        note(s, k.now, g, 0, -taken, 0)
    while nodes > 0 and group.fall_lo < group.fall_hi:
        batch = s.fallers[g, group.fall_lo]
        taken = min(nodes, batch.nodes)
        batch.nodes -= taken
        group.falling -= taken
        nodes -= taken
        note(s, k.now, g, -taken, 0, 0)
        if batch.nodes == 0:
            group.fall_lo += 1
    while nodes > 0 and group.wake_lo < group.wake_hi:
        batch = s.wakers[g, group.wake_lo]
        taken = min(nodes, batch.nodes)
        batch.nodes -= taken
        group.waking -= taken
        nodes -= taken
        note(s, k.now, g, 0, 0, -taken)
        if batch.nodes == 0:
            group.wake_lo += 1
    group.debt += nodes


@outlined
def wake_up(s: Any, g: int) -> None:
    """Those that nobody holds and that are awake by now are idle from now on."""
    k = s.clock[0]
    group = s.sleepers[g]
    while group.wake_lo < group.wake_hi and s.wakers[g, group.wake_lo].time_s <= k.now:
        batch = s.wakers[g, group.wake_lo]
        note(s, k.now, g, 0, 0, -batch.nodes)
        group.waking -= batch.nodes
        group.awake += batch.nodes
        lo, hi = append(s.idle[g], group.idle_lo, group.idle_hi, k.now, batch.nodes)
        group.idle_lo = lo
        group.idle_hi = hi
        group.wake_lo += 1


@outlined
def look_ahead(s: Any, g: int) -> tuple[float, int]:
    """Time of the earliest reservation on the group, and the free nodes it will need; infinite: there is none."""
    k = s.clock[0]
    lever = s.lever[0]
    if not (lever.passed and s.sleepers[g].ahead) or k.depth == 0:
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
            rare = s.rare[job]
            if rare.planned_on == g + 1 and (
                rare.planned_s < time or (rare.planned_s == time and job < first)
            ):
                time = rare.planned_s
                first = job
                need = s.need[job, pool.need]
    if time == np.inf:
        return np.inf, 0
    if k.timeline:
        at = k.line_hi - 1
        while at > k.line_lo and s.line_s[at] > time:
            at -= 1
        left = s.line_free[at, s.groups[g].pool_lo]
    return time, max(0, min(need, pool.free, pool.free - left))


@kernel
def settle(s: Any, g: int) -> None:
    """After a pass: wake what will be wanted, let the others sleep, and see when to look again."""
    k = s.clock[0]
    group = s.sleepers[g]
    step = group.reserve_at + 1
    last = step >= group.reserve_end
    if group.ahead or not (last or s.reserve[step].time_s > k.now):
        wake_and_fall(s, g)
        return
    kept = s.reserve[group.reserve_at].nodes
    check = np.inf if last else s.reserve[step].time_s
    if group.awake > kept:
        expires = s.idle[g, group.idle_lo].time_s + group.timeout_s
        if expires <= k.now:
            wake_and_fall(s, g)
            return
        check = min(check, expires)
    elif group.awake + group.waking < kept:
        wake_and_fall(s, g)
        return
    group.check_s = check


@outlined
def wake_and_fall(s: Any, g: int) -> None:
    """`settle` where there may be something to do."""
    k = s.clock[0]
    group = s.sleepers[g]
    while group.reserve_at + 1 < group.reserve_end and s.reserve[group.reserve_at + 1].time_s <= k.now:
        group.reserve_at += 1
    kept = s.reserve[group.reserve_at].nodes
    want = kept
    due_s, needed = look_ahead(s, g)
    if due_s - group.wake_s <= k.now:
        want = max(want, needed)
    fall_asleep(s, g)
    woken = min(group.asleep, want - group.awake - group.waking)
    if woken > 0:
        rouse(s, g, woken)
    while (
        group.awake > want
        and group.idle_lo < group.idle_hi
        and s.idle[g, group.idle_lo].time_s + group.timeout_s <= k.now
    ):
        put_to_sleep(s, g, min(s.idle[g, group.idle_lo].nodes, group.awake - want))
    check = np.inf
    if group.reserve_at + 1 < group.reserve_end:
        check = s.reserve[group.reserve_at + 1].time_s
    if group.awake > kept and group.idle_lo < group.idle_hi:
        expires = s.idle[g, group.idle_lo].time_s + group.timeout_s
        if expires > k.now:
            check = min(check, expires)
    if due_s - group.wake_s > k.now and group.asleep + group.falling > 0:
        check = min(check, due_s - group.wake_s)
    group.check_s = check


@outlined
def rouse(s: Any, g: int, nodes: int) -> None:
    """So many sleeping nodes begin to wake."""
    k = s.clock[0]
    group = s.sleepers[g]
    group.asleep -= nodes
    note(s, k.now, g, 0, -nodes, nodes)
    group.waking += nodes
    lo, hi = append(s.wakers[g], group.wake_lo, group.wake_hi, k.now + group.wake_s, nodes)
    group.wake_lo = lo
    group.wake_hi = hi
    if group.wake_s == 0:
        wake_up(s, g)


@outlined
def put_to_sleep(s: Any, g: int, nodes: int) -> None:
    """So many of those idle longest begin to fall asleep."""
    k = s.clock[0]
    group = s.sleepers[g]
    batch = s.idle[g, group.idle_lo]
    batch.nodes -= nodes
    group.awake -= nodes
    if batch.nodes == 0:
        group.idle_lo += 1
    note(s, k.now, g, nodes, 0, 0)
    group.falling += nodes
    lo, hi = append(s.fallers[g], group.fall_lo, group.fall_hi, k.now + group.fall_s, nodes)
    group.fall_lo = lo
    group.fall_hi = hi
    fall_asleep(s, g)


@kernel
def next_look_s(s: Any) -> float:
    """When some group's nodes wake up, or are to be looked at again."""
    time = np.inf
    for g in range(len(s.sleepers)):
        group = s.sleepers[g]
        if group.sleeps:
            time = min(time, group.check_s)
            if group.wake_lo < group.wake_hi:
                time = min(time, s.wakers[g, group.wake_lo].time_s)
    return time
