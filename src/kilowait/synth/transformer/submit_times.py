"""Submission times of sampled jobs: jittered session starts, and generated gaps within sessions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.synth.transformer.calendar import Calendar

__all__ = ["JITTER_S", "submission_times"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

JITTER_S, JITTER_SHARE = 900.0, 0.25
"""Maximum jitter of a session, in seconds, and as a share of the time to the user's nearest other session."""


def submission_times(calendar: Calendar, rows: Ints, gap_s: Floats, rng: np.random.Generator) -> Floats:
    """Submission times for rows of the calendar, in log time.

    A session is shifted as a whole, including its split-off parts. Where the user's next session, or the next
    part of this one, would overlap, gaps within are scaled down.

    Args:
        calendar: of the log.
        rows: of the calendar, by user; sessions are complete.
        gap_s: seconds since the user's previous job, for jobs that are not the first of a session.
        rng: for the jitter of sessions.
    """
    start = calendar.start[rows]
    session = np.cumsum(start) - 1
    calendar_session = calendar.session[rows[start]]
    starts_run = ~calendar.goes_on[calendar_session] | (np.diff(calendar_session, prepend=-1) != 1)
    ends_run = np.append(starts_run[1:], True)
    run_index = np.cumsum(starts_run) - 1
    available_s = calendar.room_s[calendar_session]
    before_s = calendar.room_s[np.maximum(calendar_session[starts_run] - 1, 0)]
    max_shift_s = np.minimum(JITTER_S, JITTER_SHARE * np.minimum(available_s[ends_run], before_s))
    shift_s = np.round(rng.uniform(-1, 1, len(max_shift_s)) * max_shift_s)
    begin_s = calendar.session_s[calendar_session] + shift_s[run_index]
    cumulative_s = np.cumsum(np.where(start, 0.0, gap_s))
    since_s = cumulative_s - cumulative_s[start][session]
    length_s = np.maximum.reduceat(since_s, np.flatnonzero(start))
    available_s -= np.where(ends_run, 2 * JITTER_SHARE * np.minimum(available_s, JITTER_S / JITTER_SHARE), 0.0)
    scale = np.where(length_s > available_s, available_s / np.maximum(length_s, 1.0), 1.0)
    submit_s: Floats = begin_s[session] + np.floor(since_s * scale[session])
    return submit_s
