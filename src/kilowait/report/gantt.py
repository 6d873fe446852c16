"""Gantt charts: the part of a schedule that is drawn, and the rows of its jobs.

A page with millions of rectangles is too large to open. A log has the number of nodes of a job, but not which nodes.
Each node group has its own rows. A segment gets the smallest contiguous free block that holds it, otherwise as few
pieces as possible. The rows show a feasible allocation, not the one of a real scheduler.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kilowait.jobs import ExecutionLog

Ints = npt.NDArray[np.int64]
USER_NAME_CHARACTERS = 500_000
"""Maximum length of all user names in a page; the other users, those with the least work, are shown by number."""
_SHIFT = 41
"""A free block is encoded as one integer (length << _SHIFT) + first row, so that integers sort by length, then row."""


@dataclass(frozen=True, eq=False)
class GanttRows:
    """Rectangles of a Gantt chart: the rows of each segment, in the order of the log."""

    segment: Ints
    """Segment (row of the log), ascending; a segment in several pieces occurs several times."""
    first: Ints
    """Lowest row of the piece, from 0."""
    count: Ints
    """Rows of the piece."""
    group_rows: tuple[int, ...]
    """Rows of each node group; groups are stacked, the first at the bottom."""
    nodes: tuple[int, ...]
    """Known nodes of each group. Where a group has more rows, jobs share its nodes."""

    @property
    def rows(self) -> int:
        """Rows of all groups together."""
        return sum(self.group_rows)

    @property
    def shared(self) -> bool:
        """Whether rows do not correspond to nodes, because jobs share nodes."""
        return any(rows > size for rows, size in zip(self.group_rows, self.nodes, strict=True))


def assign_rows(log: ExecutionLog, nodes: Sequence[int] | None = None) -> GanttRows:
    """Assign rows to every segment of a log.

    `nodes` gives the size of each group. By default a single group has the cluster size of the log, and several groups
    have as many nodes as were busy at once. Groups with more nodes in use at once (shared nodes) get more rows.

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
    >>> gantt_rows = assign_rows(log)
    >>> gantt_rows.first.tolist(), gantt_rows.count.tolist(), gantt_rows.rows
    ([0, 3], [3, 1], 4)
    """
    nodes_used = log.size[log.job]
    if nodes is None:
        capacity = int(log.capacity.max()) if len(log.capacity) else 0
        nodes = (capacity,) if len(log.groups) == 1 else (0,) * len(log.groups)
    parts, group_rows = [], []
    offset = 0
    for group in range(len(log.groups)):
        segments = np.flatnonzero(log.group == group)
        segments = segments[
            np.argsort(log.start_s[segments], kind="stable")
        ]  # logs are in decision order; jobs on sleeping nodes start later
        start, end, need = log.start_s[segments], log.end_s[segments], nodes_used[segments]
        rows = max(int(nodes[group]), _max_busy_nodes(start, end, need), int(need.max(initial=0)))
        piece, first, count = _allocate_rows(start, end, need, rows)
        parts.append((segments[piece], first + offset, count))
        group_rows.append(rows)
        offset += rows
    segment, first, count = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(segment, kind="stable")
    group_nodes = tuple(int(size) or rows for size, rows in zip(nodes, group_rows, strict=True))
    return GanttRows(segment[order], first[order], count[order], tuple(group_rows), group_nodes)


def outages(log: ExecutionLog) -> list[tuple[float, float, int]]:
    """Outages within the time span of the log: start and end (seconds of log time) and nodes unavailable or reserved.

    Empty for several node groups: the log has the capacity of the whole cluster over time, not of each group.
    """
    if len(log.groups) > 1 or not len(log) or not len(log.capacity_s):
        return []
    capacity = int(log.capacity.max())
    first_s = min(float(log.jobs_table["submit_s"].min()), float(log.start_s.min()))
    edges = np.clip([*log.capacity_s, np.inf], first_s, float(log.end_s.max())).tolist()
    return [
        (from_s, to_s, capacity - nodes)
        for (from_s, to_s), nodes in zip(pairwise(edges), log.capacity.tolist(), strict=True)
        if nodes < capacity and from_s < to_s
    ]


def _max_busy_nodes(start: npt.NDArray[np.float64], end: npt.NDArray[np.float64], need: Ints) -> int:
    """Maximum number of nodes busy at once; segments that end at an instant free nodes before others start."""
    if not len(start):
        return 0
    has_length = end > start
    time = np.concatenate((end[has_length], start[has_length]))
    change = np.concatenate((-need[has_length], need[has_length]))
    order = np.argsort(time, kind="stable")  # stable: ends come before starts
    return int(np.cumsum(change[order]).max(initial=0))


def _allocate_rows(
    start: npt.NDArray[np.float64], end: npt.NDArray[np.float64], need: Ints, rows: int
) -> tuple[Ints, Ints, Ints]:
    """Allocate rows to segments sorted by start: for each piece its segment, first row and number of rows."""
    free = _FreeRows(rows)
    allocated: list[list[tuple[int, int]]] = []
    has_length = end > start
    ending = np.argsort(end, kind="stable")
    ending = ending[has_length[ending]].tolist()
    starts, ends, needs, has_length_list = start.tolist(), end.tolist(), need.tolist(), has_length.tolist()
    next_end = 0
    for number, start_time in enumerate(starts):
        while next_end < len(ending) and ends[ending[next_end]] <= start_time:
            for first, count in allocated[ending[next_end]]:
                free.release(first, count)
            next_end += 1
        if has_length_list[number]:
            allocated.append(free.allocate(needs[number]))
        else:  # zero length: occupies no rows, any will do
            allocated.append([(0, needs[number])])
    piece = np.repeat(np.arange(len(allocated)), [len(pieces) for pieces in allocated])
    flat = np.array([part for pieces in allocated for part in pieces], np.int64).reshape(-1, 2)
    return piece, flat[:, 0], flat[:, 1]


class _FreeRows:
    """The free rows as maximal contiguous blocks."""

    def __init__(self, rows: int) -> None:
        self.by_length: list[int] = []
        self.length_at: dict[int, int] = {}  # by first row
        self.first_before: dict[int, int] = {}  # by the row after the last
        if rows:
            self._add(0, rows)

    def allocate(self, need: int) -> list[tuple[int, int]]:
        """Allocate `need` rows: from the smallest block that holds them, else from the largest blocks."""
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

    def release(self, first: int, count: int) -> None:
        """Free rows and merge them with adjacent free blocks."""
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


# -- the part that is drawn ----------------------------------------------------------------------------


def drawn_jobs(log: ExecutionLog, max_segments: int) -> Ints | None:
    """Rows of the job table that are drawn, ascending; None: all.

    A log with more segments is cut to jobs that started one after another: of all such parts with at most
    `max_segments` segments, the one with the largest sum of waits.
    """
    if len(log) <= max_segments:
        return None
    records = log.jobs()
    started = np.flatnonzero(~np.isnan(records["start_s"]))
    started = started[np.argsort(records["start_s"][started], kind="stable")]
    segments = np.append(0, np.cumsum(np.bincount(log.job, minlength=len(log.jobs_table))[started]))
    waits = np.append(0.0, np.cumsum(records["wait_s"][started]))
    first = np.arange(len(started))
    past = np.searchsorted(segments, segments[:-1] + max_segments, side="right") - 1
    best = int(np.argmax(waits[past] - waits[first]))
    return np.sort(started[best : max(int(past[best]), best + 1)])


def drawn_log(log: ExecutionLog, max_segments: int) -> ExecutionLog:
    """The log of the drawn jobs alone; the log itself if all are drawn."""
    jobs = drawn_jobs(log, max_segments)
    if jobs is None:
        return log
    new_row = np.full(len(log.jobs_table), -1, np.int64)
    new_row[jobs] = np.arange(len(jobs))
    kept = np.flatnonzero(new_row[log.job] >= 0)
    pieces = log.pieces
    if pieces is not None:
        new_segment = np.full(len(log), -1, np.int64)
        new_segment[kept] = np.arange(len(kept))
        rows = np.flatnonzero(new_segment[pieces.segment] >= 0)
        per_piece = {name: getattr(pieces, name)[rows] for name in ("node", "gpus", "gpu_milli", "count")}
        pieces = replace(
            pieces,
            segment=new_segment[pieces.segment[rows]],
            work_s=pieces.work_s[kept],
            lost_s=pieces.lost_s[kept],
            **per_piece,
        )
    per_segment = {name: getattr(log, name)[kept] for name in ("start_s", "end_s", "group", "level", "outcome")}
    return replace(
        log,
        jobs_table=log.jobs_table[jobs],
        job=new_row[log.job[kept]],
        eligible_s=log.eligible_s[jobs],
        job_outcome=log.job_outcome[jobs],
        states=None,
        pieces=pieces,
        **per_segment,
    )


def user_names(names: Sequence[str], users: Sequence[int]) -> Sequence[str] | dict[int, str]:
    """The names by code; of too many names, those of the first users alone."""
    if sum(map(len, names)) <= USER_NAME_CHARACTERS:
        return list(names)
    shown: dict[int, str] = {}
    left = USER_NAME_CHARACTERS
    for code in users:
        left -= len(names[code]) if code >= 0 else 0
        if left < 0:
            break
        if code >= 0:
            shown[code] = names[code]
    return shown
