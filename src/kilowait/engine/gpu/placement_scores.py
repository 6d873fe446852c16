"""Which node is best for a piece: a number for each placement, the highest wins."""

from __future__ import annotations

from math import exp, inf
from typing import Any

from kilowait.engine.gpu.allocation import (
    BEST,
    CLUSTER,
    CONSOLIDATE,
    DOT,
    FGD,
    PACK,
    RANDOM,
    ROOM,
    WORST,
    class_of,
    gpus_for,
)
from kilowait.engine.gpu.state import lend
from kilowait.engine.kernels.jit import noinline, kernel

__all__ = ["fragments", "least_harm", "capacity_score", "score_of"]

PRIME = 2**31 - 1


@kernel
def score_of(s: Any, job: int, piece: int, node: int) -> float:
    """The node's score for this piece of the job."""
    k = s.clock[0]
    fate = s.fate[job]
    n = s.nodes[node]
    score = 0.0
    if k.placement in (BEST, WORST):
        score = -_filled(k, n.cpu - fate.cpu, n.milli - fate.gpus * fate.milli)
        if k.placement == WORST:
            score = -score
    elif k.placement == CONSOLIDATE:
        if n.attempt == k.attempt:
            score = 3000000.0
        elif n.whole >= fate.gpus * (fate.pieces - piece):
            score = 2000000.0 - n.whole
        else:
            score = 0.0 + n.whole
    elif k.placement == RANDOM:
        score = _drawn(k.seed, job, piece, node)
    elif k.placement == DOT:
        if k.most_cpu > 0:
            score += (n.cpu / k.most_cpu) * (fate.cpu / k.most_cpu)
        if k.most_gpu > 0:
            score += (n.milli / k.most_gpu) * (fate.gpus * fate.milli / k.most_gpu)
        score = -score / 2
    elif k.placement == PACK and fate.gpus > 0:
        score = 0.0 + _packed(s, fate, node)
    elif k.placement == CLUSTER and fate.gpus > 0:
        score = 0.0 + _clustered(s, fate, node)
    elif k.placement in (FGD, ROOM):
        score = least_harm(s, job, node)
    return score


@kernel
def _filled(k: Any, cpu: int, gpu: int) -> float:
    share = 0.0
    if k.most_cpu > 0:
        share += 0.5 * (cpu / k.most_cpu)
    if k.most_gpu > 0:
        share += 0.5 * (gpu / k.most_gpu)
    return share


@kernel
def _drawn(seed: int, job: int, piece: int, node: int) -> float:
    z = (seed * 7919 + job * 104729 + piece * 1299709 + node * 15485863 + 12345) % PRIME
    for _ in range(3):
        z = z ^ (z >> 15)
        z = (z * 48271 + 11) % PRIME
    return 0.0 + z


