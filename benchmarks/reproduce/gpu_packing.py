"""Sequential placement of pods on GPU nodes without departures: scores of the FGD simulator and our own.

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

__all__ = ["RULES", "Integers", "Kinds", "Nodes", "used_after_each"]

Integers = NDArray[np.int64]
Real = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])

RULES = ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD", "capacity")
RANDOM, DOT_PRODUCT, CLUSTERING, PACKING, BEST_FIT, FGD, CAPACITY = range(len(RULES))
MAX_CPU, MAX_GPU, MAX_GPUS = 128_000, 8_000, 8
"""Normalization of the scores: the largest node."""
COPIES = 0.2
"""Weight of the number of fitting pods in our capacity score; chosen on seeds 100 to 103."""


class Kinds(NamedTuple):
    """Kinds of pods, the most frequent first; one row each."""

    needs: Integers
    """(kinds, 4): thousandths of cores, GPUs, thousandths of each GPU, types of GPU allowed as bits."""
    targets: Real
    """Shares of FGD's targets: the first kinds, until they are 95 % of the pods."""
    shares: Real
    """Shares of all kinds."""


class Nodes(NamedTuple):
    """The nodes, in tie-breaking order."""

    cpu: Integers
    memory: Integers
    gpus: Integers
    type: Integers


class FreeNode(NamedTuple):
    """The free resources of a node."""

    cpu: int
    free: Integers
    """Thousandths of each GPU."""
    type: int


def compiled(function: F) -> F:
    """Compile with a cache; a kernel and its callees must be in one file, or the cache would become stale."""
    return cast(F, numba.njit(cache=True)(function))


def used_after_each(rule: int, pods: Integers, memory: Integers, kinds: Kinds, nodes: Nodes, seed: int = 0) -> Integers:
    """Thousandths of GPUs in use after each arrival; a pod that fits nowhere is dropped.

    Args:
        rule: index in RULES.
        pods: kinds of the pods in order of arrival.
        memory: memory of each of these pods, in the unit of the nodes.
        kinds: the kinds of pods.
        nodes: the cluster, empty.
        seed: seed of the choices of Random.

    >>> one_kind = Kinds(np.array([[1000, 1, 600, 1]]), np.ones(1), np.ones(1))
    >>> node = Nodes(*(np.array([size]) for size in (4000, 10, 2, 0)))
    >>> used_after_each(FGD, np.zeros(3, int), np.ones(3, int), one_kind, node).tolist()
    [600, 1200, 1200]
    """
    return _used_after_each(rule, pods, memory, kinds, nodes, stream(seed, "openb"))


@compiled
def _used_after_each(
    rule: int, pods: Integers, memory: Integers, kinds: Kinds, nodes: Nodes, rng: np.random.Generator
) -> Integers:
    cpu, free_memory = nodes.cpu.copy(), nodes.memory.copy()
    free = np.zeros((len(cpu), MAX_GPUS), np.int64)
    pods_by_gpus = np.zeros((len(cpu), MAX_GPUS + 1), np.int64)  # pods by number of GPUs; 0: pods that share a GPU
    # A score is valid until its node changes.
    version, value = np.zeros(len(cpu), np.int64), np.zeros(len(cpu))
    known = np.full((len(kinds.needs), len(cpu)), -1, np.int64)
    score = np.zeros((len(kinds.needs), len(cpu)))
    choice = np.zeros((len(kinds.needs), len(cpu)), np.int64)
    for node in range(len(cpu)):
        free[node, : nodes.gpus[node]] = 1000
        value[node] = _value(rule, FreeNode(cpu[node], free[node, : nodes.gpus[node]], nodes.type[node]), kinds)
    used = np.zeros(len(pods), np.int64)
    total = 0
    for arrival in range(len(pods)):
        kind = pods[arrival]
        core, count, gpu_milli, allowed = kinds.needs[kind]
        best, feasible = -1, 0
        for node in range(len(cpu)):
            if cpu[node] < core or free_memory[node] < memory[arrival]:
                continue
            free_gpus = free[node, : nodes.gpus[node]]
            if count > 0 and not ((allowed >> nodes.type[node]) & 1 and _fits(free_gpus, count, gpu_milli)):
                continue
            feasible += 1
            if rule == RANDOM:
                if rng.random() * feasible < 1.0:
                    best = node
                continue
            if known[kind, node] != version[node]:
                known[kind, node] = version[node]
                node_state = FreeNode(cpu[node], free_gpus, nodes.type[node])
                score[kind, node], choice[kind, node] = _score(
                    rule, kinds.needs[kind], node_state, pods_by_gpus[node], value[node], kinds
                )
            if best < 0 or score[kind, node] > score[kind, best]:
                best = node
        if best >= 0:
            cpu[best] -= core
            free_memory[best] -= memory[arrival]
            free_gpus = free[best, : nodes.gpus[best]]
            if rule == RANDOM:
                choice[kind, best] = _any_gpu(free_gpus, gpu_milli, rng)
            if count > 0:
                _take(free_gpus, count, gpu_milli, choice[kind, best])
                pods_by_gpus[best, count if gpu_milli == 1000 else 0] += 1
            total += count * gpu_milli
            version[best] += 1
            value[best] = _value(rule, FreeNode(cpu[best], free_gpus, nodes.type[best]), kinds)
        used[arrival] = total
    return used


