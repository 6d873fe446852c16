"""Rows for a Gantt chart, given out after the fact: a log counts nodes and does not say which.

Each group of nodes has its own rows. A segment gets one contiguous block where one is free (the smallest that
holds it), otherwise as few pieces as will do. The rows say how the jobs could lie on the machine, not how a real
scheduler laid them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kilowait.jobs import ExecutionLog

__all__ = ["GanttRows", "lanes", "outages"]

Ints = npt.NDArray[np.int64]
_SHIFT = 41
"""A block is one number, its length above its first row, so that sorting by it is sorting by both."""


@dataclass(frozen=True, eq=False)
class GanttRows:
    """Rectangles: which rows each segment lies on. The segments stay in the log's order."""

    segment: Ints
    """Row of the log, rising; a segment in several pieces comes several times."""
    first: Ints
    """Lowest row of the piece, from 0."""
    count: Ints
    """Rows of the piece."""
    group_rows: tuple[int, ...]
    """Rows of each group; the groups lie one above the other, the first at the bottom."""
    nodes: tuple[int, ...]
    """Nodes each group is known to have. Where a group has more rows, jobs share its nodes."""

    @property
    def rows(self) -> int:
        """In all groups."""
        return sum(self.group_rows)

    @property
    def shared(self) -> bool:
        """Whether rows are only lanes, because more jobs run at once than there are nodes."""
        return any(rows > size for rows, size in zip(self.group_rows, self.nodes, strict=True))


def lanes(log: ExecutionLog, nodes: Sequence[int] | None = None) -> GanttRows:
    """Rows for every segment of a log.

    `nodes` gives the size of each group; by default one group has all the nodes the log says the machine had, and
    several have as many as were busy at once. Groups in which more ran at once (shared nodes) get more rows.

    >>> from kilowait.jobs import JobTable
    >>> jobs = JobTable(job_id=[1, 2], submit_s=[0, 0], runtime_s=[20, 20], nodes=[3, 1])
    >>> log = ExecutionLog(
    ...     jobs,
    ...     np.array([0, 1]),
    ...     np.zeros(2),
    ...     np.full(2, 20.0),
    ...     np.zeros(2, np.int16),
    ...     np.zeros(2, np.int16),
    ...     np.ones(2, np.int8),
    ...     jobs["submit_s"],
    ...     np.ones(2, np.int8),
    ...     np.array([0.0]),
    ...     np.array([4]),
    ... )
    >>> given = lanes(log)
    >>> given.first.tolist(), given.count.tolist(), given.rows
    ([0, 3], [3, 1], 4)
    """
    used = log.jobs_table["nodes"][log.job]
    if nodes is None:
        whole = int(log.capacity_nodes.max()) if len(log.capacity_nodes) else 0
        nodes = (whole,) if len(log.groups) == 1 else (0,) * len(log.groups)
    parts, group_rows = [], []
    offset = 0
    for group in range(len(log.groups)):
        own = np.flatnonzero(log.group == group)
        own = own[np.argsort(log.start_s[own], kind="stable")]  # jobs whose nodes have to wake start late
        start, end, need = log.start_s[own], log.end_s[own], used[own]
        rows = max(int(nodes[group]), _most_at_once(start, end, need), int(need.max(initial=0)))
        piece, first, count = _given_out(start, end, need, rows)
        parts.append((own[piece], first + offset, count))
        group_rows.append(rows)
        offset += rows
    segment, first, count = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(segment, kind="stable")
    known = tuple(int(size) or rows for size, rows in zip(nodes, group_rows, strict=True))
    return GanttRows(segment[order], first[order], count[order], tuple(group_rows), known)