@noinline
def _packed(t: Any, fate: Any, node: int) -> int:
    s = lend(t)
    n = s.nodes[node]
    if n.whole == n.gpus:
        return max(33 - n.whole, n.whole)
    if fate.milli == 1000:
        return max(50 - fate.gpus, 33)
    mask = gpus_for(s, fate, node)
    free = 0
    for g in range(n.gpus):
        if (mask >> g) & 1:
            free = s.gpu_free[n.gpu_lo + g]
    if free == 1000:
        return max(50 - 1, 33)
    return max(100 - (free * 100 // 1000) // 10, 50)


@noinline
def _clustered(t: Any, fate: Any, node: int) -> int:
    s = lend(t)
    k = s.clock[0]
    n = s.nodes[node]
    own = s.classes[node, class_of(fate)] > 0
    others = False
    for c in range(s.classes.shape[1]):
        if c != class_of(fate) and s.classes[node, c] > 0:
            others = True
    used = 25 * (k.most_gpu - n.milli) // k.most_gpu
    if own:
        return (50 if others else 75) + used
    return used if others else 25 + used


@noinline
def fragments(t: Any, node: int) -> float:
    """Thousandths of GPUs of the node that the targets cannot use, on average over them."""
    s = lend(t)
    n = s.nodes[node]
    lo = n.gpu_lo
    hi = lo + n.gpus
    total = 0.0
    for place in range(len(s.targets)):
        target = s.targets[place]
        lost = n.milli
        if target.gpus > 0 and n.cpu >= target.cpu and s.target_types[target.label, n.type]:
            room = 0
            short = 0
            for g in range(lo, hi):
                if s.gpu_free[g] >= target.milli:
                    room += 1
                else:
                    short += s.gpu_free[g]
            if room >= target.gpus:
                lost = short
        total += target.share * lost
    return total


@noinline
def capacity_score(t: Any, node: int) -> float:
    """How many jobs like those of the table the node could still take, on average over their kinds."""
    s = lend(t)
    n = s.nodes[node]
    lo = n.gpu_lo
    hi = lo + n.gpus
    total = 0.0
    for place in range(len(s.targets)):
        kind = s.targets[place]
        if kind.gpus == 0 or n.cpu < kind.cpu or not s.target_types[kind.label, n.type]:
            continue
        suited = 0
        usable = 0
        copies = 0
        for g in range(lo, hi):
            free = s.gpu_free[g]
            if free >= kind.milli:
                suited += 1
                usable += free
                copies += free // kind.milli
        if suited < kind.gpus:
            continue
        copies //= kind.gpus
        if kind.cpu > 0:
            copies = min(copies, n.cpu // kind.cpu)
        total += kind.share * (0.8 * (usable / (kind.gpus * kind.milli)) + 0.2 * copies)
    return total


@noinline
def least_harm(t: Any, job: int, node: int) -> float:
    """Score of the node by what a piece does to it, kept until the node changes; `memo_gpu` has the bits of the GPUs
    to take."""
    s = lend(t)
    fate = s.fate[job]
    n = s.nodes[node]
    row = fate.like % s.memo.shape[0]
    stamp = n.version * s.clock[0].likes + fate.like
    if s.memo_stamp[row, node] == stamp:
        return s.memo[row, node]
    before = _worth(s, node)
    n.cpu -= fate.cpu
    n.milli -= fate.gpus * fate.milli
    best = -inf
    chosen = 0
    if fate.gpus > 0 and fate.milli < 1000:
        for g in range(n.gpus):
            if s.gpu_free[n.gpu_lo + g] >= fate.milli and not _like_an_earlier(s, n.gpu_lo, g):
                s.gpu_free[n.gpu_lo + g] -= fate.milli
                score = _scored(s, _worth(s, node) - before)
                s.gpu_free[n.gpu_lo + g] += fate.milli
                if score > best:
                    best = score
                    chosen = 1 << g
    else:
        chosen = gpus_for(s, fate, node)
        for g in range(n.gpus):
            if (chosen >> g) & 1:
                s.gpu_free[n.gpu_lo + g] -= 1000
        best = _scored(s, _worth(s, node) - before)
        for g in range(n.gpus):
            if (chosen >> g) & 1:
                s.gpu_free[n.gpu_lo + g] += 1000
    n.cpu += fate.cpu
    n.milli += fate.gpus * fate.milli
    s.memo[row, node] = best
    s.memo_gpu[row, node] = chosen
    s.memo_stamp[row, node] = stamp
    return best


@kernel
def _like_an_earlier(s: Any, lo: int, g: int) -> bool:
    """Whether a GPU before it has as much free: then the score is the same, and the first is taken."""
    for other in range(lo, lo + g):
        if s.gpu_free[other] == s.gpu_free[lo + g]:
            return True
    return False


@kernel
def _worth(s: Any, node: int) -> float:
    """What a placement is to keep high."""
    if s.clock[0].placement == ROOM:
        return capacity_score(s, node)
    return -fragments(s, node)


@kernel
def _scored(s: Any, gain: float) -> float:
    """Score of a change of worth; FGD's is a whole number from 0 to 100."""
    if s.clock[0].placement == ROOM:
        return gain
    return 0.0 + int(100 / (1 + exp(-gain / 1000)))