@compiled
def _fits(free: Integers, count: int, gpu_milli: int) -> bool:
    for free_milli in free:
        if free_milli >= gpu_milli:
            count -= 1
            if count == 0:
                return True
    return False


@compiled
def _sum(free: Integers) -> int:
    total = 0
    for free_milli in free:
        total += free_milli
    return total


@compiled
def _take(free: Integers, count: int, gpu_milli: int, choice: int) -> None:
    if gpu_milli < 1000:
        free[choice] -= gpu_milli
        return
    for short_of_gpu in range(len(free)):
        if count > 0 and free[short_of_gpu] == 1000:
            free[short_of_gpu] = 0
            count -= 1


@compiled
def _any_gpu(free: Integers, gpu_milli: int, rng: np.random.Generator) -> int:
    chosen, fitting = -1, 0
    for short_of_gpu in range(len(free)):
        if free[short_of_gpu] >= gpu_milli:
            fitting += 1
            if rng.random() * fitting < 1.0:
                chosen = short_of_gpu
    return chosen


@compiled
def _score(
    rule: int, pod: Integers, node_state: FreeNode, pods_by_gpus: Integers, value: float, kinds: Kinds
) -> tuple[float, int]:
    """Score of the node for the pod, and the GPU of a pod that shares one."""
    core, count, gpu_milli, _ = pod
    free = node_state.free
    idle = _sum(free)
    shared = count == 1 and gpu_milli < 1000
    short_of_gpu = -1
    if shared:
        for other in range(len(free)):
            if free[other] >= gpu_milli and (short_of_gpu < 0 or free[other] < free[short_of_gpu]):
                short_of_gpu = other
    if rule == BEST_FIT:
        free_milli = (node_state.cpu - core) / MAX_CPU * 0.5 + (idle - count * gpu_milli) / MAX_GPU * 0.5
        return math.floor((1.0 - free_milli) * 100.0), short_of_gpu
    if rule == DOT_PRODUCT:
        product = (node_state.cpu / MAX_CPU) * (core / MAX_CPU)
        product += (idle / MAX_GPU) * (count * gpu_milli / MAX_GPU)
        return math.floor(100.0 * (1.0 - product / 2.0)), short_of_gpu
    if rule == CLUSTERING:
        return _clustering(count, 0 if shared else count, idle, pods_by_gpus), short_of_gpu
    if rule == PACKING:
        return _packing(count, gpu_milli, free), short_of_gpu
    best = -math.inf
    after = free.copy()
    for candidate in range(len(free) if shared else 1):
        if shared and free[candidate] < gpu_milli:
            continue
        if count > 0:
            _take(after, count, gpu_milli, candidate)
        gained = value - _value(rule, FreeNode(node_state.cpu - core, after, node_state.type), kinds)
        after[candidate] = free[candidate]
        if rule == FGD:
            gained = math.floor(1.0 / (1.0 + math.exp(-gained / 1000.0)) * 100.0)
        if gained > best:
            best, short_of_gpu = gained, candidate
    return best, short_of_gpu