def outages(log: ExecutionLog) -> list[tuple[float, float, int]]:
    """From when to when how many nodes were out or reserved, seconds on the log's clock, while anything happened.

    Empty where there are several groups: the log has the size of the whole machine over time, not of its groups.
    """
    if len(log.groups) > 1 or not len(log) or not len(log.capacity_s):
        return []
    whole = int(log.capacity_nodes.max())
    first_s = min(float(log.jobs_table["submit_s"].min()), float(log.start_s.min()))
    edges = np.clip([*log.capacity_s, np.inf], first_s, float(log.end_s.max())).tolist()
    return [
        (from_s, to_s, whole - nodes)
        for (from_s, to_s), nodes in zip(pairwise(edges), log.capacity_nodes.tolist(), strict=True)
        if nodes < whole and from_s < to_s
    ]


def _most_at_once(start: npt.NDArray[np.float64], end: npt.NDArray[np.float64], need: Ints) -> int:
    """Nodes busy at the busiest time; what ends in an instant makes room for what starts in it."""
    if not len(start):
        return 0
    lasting = end > start
    time = np.concatenate((end[lasting], start[lasting]))
    change = np.concatenate((-need[lasting], need[lasting]))
    order = np.argsort(time, kind="stable")  # ends stand before starts
    return int(np.cumsum(change[order]).max(initial=0))


def _given_out(
    start: npt.NDArray[np.float64], end: npt.NDArray[np.float64], need: Ints, rows: int
) -> tuple[Ints, Ints, Ints]:
    """Pieces of segments that stand in the order of their starts, with never more rows needed than there are."""
    free = _Free(rows)
    held: list[list[tuple[int, int]]] = []
    lasting = end > start
    ending = np.argsort(end, kind="stable")
    ending = ending[lasting[ending]].tolist()
    starts, ends, needs, lasts = start.tolist(), end.tolist(), need.tolist(), lasting.tolist()
    leaver = 0
    for number, now in enumerate(starts):
        while leaver < len(ending) and ends[ending[leaver]] <= now:
            for first, count in held[ending[leaver]]:
                free.give_back(first, count)
            leaver += 1
        if lasts[number]:
            held.append(free.take(needs[number]))
        else:  # it is gone at once, whatever rows it is drawn on
            held.append([(0, needs[number])])
    piece = np.repeat(np.arange(len(held)), [len(pieces) for pieces in held])
    flat = np.array([part for pieces in held for part in pieces], np.int64).reshape(-1, 2)
    return piece, flat[:, 0], flat[:, 1]


class _Free:
    """Free rows as blocks that do not touch."""

    def __init__(self, rows: int) -> None:
        self.by_length: list[int] = []
        self.length_at: dict[int, int] = {}  # by first row
        self.first_before: dict[int, int] = {}  # by the row after the last
        if rows:
            self._add(0, rows)

    def take(self, need: int) -> list[tuple[int, int]]:
        """The smallest block that holds so many rows; or the largest ones, until there are enough."""
        pieces = []
        while need:
            place = bisect_left(self.by_length, need << _SHIFT)
            block = self.by_length[min(place, len(self.by_length) - 1)]
            first, length = block & ((1 << _SHIFT) - 1), block >> _SHIFT
            self._remove(first, length)
            count = min(need, length)
            if length > count:
                self._add(first + count, length - count)
            pieces.append((first, count))
            need -= count
        return pieces

    def give_back(self, first: int, count: int) -> None:
        """Join what was taken to its free neighbours."""
        after = self.length_at.get(first + count)
        if after is not None:
            self._remove(first + count, after)
            count += after
        before = self.first_before.get(first)
        if before is not None:
            length = self.length_at[before]
            self._remove(before, length)
            first, count = before, count + length
        self._add(first, count)

    def _add(self, first: int, length: int) -> None:
        insort(self.by_length, (length << _SHIFT) + first)
        self.length_at[first] = length
        self.first_before[first + length] = first

    def _remove(self, first: int, length: int) -> None:
        del self.by_length[bisect_left(self.by_length, (length << _SHIFT) + first)]
        del self.length_at[first]
        del self.first_before[first + length]
