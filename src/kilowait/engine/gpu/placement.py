"""Node selection: GPU types by preference, pieces one after another."""

from __future__ import annotations

from typing import Any

from kilowait.engine.gpu.allocation import CAPACITY, FGD, FIRST, change_free, fits, gpus_for
from kilowait.engine.gpu.placement_scores import score_of
from kilowait.engine.gpu.state import gpu_state_without_refcount
from kilowait.engine.kernels.jit import kernel, noinline

__all__ = ["place_job"]


@noinline
def place_job(s: Any, job: int, gpu_type: int) -> bool:
    """Allocate free nodes to the job, on `gpu_type` (-1: any allowed type), and store them in `places`."""
    s = gpu_state_without_refcount(s)
    job_state = s.job_state[job]
    types = s.type_order.shape[1]
    at = 0
    while at < types and s.type_order[job_state.speed_class, at] >= 0:
        first = s.type_order[job_state.speed_class, at]
        last = at
        if job_state.pieces == 1 and gpu_type < 0:
            while (
                last + 1 < types
                and s.type_order[job_state.speed_class, last + 1] >= 0
                and s.type_rank[job_state.speed_class, s.type_order[job_state.speed_class, last + 1]]
                == s.type_rank[job_state.speed_class, first]
            ):
                last += 1
        if (gpu_type < 0 or gpu_type == first) and _place_pieces(s, job, first, last > at):
            return True
        at = last + 1
    return False


@noinline
def _place_pieces(t: Any, job: int, first: int, several: bool) -> bool:
    """Place all pieces on nodes of type `first`, or of all types of its rank; allocate nothing if one does not fit."""
    s = gpu_state_without_refcount(t)
    job_state = s.job_state[job]
    s.clock[0].attempt += 1
    for piece in range(job_state.pieces):
        node = _best_node(s, job, piece, first, several)
        if node < 0:
            for i in range(job_state.place_lo, job_state.place_lo + piece):
                change_free(s, job, s.places[i, 0], s.places[i, 1], 1)
            return False
        if s.clock[0].placement in (FGD, CAPACITY):
            mask = s.score_cache_gpus[job_state.demand_class % s.score_cache.shape[0], node]
        else:
            mask = gpus_for(s, job_state, node)
        s.places[job_state.place_lo + piece, 0] = node
        s.places[job_state.place_lo + piece, 1] = mask
        s.nodes[node].attempt = s.clock[0].attempt
        change_free(s, job, node, mask, -1)
    return True


@kernel
def _best_node(s: Any, job: int, piece: int, first: int, several: bool) -> int:
    """The node with the highest score that can hold the piece, the first of equals; -1: none can."""
    k = s.clock[0]
    job_state = s.job_state[job]
    chosen = -1
    highest = 0.0
    lo = 0 if several else s.type_lo[first]
    hi = len(s.nodes) if several else s.type_lo[first + 1]
    for i in range(lo, hi):
        node = i if several else s.by_type[i]
        n = s.nodes[node]
        if several and not _same_rank(s, job_state.speed_class, first, n.type):
            continue
        if job_state.spread == 0 and n.attempt == k.attempt and piece > 0:
            continue
        if not fits(s, job_state, node):
            continue
        if k.placement == FIRST:
            return node
        score = score_of(s, job, piece, node)
        if chosen < 0 or score > highest:
            chosen = node
            highest = score
    return chosen


@kernel
def _same_rank(s: Any, kind: int, first: int, other: int) -> bool:
    return s.speed[kind, other] > 0 and s.type_rank[kind, other] == s.type_rank[kind, first]