@compiled
def _clustering(count: int, own: int, idle: int, pods_by_gpus: Integers) -> int:
    if count == 0:
        return 0
    sorts = np.sum(pods_by_gpus > 0)
    filled = 25 * (MAX_GPU - idle) // MAX_GPU
    if pods_by_gpus[own] > 0:
        return int(filled + (75 if sorts == 1 else 50))
    return int(filled + (25 if sorts == 0 else 0))


@compiled
def _packing(count: int, gpu_milli: int, free: Integers) -> int:
    if count == 0:
        return 0
    whole = np.sum(free == 1000)
    if whole == len(free):
        return int(max(33 - whole, whole))
    opened, fitting, needed = 0, 0, count
    for free_milli in np.sort(free):
        if needed > 0 and free_milli >= gpu_milli:
            needed -= 1
            opened += free_milli == 1000
            fitting += free_milli * 100 // 1000
    return int(max(50 - opened, 33) if opened > 0 else max(100 - fitting // 10, 50))


@compiled
def _value(rule: int, node_state: FreeNode, kinds: Kinds) -> float:
    """The value of a node that a placement minimizes."""
    if rule == FGD:
        return _fragmentation(node_state, kinds)
    if rule == CAPACITY:
        return -_capacity(node_state, kinds)
    return 0.0


@compiled
def _fragmentation(node_state: FreeNode, kinds: Kinds) -> float:
    """Fragmentation: thousandths of idle GPUs that a target pod cannot use, mean over the targets.

    Summed by what is missing, in FGD's order: whether a score is 49 or 50 depends on the last bit.
    """
    idle = _sum(node_state.free)
    short_of_both, short_of_gpu, cores, cpu_pod, cpu_pod_short, other_type = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for target in range(len(kinds.targets)):
        core, count, gpu_milli, allowed = kinds.needs[target]
        part = kinds.targets[target] * idle
        if count == 0:
            if node_state.cpu >= core:
                cpu_pod += part
            else:
                cpu_pod_short += part
            continue
        if (allowed >> node_state.type) & 1 == 0:
            other_type += part
            continue
        fit, small = 0, 0
        for free_milli in node_state.free:
            if free_milli >= gpu_milli:
                fit += 1
            else:
                small += free_milli
        if fit < count:
            if node_state.cpu >= core:
                short_of_gpu += part
            else:
                short_of_both += part
        elif node_state.cpu < core:
            cores += part
        else:
            short_of_gpu += kinds.targets[target] * small
    return short_of_both + short_of_gpu + cores + cpu_pod + cpu_pod_short + other_type


@compiled
def _capacity(node_state: FreeNode, kinds: Kinds) -> float:
    """Capacity: the number of pods that still fit on the node, mean over the kinds.

    FGD's measure: idle GPU capacity usable by a pod, in pods. A fifth of the weight counts the copies of the pod that
    really fit, as cores may run out first.
    """
    pods = 0.0
    for kind in range(len(kinds.needs)):
        core, count, gpu_milli, allowed = kinds.needs[kind]
        if count == 0 or node_state.cpu < core or (allowed >> node_state.type) & 1 == 0:
            continue
        fit, copies, within = 0, 0, 0
        for free_milli in node_state.free:
            if free_milli >= gpu_milli:
                fit += 1
                copies += free_milli // gpu_milli
                within += free_milli
        if fit < count:
            continue
        if count > 1:
            copies = fit // count
        if core > 0:
            copies = min(copies, node_state.cpu // core)
        pods += kinds.shares[kind] * ((1.0 - COPIES) * (within / (count * gpu_milli)) + COPIES * copies)
    return pods
