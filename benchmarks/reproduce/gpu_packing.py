"""Placement of pods on GPU nodes, in sequence, without departures: scores of the FGD simulator and our own.

FGD: Weng et al., ATC'23, hkust-adsl/kubernetes-scheduler-simulator. Its scores are whole numbers from 0 to 100, and
among equals the first node wins, so that rounding matters: it makes the scores fill one node after another. A pod of
several GPUs takes the first free ones; one that shares a GPU takes the fullest that has room (Random: any; FGD and
ours: that of the best score).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from kilowait.rng import stream

__all__ = ["RULES", "Kinds", "Nodes", "Whole", "used_after_each"]

Whole = NDArray[np.int64]
Real = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])

RULES = ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD", "capacity")
RANDOM, DOT, CLUSTERING, PACKING, BEST, FGD, ROOM = range(len(RULES))
MOST_CPU, MOST_GPU, MOST_GPUS = 128_000, 8_000, 8
"""Normalization of the scores: the largest node."""
COPIES = 0.2
"""Weight of the number of fitting pods in our capacity score; chosen on seeds 100 to 103."""


class Kinds(NamedTuple):
    """Kinds of pods, the most frequent first; one row each."""

    needs: Whole
    """(kinds, 4): thousandths of cores, GPUs, thousandths of each GPU, types of GPU allowed as bits."""
    targets: Real
    """Shares of FGD's targets: the first kinds, until they are 95 % of the pods."""
    shares: Real
    """Shares of all kinds."""


class Nodes(NamedTuple):
    """The nodes, in tie-breaking order."""

    cpu: Whole
    memory: Whole
    gpus: Whole
    type: Whole


class Spot(NamedTuple):
    """The free resources of a node."""

    cpu: int
    free: Whole
    """Thousandths of each GPU."""
    type: int


def compiled(function: F) -> F:
    """Compile with a cache; a kernel and its callees must be in one file, or the cache would become stale."""
    return cast(F, numba.njit(cache=True)(function))


def used_after_each(
    rule: int, pods: Whole, memory: Whole, kinds: Kinds, nodes: Nodes, seed: int = 0
) -> Whole:
    """Thousandths of GPUs in use after each arrival; a pod that fits nowhere is dropped.

    Args:
        rule: place in RULES.
        pods: kinds of the pods in order of arrival.
        memory: of each of these pods, in the unit of the nodes'.
        kinds: what the pods may be.
        nodes: the cluster, empty.
        seed: of Random's choices.

    >>> one = Kinds(np.array([[1000, 1, 600, 1]]), np.ones(1), np.ones(1))
    >>> node = Nodes(*(np.array([size]) for size in (4000, 10, 2, 0)))
    >>> used_after_each(FGD, np.zeros(3, int), np.ones(3, int), one, node).tolist()
    [600, 1200, 1200]
    """
    return _used_after_each(rule, pods, memory, kinds, nodes, stream(seed, "openb"))


@compiled
def _used_after_each(
    rule: int, pods: Whole, memory: Whole, kinds: Kinds, nodes: Nodes, drawing: np.random.Generator
) -> Whole:
    cpu, free_memory = nodes.cpu.copy(), nodes.memory.copy()
    free = np.zeros((len(cpu), MOST_GPUS), np.int64)
    held = np.zeros((len(cpu), MOST_GPUS + 1), np.int64)  # pods by number of GPUs, 0: those that share
    # A score holds until its node changes.
    version, value = np.zeros(len(cpu), np.int64), np.zeros(len(cpu))
    known = np.full((len(kinds.needs), len(cpu)), -1, np.int64)
    score = np.zeros((len(kinds.needs), len(cpu)))
    choice = np.zeros((len(kinds.needs), len(cpu)), np.int64)
    for node in range(len(cpu)):
        free[node, : nodes.gpus[node]] = 1000
        value[node] = _value(rule, Spot(cpu[node], free[node, : nodes.gpus[node]], nodes.type[node]), kinds)
    used = np.zeros(len(pods), np.int64)
    total = 0
    for arrival in range(len(pods)):
        kind = pods[arrival]
        core, count, gpu_milli, allowed = kinds.needs[kind]
        best, feasible = -1, 0
        for node in range(len(cpu)):
            if cpu[node] < core or free_memory[node] < memory[arrival]:
                continue
            here = free[node, : nodes.gpus[node]]
            if count > 0 and not ((allowed >> nodes.type[node]) & 1 and _fits(here, count, gpu_milli)):
                continue
            feasible += 1
            if rule == RANDOM:
                if drawing.random() * feasible < 1.0:
                    best = node
                continue
            if known[kind, node] != version[node]:
                known[kind, node] = version[node]
                spot = Spot(cpu[node], here, nodes.type[node])
                score[kind, node], choice[kind, node] = _score(
                    rule, kinds.needs[kind], spot, held[node], value[node], kinds
                )
            if best < 0 or score[kind, node] > score[kind, best]:
                best = node
        if best >= 0:
            cpu[best] -= core
            free_memory[best] -= memory[arrival]
            here = free[best, : nodes.gpus[best]]
            if rule == RANDOM:
                choice[kind, best] = _any_gpu(here, gpu_milli, drawing)
            if count > 0:
                _take(here, count, gpu_milli, choice[kind, best])
                held[best, count if gpu_milli == 1000 else 0] += 1
            total += count * gpu_milli
            version[best] += 1
            value[best] = _value(rule, Spot(cpu[best], here, nodes.type[best]), kinds)
        used[arrival] = total
    return used


@compiled
def _fits(free: Whole, count: int, gpu_milli: int) -> bool:
    for left in free:
        if left >= gpu_milli:
            count -= 1
            if count == 0:
                return True
    return False


