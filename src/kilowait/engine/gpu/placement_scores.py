"""Node scores of the placement strategies; the highest score wins."""

from __future__ import annotations

from math import exp, inf
from typing import Any

from kilowait.engine.gpu.allocation import (
    BEST,
    CAPACITY,
    CONSOLIDATE,
    DOT_PRODUCT,
    FGD,
    GPU_CLUSTERING,
    GPU_PACKING,
    RANDOM,
    WORST,
    gpus_for,
    size_class,
)
from kilowait.engine.gpu.state import gpu_state_without_refcount
from kilowait.engine.kernels.jit import kernel, noinline

__all__ = ["score_of"]

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
def _gpu_packing_score(t: Any, job_state: Any, node: int) -> int:
    s = gpu_state_without_refcount(t)
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
def _gpu_clustering_score(t: Any, job_state: Any, node: int) -> int:
    s = gpu_state_without_refcount(t)
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
def fragments(t: Any, node: int) -> float:
    """Fragmentation: thousandths of the node's GPUs that typical jobs cannot use, on average."""
    s = gpu_state_without_refcount(t)
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
def capacity_score(t: Any, node: int) -> float:
    """Capacity: number of typical jobs that the node can still hold, on average over their shapes."""
    s = gpu_state_without_refcount(t)
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
def cached_node_score(t: Any, job: int, node: int) -> float:
    """Score of the node by its change of value, cached until the node changes; `score_cache_gpus` has
    the GPUs to allocate, as bits."""
    s = gpu_state_without_refcount(t)
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
