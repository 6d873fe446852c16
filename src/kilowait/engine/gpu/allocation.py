"""Node resources: whether a piece fits, which GPUs it gets, allocation and release."""

from __future__ import annotations

from typing import Any

from kilowait.engine.gpu.state import gpu_state_without_refcount
from kilowait.engine.kernels.jit import kernel, noinline

__all__ = ["WORST", "size_class", "fits", "free_allocation", "gpus_for", "change_free", "reallocate"]

FIRST, BEST, WORST, CONSOLIDATE, RANDOM, DOT_PRODUCT, GPU_PACKING, GPU_CLUSTERING, FGD, CAPACITY = range(10)
"""Placement codes."""


@kernel
def fits(s: Any, job_state: Any, node: int) -> bool:
    """Whether the node can hold a piece of the job."""
    n = s.nodes[node]
    if n.cpu < job_state.cpu or n.memory < job_state.memory:
        return False
    if job_state.gpus == 0:
        return True
    if job_state.gpu_milli == 1000:
        return n.free_gpus >= job_state.gpus
    for g in range(n.gpu_lo, n.gpu_lo + n.gpus):
        if s.gpu_free[g] >= job_state.gpu_milli:
            return True
    return False


@kernel
def size_class(job_state: Any) -> int:
    """Size class of a job: 0 for GPU shares, else its number of whole GPUs."""
    return job_state.gpus if job_state.gpu_milli == 1000 else 0


@kernel
def gpus_for(s: Any, job_state: Any, node: int) -> int:
    """GPUs (as bits) that a piece gets on a node that can hold it."""
    n = s.nodes[node]
    mask = 0
    if job_state.gpus == 0:
        return mask
    if job_state.gpu_milli == 1000:
        left = job_state.gpus
        for g in range(n.gpus):
            if left > 0 and s.gpu_free[n.gpu_lo + g] == 1000:
                mask |= 1 << g
                left -= 1
        return mask
    prefer_most_free = s.clock[0].placement == WORST
    chosen = -1
    chosen_free = 0
    for g in range(n.gpus):
        free = s.gpu_free[n.gpu_lo + g]
        if free >= job_state.gpu_milli and (
            chosen < 0 or (free > chosen_free if prefer_most_free else free < chosen_free)
        ):
            chosen = g
            chosen_free = free
    return 1 << chosen


@noinline
def change_free(t: Any, job: int, node: int, mask: int, sign: int) -> None:
    """Release (sign 1) or allocate (-1) a piece's resources on a node."""
    s = gpu_state_without_refcount(t)
    job_state = s.job_state[job]
    n = s.nodes[node]
    n.cpu += sign * job_state.cpu
    n.memory += sign * job_state.memory
    n.version += 1
    if job_state.gpus == 0:
        return
    s.classes[node, size_class(job_state)] -= sign
    n.gpu_milli += sign * job_state.gpu_milli * job_state.gpus
    for g in range(n.gpus):
        if (mask >> g) & 1:
            before = s.gpu_free[n.gpu_lo + g]
            after = before + sign * job_state.gpu_milli
            s.gpu_free[n.gpu_lo + g] = after
            if after == 1000:
                n.free_gpus += 1
            if before == 1000:
                n.free_gpus -= 1


@kernel
def free_allocation(s: Any, job: int) -> None:
    """Release the job's allocation."""
    job_state = s.job_state[job]
    for i in range(job_state.place_lo, job_state.place_lo + job_state.pieces):
        change_free(s, job, s.places[i, 0], s.places[i, 1], 1)


@kernel
def reallocate(s: Any, job: int) -> None:
    """Allocate the job's stored places again."""
    job_state = s.job_state[job]
    for i in range(job_state.place_lo, job_state.place_lo + job_state.pieces):
        change_free(s, job, s.places[i, 0], s.places[i, 1], -1)