@compiled
def _sum(free: Whole) -> int:
    total = 0
    for left in free:
        total += left
    return total


@compiled
def _take(free: Whole, count: int, gpu_milli: int, choice: int) -> None:
    if gpu_milli < 1000:
        free[choice] -= gpu_milli
        return
    for gpu in range(len(free)):
        if count > 0 and free[gpu] == 1000:
            free[gpu] = 0
            count -= 1


@compiled
def _any_gpu(free: Whole, gpu_milli: int, drawing: np.random.Generator) -> int:
    chosen, room = -1, 0
    for gpu in range(len(free)):
        if free[gpu] >= gpu_milli:
            room += 1
            if drawing.random() * room < 1.0:
                chosen = gpu
    return chosen


@compiled
def _score(rule: int, pod: Whole, spot: Spot, held: Whole, value: float, kinds: Kinds) -> tuple[float, int]:
    """Score of the node for the pod, and the GPU of a pod that shares one."""
    core, count, gpu_milli, _ = pod
    free = spot.free
    idle = _sum(free)
    shared = count == 1 and gpu_milli < 1000
    gpu = -1
    if shared:
        for other in range(len(free)):
            if free[other] >= gpu_milli and (gpu < 0 or free[other] < free[gpu]):
                gpu = other
    if rule == BEST:
        left = (spot.cpu - core) / MOST_CPU * 0.5 + (idle - count * gpu_milli) / MOST_GPU * 0.5
        return math.floor((1.0 - left) * 100.0), gpu
    if rule == DOT:
        product = (spot.cpu / MOST_CPU) * (core / MOST_CPU)
        product += (idle / MOST_GPU) * (count * gpu_milli / MOST_GPU)
        return math.floor(100.0 * (1.0 - product / 2.0)), gpu
    if rule == CLUSTERING:
        return _clustering(count, 0 if shared else count, idle, held), gpu
    if rule == PACKING:
        return _packing(count, gpu_milli, free), gpu
    best = -math.inf
    after = free.copy()
    for candidate in range(len(free) if shared else 1):
        if shared and free[candidate] < gpu_milli:
            continue
        if count > 0:
            _take(after, count, gpu_milli, candidate)
        gained = value - _value(rule, Spot(spot.cpu - core, after, spot.type), kinds)
        after[candidate] = free[candidate]
        if rule == FGD:
            gained = math.floor(1.0 / (1.0 + math.exp(-gained / 1000.0)) * 100.0)
        if gained > best:
            best, gpu = gained, candidate
    return best, gpu


@compiled
def _clustering(count: int, own: int, idle: int, held: Whole) -> int:
    if count == 0:
        return 0
    sorts = np.sum(held > 0)
    filled = 25 * (MOST_GPU - idle) // MOST_GPU
    if held[own] > 0:
        return int(filled + (75 if sorts == 1 else 50))
    return int(filled + (25 if sorts == 0 else 0))


@compiled
def _packing(count: int, gpu_milli: int, free: Whole) -> int:
    if count == 0:
        return 0
    whole = np.sum(free == 1000)
    if whole == len(free):
        return int(max(33 - whole, whole))
    opened, room, needed = 0, 0, count
    for left in np.sort(free):
        if needed > 0 and left >= gpu_milli:
            needed -= 1
            opened += left == 1000
            room += left * 100 // 1000
    return int(max(50 - opened, 33) if opened > 0 else max(100 - room // 10, 50))


@compiled
def _value(rule: int, spot: Spot, kinds: Kinds) -> float:
    """The value of a node that a placement minimizes."""
    if rule == FGD:
        return _fragments(spot, kinds)
    if rule == ROOM:
        return -_room(spot, kinds)
    return 0.0


@compiled
def _fragments(spot: Spot, kinds: Kinds) -> float:
    """Fragmentation: thousandths of idle GPUs that a target pod cannot use, mean over the targets.

    Summed by what is missing, in FGD's order: whether a score is 49 or 50 depends on the last bit.
    """
    idle = _sum(spot.free)
    both, gpu, cores, cpu_pod, cpu_pod_short, other_type = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for target in range(len(kinds.targets)):
        core, count, gpu_milli, allowed = kinds.needs[target]
        part = kinds.targets[target] * idle
        if count == 0:
            if spot.cpu >= core:
                cpu_pod += part
            else:
                cpu_pod_short += part
            continue
        if (allowed >> spot.type) & 1 == 0:
            other_type += part
            continue
        fit, small = 0, 0
        for left in spot.free:
            if left >= gpu_milli:
                fit += 1
            else:
                small += left
        if fit < count:
            if spot.cpu >= core:
                gpu += part
            else:
                both += part
        elif spot.cpu < core:
            cores += part
        else:
            gpu += kinds.targets[target] * small
    return both + gpu + cores + cpu_pod + cpu_pod_short + other_type


@compiled
def _room(spot: Spot, kinds: Kinds) -> float:
    """Capacity: the number of pods that still fit on the node, mean over the kinds.

    By FGD's measure: what lies idle on GPUs that a pod could take, in pods. To a fifth by the copies of the pod that
    really fit, for which cores may run out first.
    """
    pods = 0.0
    for kind in range(len(kinds.needs)):
        core, count, gpu_milli, allowed = kinds.needs[kind]
        if count == 0 or spot.cpu < core or (allowed >> spot.type) & 1 == 0:
            continue
        fit, copies, within = 0, 0, 0
        for left in spot.free:
            if left >= gpu_milli:
                fit += 1
                copies += left // gpu_milli
                within += left
        if fit < count:
            continue
        if count > 1:
            copies = fit // count
        if core > 0:
            copies = min(copies, spot.cpu // core)
        pods += kinds.shares[kind] * ((1.0 - COPIES) * (within / (count * gpu_milli)) + COPIES * copies)
    return pods
