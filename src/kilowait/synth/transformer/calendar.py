"""Submission calendar of a log: sessions of each user, and a summary of each user's weeks.

A *session* is a run of jobs of one user with no more than `session_s` between them, cut where it lasts longer than
`LONGEST_S`. Sessions keep their user, their size and, but for some minutes, their beginning; the times within are
generated. In a log without users, accounts or else queues take their place. A *block* is one user's calendar week, a
day of a busy week, or some hours of a busy day. The calendar stores for each block the number of jobs and their mean
node-seconds (in octaves), the mean gap between them (in half octaves), and its *frequent jobs*: the most frequent job
shapes (account, queue, GPUs, nodes, request, and short or long run time), each with its share (in half octaves) and
mean run time (in quarter octaves). For the complete machine it stores the work of each day by job class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kilowait.files.array_file import StoredArrays
from kilowait.jobs.columns import MAX_TIME_S
from kilowait.synth.log_schema import DAY_S, WEEK_S, Bools, Columns, Floats, Ints, StoredRecord, stored

CONDITION_SIZES = {
    "user": 0,
    "hour": 24,
    "weekday": 7,
    "session_gap": 32,
    "remaining_jobs": 12,
    "block_jobs": 14,
    "work": 48,
    "interarrival": 24,
}
"""Conditions of a generated job and their numbers of values; the number of users depends on the log.

`session_gap`: 0 within a session, else the time since the user's previous session; `remaining_jobs`: jobs of the
session after this one; `block_jobs`: jobs of the block; `work`: mean node-seconds of a job of the block;
`interarrival`: geometric mean of the time between jobs of a session (0: none). `session_gap` and `interarrival` are in
half octaves, the others in octaves."""
LONGEST_S = 3600.0
"""Maximum length of a session, so that times within long sessions do not drift from the log's."""
BUSY_JOBS, BUSY_DAY_JOBS = 300, 100
"""A user's week with more jobs is split into one block per day, and a day with more jobs into several: one list of
frequent jobs cannot describe them."""
BLOCK_S = 4 * 3600.0
"""Length of a block of a busy day, seconds."""
REQUEST_CLASSES, SIZE_CLASSES = 4, 3
"""Number of job classes (by request, by size) whose daily work is stored, as waits depend on both."""
SHARE_CODES, LEVEL_CODES = 12, 128
"""Number of codes of the shares and run-time levels of frequent jobs; 0 is an empty slot."""
OCTAVES_PER_SHAPE = 2
"""Run times of one frequent job shape lie within this number of octaves."""


