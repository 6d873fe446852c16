"""Submission times of sampled jobs: jittered session starts, and generated gaps within sessions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kilowait.synth.transformer.calendar import Calendar

__all__ = ["JITTER_S", "moments"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

JITTER_S, JITTER_SHARE = 900.0, 0.25
"""Maximum jitter of a session, in seconds, and as a share of the time to the user's nearest other session."""


def moments(calendar: Calendar, rows: Ints, gap_s: Floats, rng: np.random.Generator) -> Floats:
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
    piece = calendar.session[rows[start]]
    fresh = ~calendar.goes_on[piece] | (np.diff(piece, prepend=-1) != 1)
    ends = np.append(fresh[1:], True)
    whole = np.cumsum(fresh) - 1
    room_s = calendar.room_s[piece]
    before_s = calendar.room_s[np.maximum(piece[fresh] - 1, 0)]
    reach_s = np.minimum(JITTER_S, JITTER_SHARE * np.minimum(room_s[ends], before_s))
    moved_s = np.round(rng.uniform(-1, 1, len(reach_s)) * reach_s)
    begin_s = calendar.session_s[piece] + moved_s[whole]
    run = np.cumsum(np.where(start, 0.0, gap_s))
    since_s = run - run[start][session]
    lasts_s = np.maximum.reduceat(since_s, np.flatnonzero(start))
    room_s -= np.where(ends, 2 * JITTER_SHARE * np.minimum(room_s, JITTER_S / JITTER_SHARE), 0.0)
    squeeze = np.where(lasts_s > room_s, room_s / np.maximum(lasts_s, 1.0), 1.0)
    submit_s: Floats = begin_s[session] + np.floor(since_s * squeeze[session])
    return submit_s
