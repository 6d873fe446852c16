"""The part of a schedule that a Gantt chart shows: a page with millions of rectangles is too large to open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from kilowait.jobs import ExecutionLog

__all__ = ["drawn_jobs", "drawn_log", "user_names"]

Ints = npt.NDArray[np.int64]

USER_NAME_CHARACTERS = 500_000
"""Maximum length of all user names in a page; the other users, those with the least work, are shown by number."""


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
