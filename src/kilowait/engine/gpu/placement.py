"""Placement of jobs on nodes: allocation, node scores of the strategies (the highest wins), and node selection.

GPU types are tried by preference, and pieces are placed one after another.
"""

from __future__ import annotations

from math import exp, inf
from typing import Any

from kilowait.engine.kernels.jit import kernel, noinline

# -- allocation ------------------------------------------------------------------------------------

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
def change_free(s: Any, job: int, node: int, mask: int, sign: int) -> None:
    """Release (sign 1) or allocate (-1) a piece's resources on a node."""
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


# -- node scores -----------------------------------------------------------------------------------

PRIME = 2**31 - 1


@kernel
def score_of(s: Any, job: int, piece: int, node: int) -> float:
    """Score of the node for this piece of the job."""
    k = s.clock[0]
    job_state = s.job_state[job]
    n = s.nodes[node]
    score = 0.0
    if k.placement in (BEST, WORST):
        score = -_weighted_free(k, n.cpu - job_state.cpu, n.gpu_milli - job_state.gpus * job_state.gpu_milli)
        if k.placement == WORST:
            score = -score
    elif k.placement == CONSOLIDATE:
        if n.attempt == k.attempt:
            score = 3000000.0
        elif n.free_gpus >= job_state.gpus * (job_state.pieces - piece):
            score = 2000000.0 - n.free_gpus
        else:
            score = 0.0 + n.free_gpus
    elif k.placement == RANDOM:
        score = _hash_score(k.seed, job, piece, node)
    elif k.placement == DOT_PRODUCT:
        if k.max_cpu > 0:
            score += (n.cpu / k.max_cpu) * (job_state.cpu / k.max_cpu)
        if k.max_gpu > 0:
            score += (n.gpu_milli / k.max_gpu) * (job_state.gpus * job_state.gpu_milli / k.max_gpu)
        score = -score / 2
    elif k.placement == GPU_PACKING and job_state.gpus > 0:
        score = 0.0 + _gpu_packing_score(s, job_state, node)
    elif k.placement == GPU_CLUSTERING and job_state.gpus > 0:
        score = 0.0 + _gpu_clustering_score(s, job_state, node)
    elif k.placement in (FGD, CAPACITY):
        score = cached_node_score(s, job, node)
    return score


@kernel
def _weighted_free(k: Any, cpu: int, gpu: int) -> float:
    share = 0.0
    if k.max_cpu > 0:
        share += 0.5 * (cpu / k.max_cpu)
    if k.max_gpu > 0:
        share += 0.5 * (gpu / k.max_gpu)
    return share


@kernel
def _hash_score(seed: int, job: int, piece: int, node: int) -> float:
    z = (seed * 7919 + job * 104729 + piece * 1299709 + node * 15485863 + 12345) % PRIME
    for _ in range(3):
        z = z ^ (z >> 15)
        z = (z * 48271 + 11) % PRIME
    return 0.0 + z


