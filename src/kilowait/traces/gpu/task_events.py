"""Aggregation of task events (submit, schedule, end) into one record per task: submission, run time, end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.traces.gpu.csv import Flags, Floats

__all__ = ["END", "SCHEDULE", "SUBMIT", "UPDATE", "TaskIntervals", "task_intervals"]

SUBMIT, SCHEDULE, END, UPDATE = 0, 1, 2, 3
NEVER_S = 2.0**62 / 1e6
"""Times from here on mean "after the trace"."""


@dataclass(slots=True)
class TaskIntervals:
    """Columns with one value per task, in the order of the tasks' first events."""

    first: npt.NDArray[np.int64]
    """Row of the first event."""
    submit_s: Floats
    wait_s: Floats
    """Wait until the first start; NaN if the task was submitted before the files begin."""
    runtime_s: Floats
    """Total run time over all starts."""
    runs: npt.NDArray[np.int64]
    """Number of starts."""
    ended_s: Floats
    """Time of the last event."""
    last: npt.NDArray[np.int64]
    """Code of the last end event, -1 for none."""
    never: Flags
    """Whether the task never ran."""
    waiting: Flags
    """Whether the last event is a submission."""
    early: Flags
    """Whether the task was submitted before the files begin."""
    late: Flags
    """Whether the task was running when the files end."""
    begin_s: float
    end_s: float


def task_intervals(
    keys: Floats, time_s: Floats, kind: npt.NDArray[np.int64], code: npt.NDArray[np.int64], begin_s: float
) -> TaskIntervals:
    """Aggregate events by task; the columns of `keys` identify the task of each event.

    Time 0 means "before the files", which begin at `begin_s` in that case. A run lasts from a start to the next event
    that is not an update, or to the end of the files. An end without an earlier start belongs to a run since the
    beginning of the files.

    >>> kinds = np.array([SUBMIT, SCHEDULE, SUBMIT, END, SCHEDULE])
    >>> found = task_intervals(np.array([[1, 1, 2, 1, 2.0]]), np.array([1, 5, 6, 9, 20.0]), kinds, kinds, 600.0)
    >>> found.submit_s.tolist(), found.runtime_s.tolist(), found.wait_s.tolist(), found.late.tolist()
    ([1.0, 6.0], [4.0, 0.0], [4.0, 14.0], [False, True])
    """
    # Events "after the trace" did not happen.
    kind = np.where(time_s >= NEVER_S, UPDATE, kind)
    real = time_s < NEVER_S
    before = time_s == 0
    begin = float(time_s[real & ~before].min(initial=np.inf))
    if before.any() and begin >= begin_s:
        begin = begin_s
    end = float(time_s[real].max(initial=begin))
    first, owners = _owners(keys)
    count = len(first)

    time = np.clip(time_s, begin, end)
    ordered = np.flatnonzero(kind != UPDATE)
    ordered = ordered[np.lexsort((ordered, time_s[ordered], owners[ordered]))]
    owner, moment, event_kind = owners[ordered], time[ordered], kind[ordered]
    opens = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    closes = np.append(owner[1:] != owner[:-1], True)[-len(owner) :] if len(owner) else opens

    starts = event_kind == SCHEDULE
    until = np.where(closes, end, np.append(moment[1:], end)[: len(moment)])
    ran = np.where(starts, until - moment, 0.0)
    orphan = opens & (event_kind == END)
    ran = ran + np.where(orphan, moment - begin, 0.0)
    runtime = np.bincount(owner, ran, count).astype(np.float64)
    runs = np.bincount(owner, starts | orphan, count).astype(np.int64)

    submit = np.full(count, begin)
    submit[owner[opens]] = moment[opens]
    early = np.ones(count, np.bool_)
    early[owner[opens]] = before[ordered][opens] | (event_kind[opens] != SUBMIT)
    submit[early] = begin
    started = np.full(count, np.nan)
    started[owner[starts][::-1]] = moment[starts][::-1]  # Reversed, so that the first start wins.
    last = np.full(count, -1, np.int64)
    ended = np.full(count, np.nan)
    last[owner[event_kind == END]] = code[ordered][event_kind == END]
    ended[owner[closes]] = moment[closes]
    waiting = np.ones(count, np.bool_)
    waiting[owner[closes]] = event_kind[closes] == SUBMIT
    late = np.zeros(count, np.bool_)
    late[owner[closes]] = starts[closes]
    last[late | waiting] = -1
    return TaskIntervals(
        first, submit, np.where(early, np.nan, started - submit), runtime, runs, ended, last, runs == 0,
        waiting, early, late, begin, end,
    )  # fmt: skip


def _owners(keys: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row of each task's first event, and the task of every event."""
    whole = np.zeros(keys.shape[1], np.int64)
    for key in keys:
        found, place = np.unique(key, return_inverse=True)
        _, whole = np.unique(whole * len(found) + place, return_inverse=True)
    _, first = np.unique(whole, return_index=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.sort(first), rank[whole]
