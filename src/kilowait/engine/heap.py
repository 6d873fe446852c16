"""A binary heap of RANKED records, smallest (key, job) on top. The caller counts the entries."""

from __future__ import annotations

from typing import Any

from kilowait.engine.compiling import kernel

__all__ = ["heapify", "pop", "push"]


@kernel
def push(heap: Any, size: int, key: float, job: int) -> None:
    """Add an entry to a heap of `size`."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if heap[above].key < key or (heap[above].key == key and heap[above].job < job):
            break
        heap[at].key = heap[above].key
        heap[at].job = heap[above].job
        at = above
    heap[at].key = key
    heap[at].job = job


@kernel
def sink(heap: Any, size: int, at: int, key: float, job: int) -> None:
    """Let an entry sink from `at` to where it belongs in a heap of `size`."""
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and (
            heap[right].key < heap[below].key or (heap[right].key == heap[below].key and heap[right].job < heap[below].job)
        ):
            below = right
        if key < heap[below].key or (key == heap[below].key and job < heap[below].job):
            break
        heap[at].key = heap[below].key
        heap[at].job = heap[below].job
        at = below
    heap[at].key = key
    heap[at].job = job


@kernel
def pop(heap: Any, size: int) -> None:
    """Remove the top of a heap of `size`; read it first."""
    sink(heap, size - 1, 0, heap[size - 1].key, heap[size - 1].job)


@kernel
def heapify(heap: Any, size: int) -> None:
    """Order the first `size` entries as a heap."""
    for at in range(size // 2 - 1, -1, -1):
        sink(heap, size, at, heap[at].key, heap[at].job)