@noinline
def _gpu_packing_score(s: Any, job_state: Any, node: int) -> int:
    n = s.nodes[node]
    if n.free_gpus == n.gpus:
        return max(33 - n.free_gpus, n.free_gpus)
    if job_state.gpu_milli == 1000:
        return max(50 - job_state.gpus, 33)
    mask = gpus_for(s, job_state, node)
    free = 0
    for g in range(n.gpus):
        if (mask >> g) & 1:
            free = s.gpu_free[n.gpu_lo + g]
    if free == 1000:
        return max(50 - 1, 33)
    return max(100 - (free * 100 // 1000) // 10, 50)


@noinline
def _gpu_clustering_score(s: Any, job_state: Any, node: int) -> int:
    k = s.clock[0]
    n = s.nodes[node]
    same = s.classes[node, size_class(job_state)] > 0
    others = False
    for c in range(s.classes.shape[1]):
        if c != size_class(job_state) and s.classes[node, c] > 0:
            others = True
    used = 25 * (k.max_gpu - n.gpu_milli) // k.max_gpu
    if same:
        return (50 if others else 75) + used
    return used if others else 25 + used


@noinline
def fragments(s: Any, node: int) -> float:
    """Fragmentation: thousandths of the node's GPUs that typical jobs cannot use, on average."""
    n = s.nodes[node]
    lo = n.gpu_lo
    hi = lo + n.gpus
    total = 0.0
    for i in range(len(s.typical_jobs)):
        shape = s.typical_jobs[i]
        lost = n.gpu_milli
        if shape.gpus > 0 and n.cpu >= shape.cpu and s.label_types[shape.label, n.type]:
            usable_gpus = 0
            unusable = 0
            for g in range(lo, hi):
                if s.gpu_free[g] >= shape.gpu_milli:
                    usable_gpus += 1
                else:
                    unusable += s.gpu_free[g]
            if usable_gpus >= shape.gpus:
                lost = unusable
        total += shape.share * lost
    return total


@noinline
def capacity_score(s: Any, node: int) -> float:
    """Capacity: number of typical jobs that the node can still hold, on average over their shapes."""
    n = s.nodes[node]
    lo = n.gpu_lo
    hi = lo + n.gpus
    total = 0.0
    for i in range(len(s.typical_jobs)):
        shape = s.typical_jobs[i]
        if shape.gpus == 0 or n.cpu < shape.cpu or not s.label_types[shape.label, n.type]:
            continue
        usable_gpus = 0
        usable = 0
        count = 0
        for g in range(lo, hi):
            free = s.gpu_free[g]
            if free >= shape.gpu_milli:
                usable_gpus += 1
                usable += free
                count += free // shape.gpu_milli
        if usable_gpus < shape.gpus:
            continue
        count //= shape.gpus
        if shape.cpu > 0:
            count = min(count, n.cpu // shape.cpu)
        total += shape.share * (0.8 * (usable / (shape.gpus * shape.gpu_milli)) + 0.2 * count)
    return total


@noinline
def cached_node_score(s: Any, job: int, node: int) -> float:
    """Score of the node by its change of value, cached until the node changes; `score_cache_gpus` has
    the GPUs to allocate, as bits."""
    job_state = s.job_state[job]
    n = s.nodes[node]
    row = job_state.demand_class % s.score_cache.shape[0]
    stamp = n.version * s.clock[0].demand_classes + job_state.demand_class
    if s.score_cache_stamp[row, node] == stamp:
        return s.score_cache[row, node]
    before = _node_value(s, node)
    n.cpu -= job_state.cpu
    n.gpu_milli -= job_state.gpus * job_state.gpu_milli
    best = -inf
    chosen = 0
    if job_state.gpus > 0 and job_state.gpu_milli < 1000:
        for g in range(n.gpus):
            if s.gpu_free[n.gpu_lo + g] >= job_state.gpu_milli and not _same_free_as_earlier_gpu(s, n.gpu_lo, g):
                s.gpu_free[n.gpu_lo + g] -= job_state.gpu_milli
                score = _score_of_change(s, _node_value(s, node) - before)
                s.gpu_free[n.gpu_lo + g] += job_state.gpu_milli
                if score > best:
                    best = score
                    chosen = 1 << g
    else:
        chosen = gpus_for(s, job_state, node)
        for g in range(n.gpus):
            if (chosen >> g) & 1:
                s.gpu_free[n.gpu_lo + g] -= 1000
        best = _score_of_change(s, _node_value(s, node) - before)
        for g in range(n.gpus):
            if (chosen >> g) & 1:
                s.gpu_free[n.gpu_lo + g] += 1000
    n.cpu += job_state.cpu
    n.gpu_milli += job_state.gpus * job_state.gpu_milli
    s.score_cache[row, node] = best
    s.score_cache_gpus[row, node] = chosen
    s.score_cache_stamp[row, node] = stamp
    return best


@kernel
def _same_free_as_earlier_gpu(s: Any, lo: int, g: int) -> bool:
    """Whether an earlier GPU has as much free: the score is equal, and the first is used."""
    for other in range(lo, lo + g):
        if s.gpu_free[other] == s.gpu_free[lo + g]:
            return True
    return False


@kernel
def _node_value(s: Any, node: int) -> float:
    """Value of a node that the placement maximizes."""
    if s.clock[0].placement == CAPACITY:
        return capacity_score(s, node)
    return -fragments(s, node)


@kernel
def _score_of_change(s: Any, gain: float) -> float:
    """Score of a change of value; FGD's is a whole number from 0 to 100."""
    if s.clock[0].placement == CAPACITY:
        return gain
    return 0.0 + int(100 / (1 + exp(-gain / 1000)))


# -- node selection --------------------------------------------------------------------------------


@noinline
def place_job(s: Any, job: int, gpu_type: int) -> bool:
    """Allocate free nodes to the job, on `gpu_type` (-1: any allowed type), and store them in `places`."""
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
def _place_pieces(s: Any, job: int, first: int, several: bool) -> bool:
    """Place all pieces on nodes of type `first`, or of all types of its rank; allocate nothing if one does not fit."""
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
