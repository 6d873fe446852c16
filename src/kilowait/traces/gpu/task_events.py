"""Events of many tasks to one life each: submitted, running so long in all, ended how."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kilowait.traces.gpu.csv import Flags, Floats

__all__ = ["END", "SCHEDULE", "SUBMIT", "UPDATE", "TaskIntervals", "lives_of"]

SUBMIT, SCHEDULE, END, UPDATE = 0, 1, 2, 3
NEVER_S = 2.0**62 / 1e6
"""Times from here on are marks for "after the trace"."""


@dataclass(slots=True)
class TaskIntervals:
    """One value a task, in the order in which the tasks first appear."""

    first: npt.NDArray[np.int64]
    """Place of its first event."""
    submit_s: Floats
    wait_s: Floats
    """To its first start; NaN where it was there before the files."""
    runtime_s: Floats
    """All the time it ran, over however many starts."""
    runs: npt.NDArray[np.int64]
    ended_s: Floats
    """Its last event."""
    last: npt.NDArray[np.int64]
    """Code of its last end, -1 for none."""
    never: Flags
    """It did not run."""
    waiting: Flags
    """Its last event was a submission."""
    early: Flags
    """It was there before the files begin."""
    late: Flags
    """It was running when they end."""
    begin_s: float
    end_s: float


def lives_of(
    keys: Floats, time_s: Floats, kind: npt.NDArray[np.int64], code: npt.NDArray[np.int64], begin_s: float
) -> TaskIntervals:
    """Lives of the tasks whose numbers stand in the columns of `keys`.

    Time 0 stands for "before the files", which begin at `begin_s` then. A run goes from a start to the next event
    that is no update, or to the end of the files. An end without a start before it in the files is that of a run that
    goes back to their beginning.

    >>> kinds = np.array([SUBMIT, SCHEDULE, SUBMIT, END, SCHEDULE])
    >>> found = lives_of(np.array([[1, 1, 2, 1, 2.0]]), np.array([1, 5, 6, 9, 20.0]), kinds, kinds, 600.0)
    >>> found.submit_s.tolist(), found.runtime_s.tolist(), found.wait_s.tolist(), found.late.tolist()
    ([1.0, 6.0], [4.0, 0.0], [4.0, 14.0], [False, True])
    """
    # Marks for "after the trace" are events that did not happen.
    kind = np.where(time_s >= NEVER_S, UPDATE, kind)
    real = time_s < NEVER_S
    before = time_s == 0
    begin = float(time_s[real & ~before].min(initial=np.inf))
    if before.any() and begin >= begin_s:
        begin = begin_s
    end = float(time_s[real].max(initial=begin))
    first, who = _owners(keys)
    count = len(first)

    time = np.clip(time_s, begin, end)
    told = np.flatnonzero(kind != UPDATE)
    told = told[np.lexsort((told, time_s[told], who[told]))]
    owner, moment, what = who[told], time[told], kind[told]
    opens = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    closes = np.append(owner[1:] != owner[:-1], True)[-len(owner) :] if len(owner) else opens

    starts = what == SCHEDULE
    until = np.where(closes, end, np.append(moment[1:], end)[: len(moment)])
    ran = np.where(starts, until - moment, 0.0)
    orphan = opens & (what == END)
    ran = ran + np.where(orphan, moment - begin, 0.0)
    runtime = np.bincount(owner, ran, count).astype(np.float64)
    runs = np.bincount(owner, starts | orphan, count).astype(np.int64)

    submit = np.full(count, begin)
    submit[owner[opens]] = moment[opens]
    early = np.ones(count, np.bool_)
    early[owner[opens]] = before[told][opens] | (what[opens] != SUBMIT)
    submit[early] = begin
    started = np.full(count, np.nan)
    started[owner[starts][::-1]] = moment[starts][::-1]  # Of several the first is written last.
    last = np.full(count, -1, np.int64)
    ended = np.full(count, np.nan)
    last[owner[what == END]] = code[told][what == END]
    ended[owner[closes]] = moment[closes]
    waiting = np.ones(count, np.bool_)
    waiting[owner[closes]] = what[closes] == SUBMIT
    late = np.zeros(count, np.bool_)
    late[owner[closes]] = starts[closes]
    last[late | waiting] = -1
    return TaskIntervals(
        first, submit, np.where(early, np.nan, started - submit), runtime, runs, ended, last, runs == 0,
        waiting, early, late, begin, end,
    )  # fmt: skip


def _owners(keys: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each task first appears, and for every event whose it is."""
    whole = np.zeros(keys.shape[1], np.int64)
    for key in keys:
        found, place = np.unique(key, return_inverse=True)
        _, whole = np.unique(whole * len(found) + place, return_inverse=True)
    _, first = np.unique(whole, return_index=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.sort(first), rank[whole]
