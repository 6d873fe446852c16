"""What lies on the nodes: whether a piece fits, which GPUs it gets, taking and giving back."""

from __future__ import annotations

from typing import Any

from kilowait.engine.gpu.state import lend
from kilowait.engine.kernels.jit import noinline, kernel

__all__ = ["WORST", "class_of", "fits", "free_allocation", "gpus_for", "shift", "reallocate"]

FIRST, BEST, WORST, CONSOLIDATE, RANDOM, DOT, PACK, CLUSTER, FGD, ROOM = range(10)
"""Placements."""


@kernel
def fits(s: Any, fate: Any, node: int) -> bool:
    """Whether the node can hold a piece of the job."""
    n = s.nodes[node]
    if n.cpu < fate.cpu or n.memory < fate.memory:
        return False
    if fate.gpus == 0:
        return True
    if fate.milli == 1000:
        return n.whole >= fate.gpus
    for g in range(n.gpu_lo, n.gpu_lo + n.gpus):
        if s.gpu_free[g] >= fate.milli:
            return True
    return False


@kernel
def class_of(fate: Any) -> int:
    """Parts of a GPU are one class, whole ones a class for each number of them."""
    return fate.gpus if fate.milli == 1000 else 0


@kernel
def gpus_for(s: Any, fate: Any, node: int) -> int:
    """Bits of the GPUs a piece gets on a node that can hold it."""
    n = s.nodes[node]
    mask = 0
    if fate.gpus == 0:
        return mask
    if fate.milli == 1000:
        left = fate.gpus
        for g in range(n.gpus):
            if left > 0 and s.gpu_free[n.gpu_lo + g] == 1000:
                mask |= 1 << g
                left -= 1
        return mask
    widest = s.clock[0].placement == WORST
    chosen = -1
    room = 0
    for g in range(n.gpus):
        free = s.gpu_free[n.gpu_lo + g]
        if free >= fate.milli and (chosen < 0 or (free > room if widest else free < room)):
            chosen = g
            room = free
    return 1 << chosen


@noinline
def shift(t: Any, job: int, node: int, mask: int, sign: int) -> None:
    """Give a piece's share of a node back (sign 1) or take it (-1)."""
    s = lend(t)
    fate = s.fate[job]
    n = s.nodes[node]
    n.cpu += sign * fate.cpu
    n.memory += sign * fate.memory
    n.version += 1
    if fate.gpus == 0:
        return
    s.classes[node, class_of(fate)] -= sign
    n.milli += sign * fate.milli * fate.gpus
    for g in range(n.gpus):
        if (mask >> g) & 1:
            before = s.gpu_free[n.gpu_lo + g]
            after = before + sign * fate.milli
            s.gpu_free[n.gpu_lo + g] = after
            if after == 1000:
                n.whole += 1
            if before == 1000:
                n.whole -= 1


@kernel
def free_allocation(s: Any, job: int) -> None:
    """What the job's place holds counts as free."""
    fate = s.fate[job]
    for i in range(fate.place_lo, fate.place_lo + fate.pieces):
        shift(s, job, s.places[i, 0], s.places[i, 1], 1)


@kernel
def reallocate(s: Any, job: int) -> None:
    """What the job's place holds counts as taken."""
    fate = s.fate[job]
    for i in range(fate.place_lo, fate.place_lo + fate.pieces):
        shift(s, job, s.places[i, 0], s.places[i, 1], -1)