@dataclass(frozen=True)
class Calendar(StoredRecord):
    """Calendar of a log, one row per job, sorted by user and submission."""

    first: Bools = stored("flags", None, least=1)
    """Whether it is the user's first job."""
    start: Bools = stored("flags", "first.0")
    """Whether it is the first job of its session."""
    session: Ints = stored("whole", "first.0", minimum=0, maximum=2**31 - 1)
    """Number of the session."""
    block: Ints = stored("whole", "first.0", minimum=0, maximum=2**31 - 1)
    """Number of the block."""
    conditions: Ints = stored("whole", "first.0", len(CONDITION_SIZES), minimum=0, maximum=2**31 - 1)
    """One column for each of `CONDITION_SIZES`."""
    session_s: Floats = stored("floats", None, minimum=-MAX_TIME_S, maximum=MAX_TIME_S)
    """Start of each session, in log time."""
    room_s: Floats = stored("floats", "session_s.0", minimum=0, infinite=True)
    """Time from the start of each session to the user's next one."""
    goes_on: Bools = stored("flags", "session_s.0")
    """Whether a session continues the previous one, which was split."""
    week: Ints = stored("whole", None, minimum=0, maximum=2**31 - 1)
    """Week of each block, counted from the log's first."""
    frequent_jobs: Ints = stored("whole", "week.0", None, "copied", minimum=0, maximum=2**31 - 1)
    """Codes by block, slot of the frequent-jobs list, and copied column; the column's size where the slot is empty."""
    share: Ints = stored("whole", "week.0", "frequent_jobs.1", minimum=0, maximum=SHARE_CODES - 1)
    """Frequency by block and slot, in half octaves, from 1 on."""
    level: Ints = stored("whole", "week.0", "frequent_jobs.1", minimum=0, maximum=LEVEL_CODES - 1)
    """Geometric mean of run times by block and slot, in quarter octaves, from 1 on."""
    daily_work: Floats = stored("floats", None, 7, None, minimum=0, maximum=1e30, least=1)
    """Cumulative node-seconds by week, day and job class."""
    request_limits_s: Floats = stored("floats", None, minimum=0, ascending=True)
    """Class boundaries: requests that split the log's work into equal shares."""
    size_limits: Floats = stored("floats", None, minimum=0, ascending=True)
    """Class boundaries of sizes."""

    @property
    def kinds(self) -> int:
        """Number of job classes by request and size."""
        return (len(self.request_limits_s) + 1) * (len(self.size_limits) + 1)

    def kind(self, request_s: Floats, nodes: npt.NDArray[Any]) -> Ints:
        """The class of each job."""
        return _job_class(request_s, nodes, self.request_limits_s, self.size_limits)

    @property
    def user(self) -> Ints:
        """User number of each job."""
        return np.cumsum(self.first) - 1

    @property
    def day(self) -> Ints:
        """Weekday on which the session of each job began."""
        weekday: Ints = self.conditions[:, list(CONDITION_SIZES).index("weekday")]
        return weekday

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Plain arrays of small types."""
        return {
            name: values.astype(np.int32) if values.dtype == np.int64 else values
            for name, values in super().state().items()
        }

    @classmethod
    def restored(cls, state: StoredArrays, copied_sizes: tuple[int, ...], max_weeks: int) -> Calendar:
        """Restore a calendar from `state`.

        Args:
            state: the arrays of `state`.
            copied_sizes: number of codes of each copied column.
            max_weeks: maximum number of weeks, by the span of the log.
        """
        calendar = cls.read(state, copied=len(copied_sizes))
        first, start, session, block = calendar.first, calendar.start, calendar.session, calendar.block
        if not first[0] or (first & ~start).any() or not np.array_equal(session, np.cumsum(start) - 1):
            raise state.refuse("session", "does not number the sessions that first and start begin")
        if block[0] != 0 or not np.isin(np.diff(block), (0, 1)).all():
            raise state.refuse("block", "does not number blocks from 0 without gaps")
        highest = np.array([(size or len(first)) - 1 for size in CONDITION_SIZES.values()])
        weeks, sizes = len(calendar.daily_work), np.array(copied_sizes)
        used = (calendar.share > 0)[..., None] & (calendar.frequent_jobs >= sizes)
        copied = ", ".join(map(str, copied_sizes))
        for wrong, name, problem in (
            (len(calendar.session_s) != session[-1] + 1, "session_s", f"is not of {session[-1] + 1:,} sessions"),
            (len(calendar.week) != block[-1] + 1, "week", f"is not of {block[-1] + 1:,} blocks"),
            (
                (calendar.conditions > highest).any(),
                "conditions",
                f"exceeds the greatest codes, {', '.join(map(str, highest))}",
            ),
            (calendar.daily_work.shape[2] != calendar.kinds, "daily_work", f"is not of {calendar.kinds} job classes"),
            (weeks > max_weeks, "daily_work", f"has {weeks:,} weeks; the log has at most {max_weeks:,}"),
            ((calendar.week >= weeks).any(), "week", f"exceeds the last week, {weeks - 1:,}"),
            ((calendar.frequent_jobs > sizes).any(), "frequent_jobs", f"exceeds the sizes of the columns, {copied}"),
            (used.any(), "share", "marks slots without a frequent job as used"),
        ):
            if wrong:
                raise state.refuse(name, problem)
        return calendar


def by_user(rows: Columns) -> tuple[Ints, Ints]:
    """Rows sorted by user and submission; and their users, numbered from 0 without gaps."""
    known = next((rows[name] for name in ("user", "account", "queue") if name in rows), None)
    user = np.zeros(len(rows["submit_s"]), np.int64)
    if known is not None:
        user = np.unique(known, return_inverse=True)[1].astype(np.int64)
    order = np.argsort(user, kind="stable")
    return order, user[order]


def session_starts(submit_s: Floats, user: Ints, session_s: float, longest_s: float = LONGEST_S) -> tuple[Bools, Bools]:
    """Which jobs, sorted by user and submission, are a user's first, and which the first of a session.

    >>> submit_s = np.array([0.0, 60.0, 9000.0, 9010.0, 5.0])
    >>> first, start = session_starts(submit_s, np.array([0, 0, 0, 0, 1]), 1800.0)
    >>> first.tolist(), start.tolist()
    ([True, False, False, False, True], [True, False, True, False, True])
    """
    first = np.concatenate(([True], user[1:] != user[:-1]))
    start = first | (np.diff(submit_s, prepend=submit_s[0]) > session_s)
    begin_s = submit_s[start][np.cumsum(start) - 1]
    part = (submit_s - begin_s) // longest_s
    return first, start | (np.diff(part, prepend=0.0) > 0)


def calendar_of(
    rows: Columns,
    codes: Ints,
    copied: tuple[int, ...],
    sizes: tuple[int, ...],
    *,
    zero_s: float,
    session_s: float,
    frequent_jobs: int,
) -> Calendar:
    """The calendar of a log.

    Args:
        rows: the log, in order of submission.
        codes: of its jobs by user, one column for each generated column.
        copied: columns of the frequent job shapes.
        sizes: codes of each column.
        zero_s: Unix time of log time 0.
        session_s: the maximum time between jobs of a session, seconds.
        frequent_jobs: number of frequent job shapes stored per block.
    """
    order, user = by_user(rows)
    submit = rows["submit_s"][order]
    work = (rows["runtime_s"] * rows["nodes"])[order]
    first, start = session_starts(submit, user, session_s)
    user_gap_s = np.diff(submit, prepend=submit[0])
    session = np.cumsum(start) - 1
    begin_s = submit[start]
    room_s = np.append(np.diff(begin_s), np.inf)
    room_s[np.append(first[start][1:], True)] = np.inf
    goes_on = (~first & (user_gap_s <= session_s))[start]
    session_unix_s = begin_s[session] + zero_s
    week = (session_unix_s // WEEK_S).astype(np.int64)
    week -= week.min()
    block = _blocks(first, week, session_unix_s)
    block_jobs = np.bincount(block)
    left = np.bincount(session)[session] - (np.arange(len(user)) - np.flatnonzero(start)[session])
    weekday = (session_unix_s // DAY_S % 7).astype(np.int64)
    user_gap_s = np.where(first, np.inf, user_gap_s)
    conditions = np.stack(
        [
            user,
            (session_unix_s // 3600 % 24).astype(np.int64),
            weekday,
            np.where(
                start, 1 + octave_codes(user_gap_s / session_s, CONDITION_SIZES["session_gap"] - 1, per_octave=2), 0
            ),
            octave_codes(left, CONDITION_SIZES["remaining_jobs"]),
            octave_codes(block_jobs, CONDITION_SIZES["block_jobs"])[block],
            octave_codes(np.bincount(block, work) / block_jobs, CONDITION_SIZES["work"])[block],
            _interarrival(user_gap_s, start, block)[block],
        ],
        axis=1,
    )
    block_week = week[np.concatenate(([True], block[1:] != block[:-1]))]
    request = rows["estimate_s"][order] if "estimate_s" in rows else np.zeros(len(order))
    class_limits = (
        _class_limits(request, work, REQUEST_CLASSES),
        _class_limits(rows["nodes"][order] * 1.0, work, SIZE_CLASSES),
    )
    classes = (len(class_limits[0]) + 1) * (len(class_limits[1]) + 1)
    cell = (week * 7 + weekday) * classes + _job_class(request, rows["nodes"][order], *class_limits)
    daily = np.bincount(cell, work, 7 * classes * (int(week.max()) + 1)).reshape(-1, 7, classes)
    frequent = _frequent_jobs(block, codes, copied, sizes, rows["runtime_s"][order], frequent_jobs)
    return Calendar(
        first,
        start,
        session,
        block,
        conditions,
        begin_s,
        room_s,
        goes_on,
        block_week,
        *frequent,
        np.cumsum(daily, axis=1),
        *class_limits,
    )


def _blocks(first: Bools, week: Ints, unix_s: Floats) -> Ints:
    """Block number of each job: a block is a week, a day of a busy week, or some hours of a busy day."""
    new_block = first | (np.diff(week, prepend=week[0]) != 0)
    for busy_jobs, part_s in ((BUSY_JOBS, DAY_S), (BUSY_DAY_JOBS, BLOCK_S)):
        block = np.cumsum(new_block) - 1
        part = unix_s // part_s
        new_block = new_block | ((np.bincount(block)[block] > busy_jobs) & (np.diff(part, prepend=part[0]) != 0))
    return np.cumsum(new_block) - 1


def _class_limits(values: Floats, work: Floats, classes: int) -> Floats:
    """Values that split the work into `classes` about equal shares."""
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(work[order])
    shares = np.arange(1, classes) / classes * cumulative[-1]
    return np.unique(values[order][np.searchsorted(cumulative, shares)])


def _job_class(request_s: Floats, nodes: npt.NDArray[Any], request_limits_s: Floats, size_limits: Floats) -> Ints:
    request_class = np.searchsorted(request_limits_s, request_s) * (len(size_limits) + 1)
    job_class: Ints = request_class + np.searchsorted(size_limits, nodes)
    return job_class


def _interarrival(gap_s: Floats, start: Bools, block: Ints) -> Ints:
    """Mean gap within the sessions of each block in half octaves, from 1 on; 0 where there is none."""
    inside = np.bincount(block, ~start)
    total = np.bincount(block, np.where(start, 0.0, np.log(1.0 + np.where(start, 0.0, gap_s))))
    mean_s = np.exp(total / np.maximum(inside, 1.0))
    return np.where(inside > 0, 1 + octave_codes(mean_s, CONDITION_SIZES["interarrival"] - 1, per_octave=2), 0)


def octave_codes(values: npt.ArrayLike, count: int, *, per_octave: int = 1) -> Ints:
    """Codes in octaves, or fractions of them, from 1 on; the last one is open."""
    steps = np.floor(per_octave * np.log2(np.maximum(values, 1.0)))
    limited: Ints = np.minimum(steps, count - 1).astype(np.int64)
    return limited


def _frequent_jobs(
    block: Ints, codes: Ints, copied: tuple[int, ...], sizes: tuple[int, ...], runtime_s: Floats, slots: int
) -> tuple[Ints, Ints, Ints]:
    """The most frequent job shapes of each block, with their shares and run-time levels."""
    octaves = np.log2(np.maximum(runtime_s, 1.0))
    shapes, shape, jobs = np.unique(
        np.column_stack([block, codes[:, copied], (octaves // OCTAVES_PER_SHAPE).astype(np.int64)]),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    shape = shape.ravel()
    mean_runtime_s = 2.0 ** (np.bincount(shape, octaves) / jobs)
    shape_block = shapes[:, 0]
    order = np.lexsort((-jobs, shape_block))
    slot = np.arange(len(order)) - np.searchsorted(shape_block[order], shape_block[order])
    order, slot = order[slot < slots], slot[slot < slots]
    blocks = int(block[-1]) + 1
    frequent_jobs = np.tile(np.array([sizes[column] for column in copied]), (blocks, slots, 1))
    share, level = np.zeros((2, blocks, slots), np.int64)
    position = shape_block[order], slot
    frequent_jobs[position] = shapes[order, 1:-1]
    rarity = np.bincount(block)[shape_block[order]] / jobs[order]
    share[position] = 1 + octave_codes(rarity, SHARE_CODES - 1, per_octave=2)
    level[position] = 1 + octave_codes(mean_runtime_s[order], LEVEL_CODES - 1, per_octave=4)
    return frequent_jobs, share, level
