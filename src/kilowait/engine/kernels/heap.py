"""A binary heap of RANKED records, smallest (key, job) on top. The caller counts the entries."""

from __future__ import annotations

from typing import Any

from kilowait.engine.kernels.jit import assume_nonnegative, kernel


@kernel
def push(heap: Any, size: int, key: float, job: int) -> None:
    """Add an entry to a heap of `size`."""
    at = assume_nonnegative(size)
    while at > 0:
        above = (at - 1) >> 1
        parent = heap[above]
        if parent.key < key or (parent.key == key and parent.job < job):
            break
        heap[at] = parent
        at = above
    entry = heap[at]
    entry.key = key
    entry.job = job


@kernel
def sink(heap: Any, size: int, at: int, key: float, job: int) -> None:
    """Move an entry down from `at` to its position in a heap of `size`."""
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and (
            heap[right].key < heap[below].key
            or (heap[right].key == heap[below].key and heap[right].job < heap[below].job)
        ):
            below = right
        if key < heap[below].key or (key == heap[below].key and job < heap[below].job):
            break
        heap[at] = heap[below]
        at = below
    entry = heap[at]
    entry.key = key
    entry.job = job


@kernel
def pop(heap: Any, size: int) -> None:
    """Remove the top of a heap of `size`; read it first.

    The gap moves down along the smaller children to the bottom, and the last entry moves up from there. The last entry
    is seldom small, so this needs fewer comparisons than moving it down from the top.
    """
    last = assume_nonnegative(size - 1)
    at = 0
    below = 1
    while below < last:
        right = below + 1
        if right < last and (
            heap[right].key < heap[below].key
            or (heap[right].key == heap[below].key and heap[right].job < heap[below].job)
        ):
            below = right
        heap[at] = heap[below]
        at = below
        below = assume_nonnegative(2 * at + 1)
    push(heap, at, heap[last].key, heap[last].job)


@kernel
def heapify(heap: Any, size: int) -> None:
    """Order the first `size` entries as a heap."""
    for at in range(size // 2 - 1, -1, -1):
        sink(heap, size, at, heap[at].key, heap[at].job)
