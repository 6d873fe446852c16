"""The heap of (key, job) records, compared with heapq."""

from __future__ import annotations

import heapq
from random import Random
from typing import Any

import numba
import numpy as np
import pytest

from kilowait.engine.kernels.heap import heapify, pop, push
from kilowait.engine.kernels.state import RANKED


@numba.njit
def call_push(heap: Any, size: int, key: float, job: int) -> None:
    push(heap, size, key, job)


@numba.njit
def call_pop(heap: Any, size: int) -> None:
    pop(heap, size)


@numba.njit
def call_heapify(heap: Any, size: int) -> None:
    heapify(heap, size)


def room(count: int) -> Any:
    return np.zeros(count, RANKED).view(np.recarray)


def drained(heap: Any, size: int) -> list[tuple[float, int]]:
    taken = []
    while size:
        taken.append((float(heap[0].key), int(heap[0].job)))
        call_pop(heap, size)
        size -= 1
    return taken


def entries(rng: Random, count: int) -> list[tuple[float, int]]:
    """Entries with few distinct keys and unsorted jobs."""
    return [(rng.choice([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf]), job) for job in rng.sample(range(99), count)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 31])
def test_pop_returns_entries_by_key_then_job(count: int) -> None:
    for seed in range(20):
        given = entries(Random(seed), count)
        heap = room(count + 1)
        for size, (key, job) in enumerate(given):
            call_push(heap, size, key, job)
        assert drained(heap, count) == sorted(given)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 31])
def test_heapify_orders_existing_entries(count: int) -> None:
    for seed in range(20):
        given = entries(Random(100 + seed), count)
        heap = room(count + 1)
        for at, (key, job) in enumerate(given):
            heap[at].key, heap[at].job = key, job
        call_heapify(heap, count)
        assert drained(heap, count) == sorted(given)


def test_mixed_pushes_and_pops_agree_with_heapq() -> None:
    rng = Random(5)
    heap, naive = room(64), []
    for job in range(400):
        if naive and (len(naive) == 60 or rng.random() < 0.45):
            assert (float(heap[0].key), int(heap[0].job)) == heapq.heappop(naive)
            call_pop(heap, len(naive) + 1)
        else:
            key = float(rng.randint(0, 5))
            call_push(heap, len(naive), key, job)
            heapq.heappush(naive, (key, job))
    assert drained(heap, len(naive)) == sorted(naive)
